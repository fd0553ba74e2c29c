"""Common parts of the alterations of attention: its outputs with their bounds, and where a kernel applies a mask."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from conformance.families.attention import bounds as attention_bounds
from conformance.families.attention import reference as meaning
from conformance.families.attention.problem import Attention
from conformance.numerics.alterations import Outputs
from conformance.numerics.contract import Contract
from conformance.numerics.tiling import Tiling

Inputs = Mapping[str, Tensor]
#: Changes the scores of a problem, whose operands they hold too.
Rescored = Callable[[meaning.Scores, Inputs], meaning.Scores]
LOG2E = math.log2(math.e)
#: Where a bound is that of the right computation, the altered one may err by this much more. Evidence is what lies
#: further away than that.
LOOSE = 16.0
#: The first of the misjudgements, which concern all tiles of a kind.
PLAIN = 3


def unchanged(scored: meaning.Scores, _: Inputs) -> meaning.Scores:
    """Returns the right scores."""
    return scored


def outputs_of(problem: Attention, contract: Contract, change: Rescored, inputs: Inputs) -> Outputs:
    """Returns the outputs that follow from changed scores, with their bounds."""
    scored = change(meaning.scores(problem, inputs), inputs)
    if problem.backward:
        gradients = meaning.gradients(problem, inputs, scored)
        return with_errors(gradients.outputs, attention_bounds.backward_error(problem, contract, gradients))
    values = meaning.attended(scored)
    return with_errors(values.outputs, attention_bounds.forward_error(problem, contract, values))


def with_errors(values: Mapping[str, Tensor], errors: tuple[Tensor, ...]) -> Outputs:
    """Outputs by name, each with its bound."""
    return {name: (value, error) for (name, value), error in zip(values.items(), errors, strict=True)}


def where_applied(problem: Attention, tiling: Tiling, visible: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yields the mask ``visible`` everywhere, or only in the tiles that a kernel masks. A kernel leaves out tiles of
    which nothing is seen, and does not mask those that are seen whole. The last masks are the right one where a kernel
    takes the tiles of ``visible`` for seen whole, or for hidden. Each comes with text that says where."""
    yield "", visible
    right = meaning.visible(problem, {})[0, 0]
    for rows, columns in tile_shapes(problem, tiling):
        some, every = _by_tiles(right, rows, columns)
        yield f" (in tiles of {rows} x {columns} of which anything is seen)", visible & some
        yield f" (in tiles of {rows} x {columns} that the mask crosses)", (visible & some) | every
        yield f" (in tiles of {rows} x {columns} that are not seen whole)", visible | every
    for rows, columns in tile_shapes(problem, tiling):
        some, every = _by_tiles(visible, rows, columns)
        yield f" (where tiles of {rows} x {columns} are taken for seen whole)", right | every
        yield f" (where tiles of {rows} x {columns} are taken for hidden)", right & some


def tile_shapes(problem: Attention, tiling: Tiling) -> list[tuple[int, int]]:
    """(rows, columns) of the tiles that a kernel may mask."""
    m, n, _ = tiling.block
    edges = {(m, n), (n, m)} if problem.backward else {(m, n)}
    return sorted(edges | ({(problem.block, problem.block)} if problem.block else set()))


def tiles_misjudged(problem: Attention, tiling: Tiling) -> Iterator[tuple[str, Tensor]]:
    """Returns the masks that result if whole tiles are masked, not masked or left out that should not be. Each with its
    cause."""
    right = meaning.visible(problem, {})[0, 0]
    shapes = tile_shapes(problem, tiling)
    for rows, columns in shapes:
        some, every = _by_tiles(right, rows, columns)
        tiles = f"tiles of {rows} x {columns}"
        yield f"{tiles} that the mask crosses are not masked", some
        yield f"nothing is seen of {tiles} that the mask crosses", every
        yield f"nothing is seen of {tiles} that the mask does not cross", right & ~every
    for rows, columns in shapes:
        tiles = f"tiles of {rows} x {columns}"
        for which, line in (("first", 0), ("last", -1)):
            for what, axis in (("query", 0), ("key", 1)):
                some, every = _by_tiles(right, rows, columns, axis, line)
                yield f"{tiles} are not masked if their {which} {what} is seen whole", right | every
                yield f"{tiles} are hidden if nothing of their {which} {what} is to be seen", right & some


def _by_tiles(seen: Tensor, rows: int, columns: int, axis: int | None = None, line: int = 0) -> tuple[Tensor, Tensor]:
    """Returns two masks: whether anything, and whether everything, is seen of the tile in which each element of
    ``seen`` lies; with an ``axis``, of its first (0) or last (-1) ``line`` along it."""
    m, n = seen.shape
    some, every = torch.zeros_like(seen), torch.zeros_like(seen)
    for i, j in itertools.product(range(0, m, rows), range(0, n, columns)):
        tile = seen[i : i + rows, j : j + columns]
        part = tile if axis is None else tile.select(axis, line)
        some[i : i + rows, j : j + columns] = part.any()
        every[i : i + rows, j : j + columns] = part.all()
    return some, every
