"""The fills of products: which a problem has, and the check that each shows what it is there for.

A fill whose results are mostly zero, or hide what was computed, passes whatever a kernel does. Each fill is checked
when it is built. Exempt is what cannot show more: a problem without a product or with fewer than :data:`FEWEST_K` k.
Chance decides with fewer than :data:`FEWEST_OUTPUTS` outputs that a product reaches, so these are exempt, too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from conformance.families.gemm import bounded as bounded_fills
from conformance.families.gemm import exact
from conformance.families.gemm.bounded import with_row_sums
from conformance.families.gemm.integer_budget import allows_exact, budget_of, is_curved
from conformance.families.gemm.problem import BLOCK_SCALINGS, Gemm
from conformance.families.gemm.ties import tie_bits
from conformance.inputs.fills import FillError, FillKind, FillRequest, FillSet
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
LEAST_TRANSPARENT = 0.95
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
        shares.append(("show a change of one unit", float(seen.double().mean()), LEAST_TRANSPARENT))
    if ties and bool(nonzero.any()):
        exact = is_tie(fill.expected[nonzero], contract.out_dtype)
        shares.append(("that are not zero are ties", float(exact.double().mean()), TIES * left))
    return shares


def is_tie(values: Tensor, dtype: str) -> Tensor:
    """Returns a mask of the fp64 ``values`` that lie half way between two neighbours of a floating-point format, within
    its range of normal values."""
    significand = torch.frexp(values)[0].abs() * 2.0 ** (FORMATS[dtype].significand + 1)
    return (significand == significand.floor()) & (significand.remainder(2) == 1)


TRANSPARENT = FillKind(
    "transparent",
    True,
    "full-width integers whose large products cancel, so that every sum fits the output's significand",
    "any wrong, missing or double element: the output's rounding hides no unit",
)
WIDE_A = FillKind(
    "wide-A",
    True,
    "A (a convolution's x) with full significands, times small integers: sums near the accumulator's limit",
    "A cut to a narrower format, a narrow accumulator, a lost promotion",
)
WIDE_B = FillKind(
    "wide-B",
    True,
    "B (a convolution's w) full; sums that climb to the limit and fall back to a tie of the output, or next to one",
    "an output that is not rounded to nearest even, once; B cut to a narrower format; a lost promotion",
)
WIDE_SCALES = FillKind(
    "wide-scales",
    True,
    "sums of up to twelve bits under scales of up to twelve bits, whose products fp32 holds",
    "scales that are rounded, cast down or belong to another row or block; sums rounded before they are scaled",
)
RANDN = FillKind("randn", False, "near-normal values and scales", "errors past the bound at usual values")
HOT = FillKind(
    "hot",
    False,
    "lognormal values over many binades next to positive uniform ones",
    "lost small terms, and truncation that grows with K",
)
SPECIAL = FillKind(
    "special",
    False,
    "NaN, infinities, -0, subnormals and the largest finite value, each in a row or column of its own",
    "lost NaN, wrong overflow, flushed subnormals, masked elements that are multiplied, a wrong sign of zero",
)


def applicable(problem: Gemm, contract: Contract) -> tuple[str, ...]:
    """The names of the fills that ``problem`` has.

    The epilogue may round (a gelu, a silu, or an alpha or beta that acts and is no power of two of at most 2**8). Then
    "wide-A" is the only exact product, apart from "transparent" of dual products. They are judged by the epilogue's own
    error, and "wide-A" stands for "hot" too. Without a product (K == 0 or alpha == 0) there are "transparent" and
    "randn", with an empty output only one of them. "wide-scales" is for scaled problems, unless operands are rounded to
    tf32 with the scales of their blocks; integer sums have "transparent" and "wide-A"; "special" is not for a prologue
    that computes, nor for gelu and silu.
    """
    if problem.output.numel == 0:
        return ("transparent",) if allows_exact(problem) else ("randn",)
    names = FILLS.names if problem.has_product else ("transparent", "randn")
    if problem.dtype == "int8":
        return tuple(name for name in names if name in ("transparent", "wide-A"))
    left_out: set[str] = set()
    if problem.scaling is None or (problem.scaling in BLOCK_SCALINGS and contract.operand == "tf32"):
        left_out.add("wide-scales")
    if not allows_exact(problem):
        left_out |= {"wide-B", "hot"} if problem.op == "dual_mm" else {"transparent", "wide-B", "hot"}
    fusion = problem.fusion
    if is_curved(problem) or (fusion is not None and fusion.prologue in ("cast", "scale", "scale-k")):
        left_out.add("special")
    return tuple(name for name in names if name not in left_out)


def build(request: FillRequest[Gemm]) -> Fill:
    """Returns the fill that ``request`` names; see :class:`FillSet`. Raises FillError if it shows less than it
    promises."""
    builders = {
        "transparent": exact.transparent,
        "wide-A": exact.wide,
        "wide-B": exact.wide,
        "wide-scales": exact.wide_scales,
        "randn": bounded_fills.randn,
        "hot": bounded_fills.hot,
        "special": bounded_fills.special,
    }
    problem, contract = request.problem, request.contract
    ties = request.name == "wide-B" and tie_bits(problem, contract) is not None
    fill = check_trust(problem, problem, contract, builders[request.name](request), ties=ties)
    return with_row_sums(request, fill) if len(problem.outputs) > 1 else fill


FILLS = FillSet((TRANSPARENT, WIDE_A, WIDE_B, WIDE_SCALES, RANDN, HOT, SPECIAL), applicable, build)
#: The fills of a product without scales, which convolutions have, too.
UNSCALED = (TRANSPARENT, WIDE_A, WIDE_B, RANDN, HOT, SPECIAL)
