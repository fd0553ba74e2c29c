"""The figures of a matrix unit, found by dot products, and the proof that its model makes every bit of its sums.

The probes follow Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores" (PeerJ CS 2021):

* A large term that is cancelled inside one step shows the alignment bits.
* A large term that stays shows the bits of the result.
* Where a small term survives a cancelled large one shows how many products one step holds.
* fp8 products are added in a narrow accumulator. Without fast accumulation its sum is added to an fp32 sum after some k
  (promotion: Triton's ``max_num_imprecise_acc``). A small term next to a large one is lost while both are in one narrow
  sum. It survives where a promotion lies between them, so these places are the promotions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conformance.numerics.contract import Accumulator
from conformance.numerics.measured_units import UnitEvidence
from conformance.numerics.rounding import round_to
from conformance.numerics.sum_order import Unit
from conformance.numerics.tensor_core import Factors, sum_products

#: k of every probe: several steps of the widest unit, and several promotions.
PROBE_K = 512
#: An accumulator that keeps fewer fraction bits than this is narrow: fp32 keeps 23, so promotion to it shows.
NARROW_BITS = 22


#: Computes ``sum_k a[k] * b[k]`` of each pair with the arithmetic under test, as fp32 numbers.
Dots = Callable[[Sequence[tuple[Sequence[float], Sequence[float]]]], list[float]]
#: The non-zero products of a dot product: (factor, exponent) of ``factor * 2**exponent`` by k.
Terms = Mapping[int, tuple[int, int]]


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
    "e4m3fnuz": ExponentRange(-7, 7),
    "e5m2fnuz": ExponentRange(-15, 15),
}


@dataclass(frozen=True)
class Measured:
    """The figures that the probes found; all are fraction bits or numbers of products.

    ``alignment_bits`` and ``result_bits``: bits that survive in one step and in the accumulator that the unit sums in;
    lower bounds where the operands cannot express more (``limited``). ``chunk``: products in one step; None if none
    showed. ``first_step``: the k that it adds together with the first two. ``truncates``: the result is cut, not
    rounded to nearest. ``promote``: the most products that a narrow accumulator adds before its sum is promoted to
    fp32; None if it never is, or if the accumulator is not narrow.
    """

    alignment_bits: int
    result_bits: int
    chunk: int | None
    truncates: bool
    limited: bool
    promote: int | None = None
    first_step: tuple[int, ...] = ()

    @property
    def interleaved(self) -> bool:
        """True if the first step adds every other pair of k, so that two steps share twice as many k."""
        pairs = tuple(k for k in range(2, 2 * (self.chunk or 0)) if k % 4 < 2)
        return self.chunk is not None and self.first_step == pairs

    @property
    def in_order(self) -> bool:
        """True if the first step adds the first k."""
        return self.chunk is not None and self.first_step == tuple(range(2, self.chunk))

    @property
    def narrow(self) -> bool:
        """True if the accumulator keeps so little that promotion matters, and shows."""
        return self.result_bits < NARROW_BITS

    def text(self) -> str:
        """Returns all figures in one line."""
        at_least = ">= " if self.limited else ""
        rounding = "truncated" if self.truncates else "rounded to nearest"
        alignment = f"alignment {at_least}{self.alignment_bits} bits"
        step = f"step {self.chunk or '-'}{' of every other pair of k' if self.interleaved else ''}"
        promoted = f", {_promotion_text(self.promote)}" if self.narrow else ""
        return f"{alignment}, result {self.result_bits} bits, {rounding}, {step}{promoted}"


def _promotion_text(promote: int | None) -> str:
    return "never promoted" if promote is None else f"promoted every {promote}"


def _dots(unit: Dots, probes: Sequence[Terms], form: ExponentRange) -> list[float]:
    """Returns the dot products of ``probes``, zero at every other k, exponents split over both operands."""
    pairs = []
    for terms in probes:
        a, b = [0.0] * PROBE_K, [0.0] * PROBE_K
        for k, (factor, exponent) in terms.items():
            first = max(form.low, min(form.high, exponent // 2))
            a[k], b[k] = factor * 2.0**first, 2.0 ** (exponent - first)
        pairs.append((a, b))
    return unit(pairs)


def measure(unit: Dots, form: ExponentRange) -> Measured:
    """Returns the figures of ``unit`` for operands whose exponents lie in ``form``; about 1100 dot products."""
    top = min(2 * form.high, 30)
    deepest = min(top - 2 * form.low, 40)
    depths = range(1, deepest + 1)
    # aligned to a large term of its own step, the smallest term is lost though the large one is cancelled
    places = range(2, PROBE_K)
    small = _dots(unit, [{0: (1, top), 1: (-1, top), k: (1, top - deepest)} for k in places], form)
    first_step = tuple(k for k, total in zip(places, small, strict=True) if total == 0)
    beside = first_step[0] if first_step else 2
    aligned = _deepest(_dots(unit, [{0: (1, top), 1: (-1, top), beside: (1, top - j)} for j in depths], form), 0)
    promotions = _promotions(unit, form, top, deepest)
    # The small term comes in a later step than the large one, which stays, but before the first promotion.
    late = (promotions[0] if promotions else PROBE_K) - 1
    result_bits = _deepest(_dots(unit, [{0: (1, top), late: (1, top - j)} for j in depths], form), 2.0**top)
    chunk = len(first_step) + 2 if first_step else None
    truncates = True
    if result_bits + 2 <= deepest:
        # One product of 3/4 of the last bit kept: truncation drops it, rounding to nearest carries.
        truncates = _dots(unit, [{0: (1, top), late: (3, top - result_bits - 2)}], form) == [2.0**top]
    between = [end - start for start, end in itertools.pairwise([0, *promotions, PROBE_K])]
    promote = max(between) if promotions else None
    return Measured(aligned, result_bits, chunk, truncates, aligned >= deepest, promote, first_step)


def _promotions(unit: Dots, form: ExponentRange, top: int, deepest: int) -> list[int]:
    """Returns the k before which a sum was promoted to fp32.

    A term of 2**-depth of the one before it survives only if a promotion lies between the two. A unit that keeps so
    many bits in one sum shows no promotions: none are returned.
    """
    depth = min(NARROW_BITS, deepest)
    sums = _dots(unit, [{k - 1: (1, top), k: (1, top - depth)} for k in range(1, PROBE_K)], form)
    promotions = [k for k, total in enumerate(sums, 1) if total != 2.0**top]
    return promotions if len(promotions) < PROBE_K - 1 else []


def _deepest(sums: Sequence[float], lost: float) -> int:
    """Returns the number of sums, from the first on, that are not the sum without a term that was ``lost``."""
    return next((number for number, total in enumerate(sums) if total == lost), len(sums))


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
class UnitProbe:
    """One row of the report: a kernel's unit and what its contract says of it."""

    name: str
    form: ExponentRange
    unit: Dots
    contract: Accumulator


