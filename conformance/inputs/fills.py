"""The fills of a problem under a contract: which there are, and whether they can be trusted.

A fill depends on the operation, sizes, dtypes, bias kind, alpha, beta, scaling, contract and seed, never on layouts:
one set of fills serves all layouts of a problem. Each family of problems but that of the plain product has a module
of its own here, of the same signature.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType

from conformance import reference
from conformance.inputs import bounded, exact
from conformance.inputs.exact import FillError
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import Gemm, Problem

__all__ = ["FILL_NAMES", "Fill", "FillError", "fill_names", "fills", "trust"]

#: Every fill of a :class:`Gemm`, in the order in which they are returned.
FILL_NAMES = ("transparent", "wide-A", "wide-B", "wide-scales", "randn", "hot", "special")
#: Modules of the other families; imported when needed, as they build on this one's parts.
FAMILIES = {"Attention": "attention", "Conv": "conv", "GroupedGemm": "grouped"}


def fills(
    problem: Problem,
    contract: Contract,
    seed: int = 0,
    names: Sequence[str] | None = None,
    *,
    device: reference.Device = None,
) -> tuple[Fill, ...]:
    """All fills that ``contract`` allows for ``problem``, or those of them in ``names``, in the order of FILL_NAMES.

    Exact fills need an epilogue that rounds nothing: no gelu, and alpha and beta powers of two (of at most 2**8) where
    they act. Without a product (K == 0 or alpha == 0) there are "transparent" and "randn", with an empty output only
    one of them; "wide-scales" is for scaled problems; integer sums have "transparent" and "wide-A"; "special" is not
    for a prologue that computes nor for gelu. Inputs are CPU tensors; ``device`` is where the fp64 products are
    computed and where ``expected`` and ``error`` live (None: the CPU). Raises ValueError for unknown names or a
    contract of another output dtype, FillError if a fill breaks its promise.
    """
    if not isinstance(problem, Gemm):
        found: tuple[Fill, ...] = _family(problem).fills(problem, contract, seed, names, device=device)
        return found
    wanted = FILL_NAMES if names is None else tuple(names)
    unknown = sorted(set(wanted) - set(FILL_NAMES))
    if unknown:
        raise ValueError(f"fill names {unknown} are unknown: use {', '.join(FILL_NAMES)}")
    if contract.out_dtype != problem.output_dtype:
        raise ValueError(f"{problem.id} has output {problem.output_dtype}, its contract says {contract.out_dtype}")
    return tuple(_build(name, problem, contract, seed, device) for name in _allowed(problem) if name in wanted)


def fill_names(problem: Problem) -> tuple[str, ...]:
    """The names that :func:`fills` knows for problems of this family; a problem may have fewer fills."""
    if isinstance(problem, Gemm):
        return FILL_NAMES
    found: tuple[str, ...] = _family(problem).FILL_NAMES
    return found


def trust(fill: Fill, problem: Problem) -> dict[str, float]:
    """Shares of elements of the first output that are not zero ("nonzero") and, for exact fills that state their unit,
    that show a change of one unit after the rounding to the output ("transparent"). A suite's problem set is judged by
    them, not one problem."""
    size = max(1, fill.expected.numel())
    rounded = round_to(fill.expected, problem.output_dtype).double()
    shares = {"nonzero": float((rounded != 0).sum()) / size}
    if fill.method == "exact" and "unit_out" in fill.meta:
        limit = 2.0 ** (FORMATS[problem.output_dtype].significand + fill.meta["unit_out"])
        shares["transparent"] = float((fill.expected.abs() <= limit).sum()) / size
    return shares


def _family(problem: Problem) -> ModuleType:
    for kind in type(problem).__mro__:
        if kind.__name__ in FAMILIES:
            return importlib.import_module(f"conformance.inputs.{FAMILIES[kind.__name__]}")
    known = ", ".join(["Gemm", *FAMILIES])
    raise TypeError(f"{problem.id} is a {type(problem).__name__}, for which there are no fills: there are for {known}")


def _allowed(problem: Gemm) -> tuple[str, ...]:
    if problem.output.numel == 0:
        return ("transparent",) if exact.allows_exact(problem) else ("randn",)
    names: tuple[str, ...] = FILL_NAMES if problem.has_product else ("transparent", "randn")
    if problem.op == "int_mm":
        return tuple(name for name in names if name in ("transparent", "wide-A"))
    left_out: set[str] = set()
    if problem.scaling is None:
        left_out.add("wide-scales")
    if not exact.allows_exact(problem):
        left_out |= {"transparent", "wide-A", "wide-B"}
    if problem.fusion is not None and (
        problem.fusion.prologue in ("cast", "scale") or "gelu" in problem.fusion.epilogue
    ):
        left_out.add("special")
    return tuple(name for name in names if name not in left_out)


def _build(name: str, problem: Gemm, contract: Contract, seed: int, device: reference.Device) -> Fill:
    if name == "transparent":
        return exact.transparent(problem, contract, seed, device)
    if name == "wide-scales":
        return exact.wide_scales(problem, contract, seed, device)
    if name.startswith("wide-"):
        return exact.wide(name[-1], problem, contract, seed, device)
    build = {"randn": bounded.randn, "hot": bounded.hot, "special": bounded.special}[name]
    return build(problem, contract, seed, device)
