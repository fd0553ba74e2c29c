"""Proves the model of a tensor core on random products: every bit of the device's sums must be the model's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from conformance.calibration.probes import Measured
from conformance.numerics.measured_units import UnitEvidence
from conformance.numerics.rounding import round_to
from conformance.numerics.sum_order import Unit
from conformance.numerics.tensor_core import Factors, sum_products

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
