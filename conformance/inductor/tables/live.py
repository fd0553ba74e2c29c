"""The config tables of the installed torch: read by a process of its own, kept, and turned into configs. Imports
neither torch nor triton."""

from __future__ import annotations

import fnmatch
import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance import targets
from conformance.heuristics.configs import (
    AnyConfig,
    Config,
    FlexBackwardConfig,
    FlexConfig,
    FlexDecodeConfig,
    TemplateConfig,
)
from conformance.inductor.tables import read
from conformance.machine.kept_answers import default_cache, kept_answer, source_digest

#: Seconds that the process which reads may take: it imports most of Inductor.
READ_SECONDS = 300

#: The tables of a device class here -> torch's own, whose rows the kernels of that table may be given: names, or
#: patterns of names. The last one is the table that this one was.
LISTED: Mapping[str, tuple[str, ...]] = {
    "mm": ("mm_configs",),
    "bmm": ("mm_configs",),
    "extra_mm": ("extra_mm_configs",),
    "int8_mm": ("int8_mm_configs",),
    "mixed_mm": ("mm_configs", "mixed_mm_configs"),
    "persistent_mm": ("persistent_mm_configs",),
    "scaled_mm": ("scaled_mm_configs",),
    "scaled_persistent_mm": ("scaled_persistent_mm_configs",),
    "persistent_fp8": ("scaled_persistent_mm_configs",),
    "mm_plus_mm": ("mm_plus_mm_configs",),
    "conv": ("conv_configs",),
    "flex_fwd": ("*_flex_config", "flex_fwd_config_by_arch", "flex_attn_fwd_autotune_configs"),
    "flex_bwd": ("*_flex_bwd_config", "flex_bwd_config_by_arch", "flex_attn_bwd_autotune_configs"),
    "flex_decode": ("flex_decode_autotune_configs",),
}
#: The exhaustive spaces of a device class here -> torch's own.
ENUMERATED: Mapping[str, tuple[str, ...]] = {
    "mm": ("exhaustive_configs",),
    "bmm": ("exhaustive_configs",),
    "persistent_mm": ("exhaustive_configs",),
    "flex_fwd": ("exhaustive_flex_attn_fwd_configs",),
    "flex_bwd": ("exhaustive_flex_attn_bwd_configs",),
    "flex_decode": ("exhaustive_flex_decode_configs",),
}
#: What AMD's rows of products have that name no options of their own: as :func:`conformance.heuristics.rocm.options`.
AMD_OPTIONS = {"matrix_instr_nonkdim": 16, "waves_per_eu": 0, "kpack": 2}
#: Fields of a row that are no option of the compiler.
_PLACE = ("num_stages", "num_warps", "group_m", "hint_override", read.KEY)
_TEMPLATE = ("epilogue_subtile", "flatten", "warp_specialize")
#: Fields by which torch's template does something that no kernel here does, with the value that asks for nothing.
_NEUTRAL = {"use_meta_ws": 0, "data_partition_factor": 1, "separate_epilogue_store": 0, "two_ctas": 0}
#: The fields of blocks of attention backward. With those of dQ turned round they say the same as two blocks.
_BACKWARD = ("block_m1", "block_n1", "block_m2", "block_n2")

Row = Mapping[str, Any]


class TablesUnread(Exception):
    """The tables of the installed torch could not be read; the text says why."""


class _NotWhole(Exception):
    """Says that what was read lacks a table, so it is not kept: the next process may read all."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__()
        self.answer = answer


@dataclass(frozen=True)
class Device:
    """The tables of one device; see :func:`conformance.inductor.tables.read.read_tables`."""

    tables: Mapping[str, read.Table] = field(default_factory=dict)
    settings: Mapping[str, int] = field(default_factory=dict)
    templates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of ``table``, each with the fields that it has; none if there is no such table."""
        listed = self.tables.get(table, {"columns": [], "rows": []})
        for row in listed["rows"]:
            pairs = zip(listed["columns"], row, strict=True)
            yield {column: value for column, value in pairs if value is not None}


def row_text(row: Row) -> str:
    """``row`` as the id of a config has it, such as "128x128x64-s3-w8"; behind its key where it has one."""
    blocks = [value for name, value in row.items() if name.startswith("block_")]
    if _BACKWARD[0] in row and blocks[2:] == blocks[1::-1]:
        blocks = blocks[:2]
    tile = "x".join(map(str, blocks))
    rest = [(name, value) for name, value in row.items() if name not in _PLACE and not name.startswith("block_")]
    if row.get("group_m", 8) != 8:
        rest.insert(0, ("g", row["group_m"]))
    if "hint_override" in row:
        rest.append(("hint", row["hint_override"]))
    options = "".join(f"-{name}{int(value) if isinstance(value, bool) else value}" for name, value in rest)
    start = f"{row[read.KEY]}=" if read.KEY in row else ""
    return f"{start}{tile}-s{row.get('num_stages')}-w{row.get('num_warps')}{options}"


def amd_archs() -> list[str]:
    """The architectures of AMD that are known here, in the order of the targets."""
    return [str(target.arch) for target in targets.known_targets() if target.backend == "hip"]


def live_devices(work_out: Callable[[], Mapping[str, Any]] | None = None) -> dict[str, Device]:
    """Returns the tables of the installed torch by device. They are kept until torch or triton changes; ``work_out``
    reads them where none are kept, by default :func:`in_own_process`. Raises :class:`TablesUnread`."""

    def whole() -> Mapping[str, Any]:
        answer = (work_out or in_own_process)()
        if any(parts.get("unreadable") for parts in answer.values()):
            raise _NotWhole(answer)
        return answer

    code = f"{source_digest(read)} {' '.join(amd_archs())}"
    folder = default_cache() / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        try:
            answer = kept_answer(_sources(), "config-tables", code, whole, folder=folder)
        except _NotWhole as error:
            answer = error.answer
        return {name: Device(**parts) for name, parts in answer.items()}
    except (AttributeError, TypeError) as error:
        raise TablesUnread(f"what was read of torch's tables has another form than it should: {error}") from None


