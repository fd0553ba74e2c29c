"""The fills of products: which a problem has, bounded and special ones, and the check that each shows its fault.

A fill whose results are mostly zero, or hide what was computed, passes whatever a kernel does. Each fill is checked
when it is built. Exempt is what cannot show more: a problem without a product or with fewer than :data:`FEWEST_K` k.
Chance decides with fewer than :data:`FEWEST_OUTPUTS` outputs that a product reaches, so these are exempt, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.families.gemm import exact
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.arrangement import PROLOGUES, PlainProduct, formats, ignored, operand_tensors
from conformance.families.gemm.integer_budget import addends, allows_exact, budget_of, is_curved
from conformance.families.gemm.problem import BLOCK_SCALINGS, Gemm
from conformance.families.gemm.reference import error_bound, row_sums
from conformance.families.gemm.ties import tie_bits
from conformance.inputs.fills import Draws, FillError, FillKind, FillRequest, FillSet, Floats, Shape
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, Format, round_to
from conformance.problems import Operand, Problem

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
        "randn": randn,
        "hot": hot,
        "special": special,
    }
    problem, contract = request.problem, request.contract
    ties = request.name == "wide-B" and tie_bits(problem, contract) is not None
    fill = check_trust(problem, problem, contract, builders[request.name](request), ties=ties)
    return with_row_sums(request, fill) if len(problem.outputs) > 1 else fill


FILLS = FillSet((TRANSPARENT, WIDE_A, WIDE_B, WIDE_SCALES, RANDN, HOT, SPECIAL), applicable, build)
#: The fills of a product without scales, which convolutions have, too.
UNSCALED = (TRANSPARENT, WIDE_A, WIDE_B, RANDN, HOT, SPECIAL)


#: Bounded fills draw scales from [2**-1, 2).
LARGEST_SCALE = 2.0


def randn(request: FillRequest[Gemm]) -> Fill:
    """Near-normal operands, bias and positive scales that are no powers of two; integers over their whole range."""
    problem, draws = request.problem, request.draws()
    product = PlainProduct.of(problem)
    a = draws.normal((product.rows, product.k))
    b = _second(problem, draws.normal, draws, (product.k, product.cols))
    return _bounded(request, draws, a, b)


def hot(request: FillRequest[Gemm]) -> Fill:
    """Even rows of A and columns of B lognormal over many binades, odd ones positive uniform.

    Positive times positive shows biased truncation, which grows with K; lognormal shows lost small terms.
    """
    problem, draws = request.problem, request.draws()
    product = PlainProduct.of(problem)
    a = draws.lognormal((product.rows, product.k))
    b = _second(problem, draws.lognormal, draws, (product.k, product.cols))
    a[1::2] = draws.uniform(a[1::2].shape)
    b[:, 1::2] = np.abs(b[:, 1::2]) if problem.converts_b else draws.uniform(b[:, 1::2].shape)
    return _bounded(request, draws, a, b)


def _second(problem: Gemm, draw: Callable[[Shape], Floats], draws: Draws, shape: Shape) -> Floats:
    """B from ``draw``; for a mixed product, integers of the whole range but the lowest, because int8 has no |-128|."""
    if not problem.converts_b:
        return draw(shape)
    form = FORMATS[problem.second_dtype]
    lowest = -form.largest if form.lowest else 0
    return draws.below(int(form.largest - lowest) + 1, shape).astype(np.float64) + lowest


def special(request: FillRequest[Gemm]) -> Fill:
    """Returns operands with NaN, infinities, -0, subnormals and the largest finite value, one kind for each special row
    of A and column of B.

    Single values lie at random k, those of A's first kind at the last k. Formats without infinity hold NaN only, and
    those without -0 have no such row. For narrow outputs one row overflows the output. At most half of the rows and of
    the columns are special. One of the others is positive and shows the sign of a sum of -0.
    """
    problem, draws = request.problem, request.draws()
    product = PlainProduct.of(problem)
    a = draws.normal((product.rows, product.k))
    b = _second(problem, draws.normal, draws, (product.k, product.cols))
    used: set[int] = set()
    ordinary: list[int] = []
    # one after the other on (line, k) views of the operand and of its partner
    for matrix, partner, name in ((a, b.T, "a"), (b.T, a, "b")):
        kinds = _kinds(problem, name, request.contract)
        lines = draws.permutation(matrix.shape[0])
        order, ordinary = lines[: matrix.shape[0] // 2], [*ordinary, int(lines[-1])]
        if len(order) < len(kinds):
            kinds = [kinds[i] for i in draws.permutation(len(kinds))]
        for place, (line, kind) in enumerate(zip(order, kinds, strict=False)):
            k = product.k - 1 if place == 0 else int(draws.below(product.k, ())[()])
            if kind == "largest":
                # the partner's values are kept small there, and the same k is not used twice: no sum overflows fp32
                if k in used:
                    continue
                used.add(k)
                partner[:, k] *= 2.0**-6
            plant(kind, matrix[line], k, FORMATS[problem.operand(name).dtype])
    # a row of -0 and this column have only products of -0, and so have this row and a column of -0
    for matrix, line in zip((a, b.T), ordinary, strict=True):
        matrix[line] = np.abs(matrix[line])
    return _finish(request, "special", _tensors(request, draws, a, b))


def _kinds(problem: Gemm, name: str, contract: Contract) -> list[str]:
    form = FORMATS[problem.operand(name).dtype]
    if form.lowest is not None:
        return []
    # the largest value needs a partner that is small there, which integers are not
    kinds = ["nan", "zero"] if form.signed_zero else ["nan"]
    if not problem.converts_b:
        kinds.append("largest")
    if form.infinity is not None:
        kinds += ["+inf", "-inf"]
    if not contract.flushes_subnormals:
        kinds.append("subnormal")
    if contract.split is not None:  # which promises nothing of the others
        return ["nan", "zero"]
    # a narrow accumulator overflows on the way to a sum that does not, in an unknown order
    if name == "a" and FORMATS[contract.out_dtype].largest < 2**20 and contract.accumulator.dtype == "fp32":
        kinds.append("overflow")
    return kinds


def plant(kind: str, line: Floats, place: int | tuple[Any, ...], form: Format) -> None:
    """Puts special values into ``line``, a row or column of an operand whose dtype is ``form``.

    NaN, an infinity and the largest value go to ``place`` alone; -0, subnormals and values that overflow fill the line.
    """
    if kind == "zero":
        line[...] = -0.0
    elif kind == "subnormal":
        # halves of normals of one binade, so that no element is lost and none is normal
        line[...] = np.clip(np.abs(line), 0.25, 1.75) * form.smallest_normal * 0.5
    elif kind == "overflow":
        line[...] = np.copysign(2.0 ** min(form.max_exponent - 2, 17), line)
    else:
        line[place] = form.largest if kind == "largest" else float(kind)


def _bounded(request: FillRequest[Gemm], draws: Draws, a: Floats, b: Floats) -> Fill:
    a, b = _fitted(request, a, b)
    return _finish(request, "bounded", _tensors(request, draws, a, b))


def _fitted(request: FillRequest[Gemm], a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Scale by powers of two so that results stay a factor of four inside a narrow output's range."""
    problem, largest = request.problem, FORMATS[request.contract.out_dtype].largest
    if largest > 2.0**100 or not problem.has_product or problem.output.numel == 0:
        return a, b
    gain = LARGEST_SCALE**2 if problem.scaling else max(1.0, abs(problem.alpha))
    if problem.fusion is not None:
        gain = 2.0 * LARGEST_SCALE  # of a dropout and of a prologue
    limit = largest / 4 / gain
    if problem.op == "dual_mm":  # two such sums are multiplied
        limit = math.sqrt(limit)
    sizes = (torch.from_numpy(np.abs(array)).to(request.device or "cpu") for array in (a, b))
    size = float(torch.matmul(*sizes).max())
    shift = max(0, math.frexp(size / limit)[1])
    part = 0 if problem.converts_b else shift // 2  # integers stay
    return a * 2.0 ** -(shift - part), b * 2.0**-part


