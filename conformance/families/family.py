"""The record of a family of problems: what the harness asks of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from conformance.families.launch_tiles import CodeTile, Indices, Needed, Tiles, block_product
from conformance.families.limits import Rules
from conformance.families.products import Product, UnitAnswers
from conformance.inputs.fills import FillSet, register_fills
from conformance.numerics.alterations import Alteration, Tiling
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.problems import Problem, magnitude, value


@dataclass(frozen=True)
class Family:
    """The answers of one family. An answer that a family does not have is None, and ``lacks`` says why, by field.

    ``value(problem, inputs, *, device)`` and ``magnitude(problem, inputs, *, device)`` are its reference; see
    :mod:`~conformance.problems`. ``fills`` are the inputs that judge its kernels.

    ``axes(problem, name)`` names one index along each dimension of the operand ``name``.

    ``needed(problem, inputs, output, stored)`` returns, for each operand, the indices on which the elements ``stored``
    of ``output`` depend.

    ``tiles(problem, config)`` returns the tiles of the output, or None for a config without the blocks.

    ``grid(kernel, plan, tiles, free)`` returns the programs that a kernel which is not persistent launches, in each
    dimension; ``free`` is the number of multiprocessors that it may use. None: a choice that has no formula.

    ``products(problem, fill, out, bad, tiling)`` returns the matrix products with an element that ``bad`` marks.

    ``alterations(problem, contract, tiling, exact)`` returns faulty computations that may explain a wrong output of
    fills; ``exact`` says whether the fills are judged bit by bit.

    ``refusals`` has a rule for each refusal code of its kernels; see :mod:`~conformance.families.limits`.

    ``unit`` states the bits that a tensor core makes of its problems.

    ``is_plain(problem)`` is True if the problem is one product whose tiles are worth a map.

    ``pools_fills`` is True if alterations must explain the outputs of all fills together, whatever their methods.

    ``code_tiles(kernel, plan, launch)`` returns the tiles of all products in the code of one launch: the main one, "",
    or one with the name of its function. None: no formula.

    Raises ValueError for a field that is empty without a reason, and for a reason of a field that is not.
    """

    value: Callable[..., Tensor] | None = None
    magnitude: Callable[..., Tensor] | None = None
    fills: FillSet | None = None
    axes: Callable[[Any, str], tuple[str, ...]] | None = None
    needed: Callable[[Any, Mapping[str, Tensor], str, Indices], Needed] | None = None
    tiles: Callable[[Any, Any], Tiles | None] | None = None
    grid: Callable[[Any, Any, Tiles, int], tuple[int, ...] | None] | None = None
    products: Callable[[Any, Fill, Tensor, Tensor, Tiling], Iterator[Product]] | None = None
    alterations: Callable[[Any, Contract, Tiling, bool], Iterator[Alteration]] | None = None
    refusals: Rules | None = None
    unit: UnitAnswers | None = None
    is_plain: Callable[[Any], bool] = lambda problem: False
    pools_fills: bool = False
    code_tiles: Callable[[Any, Any, str], set[CodeTile] | None] = block_product
    lacks: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        empty = {one.name for one in fields(self) if getattr(self, one.name) is None}
        if empty != set(self.lacks):
            raise ValueError(
                f"empty fields are {sorted(empty)}, lacks explains {sorted(self.lacks)}: give each a reason"
            )


_FILLS_AND_REFERENCE_ONLY = "the family registers fills and a reference only"
_BY_ITSELF = "the family registers it without a record"
#: A family that registered no record, such as one of another package.
UNKNOWN = Family(
    lacks={
        **dict.fromkeys(("value", "magnitude", "fills"), _BY_ITSELF),
        **dict.fromkeys(
            ("axes", "needed", "tiles", "grid", "products", "alterations", "refusals", "unit"),
            _FILLS_AND_REFERENCE_ONLY,
        ),
    }
)

#: The registered families, by the class of their problems.
REGISTERED: dict[type[Problem], Family] = {}


@functools.singledispatch
def family_of(problem: Problem) -> Family:
    """Returns the family of ``problem`` by its class; :data:`UNKNOWN` if none is registered for it."""
    return UNKNOWN


def register_family(problems: type[Problem], family: Family) -> None:
    """Registers ``family``, with its reference and fills, for problems of class ``problems`` and of its subclasses."""
    REGISTERED[problems] = family
    if family.value is not None:
        value.register(problems, family.value)
    if family.magnitude is not None:
        magnitude.register(problems, family.magnitude)
    if family.fills is not None:
        register_fills(problems, family.fills)
    family_of.register(problems, lambda problem: family)
