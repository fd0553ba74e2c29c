"""Kernels with a fault in their source: the package of the kernels, edited and imported under another name.

The files name each other by absolute imports, which are rewritten to the other name. Modules that import no edited one
are shared with the package itself.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.abc
import pkgutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

import conformance.kernels
from conformance.kernels.kernel import Kernel
from tests.planted.faults import Fault

SOURCE = Path(conformance.kernels.__file__).parent


class NotPlantable(Exception):
    """The text that a fault replaces does not occur in the source as often as the table says."""


def _lines_of(text: str, functions: str) -> tuple[int, int]:
    """Returns where in ``text`` the functions lie from the first to the last of ``functions``, such as "a,b"; all of it
    for none."""
    if not functions:
        return 0, len(text)
    first, last = functions.split(",")[0], functions.split(",")[-1]
    start = text.index(f"def {first}(")
    end = text.find("\n\n\n", text.index(f"def {last}("))
    return start, len(text) if end < 0 else end


def edited(fault: Fault) -> dict[str, str]:
    """The changed files of ``fault`` by name. Raises NotPlantable."""
    texts: dict[str, str] = {}
    for edit in fault.edits if isinstance(fault.edits, tuple) else (fault.edits,):
        file, _, functions = edit.file.partition("::")
        text = texts.get(file) or (SOURCE / file).read_text()
        start, end = _lines_of(text, functions)
        part = text[start:end]
        if part.count(edit.old) != edit.count:
            raise NotPlantable(
                f"{fault.name}: {edit.file} holds {edit.old!r} {part.count(edit.old)} times, the table says "
                f"{edit.count}: the kernel's source has changed, bring the table up to date"
            )
        texts[file] = text[:start] + part.replace(edit.old, edit.new) + text[end:]
    return texts


@functools.cache
def _module(kernel: str) -> str:
    """The module of the catalogue that has ``kernel``."""
    package = conformance.kernels
    names = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg]
    held = {name: getattr(importlib.import_module(f"{package.__name__}.{name}"), "KERNELS", ()) for name in names}
    return next(name for name, kernels in held.items() if any(each.name == kernel for each in kernels))


@functools.cache
def _imports() -> dict[str, set[str]]:
    """Returns the other modules that each module of the kernels imports; names such as "device.tiles"."""
    prefix, imports = f"{conformance.kernels.__name__}.", {}
    for file in SOURCE.rglob("*.py"):
        named = set()
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module:
                named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
        module = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        imports[module] = {name.removeprefix(prefix) for name in named if name.startswith(prefix)}
    return {**imports, "catalogue": imports.keys() - {"catalogue"}}  # it finds them in the folder


def _changed(files: Iterable[str]) -> set[str]:
    """Returns the modules of ``files`` and all that import them, directly or not."""
    changed: set[str] = set()
    more = {".".join(Path(file).relative_to(SOURCE).with_suffix("").parts) for file in files}
    while more - changed:
        changed |= more
        more = {module for module, names in _imports().items() if names & changed}
    return changed


class _Copy(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports the modules of the kernels into the package ``name``: each file as it is, but for those in ``edited``."""

    def __init__(self, name: str, edited: dict[str, str]) -> None:
        self.name, self.edited = name, edited

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if not fullname.startswith(f"{self.name}."):
            return None
        place = SOURCE.joinpath(*fullname.split(".")[1:])
        file = str(place / "__init__.py" if place.is_dir() else place.with_suffix(".py"))
        places = [str(place)] if place.is_dir() else None
        return spec_from_file_location(
            fullname, self.edited.get(file, file), loader=self, submodule_search_locations=places
        )

    def get_filename(self, fullname: str) -> str:
        return str(sys.modules[fullname].__file__)

    def get_data(self, path: str) -> bytes:
        return Path(path).read_bytes().replace(conformance.kernels.__name__.encode(), self.name.encode())


def install(name: str, edited: dict[str, str]) -> None:
    """Lets this process import the modules of the package ``name``, which calls it. Loaded modules that no edit changes
    are those of the package itself."""
    sys.meta_path.insert(0, _Copy(name, edited))
    changed = _changed(edited)
    for module in _imports().keys() - changed:
        original = sys.modules.get(f"{conformance.kernels.__name__}.{module}")
        if original is not None and not hasattr(original, "__path__"):
            sys.modules[f"{name}.{module}"] = original


@contextlib.contextmanager
def planted(fault: Fault) -> Iterator[Kernel]:
    """The fault's kernel with the fault in it. The other package is in a folder of ``sys.path``, where processes that
    compile find it; nothing outside it changes."""
    name, files = f"planted_{fault.name}", {}
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / name
        package.mkdir()
        for number, (file, text) in enumerate(edited(fault).items()):
            place = package / f"{number}_{Path(file).name}"
            place.write_text(text)
            files[str(SOURCE / file)] = str(place)
        lines = f"from {__name__} import install", f"__path__ = [{str(SOURCE)!r}]", f"install(__name__, {files!r})"
        (package / "__init__.py").write_text("\n".join(lines))
        sys.path.insert(0, folder)
        try:
            module = importlib.import_module(f"{name}.{_module(fault.case.kernel)}")
            yield next(kernel for kernel in module.KERNELS if kernel.name == fault.case.kernel)
        finally:
            sys.path.remove(folder)
            sys.meta_path[:] = [finder for finder in sys.meta_path if getattr(finder, "name", "") != name]
            for module in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
                del sys.modules[module]