def _tensors(request: FillRequest[Gemm], draws: Draws, a: Floats, b: Floats) -> dict[str, Tensor]:
    problem, contract = request.problem, request.contract

    def matrix(name: str) -> Tensor:
        return representable(a if name == "a" else b, formats(problem, contract, name))

    def addend(operand: Operand) -> Tensor:
        values = torch.from_numpy(draws.normal(operand.shape))
        read = operand.name == "residual" or problem.reads_bias
        return round_to(values, operand.dtype) if read else ignored(operand)

    def scale(operand: Operand) -> Tensor:
        return round_to(torch.from_numpy(_scale(problem, operand, contract, draws)), "fp32")

    return operand_tensors(problem, draws, matrix=matrix, addend=addend, scale=scale)


def _scale(problem: Gemm, operand: Operand, contract: Contract, draws: Draws) -> Floats:
    scale = np.ldexp(1.0 + draws.uniform(operand.shape), -draws.below(2, operand.shape))
    if operand.name in PROLOGUES and "tf32" in formats(problem, contract, "a"):
        scale = np.ldexp(1.0, np.frexp(scale)[1])  # a power of two, so that A stays representable in tf32
    return np.asarray(scale)


def representable(values: Floats, forms: tuple[str, ...]) -> Tensor:
    """``values`` in the first of the formats, clipped to the range of all of them.

    If the last format is tf32, the values are representable in it, because units differ in how they round to tf32.
    Other conversions are the kernel's own, and may round."""
    tensor = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))
    for form in forms:
        tensor = _clipped(tensor, form)
    if forms[-1] == "tf32":
        tensor = round_to(tensor, "tf32").double()
    return round_to(tensor, forms[0])


