"""The figures under a record's ``observed`` that a comparison uses. They come from a file, so decoding checks them
against the types here."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

from msgspec import Meta, Struct

from conformance.case_status import Status

#: The largest figure: one that is larger was not measured.
LARGEST = 10**15
#: The least figure other than 0, in its unit: so the ratio of two figures, and its inverse, are finite.
SMALLEST = 1e-9
#: The most measurements of one record: with more, the exact binomial sums would take seconds.
SAMPLES_LIMIT = 1000

#: Names of what a record counts of a kernel's structure, in addition to its synchronising instructions. These are loops
#: in which an accumulator leaves tensor memory and comes back, and waits for copies that a barrier no longer follows.
#: On NVIDIA's tensor cores it counts commits that other warps' waits may still be for. Triton's ping-pong schedule sets
#: priorities. Older records also count what the checks codegen/order/... judge now: accesses of LDS that are open at a
#: barrier, products of what cp.async wrote without a fence, and products that nothing waits for.
ROUND_TRIPS = "accumulator round trips"
LATE_WAITS = "waits behind their barrier"
OPEN_LOADS = "LDS loads open at a barrier"
OPEN_STORES = "LDS stores open at a barrier"
BARE_COMMITS = "commits behind a wait without a barrier"
UNFENCED = "products behind copies without a proxy fence"
UNAWAITED = "products without a wait"
PRIORITY = "priority"

_Count = Annotated[int, Meta(ge=0, le=LARGEST)]
_Measure = Annotated[float, Meta(ge=SMALLEST, le=LARGEST)]


class Resources(Struct, frozen=True, gc=False):
    """The needs of a block of a kernel: registers and spills per thread, ``shared_memory`` in bytes, columns of
    ``tensor_memory``, and its ``threads``. ``spills`` are counted in ``spill_unit``. Registers and threads are 0 where
    they are not known."""

    registers: _Count = 0
    spills: _Count = 0
    spill_unit: str | None = None
    shared_memory: _Count = 0
    tensor_memory: _Count = 0
    threads: _Count = 0


class CodeFigures(Struct, frozen=True, gc=False):
    """A kernel's code: ``bytes`` and ``sha256`` of the machine code. ``instructions`` says how often each occurs in
    ``instructions_of``, and ``assembler`` is the version of the ptxas that made the code. ``sync`` has the counts of
    synchronising instructions and of the names above."""

    features: Sequence[str] = ()
    instructions: Mapping[str, _Count] = {}
    instructions_of: str | None = None
    bytes: _Count | None = None
    sha256: str | None = None
    assembler: str | None = None
    sync: Mapping[str, _Count] | None = None


class Timing(Struct, frozen=True, gc=False):
    """The problem that was timed, or was to be; its measurements in microseconds, or why there are none; and what tells
    the device from others of its kind."""

    problem: str
    us: _Measure | None = None
    samples_us: Annotated[Sequence[_Measure], Meta(max_length=SAMPLES_LIMIT)] = ()
    refused: str = ""
    device: str | None = None


class ObservedEntry(Struct, frozen=True, gc=False):
    """The expected failure that excused a case: the ``status`` that the case had without it, and where the defect is
    reported. The release that mends it is empty where the entry does not name one."""

    status: Status | None = None
    upstream: str = ""
    fixed_in: str = ""


class Figures(Struct, frozen=True, dict=True):
    """``compile_s`` are seconds of processor time; ``outputs`` are digests of bits by fill. ``persistent``: the kernel
    starts one block for each multiprocessor. ``config_tables`` are the rows of torch's tables by the table's name.
    ``torch_row`` is "device table: row" for a config that stands in torch's tables alone. ``ttgir`` is what running the
    TTGIR left, ``expected_failure`` the entry that excused the case."""

    resources: Resources | None = None
    code: CodeFigures | None = None
    run: Timing | None = None
    outputs: Mapping[str, str] | None = None
    compile_s: Annotated[float, Meta(ge=0, le=LARGEST)] | None = None
    compile_cached: Any = None
    persistent: bool = False
    config_tables: Mapping[str, Sequence[str]] | None = None
    torch_row: str = ""
    ttgir: Any = None
    expected_failure: ObservedEntry | None = None

    def __post_init__(self) -> None:
        if self.compile_s is not None and 0 < self.compile_s < SMALLEST:
            raise ValueError(f"Expected `compile_s` of 0 or >= {SMALLEST}")

    @property
    def compiled_in(self) -> float | None:
        """Seconds; None for what was taken from a cache, which says nothing about the compiler's speed."""
        return self.compile_s if self.compile_cached is False else None

    @property
    def timed(self) -> str:
        """The problem that was timed, or was to be; "" without one."""
        return self.run.problem if self.run else ""

    @property
    def timed_on(self) -> str | None:
        """A text that tells the device that was timed from others of its kind; None where it is not known."""
        return self.run.device if self.run else None

    @cached_property
    def samples(self) -> Sequence[float]:
        """The measurements in ascending microseconds; the recorded median alone where there are no others."""
        if self.run is None:
            return ()
        if self.run.us is not None and not self.run.samples_us:
            return array("d", [self.run.us])
        return array("d", sorted(self.run.samples_us))
