"""Thresholds, per kind of finding: smaller differences are not reported, or are warnings; and their file.

A ``share`` is one of the smaller value. A difference is reported if it is more than the share, and at least the amount
next to it. The thresholds that begin with ``regression`` part regressions from warnings: a regression is at least both.

.. code-block:: toml

    [SLOWER]
    share = 0.10                 # 10 % slower is reported, less is not

    [MORE_SPILLS]
    regression_bytes = 256       # fewer bytes more per thread are a warning

What a file leaves out keeps its default. :mod:`conformance.user_files.thresholds` says what each key means. A
third-party kernel declares the same tables as a mapping.

The thresholds of each kernel, with those that it declares, are chosen here.

A later one of these moves an earlier one, key by key, so that the user of the gate has the last word. What a kernel
declares counts for its own findings. It is read from the candidate's run, which recorded it: the kernel need not be
installed where two runs are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from conformance.records import RUN_FILE, KernelDeclarations, RunInfo
from conformance.user_files import toml_entries
from conformance.user_files.findings import Kind, OwnThresholds
from conformance.user_files.toml_entries import EntryError

#: Past these nothing is ever reported: no figure of a record is as large.
_MOST = 1e12
Share = Annotated[float, Meta(ge=0, le=_MOST, description="a share of 0 or more, such as 0.25,")]
Part = Annotated[float, Meta(ge=0, le=1, description="a share from 0 to 1, such as 0.25,")]
Amount = Annotated[float, Meta(ge=0, le=_MOST, description="a number of 0 or more")]


class KindThresholds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The thresholds of one kind. The kind that is its reverse, such as FASTER of SLOWER, has the same."""


class TimeThresholds(KindThresholds, frozen=True, kw_only=True):
    """Clocks, temperature and the placement of buffers move a GEMM's time by a few per cent between runs of one binary.
    The best config moved if the old one is slower by as much. Two devices of one kind differ by more: two H200s in 215
    kernels by up to 13 % (reports/history.md)."""

    share: Share = 0.05
    other_device_share: Share = 0.25


class SpillThresholds(KindThresholds, frozen=True, kw_only=True):
    """Thresholds for code that spills already. A few bytes change with every change of the register allocator. So an
    increase is reported from one unit of its allocation on, 8 registers of 4 bytes. What spills for the first time is
    always reported.

    A regression is 16 registers more (64 bytes per thread), and a quarter more than before. On an H200, 8 bytes that
    became 240 took 13 % longer (reports/published/gate.md).
    """

    share: Share = 0.10
    bytes: Amount = 32
    registers: Amount = 8
    regression_share: Share = 0.25
    regression_bytes: Amount = 64
    regression_registers: Amount = 16


class OccupancyThresholds(KindThresholds, frozen=True, kw_only=True):
    """Each block or wave less is reported. A quarter of them less (2 blocks to 1, 4 to 3) is a regression: what they
    hid of the latency of memory is exposed. Of 8 waves one less is a warning."""

    regression_share: Part = 0.25


class RegisterThresholds(KindThresholds, frozen=True, kw_only=True):
    """Registers are allocated in units of 8 per thread: less than one unit cannot change how many blocks fit."""

    share: Share = 0.10
    registers: Amount = 8


class SharedMemoryThresholds(KindThresholds, frozen=True, kw_only=True):
    """Shared memory is a sum of tiles and barriers: the barriers' few bytes move between releases, a tile is much
    more."""

    share: Share = 0.05
    bytes: Amount = 1024


class CodeThresholds(KindThresholds, frozen=True, kw_only=True):
    """Every release moves code size by some per cent: unrolling or a lost loop shows as much more."""

    share: Share = 0.20


class InstructionThresholds(KindThresholds, frozen=True, kw_only=True):
    """Total variation distance between two shares of instructions: this part of the code is something else now."""

    share: Part = 0.10


class SyncThresholds(KindThresholds, frozen=True, kw_only=True):
    """Waits and cache control of AMD's code move with every schedule. Of all else that synchronises each one counts."""

    share: Share = 0.25


class CompileThresholds(KindThresholds, frozen=True, kw_only=True):
    """Compile time is processor time, measured once, while other processes share caches and cores: only the median over
    several cases of a kernel counts."""

    share: Share = 0.50
    cases: Amount = 5
    seconds: Amount = 0.1


class Thresholds(Struct, frozen=True, kw_only=True):
    """The thresholds of a comparison. A field is a kind in small letters."""

    slower: TimeThresholds = TimeThresholds()
    more_spills: SpillThresholds = SpillThresholds()
    less_occupancy: OccupancyThresholds = OccupancyThresholds()
    more_registers: RegisterThresholds = RegisterThresholds()
    more_shared_memory: SharedMemoryThresholds = SharedMemoryThresholds()
    larger_code: CodeThresholds = CodeThresholds()
    sync_changed: SyncThresholds = SyncThresholds()
    other_instructions: InstructionThresholds = InstructionThresholds()
    slower_compile: CompileThresholds = CompileThresholds()

    def named(self) -> Mapping[str, float]:
        """Returns all of them, by names for people."""
        spills, compiling = self.more_spills, self.slower_compile
        return {
            "time": self.slower.share,
            "time on another device": self.slower.other_device_share,
            "registers": self.more_registers.share,
            "registers, at least": self.more_registers.registers,
            "shared memory": self.more_shared_memory.share,
            "shared memory, at least bytes": self.more_shared_memory.bytes,
            "spills": spills.share,
            "spills, at least bytes where there were some": spills.bytes,
            "spills, at least registers where there were some": spills.registers,
            "spills as a regression": spills.regression_share,
            "spills as a regression, at least bytes": spills.regression_bytes,
            "spills as a regression, at least registers": spills.regression_registers,
            "occupancy as a regression": self.less_occupancy.regression_share,
            "code bytes": self.larger_code.share,
            "instruction mix": self.other_instructions.share,
            "waits of AMD's code": self.sync_changed.share,
            "compile time": compiling.share,
            "compile time, at least cases": compiling.cases,
            "compile time, at least seconds": compiling.seconds,
        }