def _clipped(values: Tensor, name: str) -> Tensor:
    """Finite values past the format's range are cut to it; NaN and infinities stay."""
    form = FORMATS[name]
    lowest = -form.largest if form.lowest is None else form.lowest
    return torch.where(values.isinf(), values, values.clamp(lowest, form.largest))


def _finish(request: FillRequest[Gemm], method: str, inputs: dict[str, Tensor]) -> Fill:
    problem, device = request.problem, request.device
    value = gemm.value(problem, inputs, device=device)
    magnitude = gemm.magnitude(problem, inputs, device=device)
    error = error_bound(problem, request.contract, value, magnitude, inputs)
    if method == "special" and not addends(problem):
        error = without_error_of_nothing(request.contract, error, magnitude)
    return request.bounded_fill(method, inputs, value, error)


def without_error_of_nothing(contract: Contract, error: Tensor, magnitude: Tensor) -> Tensor:
    """``error``, but 0 where every term is a zero, because their sum is one in any arithmetic; not where the contract
    flushes subnormals, which says nothing of the sign of zeros."""
    return error if contract.flushes_subnormals else torch.where(magnitude == 0, 0.0, error)


#: Integers whose sums of sizes stay below 2**24 are added in fp32 without rounding, in any order.
FP32_BITS = 24


def with_row_sums(request: FillRequest[Gemm], fill: Fill) -> Fill:
    """Returns ``fill`` of the product of ``mm_with_sums``, and with it that of the sums of A's rows."""
    a = fill.inputs["a"].to(request.device or "cpu")
    return dataclasses.replace(fill, parts={"sums": sums_part(fill, request.contract, a, fill.meta.get("unit_a", 0))})


def sums_part(fill: Fill, contract: Contract, rows: Tensor, unit: int) -> Fill:
    """The fill of the sums of ``rows`` (rows, k), an operand of the product that ``fill`` is of.

    Sums are judged bit by bit where ``fill`` is exact and the operand holds integers of 2**``unit`` so small that no
    order of summation rounds. Others are judged by the bound of an fp32 sum. Under "special" they are judged as the
    product is.
    """
    total, error = row_sums(contract, rows)
    size = float(rows.double().abs().sum(1).max()) if rows.numel() else 0.0
    exact = fill.method == "exact" and size < 2.0 ** (FP32_BITS + unit)
    method = "exact" if exact else "bounded" if fill.method == "exact" else fill.method
    return Fill(fill.name, fill.seed, method, fill.inputs, total, None if exact else error)
