"""The tiles of a matrix of outputs, and sets of indices of a tensor, on which an output depends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

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
