"""The fills of one family of problems: which there are, what each is for, and how one is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.references.operands import Device


@dataclass(frozen=True)
class FillKind:
    """One row of the table of fills: its name, whether it is judged bit for bit, what it holds, what it shows."""

    name: str
    exact: bool
    holds: str
    shows: str


@dataclass(frozen=True)
class FillSet:
    """The fills of a family.

    ``kinds``: every fill of the family, in the order in which they run. ``applicable(problem, contract)``: the names
    of those that this problem has. ``build(name, problem, contract, seed, device)``: one of them; it raises FillError
    if the fill breaks its promise.
    """

    kinds: tuple[FillKind, ...]
    applicable: Callable[[Any, Contract], tuple[str, ...]]
    build: Callable[[str, Any, Contract, int, Device], Fill]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(kind.name for kind in self.kinds)
