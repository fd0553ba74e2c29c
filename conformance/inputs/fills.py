"""The fills of a problem under a contract: what a family registers, and the fills of any problem.

A fill depends on the operation, sizes, dtypes, bias kind, alpha, beta, scaling, contract and seed, never on layouts.
One set of fills serves all layouts of a problem. A family registers its fills for its problems' class, in its folder of
:mod:`conformance.families` or anywhere else. It registers its reference as :mod:`conformance.reference` says::

    RANDN = FillKind("randn", exact=False, holds="near-normal values", shows="errors past the bound")

    def build(request):
        return request.fill("bounded", inputs, expected, error)

    register_fills(MyProblem, FillSet((RANDN,), applicable=lambda problem, contract: ("randn",), build=build))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor

from conformance.inputs.draws import Draws
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.problems import Device, Problem

SomeProblem = TypeVar("SomeProblem", bound=Problem)


class FillError(AssertionError):
    """A fill does not hold what it promises; the message has the figures. Always an error of the harness."""


@dataclass(frozen=True)
class FillRequest(Generic[SomeProblem]):
    """One fill to build: its name, for which problem and contract, from which seed, and where fp64 values live."""

    name: str
    problem: SomeProblem
    contract: Contract
    seed: int
    device: Device

    def draws(self, salt: str = "") -> Draws:
        """Returns the random numbers of this fill; another ``salt`` gives a fill of the same name others."""
        return Draws(self.seed, f"{salt} {self.name}" if salt else self.name)

    def fill(
        self,
        method: str,
        inputs: Mapping[str, Tensor],
        expected: Tensor,
        error: Tensor | None,
        meta: dict[str, Any] | None = None,
    ) -> Fill:
        """The fill, once it is built; see :class:`Fill` for the arguments."""
        return Fill(self.name, self.seed, method, inputs, expected, error, meta or {})

    def bounded_fill(self, method: str, inputs: Mapping[str, Tensor], expected: Tensor, error: Tensor) -> Fill:
        """A fill that is judged by a bound; it says whether that rests on figures that were not measured."""
        return self.fill(method, inputs, expected, error, {"contract_assumed": self.contract.accumulator.assumed})


@dataclass(frozen=True)
class FillKind:
    """One row of the table of fills: its name, whether it is judged bit for bit, what it holds, what it shows; and
    whether only a test that names it runs it."""

    name: str
    exact: bool
    holds: str
    shows: str
    on_request: bool = False


@dataclass(frozen=True)
class FillSet:
    """The fills of a family.

    ``kinds``: every fill of the family, in the order in which they run. ``applicable(problem, contract)``: the names
    of those that this problem has. ``build(request)``: one of them; it raises FillError if the fill breaks its promise.
    """

    kinds: tuple[FillKind, ...]
    applicable: Callable[[Any, Contract], tuple[str, ...]]
    build: Callable[[FillRequest[Any]], Fill]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(kind.name for kind in self.kinds)


#: The fills of every family, by the class of its problems.
REGISTERED: dict[type[Problem], FillSet] = {}


@functools.singledispatch
def fill_set(problem: Problem) -> FillSet:
    """Returns the fills of the problem's family. Raises TypeError if none are registered for it."""
    registered = ", ".join(sorted(family.__name__ for family in REGISTERED))
    name = type(problem).__name__
    raise TypeError(
        f"{problem.id} is a {name}, for which there are no fills: register some; there are for {registered}"
    )


def register_fills(family: type[Problem], fills: FillSet) -> None:
    """Makes ``fills`` the fills of the problems of class ``family`` and of its subclasses."""
    REGISTERED[family] = fills
    fill_set.register(family, lambda problem: fills)


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
