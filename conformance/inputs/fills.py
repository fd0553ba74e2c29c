"""The fills of a problem under a contract, whatever the problem's family.

A fill depends on the operation, sizes, dtypes, bias kind, alpha, beta, scaling, contract and seed, never on layouts.
One set of fills serves all layouts of a problem. A family registers its fills for its problems' class, in its folder of
:mod:`conformance.families` or anywhere else. It registers its reference as :mod:`conformance.reference` says::

    RANDN = FillKind("randn", exact=False, holds="near-normal values", shows="errors past the bound")

    def build(request):
        return request.fill("bounded", inputs, expected, error)

    register_fills(MyProblem, FillSet((RANDN,), applicable=lambda problem, contract: ("randn",), build=build))
"""

from __future__ import annotations

from collections.abc import Sequence

from conformance.inputs.fill_set import REGISTERED, FillError, FillKind, FillRequest, FillSet, fill_set, register_fills
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.problems import Problem
from conformance.problems.reference_dispatch import Device

__all__ = [
    "Fill",
    "FillError",
    "FillKind",
    "FillRequest",
    "FillSet",
    "applicable_fills",
    "fill_names",
    "fill_table",
    "fills",
    "register_fills",
]


def fills(
    problem: Problem,
    contract: Contract,
    seed: int = 0,
    names: Sequence[str] | None = None,
    *,
    device: Device = None,
) -> tuple[Fill, ...]:
    """Returns the fills that ``problem`` has under ``contract``, or those of them in ``names``, in the family's order.

    Inputs are CPU tensors; ``device`` is where fp64 values are computed and where ``expected`` and ``error`` live
    (None: the CPU). Raises ValueError for a name that the family does not know or a contract of another output dtype,
    FillError if a fill breaks its promise.
    """
    chosen = applicable_fills(problem, contract, names)
    return tuple(fill_set(problem).build(FillRequest(name, problem, contract, seed, device)) for name in chosen)


def fill_names(problem: Problem) -> tuple[str, ...]:
    """The names of all fills of the problem's family; the problem itself may have fewer."""
    return fill_set(problem).names


def applicable_fills(problem: Problem, contract: Contract, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names of the fills that ``problem`` has under ``contract``, or of those of them in ``names``; without
    ``names`` none of those that run on request alone.

    Raises ValueError for a name that the family does not know or a contract of another output dtype.
    """
    all_names = fill_names(problem)
    unknown = sorted(set(names or ()) - set(all_names))
    if unknown:
        raise ValueError(f"fill names {unknown} are unknown for {problem.id}: use {', '.join(all_names)}")
    if contract.out_dtype != problem.output_dtype:
        raise ValueError(f"{problem.id} has output {problem.output_dtype}, its contract says {contract.out_dtype}")
    usual = [kind.name for kind in fill_set(problem).kinds if not kind.on_request] if names is None else names
    return tuple(name for name in fill_set(problem).applicable(problem, contract) if name in usual)


def fill_table() -> list[list[str]]:
    """A header and one row per fill of each family: family, name, how it is judged, what it holds, what it shows."""
    rows = [["problems", "fill", "judged", "holds", "shows"]]
    for family, registered in sorted(REGISTERED.items(), key=lambda item: item[0].__name__):
        for kind in registered.kinds:
            judged = "bit for bit" if kind.exact else "by a bound"
            rows.append([family.__name__, kind.name, judged, kind.holds, kind.shows])
    return rows
