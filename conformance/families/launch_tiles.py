"""The tiles of a matrix of outputs, and those that code multiplies."""

from __future__ import annotations

from typing import Any

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
