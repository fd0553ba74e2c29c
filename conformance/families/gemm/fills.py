"""The fills of a plain, batched, scaled or fused product; :mod:`.exact` and :mod:`.bounded` build them."""

from __future__ import annotations

from conformance.families.gemm import bounded as bounded_fills
from conformance.families.gemm import exact
from conformance.families.gemm.integer_budget import allows_exact, is_curved
from conformance.families.gemm.problem import BLOCK_SCALINGS, Gemm
from conformance.families.gemm.row_sums import with_row_sums
from conformance.families.gemm.ties import tie_bits
from conformance.families.gemm.trust import check_trust
from conformance.inputs.fill_set import FillKind, FillRequest, FillSet, register_fills
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill

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
register_fills(Gemm, FILLS)