def compare(probe: UnitProbe) -> tuple[list[str], Measured, bool]:
    """Lines of the report about ``probe``, its figures, and whether they agree with its contract."""
    measured = measure(probe.unit, probe.form)
    failures = disagreements(measured, probe.contract)
    contract = probe.contract
    promised = f"alignment {contract.alignment_bits}, result {contract.result_bits}, step {contract.chunk}"
    promised += f", {_promotion_text(contract.promote)}" if contract.result_bits < NARROW_BITS else ""
    line = f"{'FAIL' if failures else 'ok  '} {probe.name:28} {measured.text()} | contract: {promised}"
    return [line, *(f"     {sentence}" for sentence in failures)], measured, not failures


#: Multiplies A (rows, k) and B (k, columns) with the arithmetic under test: fp32 (rows, columns), on any device. A and
#: B are fp64 values that the operands' formats hold.
Product = Callable[[Tensor, Tensor], Tensor]

#: Random products of each kind: near-normal operands, and the same with exponents spread by :data:`SPREAD`.
RUNS = 4
#: Each scaled operand is multiplied by a power of two from 2**-SPREAD to 2**SPREAD.
SPREAD = 5


def unit_of(measured: Measured) -> Unit | None:
    """The model with the figures that probes found; None if they did not show which products a step adds, or if their k
    are neither in order nor interleaved."""
    if measured.chunk is None or not (measured.in_order or measured.interleaved):
        return None
    return Unit(
        measured.chunk, measured.alignment_bits, min(measured.result_bits, 23), measured.truncates, measured.interleaved
    )


