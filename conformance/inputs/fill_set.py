"""The fills of one family of problems: which there are, what each is for, how one is built, and their registration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor

from conformance.inputs.draws import Draws
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.problems import Problem
from conformance.problems.reference_dispatch import Device

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
