"""The record of a family of problems: what the harness asks of it, and the tiles and indices with which it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from conformance.families.draw import Draw
from conformance.families.limits import Rules
from conformance.families.products import Product, UnitAnswers
from conformance.inputs.fills import FillSet, register_fills
from conformance.numerics.alterations import Alteration, Tiling
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.problems import Problem, magnitude, value

#: Rows, columns and matrices of tiles: how many blocks cover the output of a problem with a config.
Tiles = tuple[int, int, int]
#: Rows, columns and the extent that is summed over, of one product of tiles.
CodeTile = tuple[int, int, int]
#: The smallest tile that Triton multiplies, in every direction.
LEAST = 16


def tiles_of(rows: int, columns: int, config: Any, matrices: int = 1) -> Tiles | None:
    """Returns the blocks of ``config`` that cover ``matrices`` matrices of (rows, columns); None for a config that has
    no ``block_m`` or no ``block_n``.

    >>> import types
    >>> tiles_of(100, 64, types.SimpleNamespace(block_m=32, block_n=64))
    (4, 1, 1)
    """
    block_m, block_n = (getattr(config, name, None) for name in ("block_m", "block_n"))
    return (-(-rows // block_m), -(-columns // block_n), matrices) if block_m and block_n else None


def block_product(kernel: Any, plan: Any, launch: str) -> set[CodeTile] | None:
    """Returns the one product of blocks of a main launch; None for another launch, and for a config without blocks."""
    rows, columns, depth = (getattr(plan.config, name, 0) for name in ("block_m", "block_n", "block_k"))
    return {(rows, columns, depth)} if rows and columns and depth and not launch else None


def blocks(extent: int, config: Any, name: str) -> int:
    """Returns the blocks ``name`` of ``config`` that cover ``extent``; 1 at most if the config has no such block.

    >>> import types
    >>> blocks(100, types.SimpleNamespace(block_m=32), "block_m"), blocks(100, None, "block_n")
    (4, 1)
    """
    block: int | None = getattr(config, name, None)
    return -(-extent // block) if block else min(extent, 1)


def matrix_tiles(problem: Problem, config: Any) -> tuple[int, int]:
    """Returns the tiles of the first output's matrix (rows, columns); those of each matrix of a batch."""
    rows, columns = (1, 1, *problem.output.shape)[-2:]
    return blocks(rows, config, "block_m"), blocks(columns, config, "block_n")


def whole(extent: int) -> int:
    """Returns the extent of the tile that holds ``extent`` elements.

    >>> whole(40), whole(3)
    (64, 16)
    """
    return max(1 << (extent - 1).bit_length(), LEAST)


#: For each dimension of a tensor a bool vector: True at the indices that are in the set.
Indices = Sequence[Tensor]
#: For each operand, the indices that are needed of it.
Needed = dict[str, tuple[Tensor, ...]]


def every(extent: int) -> Tensor:
    """Returns the set of all ``extent`` indices."""
    return torch.ones(extent, dtype=torch.bool)


def chosen(extent: int, numbers: Tensor) -> Tensor:
    """Returns the set, of ``extent`` indices, of those in ``numbers`` (int64).

    >>> chosen(4, torch.tensor([1, 3, 3])).tolist()
    [False, True, False, True]
    """
    result = torch.zeros(extent, dtype=torch.bool)
    result[numbers] = True
    return result


