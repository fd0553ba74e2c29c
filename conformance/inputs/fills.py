"""The fills of a problem under a contract: which there are, and whether they can be trusted.

A fill depends on the operation, sizes, dtypes, bias kind, alpha, beta, scaling, contract and seed, never on layouts:
one set of fills serves all layouts of a problem.
"""

from __future__ import annotations

from collections.abc import Sequence

from conformance import reference
from conformance.inputs import bounded, exact
from conformance.inputs.exact import FillError
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import Gemm

__all__ = ["FILL_NAMES", "Fill", "FillError", "fills", "trust"]

#: Every fill there is, in the order in which they are returned.
FILL_NAMES = ("transparent", "wide-A", "wide-B", "wide-scales", "randn", "hot", "special")


def fills(
    problem: Gemm,
    contract: Contract,
    seed: int = 0,
    names: Sequence[str] | None = None,
    *,
    device: reference.Device = None,
) -> tuple[Fill, ...]:
    """All fills that ``contract`` allows for ``problem``, or those of them in ``names``, in the order of FILL_NAMES.

    Exact fills need alpha and beta to be powers of two (of at most 2**8) where they act; without a product (K == 0 or
    alpha == 0) there are "transparent" and "randn", with an empty output only the former; "wide-scales" is for scaled
    problems. Inputs are CPU tensors;
    ``device`` is where the fp64 products are computed and where ``expected`` and ``error`` live (None: the CPU).
    Raises ValueError for unknown names or a contract of another output dtype, FillError if a fill breaks its promise.
    """
    wanted = FILL_NAMES if names is None else tuple(names)
    unknown = sorted(set(wanted) - set(FILL_NAMES))
    if unknown:
        raise ValueError(f"fill names {unknown} are unknown: use {', '.join(FILL_NAMES)}")
    if contract.out_dtype != problem.output_dtype:
        raise ValueError(f"{problem.id} has output {problem.output_dtype}, its contract says {contract.out_dtype}")
    return tuple(_build(name, problem, contract, seed, device) for name in _allowed(problem) if name in wanted)


def trust(fill: Fill, problem: Gemm) -> dict[str, float]:
    """Shares of outputs that are not zero ("nonzero") and, for exact fills, that show a change of one unit after the
    rounding to the output ("transparent"). A suite's problem set is judged by them, not one problem."""
    size = max(1, fill.expected.numel())
    rounded = round_to(fill.expected, problem.output_dtype).double()
    shares = {"nonzero": float((rounded != 0).sum()) / size}
    if fill.method == "exact":
        limit = 2.0 ** (FORMATS[problem.output_dtype].significand + fill.meta["unit_out"])
        shares["transparent"] = float((fill.expected.abs() <= limit).sum()) / size
    return shares


def _allowed(problem: Gemm) -> tuple[str, ...]:
    if problem.M == 0 or problem.N == 0:
        return ("transparent",)
    names: tuple[str, ...] = FILL_NAMES if problem.has_product else ("transparent", "randn")
    if problem.scaling is None:
        names = tuple(name for name in names if name != "wide-scales")
    if exact.allows_exact(problem):
        return names
    return tuple(name for name in names if name not in ("transparent", "wide-A", "wide-B"))


def _build(name: str, problem: Gemm, contract: Contract, seed: int, device: reference.Device) -> Fill:
    if name == "transparent":
        return exact.transparent(problem, contract, seed, device)
    if name == "wide-scales":
        return exact.wide_scales(problem, contract, seed, device)
    if name.startswith("wide-"):
        return exact.wide(name[-1], problem, contract, seed, device)
    build = {"randn": bounded.randn, "hot": bounded.hot, "special": bounded.special}[name]
    return build(problem, contract, seed, device)
