"""Checks that a fill of a product shows what it is there for: a run refuses one that does not, as oneDNN's benchdnn
does.

A fill whose results are mostly zero, or hide what was computed, passes whatever a kernel does. Each fill is checked
when it is built. Exempt is what cannot show more: a problem without a product or with fewer than :data:`FEWEST_K` k.
Chance decides with fewer than :data:`FEWEST_OUTPUTS` outputs that a product reaches, so these are exempt, too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from conformance.families.gemm.integer_budget import budget_of
from conformance.families.gemm.problem import Gemm
from conformance.inputs.fill_set import FillError
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import Problem

FEWEST_K = 4
FEWEST_OUTPUTS = 256
#: Least share of results that are not zero, of those that can be.
NONZERO = 1 / 2
#: Steps of an epilogue that turn about half of the results into zeros, and the least share of the results that is left
#: by each. Rows and columns have signs, so a relu may leave much less than half.
ZEROING = {"relu": 1 / 4, "dropout": 2 / 5}
#: Least share of the results of "transparent" that the output shows to the unit.
TRANSPARENT = 0.95
#: Least share of exact ties, of those results that are not zero; less where the epilogue makes zeros.
TIES = 1 / 4


def check_trust(
    problem: Problem, product: Gemm, contract: Contract, fill: Fill, *, ties: bool = False, possible: float = 1.0
) -> Fill:
    """``fill`` of ``problem``, whose outputs are those of ``product`` or of products like it.

    ``ties``: exact ties are promised. ``possible``: the least share of outputs that a product may reach. In a
    convolution these are outputs for which a tap lies inside of the image. Raises FillError if the fill shows less than
    it promises.
    """
    few = fill.expected.numel() * possible < FEWEST_OUTPUTS
    if not product.has_product or product.K < FEWEST_K or few:
        return fill
    shortcomings = []
    for what, share, least in _shares(product, contract, fill, ties, possible):
        if share < least:
            shortcomings.append(f"{share:.0%} of its results {what}, {least:.0%} are required")
    total, unit = fill.meta.get("max_subset_sum_total", 0), contract.accumulator
    if fill.name == "wide-A" and unit.promote and 2 * unit.promote <= product.K and total < 2**unit.exact_bits:
        budget = budget_of(product, contract)
        if budget.limit > 2 ** (unit.exact_bits + 1):  # the output's range has room for them
            shortcomings.append(f"sums up to {total} need no promotion, 2**{unit.exact_bits} is required")
    if shortcomings:
        raise FillError(f"{problem.id}, fill {fill.name}, seed {fill.seed} shows too little: {'; '.join(shortcomings)}")
    return fill


def _shares(
    product: Gemm, contract: Contract, fill: Fill, ties: bool, possible: float
) -> list[tuple[str, float, float]]:
    """Returns the name of each count, its share of the results, and the least share that is required."""
    steps = product.fusion.epilogue if product.fusion is not None else ()
    left = math.prod(ZEROING.get(step, 1.0) for step in steps)
    least = NONZERO * possible * left
    rounded = fill.expected
    if FORMATS[contract.out_dtype].lowest is None:
        rounded = round_to(fill.expected, contract.out_dtype, overflow=contract.overflow).double()
    nonzero = rounded != 0  # NaN is not zero either
    shares = [("are not zero", float(nonzero.double().mean()), least)]
    if fill.name == "transparent" and product.op not in ("int_mm", "dual_mm"):  # whose outputs are no sums
        limit = 2.0 ** (FORMATS[contract.out_dtype].significand + fill.meta["unit_out"])
        seen = fill.expected.abs() <= limit
        shares.append(("show a change of one unit", float(seen.double().mean()), TRANSPARENT))
    if ties and bool(nonzero.any()):
        exact = is_tie(fill.expected[nonzero], contract.out_dtype)
        shares.append(("that are not zero are ties", float(exact.double().mean()), TIES * left))
    return shares


def is_tie(values: Tensor, dtype: str) -> Tensor:
    """Returns a mask of the fp64 ``values`` that lie half way between two neighbours of a floating-point format, within
    its range of normal values."""
    significand = torch.frexp(values)[0].abs() * 2.0 ** (FORMATS[dtype].significand + 1)
    return (significand == significand.floor()) & (significand.remainder(2) == 1)
