"""Measures on a device the arithmetic that the contracts assume, and compares.

Each probe is one dot product whose exact value tells how much the matrix unit kept. The probes follow Fasi, Higham,
Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores" (PeerJ CS 2021):

* A large term that is cancelled inside one step shows the alignment bits.
* A large term that stays shows the bits of the result.
* Where a small term survives a cancelled large one shows how many products one step holds.
* fp8 products are added in a narrow accumulator. Without fast accumulation its sum is added to an fp32 sum after some
  k (promotion: Triton's ``max_num_imprecise_acc``). A small term next to a large one is lost while both are in one
  narrow sum, and survives where a promotion lies between them: so the places where it survives are the promotions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.numerics.contract import Accumulator

if TYPE_CHECKING:
    from conformance.execution.observation import Executor
    from conformance.kernels.kernel import Kernel, Plan

#: k of every probe: several steps of the widest unit, and several promotions.
PROBE_K = 512
#: An accumulator that keeps fewer fraction bits than this is narrow: fp32 keeps 23, so promotion to it shows.
NARROW_BITS = 22


#: Computes ``sum_k a[k] * b[k]`` with the arithmetic under test, as an fp32 number.
Unit = Callable[[Sequence[float], Sequence[float]], float]


@dataclass(frozen=True)
class ExponentRange:
    """Exponents that one operand can take: products span 2**(2*low) to 2**(2*high)."""

    low: int
    high: int


#: Powers of two that each operand dtype holds as normal numbers, short of its limits.
EXPONENTS = {
    "fp32": ExponentRange(-60, 60),
    "tf32": ExponentRange(-60, 60),
    "fp16": ExponentRange(-14, 14),
    "bf16": ExponentRange(-60, 60),
    "e4m3": ExponentRange(-6, 8),
    "e5m2": ExponentRange(-14, 15),
}


@dataclass(frozen=True)
class Measured:
    """What the probes found; all figures are fraction bits or numbers of products.

    ``alignment_bits`` and ``result_bits``: bits that survive in one step and in the accumulator that the unit sums in;
    lower bounds where the operands cannot express more (``limited``). ``chunk``: products in one step; None if none
    showed. ``truncates``: the result is cut, not rounded to nearest. ``promote``: the most products that a narrow
    accumulator adds before its sum is promoted to fp32; None if it never is, or if the accumulator is not narrow.
    """

    alignment_bits: int
    result_bits: int
    chunk: int | None
    truncates: bool
    limited: bool
    promote: int | None = None

    @property
    def narrow(self) -> bool:
        """Whether the accumulator keeps so little that promotion matters, and shows."""
        return self.result_bits < NARROW_BITS

    def text(self) -> str:
        """All figures in one line."""
        at_least = ">= " if self.limited else ""
        rounding = "truncated" if self.truncates else "rounded to nearest"
        alignment = f"alignment {at_least}{self.alignment_bits} bits"
        promoted = f", {_promotion_text(self.promote)}" if self.narrow else ""
        return f"{alignment}, result {self.result_bits} bits, {rounding}, step {self.chunk or '-'}{promoted}"


def _promotion_text(promote: int | None) -> str:
    return "never promoted" if promote is None else f"promoted every {promote}"


def _dot(unit: Unit, terms: Mapping[int, tuple[int, int]], form: ExponentRange) -> float:
    """A dot product of ``factor * 2**exponent`` at the given k, zero elsewhere, exponents split over both operands."""
    a, b = [0.0] * PROBE_K, [0.0] * PROBE_K
    for k, (factor, exponent) in terms.items():
        first = max(form.low, min(form.high, exponent // 2))
        a[k], b[k] = factor * 2.0**first, 2.0 ** (exponent - first)
    return unit(a, b)


def measure(unit: Unit, form: ExponentRange) -> Measured:
    """The figures of ``unit`` for operands whose exponents lie in ``form``; about 1100 dot products."""
    top = min(2 * form.high, 30)
    deepest = min(top - 2 * form.low, 40)
    aligned = _deepest(lambda j: _dot(unit, {0: (1, top), 1: (-1, top), 2: (1, top - j)}, form) != 0, deepest)
    promotions = _promotions(unit, form, top, deepest)
    # The small term comes in a later step than the large one, which stays, but before the first promotion.
    late = (promotions[0] if promotions else PROBE_K) - 1
    result_bits = _deepest(lambda j: _dot(unit, {0: (1, top), late: (1, top - j)}, form) != 2.0**top, deepest)
    small = top - min(deepest, aligned + 3)  # aligned to a large term of its own step, it is lost
    lost = [k for k in range(2, PROBE_K) if _dot(unit, {0: (1, top), 1: (-1, top), k: (1, small)}, form) == 0]
    chunk = len(lost) + 2 if aligned < deepest else None
    # One product of 3/4 of the last bit kept: truncation drops it, rounding to nearest carries.
    truncates = (
        result_bits + 2 > deepest or _dot(unit, {0: (1, top), late: (3, top - result_bits - 2)}, form) == 2.0**top
    )
    between = [end - start for start, end in itertools.pairwise([0, *promotions, PROBE_K])]
    promote = max(between) if promotions else None
    return Measured(aligned, result_bits, chunk, truncates, aligned >= deepest, promote)


def _promotions(unit: Unit, form: ExponentRange, top: int, deepest: int) -> list[int]:
    """The k before which a sum was promoted to fp32.

    A term of 2**-depth of the one before it survives only if a promotion lies between the two. A unit that keeps so
    many bits in one sum shows no promotions: none are returned.
    """
    depth = min(NARROW_BITS, deepest)

    def survives(k: int) -> bool:
        return _dot(unit, {k - 1: (1, top), k: (1, top - depth)}, form) != 2.0**top

    promotions = [k for k in range(1, PROBE_K) if survives(k)]
    return promotions if len(promotions) < PROBE_K - 1 else []


def _deepest(survives: Callable[[int], bool], limit: int) -> int:
    """The largest j up to ``limit`` for which 1 .. j all survive."""
    return next((j - 1 for j in range(1, limit + 1) if not survives(j)), limit)


def disagreements(measured: Measured, contract: Accumulator) -> list[str]:
    """Sentences where the device keeps less than the contract promises; empty if every bound and fill holds."""
    failures = []
    # An accumulator that starts each step at a result of r bits cannot show more than r + 1 when nothing cancels.
    if measured.result_bits < contract.result_bits:
        failures.append(f"the result keeps {measured.result_bits} bits, the contract says {contract.result_bits}")
    if contract.kind != "tensor-core":
        return failures
    if not measured.limited and measured.alignment_bits < contract.alignment_bits:
        failures.append(f"alignment keeps {measured.alignment_bits} bits, the contract says {contract.alignment_bits}")
    if measured.chunk is not None and measured.chunk > contract.chunk:
        failures.append(f"one step holds {measured.chunk} products, the contract says {contract.chunk}")
    if contract.promote is not None and measured.narrow:
        if measured.promote is None:
            failures.append(
                f"no promotion to fp32 within {PROBE_K} products, the contract says one every {contract.promote}"
            )
        elif measured.promote > contract.promote:
            failures.append(
                f"up to {measured.promote} products are added before promotion to fp32, "
                f"the contract says {contract.promote}"
            )
    return failures


@dataclass(frozen=True)
class Probe:
    """One row of the report: a kernel's unit and what its contract says of it."""

    name: str
    form: ExponentRange
    unit: Unit
    contract: Accumulator