def divided(index: Tensor, by: int, extent: int) -> Tensor:
    """Returns the set, of ``extent`` indices, of those in ``index`` divided by ``by`` and rounded down.

    >>> divided(torch.tensor([False, False, True, True, True, False]), 2, 3).tolist()
    [False, True, True]
    """
    return chosen(extent, index.nonzero()[:, 0] // by)


def merged(parts: Iterable[Needed]) -> Needed:
    """Returns the union of ``parts``, operand by operand."""
    result: Needed = {}
    for part in parts:
        for name, indices in part.items():
            before = result.get(name, indices)
            result[name] = tuple(first | second for first, second in zip(before, indices, strict=True))
    return result


@dataclass(frozen=True)
class Family:
    """The answers of one family. An answer that a family does not have is None, and ``lacks`` says why, by field.

    ``value(problem, inputs, *, device)`` and ``magnitude(problem, inputs, *, device)`` are its reference; see
    :mod:`~conformance.problems`. ``fills`` are the inputs that judge its kernels.

    ``example(kernel, dtype, config, shape)`` returns a small problem for ``config``, of a shape class such as those of
    :data:`~conformance.families.examples.SHAPES`. It raises KeyError for a class that the family does not have.

    ``timed(kernel, dtype)`` returns the problem that is timed with each config of ``kernel``.

    ``draw_problem(kernel, draw)`` returns a random problem, which the kernel may still refuse.

    ``axes(problem, name)`` names one index along each dimension of the operand or output ``name``. It raises KeyError
    for an output if an axis of an operand with the same name would mean something else.

    ``needed(problem, inputs, output, stored)`` returns, for each operand, the indices on which the elements ``stored``
    of ``output`` depend.

    ``tiles(problem, config)`` returns the tiles of the output, or None for a config without the blocks.

    ``grid(kernel, plan, tiles, free)`` returns the programs that a kernel which is not persistent launches, in each
    dimension; ``free`` is the number of multiprocessors that it may use. None: a choice that has no formula.

    ``products(problem, fill, out, bad, tiling)`` returns the matrix products with an element that ``bad`` marks.

    ``alterations(problem, contract, tiling, exact)`` returns faulty computations that may explain a wrong output of
    fills; ``exact`` says whether the fills are judged bit by bit. Without it the usual faults are tried, which
    :mod:`~conformance.families.usual_faults` derives from the reference and the operands.

    ``refusals`` has a rule for each refusal code of its kernels; see :mod:`~conformance.families.limits`.

    ``unit`` states the bits that a tensor core makes of its problems.

    ``is_plain(problem)`` is True if the problem is one product whose tiles are worth a map.

    ``judged_tiles(problem, config)`` counts the tiles that a trial judges, in rows and columns: those of the first
    output's matrix unless the family says otherwise.

    ``pools_fills`` is True if alterations must explain the outputs of all fills together, whatever their methods.

    ``code_tiles(kernel, plan, launch)`` returns the tiles of all products in the code of one launch: the main one, "",
    or one with the name of its function. None: no formula.

    Raises ValueError for a field that is empty without a reason, and for a reason of a field that is not.
    """

    value: Callable[..., Tensor] | None = None
    magnitude: Callable[..., Tensor] | None = None
    fills: FillSet | None = None
    example: Callable[[Any, str, Any, str], Problem] | None = None
    timed: Callable[[Any, str], Problem] | None = None
    draw_problem: Callable[[Any, Draw], Problem] | None = None
    axes: Callable[[Any, str], tuple[str, ...]] | None = None
    needed: Callable[[Any, Mapping[str, Tensor], str, Indices], Needed] | None = None
    tiles: Callable[[Any, Any], Tiles | None] | None = None
    grid: Callable[[Any, Any, Tiles, int], tuple[int, ...] | None] | None = None
    products: Callable[[Any, Fill, Tensor, Tensor, Tiling], Iterator[Product]] | None = None
    alterations: Callable[[Any, Contract, Tiling, bool], Iterator[Alteration]] | None = None
    refusals: Rules | None = None
    unit: UnitAnswers | None = None
    is_plain: Callable[[Any], bool] = lambda problem: False
    judged_tiles: Callable[[Any, Any], tuple[int, int]] = matrix_tiles
    pools_fills: bool = False
    code_tiles: Callable[[Any, Any, str], set[CodeTile] | None] = block_product
    lacks: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        empty = {one.name for one in fields(self) if getattr(self, one.name) is None}
        if empty != set(self.lacks):
            raise ValueError(
                f"empty fields are {sorted(empty)}, lacks explains {sorted(self.lacks)}: give each a reason"
            )


#: A family that registered no record, such as one of another package. It may register fills and a reference alone.
UNKNOWN = Family(
    lacks=dict.fromkeys(
        (one.name for one in fields(Family) if one.default is None), "the family registers no record of its answers"
    )
)

#: The registered families, by the class of their problems.
REGISTERED: dict[type[Problem], Family] = {}


def family_of(problem: Problem) -> Family:
    """Returns the family of ``problem`` by its class; :data:`UNKNOWN` if none is registered for it."""
    return family_of_class(type(problem))


def family_of_class(problems: type[Problem]) -> Family:
    """Returns the family that is registered for the class ``problems`` or for the nearest class above it."""
    return next((REGISTERED[one] for one in problems.__mro__ if one in REGISTERED), UNKNOWN)


def register_family(problems: type[Problem], family: Family) -> None:
    """Registers ``family``, with its reference and fills, for problems of class ``problems`` and of its subclasses."""
    REGISTERED[problems] = family
    if family.value is not None:
        value.register(problems, family.value)
    if family.magnitude is not None:
        magnitude.register(problems, family.magnitude)
    if family.fills is not None:
        register_fills(problems, family.fills)