@functools.cache
def installed() -> Mapping[str, Device]:
    """:func:`live_devices` of this process's torch. Raises :class:`TablesUnread`."""
    return live_devices()


def in_own_process() -> dict[str, Any]:
    """Returns the tables that a fresh process reads. Raises :class:`TablesUnread`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", read.__name__, *amd_archs()]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=READ_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TablesUnread(f"the process that reads torch's config tables: {error}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it printed nothing"]
        raise TablesUnread(f"the process that reads torch's config tables ended with {done.returncode}: {lines[-1]}")
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise TablesUnread(f"what the process printed that reads torch's config tables is no JSON: {error}") from None
    return answer


def _sources() -> list[Path]:
    """Returns the files that decide the tables. Raises :class:`TablesUnread` without torch."""
    package = importlib.util.find_spec("torch")
    if package is None or not package.submodule_search_locations:
        raise TablesUnread("torch is not installed, so it has no config tables")
    torch = Path(package.submodule_search_locations[0])
    inductor = torch / "_inductor"
    files = [torch / "version.py", inductor / "utils.py", inductor / "template_heuristics.py"]
    files += sorted(path for name in ("template_heuristics", "heuristics") for path in (inductor / name).rglob("*.py"))
    triton = importlib.util.find_spec("triton")
    for folder in (triton.submodule_search_locations or []) if triton else []:
        files.append(Path(folder) / "backends" / "amd" / "compiler.py")
    return files


def device_of(device_class: str, arch: int | str, devices: Mapping[str, Device]) -> Device:
    """Returns the tables for the device class ``device_class`` and an architecture; empty where torch has none."""
    return devices.get(device_name(device_class, arch), Device())


def device_name(device_class: str, arch: int | str) -> str:
    """Returns the name of the device class ``device_class`` ("cuda", "rocm", "xpu", "cpu" or "base") in what
    was read."""
    return {"rocm": f"{read.ROCM}:{arch}", "base": "any"}.get(device_class, device_class)


def configs(device: Device, tables: Sequence[str]) -> dict[AnyConfig, str]:
    """Returns as configs the rows of those of the device's tables that match one of the patterns ``tables``. Each has
    the first place where it stands: "table: row", the row as :func:`row_text` has it."""
    names = [name for pattern in tables for name in device.tables if fnmatch.fnmatchcase(name, pattern)]
    places: dict[AnyConfig, str] = {}
    for name in names:
        for row in device.rows(name):
            config = _config(row, name, device.settings)
            if config is not None and config not in places:
                places[config] = f"{name}: {row_text(row)}"
    return places


def without_config(device: Device, tables: Iterable[str]) -> list[str]:
    """Returns, as "table: row", the rows of the device's tables that no kernel here can be given. Only tables that
    match one of the patterns ``tables`` count."""
    names = [name for name in device.tables if any(fnmatch.fnmatchcase(name, pattern) for pattern in tables)]
    return [
        f"{name}: {row_text(row)}"
        for name in names
        for row in device.rows(name)
        if _config(row, name, device.settings) is None
    ]


def _config(row: Row, table: str, settings: Mapping[str, int]) -> AnyConfig | None:
    """``row`` as a config; None for a row that no kernel of the catalogue can be given."""
    blocks = {name: int(value) for name, value in row.items() if name.startswith("block_")}
    stages, warps = int(row["num_stages"]), int(row["num_warps"])
    options = {name: int(value) for name, value in row.items() if name not in (*_PLACE, *_TEMPLATE, *blocks)}
    if any(options.pop(name, value) != value for name, value in _NEUTRAL.items()) or options.keys() - AMD_OPTIONS:
        return None
    match blocks:
        case {"block_m": m, "block_n": n, "block_k": k, **others} if not others:
            if "default_num_stages" in settings:  # AMD's rows have one number of stages, and options they do not name
                stages = 1 if table.startswith("mm_plus_mm") else settings["default_num_stages"]
                kpack = settings.get(f"kpack of block_k {k}", AMD_OPTIONS["kpack"])
                options = {**AMD_OPTIONS, "kpack": kpack, **options}
            group, vendor = int(row.get("group_m", 8)), tuple(options.items())
            if "epilogue_subtile" not in row:
                return Config(m, n, k, stages, warps, group_m=group, vendor=vendor)
            if not row.get("warp_specialize", True):
                return None
            subtile, flatten = int(row["epilogue_subtile"]), bool(row.get("flatten", True))
            return TemplateConfig(
                m, n, k, stages, warps, group_m=group, vendor=vendor, epilogue_subtile=subtile, flatten=flatten
            )
        case {"block_m": m, "block_n": n, **others} if not others:
            return FlexConfig(m, n, stages, warps, vendor=tuple(options.items()))
        case {"block_n": n, **others} if not others:
            return FlexDecodeConfig(n, stages, warps, vendor=tuple(options.items()))
        case {"block_m1": m, "block_n1": n, "block_m2": m2, "block_n2": n2}:
            vendor = tuple(options.items())
            if (m2, n2) == (n, m):
                return FlexConfig(m, n, stages, warps, vendor=vendor)
            return FlexBackwardConfig(m, n, stages, warps, vendor=vendor, block_m2=m2, block_n2=n2)
    return None
