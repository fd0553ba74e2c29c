"""Thresholds, per kind of finding: smaller differences are not reported, or are warnings. :mod:`.threshold_file` of
``user_files/`` reads others from a file, ``gate/verdict/`` takes those that third-party kernels declare.

A ``share`` is one of the smaller value. A difference is reported if it is more than the share, and at least the amount
next to it. The thresholds that begin with ``regression`` part regressions from warnings: a regression is at least both.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from conformance.user_files.findings import Kind

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