def prove(
    product: Product,
    measured: Measured,
    forms: tuple[str, str],
    shape: tuple[int, int, int],
    instruction: str,
    *,
    runs: int = RUNS,
    seed: int = 0,
) -> UnitEvidence | None:
    """Compares ``product`` with the model in every bit, over ``runs`` near-normal products and as many scaled ones.

    ``forms``: formats of A and B. ``shape``: rows, columns and k. None if the model has no figures.
    """
    unit = unit_of(measured)
    if unit is None:
        return None
    rows, columns, depth = shape
    generator = torch.Generator().manual_seed(seed)
    elements = differing = 0
    for scaled in (False, True):
        for _ in range(runs):
            a = _operand(generator, (rows, depth), forms[0], scaled=scaled)
            b = _operand(generator, (depth, columns), forms[1], scaled=scaled)
            out = product(a, b)
            a, b = a.to(out.device), b.to(out.device)
            total = torch.zeros_like(out)
            span = measured.promote or depth
            for first in range(0, depth, span):
                part = Factors(a[:, first : first + span], b[first : first + span], *forms)
                total += sum_products(unit, part).float()
            elements += out.numel()
            differing += int((out != total).sum())
    operands = forms[0] if forms[0] == forms[1] else "*".join(forms)
    partial = () if measured.promote is None else (measured.promote,)
    figures = (unit.products, unit.alignment_bits, unit.result_bits, unit.truncates, unit.interleaved)
    return UnitEvidence(instruction, operands, *figures, partial, 2 * runs, elements, differing)


def _operand(generator: torch.Generator, shape: tuple[int, int], form: str, *, scaled: bool) -> Tensor:
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    if scaled:
        exponents = torch.randint(-SPREAD, SPREAD + 1, shape, generator=generator)
        values = torch.ldexp(values, exponents)
    return round_to(values, form, overflow="saturate").double()


def text(evidence: UnitEvidence | None) -> str:
    """Returns the result of the proof in a few words."""
    if evidence is None:
        return "no model: the probes do not show which products a step adds"
    if evidence.proven:
        return f"model proven: all bits of {evidence.elements} elements"
    return f"model not proven: {evidence.differing} of {evidence.elements} elements have other bits"


def merged(evidence: Iterable[UnitEvidence]) -> tuple[UnitEvidence, ...]:
    """One entry for each instruction and kind of operands: runs of code that promotes sums and of code that does not
    prove the same unit. An entry with other figures makes the unit unproven."""
    units: dict[tuple[str, str], UnitEvidence] = {}
    for entry in evidence:
        key = (entry.instruction, entry.operands)
        if key not in units:
            units[key] = entry
            continue
        first = units[key]
        same = replace(
            entry, partial=first.partial, runs=first.runs, elements=first.elements, differing=first.differing
        )
        wrong = entry.differing if same == first else entry.elements
        units[key] = replace(
            first,
            partial=tuple(sorted({*first.partial, *entry.partial})),
            runs=first.runs + entry.runs,
            elements=first.elements + entry.elements,
            differing=first.differing + wrong,
        )
    return tuple(units.values())