def report(probes: Sequence[Probe]) -> tuple[list[str], bool]:
    """Lines of the report and whether every probe agrees with its contract."""
    lines, agrees = [], True
    for probe in probes:
        measured = measure(probe.unit, probe.form)
        failures = disagreements(measured, probe.contract)
        agrees &= not failures
        contract = probe.contract
        promised = f"alignment {contract.alignment_bits}, result {contract.result_bits}, step {contract.chunk}"
        promised += f", {_promotion_text(contract.promote)}" if contract.result_bits < NARROW_BITS else ""
        lines.append(f"{'FAIL' if failures else 'ok  '} {probe.name:28} {measured.text()} | contract: {promised}")
        lines += [f"     {sentence}" for sentence in failures]
    return lines, agrees


#: BLOCK_K of the probes; fp8 is also probed with a shorter block, as a promotion happens at the end of each block.
BLOCK_K, SHORT_BLOCK_K = 128, 64


def device_probes() -> list[Probe]:
    """Probes of every operand dtype through the catalogue's own kernels on the current device.

    What the device or the kernel cannot take is left out and printed. Raises RuntimeError without a device.
    """
    from conformance import targets
    from conformance.execution.device import DeviceExecutor
    from conformance.heuristics.configs import Config
    from conformance.kernels import catalogue
    from conformance.kernels.kernel import NotApplicable
    from conformance.problems import Gemm, Layout, mm, scaled_mm

    executor, target = DeviceExecutor(), targets.devices()[0]
    column = {"layout_b": Layout("col"), "out_dtype": "fp32"}
    # label, key of EXPONENTS, problem, BLOCK_K
    cases: list[tuple[str, str, Gemm, int]] = [
        (dtype, dtype, mm(64, 64, PROBE_K, dtype, **column), BLOCK_K) for dtype in ("bf16", "fp16", "fp32")
    ]
    cases.append(("tf32", "tf32", mm(64, 64, PROBE_K, "fp32", precision="tf32", layout_b=Layout("col")), BLOCK_K))
    for dtype in ("e4m3", "e5m2"):
        for fast, block_k in ((True, BLOCK_K), (False, BLOCK_K), (False, SHORT_BLOCK_K)):
            problem = scaled_mm(64, 64, PROBE_K, dtype, out_dtype="fp32", scaling="tensor", fast_accum=fast)
            label = f"{dtype} fast" if fast else f"{dtype} promoted, BLOCK_K {block_k}"
            cases.append((label, dtype, problem, block_k))
    probes = []
    for label, form, problem, block_k in cases:
        capability = target.capability(problem.dtype if problem.dtype != "fp32" else problem.precision)
        if not capability.available:
            print(f"skip {label}: {capability.why}")
            continue
        kernel = catalogue.get(problem.op)
        try:
            plan = kernel.plan(problem, Config(64, 64, block_k, 2, 4), target)
        except NotApplicable as refusal:
            print(f"skip {label}: {refusal}")
            continue
        contract = kernel.contract(plan, executor.name).accumulator
        probes.append(Probe(f"{target.id} {label}", EXPONENTS[form], _kernel_unit(kernel, plan, executor), contract))
    return probes


