"""A map of the wrong tiles of an output, small enough for a record."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: Tiles of a map in each direction: the tiles of a larger output are joined.
MOST = 64


def wrong_tiles(bad: Tensor, block: tuple[int, int]) -> dict[str, Any]:
    """Counts the wrong elements in each tile of ``block`` (rows, columns) elements, as data for a record: ``shape`` in
    tiles, ``block``, ``rows`` and ``columns`` in elements, and ``wrong``, a list of (tile row, tile column, count).

    ``bad`` marks the wrong elements. Leading dimensions are stacked above each other, one matrix after the other, and
    a block is doubled until at most :data:`MOST` tiles lie in each direction.
    """
    matrix = bad.reshape(-1, bad.shape[-1]) if bad.dim() else bad.reshape(1, 1)
    rows, columns = matrix.shape
    height, width = (_fitting(extent, size) for extent, size in zip((rows, columns), block, strict=True))
    row, column = matrix.nonzero(as_tuple=True)
    shape = (-(-rows // height), -(-columns // width))
    counts = torch.bincount(row // height * shape[1] + column // width, minlength=shape[0] * shape[1])
    wrong = [(index // shape[1], index % shape[1], int(counts[index])) for index in counts.nonzero().flatten().tolist()]
    return {"shape": shape, "block": (height, width), "rows": rows, "columns": columns, "wrong": wrong}


def _fitting(extent: int, block: int) -> int:
    while extent > MOST * block:
        block *= 2
    return block
