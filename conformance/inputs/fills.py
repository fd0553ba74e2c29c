"""The fills of a problem under a contract, whatever the problem's family.

A fill depends on the operation, sizes, dtypes, bias kind, alpha, beta, scaling, contract and seed, never on layouts:
one set of fills serves all layouts of a problem. The families of this package are registered below. A family from
elsewhere registers its own fills for its problems' class, and its reference in :mod:`conformance.reference`::

    RANDN = FillKind("randn", exact=False, holds="near-normal values", shows="errors past the bound")

    def build(request):
        return request.fill("bounded", inputs, expected, error)

    register_fills(MyProblem, FillSet((RANDN,), applicable=lambda problem, contract: ("randn",), build=build))
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from conformance.inputs import attention, conv, gemm, grouped
from conformance.inputs.fill_set import FillError, FillKind, FillRequest, FillSet
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.problems import Attention, Conv, Gemm, GroupedGemm, Problem
from conformance.references.operands import Device

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
    "names_of_family",
    "register_fills",
]

_REGISTERED: dict[type[Problem], FillSet] = {}


@functools.singledispatch
def _fill_set(problem: Problem) -> FillSet:
    known = ", ".join(family.__name__ for family in _REGISTERED)
    name = type(problem).__name__
    raise TypeError(f"{problem.id} is a {name}, for which there are no fills: register some; there are for {known}")


def register_fills(family: type[Problem], fill_set: FillSet) -> None:
    """Makes ``fill_set`` the fills of the problems of class ``family`` and of its subclasses."""
    _REGISTERED[family] = fill_set
    _fill_set.register(family, lambda problem: fill_set)


register_fills(Gemm, gemm.FILLS)
register_fills(Conv, conv.FILLS)
register_fills(GroupedGemm, grouped.FILLS)
register_fills(Attention, attention.FILLS)


def fills(
    problem: Problem,
    contract: Contract,
    seed: int = 0,
    names: Sequence[str] | None = None,
    *,
    device: Device = None,
) -> tuple[Fill, ...]:
    """The fills that ``problem`` has under ``contract``, or those of them in ``names``, in the family's order.

    Inputs are CPU tensors; ``device`` is where fp64 values are computed and where ``expected`` and ``error`` live
    (None: the CPU). Raises ValueError for a name that the family does not know or a contract of another output dtype,
    FillError if a fill breaks its promise.
    """
    chosen = applicable_fills(problem, contract, names)
    return tuple(_fill_set(problem).build(FillRequest(name, problem, contract, seed, device)) for name in chosen)


def fill_names(problem: Problem) -> tuple[str, ...]:
    """The names of all fills of the problem's family; the problem itself may have fewer."""
    return _fill_set(problem).names


def applicable_fills(problem: Problem, contract: Contract, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names of the fills that ``problem`` has under ``contract``, or of those of them in ``names``.

    Raises ValueError for a name that the family does not know or a contract of another output dtype.
    """
    known = fill_names(problem)
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise ValueError(f"fill names {unknown} are unknown for {problem.id}: use {', '.join(known)}")
    if contract.out_dtype != problem.output_dtype:
        raise ValueError(f"{problem.id} has output {problem.output_dtype}, its contract says {contract.out_dtype}")
    return tuple(name for name in _fill_set(problem).applicable(problem, contract) if names is None or name in names)


def names_of_family(problem: Problem, names: Iterable[str]) -> tuple[str, ...]:
    """Those of ``names`` that the problem's family knows, for callers whose problems are of several families.

    Raises ValueError for a name that no family knows.
    """
    every = {name for fill_set in _REGISTERED.values() for name in fill_set.names}
    unknown = sorted(set(names) - every)
    if unknown:
        raise ValueError(f"fill names {unknown} are unknown: use {', '.join(sorted(every))}")
    return tuple(name for name in names if name in fill_names(problem))


def fill_table() -> list[list[str]]:
    """A header and one row per fill of each family: family, name, how it is judged, what it holds, what it shows."""
    rows = [["problems", "fill", "judged", "holds", "shows"]]
    for family, fill_set in _REGISTERED.items():
        for kind in fill_set.kinds:
            judged = "bit for bit" if kind.exact else "by a bound"
            rows.append([family.__name__, kind.name, judged, kind.holds, kind.shows])
    return rows
