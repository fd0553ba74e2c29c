"""Counts the tiles of a problem under a config: a case of one tile says nothing about the addresses of the next."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from conformance.families.attention.problem import Attention
from conformance.families.conv.problem import Conv
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.heuristics.configs import AnyConfig, DepthwiseConfig
from conformance.problems import Problem


@functools.singledispatch
def output_tiles(problem: Problem, config: AnyConfig) -> tuple[int, int]:
    """Tiles of the first output's matrix (rows, columns); those of each matrix of a batch.

    A config without ``block_m`` or ``block_n`` has one tile in that direction. Attention counts the tiles of the
    scores instead: (blocks of queries times batch and heads, blocks of keys). A third-party family whose output is
    no matrix registers its own rule with ``output_tiles.register``.
    """
    rows, columns = (1, 1, *problem.output.shape)[-2:]
    return _blocks(rows, config, "block_m"), _blocks(columns, config, "block_n")


@output_tiles.register
def _(problem: Conv, config: AnyConfig) -> tuple[int, int]:
    """Returns a row per output position, a column per output channel of a group, or of all where a tile has channels of
    many groups."""
    columns = problem.out_channels if isinstance(config, DepthwiseConfig) else problem.product.N
    return _blocks(problem.product.M, config, "block_m"), _blocks(columns, config, "block_n")


@output_tiles.register
def _(problem: WeightGradient, config: AnyConfig) -> tuple[int, int]:
    """Returns a row per output channel of a group, a column per tap and channel."""
    return _blocks(problem.product.M, config, "block_m"), _blocks(problem.product.N, config, "block_n")


@output_tiles.register
def _(problem: GroupedGemm, config: AnyConfig) -> tuple[int, int]:
    """Each group begins with a tile of its own."""
    rows, columns = problem.output.shape[-2:]
    split_rows = problem.sizes if problem.ragged == "M" else (rows,)
    split_columns = problem.sizes if problem.ragged == "N" else (columns,)
    return (
        sum(_blocks(size, config, "block_m") for size in split_rows),
        sum(_blocks(size, config, "block_n") for size in split_columns),
    )


@output_tiles.register
def _(problem: Attention, config: AnyConfig) -> tuple[int, int]:
    queries = _blocks(problem.queries, config, "block_m")
    return problem.batch * problem.heads * queries, _blocks(problem.keys, config, "block_n")


def _blocks(extent: int, config: AnyConfig, name: str) -> int:
    block: int | None = getattr(config, name, None)
    return -(-extent // block) if block else min(extent, 1)


#: Tiles of a map in each direction: the tiles of a larger output are joined.
MOST = 64


def wrong_tiles(bad: Tensor, block: tuple[int, int]) -> dict[str, Any]:
    """Counts the wrong elements in each tile of ``block`` (rows, columns) elements, as data for a record. It has
    ``shape`` in tiles, ``block``, ``rows`` and ``columns`` in elements, and ``wrong``, a list of (tile row, tile
    column, count).

    ``bad`` marks the wrong elements. Leading dimensions are stacked above each other, one matrix after the other. A
    block is doubled until at most :data:`MOST` tiles lie in each direction.
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
