"""Reads the config tables of the installed torch's heuristics. For a process of its own or of the compile pool: while
it reads, other modules are imported.

Torch registers AMD's heuristics only where ``torch.version.hip`` is set when they are imported, and NVIDIA's where it
is not. So they are imported once for NVIDIA and the vendors that both have, and once for each architecture of AMD.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

#: Where torch has its heuristics, the newest place first; of the second, later releases have a shim only.
PACKAGES = ("torch._inductor.heuristics.template", "torch._inductor.template_heuristics")
#: What the names of all their modules begin with.
HEURISTICS = ("torch._inductor.heuristics", PACKAGES[1])
#: Device -> the class of its heuristics, whose instances hold the tables as lists.
CLASSES = {
    "cuda": "CUDAConfigHeuristic",
    "cpu": "CPUConfigHeuristic",
    "xpu": "XPUConfigHeuristic",
    "mtia": "MTIAConfigHeuristic",
    "any": "BaseConfigHeuristic",
}
ROCM_CLASS = "ROCmConfigHeuristic"
#: The name of AMD's device in what is read, before its architecture, and in torch's registry.
ROCM, ROCM_DEVICE = "rocm", "cuda"
#: The first column of a table whose rows are found by a key, such as a dtype and a head dim.
KEY = "key"
#: Depths of a tile for which the default of ``kpack`` is asked.
DEPTHS = (16, 32, 64, 128, 256)

#: A table as JSON has it: the names of its columns, and its rows.
Table = dict[str, list[Any]]


class Unreadable(Exception):
    """A table that has a form which is not known here."""


def read_tables(archs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the tables of each device: "cuda", "cpu", "xpu", "mtia", "any" (the heuristics without a device) and
    "rocm:<arch>" for each of AMD's ``archs``.

    A device has ``tables``, ``settings`` (numbers that decide how rows are used) and ``templates``. The last say which
    tables a template's class has in place of the device's, by template and, if there is one, operation. ``missing`` has
    a sentence for each thing that this torch lacks, ``unreadable`` one for each that could not be read.
    """
    devices = {}
    with _hip(None):
        for device, class_name in CLASSES.items():
            devices[device] = _contained(class_name, None if device == "any" else device)
    for arch in archs:
        with _hip("0.0"), _amd_device(arch):
            devices[f"{ROCM}:{arch}"] = _contained(ROCM_CLASS, ROCM_DEVICE)
    return devices


def read_in_child(archs: Sequence[str], target: Any) -> dict[str, dict[str, Any]]:
    """:func:`read_tables` as a task of the compile pool; ``target`` is not used."""
    return read_tables(archs)


@contextlib.contextmanager
def _hip(version: str | None) -> Iterator[None]:
    """Torch's heuristics are those of a torch for this version of HIP; None: for CUDA. Afterwards they are what they
    were, so that code which the process generates later is for the vendor that it was imported for."""
    import torch

    if torch.version.hip == version:  # what is imported is meant
        yield
        return
    before = _taken_out()
    try:
        with mock.patch.object(torch.version, "hip", version):
            yield
    finally:
        _taken_out()
        sys.modules.update(before)
        for name, module in before.items():
            parent, _, child = name.rpartition(".")
            setattr(sys.modules[parent], child, module)


def _taken_out() -> dict[str, ModuleType]:
    """The imported modules of torch's heuristics by name, which the next import of them imports again."""
    return {name: sys.modules.pop(name) for name in [*sys.modules] if name.startswith(HEURISTICS)}


@contextlib.contextmanager
def _amd_device(arch: str) -> Iterator[None]:
    """Torch and triton take the first device for one of AMD's with the architecture ``arch``."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    from conformance.execution.compile.compile_worker import StubDriver

    utils = importlib.import_module("torch._inductor.utils")
    utils.get_backend_num_stages.cache_clear()
    facts = SimpleNamespace(gcnArchName=arch)
    with (
        mock.patch.object(torch.cuda, "get_device_properties", return_value=facts),
        mock.patch.dict(vars(driver)),
    ):
        driver.set_active(StubDriver(GPUTarget("hip", arch, 64), 0))
        yield
    utils.get_backend_num_stages.cache_clear()


def _contained(class_name: str, device: str | None) -> dict[str, Any]:
    """:func:`read_device` of the installed torch; what it raises makes the whole device unreadable."""
    try:
        module = heuristics()
        if not hasattr(module, class_name):
            return {"missing": {"tables": f"{module.__name__} has no {class_name}"}}
        utils = importlib.import_module("torch._inductor.utils")
        kpack = getattr(utils, "get_default_kpack", None) if class_name == ROCM_CLASS else None
        more = {f"kpack of block_k {depth}": int(kpack(depth)) for depth in DEPTHS} if kpack else {}
        return read_device(getattr(module, class_name), registry(), device, more)
    except Exception as error:  # whatever another torch raises
        return {"unreadable": {"tables": f"{type(error).__name__}: {error}"}}


def heuristics() -> ModuleType:
    """Returns the module of torch that has the classes of :data:`CLASSES`. Raises ImportError if there is none."""
    for package in PACKAGES:
        with contextlib.suppress(ModuleNotFoundError):
            whole = importlib.import_module(package)
            return importlib.import_module(f"{package}.triton") if hasattr(whole, "__path__") else whole
    raise ImportError(f"torch has none of {', '.join(PACKAGES)}")


def registry() -> Mapping[tuple[str | None, ...], Any] | None:
    """Torch's classes by (template, device, operation); None for a torch that has no such registry."""
    for package in PACKAGES:
        with contextlib.suppress(ModuleNotFoundError):
            entries: Mapping[tuple[str | None, ...], Any] = importlib.import_module(
                f"{package}.registry"
            )._TEMPLATE_HEURISTIC_REGISTRY
            return entries
    return None