#: The thresholds unless a file or a kernel says otherwise.
DEFAULT = Thresholds()
#: What a file or a kernel says: the name of a kind -> key -> value.
Tables = Mapping[str, Mapping[str, float]]
UNMOVED: Tables = MappingProxyType({})
#: The kinds that have thresholds of their own, each with its field.
FIELDS: Mapping[Kind, str] = {Kind[name.upper()]: name for name in Thresholds.__struct_fields__}


def moved(thresholds: Thresholds, tables: Tables) -> Thresholds:
    """``thresholds`` with the values of ``tables``, which were checked, in their places."""
    changes = {}
    for name, table in tables.items():
        field = FIELDS[Kind[name]]
        changes[field] = replace(getattr(thresholds, field), **table)
    return replace(thresholds, **changes)


def read_thresholds(path: Path) -> Tables:
    """Returns the thresholds in the file ``path``. Raises :class:`EntryError`."""
    return parsed(toml_entries.read_text(path, "thresholds"), str(path))


def parsed(text: str, file: str) -> Tables:
    """Returns the thresholds in the TOML ``text`` of ``file``. Raises :class:`EntryError` as :func:`checked` does.

    >>> parsed("[SLOWER]\\nshare = 0.02", "thresholds.toml")
    {'SLOWER': {'share': 0.02}}
    """
    return checked(toml_entries.load(text, file), file)


def checked(data: Any, place: str) -> Tables:
    """``data`` as tables of thresholds. Raises :class:`EntryError`, which begins with ``place``: for anything but
    tables of kinds that have thresholds, and for a value that is none."""
    if not isinstance(data, Mapping):
        raise EntryError(f"{place}: {data!r:.80}: tables of thresholds are required")
    fields = {kind.value: field for kind, field in FIELDS.items()}
    for name in data:
        if name not in fields:
            what = "has no threshold of its own" if name in Kind.__members__ else "is no kind"
            raise EntryError(f"{place}: [{name!s:.80}] {what}: thresholds are those of {', '.join(fields)}")
    return {name: _table(table, name, fields[name], place) for name, table in data.items()}


def _table(table: Any, name: str, field: str, place: str) -> Mapping[str, float]:
    if not isinstance(table, Mapping):
        raise EntryError(f"{place}: {name} must be a table: write [{name}] above its thresholds")
    kind: type[KindThresholds] = type(getattr(DEFAULT, field))
    keys = f"the keys are {', '.join(kind.__struct_fields__)}"
    values = toml_entries.convert(dict(table), f"{place}: [{name}]", kind, keys)
    return {key: getattr(values, key) for key in table}


class KernelThresholds:
    """The thresholds of each kernel of a comparison. ``file`` is what the user's file says."""

    def __init__(self, file: Tables, baseline: RunInfo | None, candidate: RunInfo | None) -> None:
        self.usual = moved(DEFAULT, file)
        self._before: Mapping[str, KernelDeclarations] = baseline.declared if baseline else {}
        self._now: Mapping[str, KernelDeclarations] = candidate.declared if candidate else {}
        self._own: dict[str, Thresholds] = {}
        self._unusable: dict[str, str] = {}
        for kernel, declared in self._now.items():
            try:
                tables = checked(declared.thresholds, f"{RUN_FILE}: the thresholds of {kernel}")
                self._own[kernel] = moved(moved(DEFAULT, tables), file)
            except EntryError as error:
                self._unusable[kernel] = f"{error}; the usual ones apply"

    def of(self, kernel: str | None) -> Thresholds:
        """Returns the thresholds of findings about ``kernel``."""
        return self._own.get(kernel or "", self.usual)

    def others(self, kernels: Collection[str]) -> dict[str, OwnThresholds]:
        """Returns the thresholds that differ from the usual ones, for each of ``kernels`` that has some."""
        usual, others = self.usual.named(), {}
        for kernel in sorted(self._own.keys() & set(kernels)):
            own = self._own[kernel]
            values = {name: value for name, value in own.named().items() if value != usual[name]}
            kinds = [kind for kind, field in FIELDS.items() if getattr(own, field) != getattr(self.usual, field)]
            if kinds:
                others[kernel] = OwnThresholds(self._now[kernel].by, tuple(kinds), values)
        return others

    def warnings(self, kernels: Collection[str]) -> Iterator[str]:
        """Sentences about the thresholds of ``kernels`` that cannot be used, or that were others in the baseline."""
        for kernel in sorted(kernels):
            if kernel in self._unusable:
                yield self._unusable[kernel]
            elif _tables(self._before, kernel) != _tables(self._now, kernel):
                what = "other thresholds" if _tables(self._before, kernel) else "no thresholds of its own"
                yield f"in the baseline's run {kernel} declared {what}: those of the candidate's run apply"


def _tables(declared: Mapping[str, KernelDeclarations], kernel: str) -> Tables:
    return declared[kernel].thresholds if kernel in declared else {}
