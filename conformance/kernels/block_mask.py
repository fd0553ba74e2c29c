"""Block lists: which blocks of keys each block of queries visits, and the other way round for the backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from conformance.families.attention.problem import Attention


@dataclass(frozen=True)
class BlockLists:
    """Lists of visited blocks. A "full" block is visible as a whole and needs no mask, a "partial" one in part.

    ``partial_count`` and ``full_count`` are (batches, entries) int32, ``partial_index`` and ``full_index`` (batches,
    entries, blocks) int32. The first ``count`` indices of an entry are its blocks in increasing order. ``batches`` is 1
    where all batches have the same lists.
    """

    partial_count: Tensor
    partial_index: Tensor
    full_count: Tensor
    full_index: Tensor

    @property
    def stride(self) -> int:
        """Entries from one batch to the next: 0 if they share their lists."""
        batches, entries = self.partial_count.shape
        return entries if batches > 1 else 0

    @property
    def arguments(self) -> dict[str, Tensor | int]:
        """The lists under the kernels' parameter names."""
        lists = {name: getattr(self, name) for name in ("partial_count", "partial_index", "full_count", "full_index")}
        return {**{f"{name}_ptr": tensor for name, tensor in lists.items()}, "stride_list": self.stride}


def block_lists(problem: Attention, tensors: Mapping[str, Tensor], *, transposed: bool = False) -> BlockLists:
    """Returns lists for blocks of ``problem.block`` queries and keys. Each block of queries has its blocks of keys, or
    each block of keys its blocks of queries if ``transposed``. On the device of ``tensors``; without memory if those
    have none.

    A block that reaches past the last query or key is never full.
    """
    assert problem.block is not None
    q = tensors["q"]
    batches = problem.batch if problem.mask.kind == "document" else 1
    rows, columns = triton.cdiv(problem.queries, problem.block), triton.cdiv(problem.keys, problem.block)
    if q.is_meta:
        entries, blocks = (columns, rows) if transposed else (rows, columns)
        count = torch.empty((batches, entries), dtype=torch.int32, device="meta")
        index = torch.empty((batches, entries, blocks), dtype=torch.int32, device="meta")
        return BlockLists(count, index, count, index)
    some, every = _blocks(problem, tensors, batches, rows, columns)
    if transposed:
        some, every = some.transpose(1, 2), every.transpose(1, 2)
    return BlockLists(*_listed(some & ~every), *_listed(every))


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Counts and indices of the set elements of the last dimension of a bool tensor."""
    order = torch.argsort(chosen.to(torch.int8), dim=-1, descending=True, stable=True)
    return chosen.sum(-1, dtype=torch.int32).contiguous(), order.to(torch.int32).contiguous()


def _blocks(
    problem: Attention, tensors: Mapping[str, Tensor], batches: int, rows: int, columns: int
) -> tuple[Tensor, Tensor]:
    """Returns two masks, (batches, rows, columns) bool: whether some pair of each block is visible, and whether every
    pair is. One strip of blocks at a time, so that memory grows with the number of keys only."""
    edge = problem.block or 1
    some, every = [], []
    for strip in range(rows):
        seen = torch.zeros(batches, edge, columns * edge, dtype=torch.bool, device=tensors["q"].device)
        first, last = strip * edge, min((strip + 1) * edge, problem.queries)
        seen[:, : last - first, : problem.keys] = _visible(problem, tensors, first, last)
        tiles = seen.view(batches, edge, columns, edge).transpose(1, 2).flatten(2)
        some.append(tiles.any(-1))
        every.append(tiles.all(-1))
    return torch.stack(some, 1), torch.stack(every, 1)


def _visible(problem: Attention, tensors: Mapping[str, Tensor], first: int, last: int) -> Tensor:
    """Returns the keys that the queries ``first`` to ``last`` (exclusive) see: (batches or 1, last - first,
    keys) bool."""
    device, mask = tensors["q"].device, problem.mask
    keys = torch.arange(problem.keys, device=device)
    positions = torch.arange(first, last, device=device)[:, None] + problem.keys - problem.queries
    if mask.kind == "document":
        return tensors["query_document"][:, first:last, None] == tensors["key_document"][:, None, :]
    if mask.kind == "full":
        return (keys == keys).expand(1, last - first, -1)
    seen = keys <= positions
    if mask.kind == "sliding-window":
        seen &= keys > positions - mask.size
    return seen[None]
