"""Planted faults, and the cases (kernel, problem, config, variant) on which they must show."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from conformance.families.gemm.problem import Bias, addmm, mm, scaled_mm
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.kernel import Variant
from conformance.problems import Layout, Problem

TILES, POINTER = "device/tiles.py::swizzle,split_columns", "device/pointer.py::gemm_pointer"
PERSISTENT = "device/persistent_tma.py"
HOST, HOST_PERSISTENT = "gemm.py", "persistent_tma.py"


@dataclass(frozen=True)
class Edit:
    """Replaces ``old``, which must occur ``count`` times in ``file``, by ``new``.

    The name of a file may end with functions, as in "device/tiles.py::load_rows,load_columns". Then only their text is
    meant, from the first to the last.
    """

    file: str
    old: str
    new: str
    count: int = 1


@dataclass(frozen=True)
class Case:
    """A case on which a mutant runs; the unchanged kernel must pass it."""

    kernel: str
    problem: Problem
    config: AnyConfig
    variant: Variant = field(default_factory=Variant)
    #: what the kernel is planned for where there is no device; given for kernels that only this target takes
    target: str | None = None

    @property
    def id(self) -> str:
        return "/".join(filter(None, (self.kernel, self.problem.id, self.config.id, self.variant.id)))


@dataclass(frozen=True)
class Fault:
    """``cause``: text that the diagnosis must name ("" where the data cannot prove a cause). ``memory``: only checks
    of memory can see it. ``equivalent``: why the changed source computes the same in every case, so that it must pass.
    ``device_only``: the interpreter has not the arithmetic or the instruction that the fault is about. ``watch_only``:
    the numbers stay right, and only the interpreter's watch over addresses tells. ``defect``: this Triton fails the
    unchanged kernel, too, or has not what it calls, so that nothing can be learnt."""

    name: str
    edits: Edit | tuple[Edit, ...]
    case: Case
    cause: str = ""
    memory: bool = False
    equivalent: str = ""
    device_only: bool = False
    watch_only: bool = False
    defect: bool = False
    group: str = ""

    def runs(self, device: bool) -> bool:
        """Returns True if it can be run on the device, or in the interpreter."""
        here = self.case.target is None and not self.watch_only if device else not self.device_only
        return here and not self.defect


def grouped(group: str, *faults: Fault) -> tuple[Fault, ...]:
    """``faults`` with the name of the group in which they are run."""
    return tuple(replace(fault, group=group) for fault in faults)


def fault(name: str, case: Case, file: str, old: str, new: str, *, count: int = 1, **fields: Any) -> Fault:
    """A fault of one edit; ``fields`` are those of :class:`Fault`."""
    return Fault(name, Edit(file, old, new, count), case, **fields)


SMALL = Config(32, 32, 16, 2, 4)
SMALL_FP8 = Config(32, 32, 32, 2, 4)
PADDED = Layout("row", pad=8)
TWO_SMS = Variant(sms=2)
#: Such that a bias added twice, scaled by alpha and scaled by nothing all differ.
FACTORS = {"alpha": 8.0, "beta": 0.25}

# 2 x 2 ragged tiles and a ragged third k-block, in every case
MM = Case("mm", mm(40, 56, 40), SMALL)
MM_PADDED = Case("mm", mm(40, 56, 40, layout_a=PADDED, layout_b=PADDED, layout_out=PADDED), SMALL)
MM_BF16 = Case("mm", mm(40, 56, 40, "bf16"), SMALL)
MM_TF32 = Case("mm", mm(40, 56, 40, "fp32", precision="tf32"), SMALL)
MM_TF32X3 = Case("mm", mm(40, 56, 40, "fp32", precision="tf32x3"), SMALL)
MM_IEEE = Case("mm", mm(40, 56, 40, "fp32"), SMALL)
MM_LONG = Case("mm", mm(40, 56, 264), Config(32, 32, 64, 2, 4))
MM_EMPTY_STATIC = Case("mm", mm(40, 56, 0), SMALL, Variant(static=True))
MM_STATIC = Case("mm", mm(40, 56, 40), SMALL, Variant(static=True))
ADDMM = Case("addmm", addmm(40, 56, 40, **FACTORS), SMALL)
ADDMM_BF16 = Case("addmm", addmm(40, 56, 40, "bf16", **FACTORS), SMALL)
ADDMM_MATRIX = Case("addmm", addmm(40, 56, 40, bias=Bias("mn"), **FACTORS), SMALL)
ADDMM_NO_BETA = Case("addmm", addmm(40, 56, 40, beta=0.0), SMALL)
ADDMM_NO_ALPHA = Case("addmm", addmm(40, 56, 40, alpha=0.0), SMALL)
SCALED = Case("scaled_mm", scaled_mm(40, 56, 88), SMALL_FP8)
SCALED_BIAS = Case("scaled_mm", scaled_mm(40, 56, 88, bias=Bias()), SMALL_FP8)
TMA = Case("mm_persistent_tma", mm(40, 56, 40), SMALL, TWO_SMS)
TMA_PADDED = Case("mm_persistent_tma", mm(40, 56, 40, layout_a=PADDED, layout_b=PADDED), SMALL, TWO_SMS)
TMA_HOST = Case("mm_persistent_tma", mm(40, 56, 40, layout_a=PADDED), SMALL, Variant("host", sms=2))
TMA_COLUMN = Case("mm_persistent_tma", mm(40, 56, 40, layout_a=Layout("col")), SMALL, TWO_SMS)
TMA_EMPTY = Case("mm_persistent_tma", mm(40, 56, 0), SMALL, TWO_SMS)
TMA_STORE = Case("mm_persistent_tma", mm(40, 56, 40), SMALL, Variant(tma_store=True, sms=2))
TMA_SUBTILE = Case("mm_persistent_tma", mm(40, 56, 40), SMALL, Variant(epilogue_subtile=2, sms=2))
#: Rows 32 and up begin 2**31 elements or more behind the first; the offset keeps wrapped addresses in the allocation.
FAR = Case(
    "scaled_mm",
    scaled_mm(40, 56, 88, layout_a=Layout("row", pad=2**26 - 88, offset=2**31)),
    SMALL_FP8,
)
#: The second k-block begins 2**31 elements behind the first.
FAR_BLOCKS = Case("mm", mm(40, 56, 40, layout_a=Layout("col", pad=2**27 - 40, offset=2**31)), SMALL)
#: Hopper's warpgroup instruction in fp8, long enough for its 14-bit sums to lose what promotion keeps.
WGMMA_FP8 = Case("scaled_mm", scaled_mm(168, 248, 1032), Config(64, 64, 128, 3, 4))
