"""Kernels with a fault in their source: the package of the kernels, copied, edited and imported under another name.

The copy's files name each other by absolute imports, which are rewritten to the copy's name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import conformance.kernels
from conformance.kernels import catalogue
from conformance.kernels.kernel import Kernel
from tests.planted.faults import Fault

SOURCE = Path(conformance.kernels.__file__).parent


class NotPlantable(Exception):
    """The text that a fault replaces does not occur in the source as often as the table says."""


def edited(fault: Fault) -> dict[str, str]:
    """The changed files of ``fault`` by name. Raises NotPlantable."""
    texts: dict[str, str] = {}
    for edit in fault.edits if isinstance(fault.edits, tuple) else (fault.edits,):
        text = texts.get(edit.file) or (SOURCE / edit.file).read_text()
        if text.count(edit.old) != edit.count:
            raise NotPlantable(
                f"{fault.name}: {edit.file} holds {edit.old!r} {text.count(edit.old)} times, the table says "
                f"{edit.count}: the kernel's source has changed, bring the table up to date"
            )
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts


@functools.cache
def _module(kernel: str) -> str:
    """The module of the catalogue that has ``kernel``."""
    package = conformance.kernels.__name__
    modules = {module: importlib.import_module(f"{package}.{module}") for module in catalogue.ORDER}
    return next(name for name, module in modules.items() if any(each.name == kernel for each in module.KERNELS))


@contextlib.contextmanager
def planted(fault: Fault) -> Iterator[Kernel]:
    """The fault's kernel with the fault in it. The copy is a package of its own; nothing outside it changes."""
    texts, name = edited(fault), f"planted_{fault.name}"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SOURCE, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (Path(folder) / name).rglob("*.py"):
            text = texts.get(path.relative_to(Path(folder) / name).as_posix()) or path.read_text()
            path.write_text(text.replace(conformance.kernels.__name__, name))
        sys.path.insert(0, folder)
        try:
            module = importlib.import_module(f"{name}.{_module(fault.case.kernel)}")
            yield next(kernel for kernel in module.KERNELS if kernel.name == fault.case.kernel)
        finally:
            sys.path.remove(folder)
            for module in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
                del sys.modules[module]