def read_device(
    heuristic: type, entries: Mapping[tuple[str | None, ...], Any] | None, device: str | None, more: Mapping[str, int]
) -> dict[str, Any]:
    """The tables of the class ``heuristic`` and of the ``entries`` of the registry for ``device``, as
    :func:`read_tables` describes them; ``more`` are settings besides."""
    unreadable: dict[str, str] = {}
    usual = vars(heuristic())
    tables, settings = _tables_of(usual, heuristic.__name__, unreadable)
    templates: dict[str, dict[str, Any]] = {}
    for key, entry in (entries or {}).items():
        if device not in key[1:2]:
            continue
        name = "/".join(part for part in (key[0], *key[2:]) if part)
        templates[name] = {}
        if not isinstance(entry, type) or not issubclass(entry, heuristic):
            continue  # it has no tables: libraries and divided products, which no table lists
        try:
            own = {key: value for key, value in vars(entry()).items() if key not in usual or usual[key] != value}
        except Exception as error:  # whatever a class raises when it is made
            unreadable[name] = f"{type(error).__name__}: {error}"
            continue
        own_tables, templates[name] = _tables_of(own, name, unreadable)
        for attribute, table in own_tables.items():
            same = next((other for other, listed in tables.items() if listed == table), None)
            templates[name][attribute] = same or f"{name}.{attribute}"
            if same is None:
                tables[f"{name}.{attribute}"] = table
    missing = {} if entries is not None else {"templates": "this torch has no registry of template heuristics"}
    return {
        "tables": tables,
        "settings": {**settings, **more},
        "templates": templates,
        "missing": missing,
        "unreadable": unreadable,
    }


def _tables_of(
    attributes: Mapping[str, Any], name: str, unreadable: dict[str, str]
) -> tuple[dict[str, Table], dict[str, Any]]:
    """Returns the lists and mappings of configs among the ``attributes`` of the class ``name``, and the numbers."""
    tables, settings = {}, {}
    for attribute, value in attributes.items():
        if isinstance(value, (bool, int)):
            settings[attribute] = int(value)
        elif isinstance(value, (list, tuple, Mapping)):
            try:
                tables[attribute] = _table(value)
            except Unreadable as error:
                unreadable[f"{name}.{attribute}"] = str(error)
    return tables, settings


def _table(value: Any) -> Table:
    """``value`` with a column for each field of its configs. Raises :class:`Unreadable` for anything but configs."""
    keyed = list(_leaves(value, ())) if isinstance(value, Mapping) else [("", config) for config in value]
    for _, config in keyed:
        if not dataclasses.is_dataclass(config) or isinstance(config, type):
            raise Unreadable(f"a config is required, such as a GemmConfig: {config!r:.200} is no dataclass")
    rows = [({KEY: key} if key else {}) | vars(config) for key, config in keyed]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    plain = (bool, int, float, str, type(None))
    if odd := next((cell for row in rows for cell in row.values() if not isinstance(cell, plain)), None):
        raise Unreadable(f"a field of a config must be a number or a text: {odd!r:.200} is neither")
    return {"columns": columns, "rows": [[row.get(column) for column in columns] for row in rows]}


def _leaves(value: Any, key: tuple[str, ...]) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield "/".join(key), value
        return
    for name, inner in value.items():
        parts = name if isinstance(name, tuple) else (name,)
        yield from _leaves(inner, (*key, *(str(part).removeprefix("torch.") for part in parts)))


if __name__ == "__main__":
    json.dump(read_tables(sys.argv[1:]), sys.stdout)