def _kernel_unit(kernel: Kernel, plan: Plan, executor: Executor) -> Unit:
    """The arithmetic of ``plan``: a dot product is the first element of its result, with scales of one."""
    import torch

    from conformance.problems import DTYPES, Operand

    problem = plan.problem

    def filled(operand: Operand) -> torch.Tensor:
        values = torch.full(operand.shape, float(operand.name.startswith("scale")), device=executor.device)
        stored = values.to(DTYPES[operand.dtype])
        return stored.t().contiguous().t() if operand.name == "b" else stored

    def run(a: Sequence[float], b: Sequence[float]) -> float:
        tensors = {operand.name: filled(operand) for operand in problem.tensors}
        tensors["a"][0] = torch.tensor(a).to(DTYPES[problem.a_dtype])
        tensors["b"].t()[0] = torch.tensor(b).to(DTYPES[problem.second_dtype])
        executor.run(kernel.launch(plan, tensors))
        return float(tensors["out"][0, 0])

    return run


def conversions() -> tuple[list[str], bool]:
    """What the device makes of overflow to fp8 and of subnormal operands and results, against the contracts."""
    from conformance import targets
    from conformance.execution.device import DeviceExecutor
    from conformance.execution.trial import trial
    from conformance.heuristics.configs import Config
    from conformance.kernels import catalogue
    from conformance.problems import Gemm, mm, scaled_mm

    executor, target = DeviceExecutor(), targets.devices()[0]
    config = Config(64, 64, 64, 2, 4)
    cases: list[tuple[str, Gemm]] = [
        (f"special values, subnormals and overflow: {dtype}", mm(80, 72, 96, dtype))
        for dtype in ("bf16", "fp16", "fp32")
    ]
    cases += [
        (f"overflow of scaled mm to {dtype}", scaled_mm(80, 80, 96, "e4m3", out_dtype=dtype))
        for dtype in ("e4m3", "e5m2")
    ]
    lines, agrees = [], True
    for label, problem in cases:
        kernel = catalogue.get(problem.op)
        judged = trial(kernel, kernel.plan(problem, config, target), executor, names=("special",))
        wrong = [verdict.text for verdict in judged.verdicts if not verdict.passed]
        agrees &= not wrong
        lines.append(f"{'ok  ' if not wrong else 'FAIL'} {label}" + "".join(f"\n     {text}" for text in wrong))
    return lines, agrees


def main() -> int:
    """``conformance calibrate``: 0 if the device keeps what the contracts promise, 1 if not. Raises
    :class:`conformance.execution.device.NoDevice` without a device."""
    lines, agrees = report(device_probes())
    more, converted = conversions()
    print("\n".join(lines + more))
    return 0 if agrees and converted else 1
