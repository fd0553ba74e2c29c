"""How much a fill shows: a suite's problem set is judged by it, not one problem."""

from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import Problem


def visible_shares(fill: Fill, problem: Problem) -> dict[str, float]:
    """Shares of elements of the first output that are not zero ("nonzero") and, for exact fills that state their unit,
    that show a change of one unit after the rounding to the output ("transparent")."""
    size = max(1, fill.expected.numel())
    rounded = round_to(fill.expected, problem.output_dtype).double()
    shares = {"nonzero": float((rounded != 0).sum()) / size}
    if fill.method == "exact" and "unit_out" in fill.meta:
        limit = 2.0 ** (FORMATS[problem.output_dtype].significand + fill.meta["unit_out"])
        shares["transparent"] = float((fill.expected.abs() <= limit).sum()) / size
    return shares
