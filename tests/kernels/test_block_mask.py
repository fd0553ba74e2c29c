"""Block lists against the pairs of queries and keys themselves, counted one by one."""

import pytest
import torch

from conformance.families.attention.problem import Attention, Mask
from conformance.kernels.block_mask import block_lists
from conformance.kernels.catalogue import meta_tensor

SIZES = [(40, 72), (72, 40), (64, 64), (1, 33)]
MASKS = [Mask(), Mask("causal"), Mask("sliding-window", 20), Mask("document")]


def tensors_of(problem):
    """q, and documents of uneven lengths that differ between the batches."""
    numbers = torch.arange(max(problem.queries, problem.keys)) // 17
    documents = torch.stack([(numbers + batch) % 3 for batch in range(problem.batch)]).int()
    tensors = {"q": torch.zeros(1)}
    if problem.mask.kind == "document":
        tensors["query_document"] = documents[:, : problem.queries]
        tensors["key_document"] = documents[:, : problem.keys]
    return tensors


def seen_by(problem, tensors, batch, query, key):
    position = query + problem.keys - problem.queries
    if problem.mask.kind == "document":
        return tensors["query_document"][batch, query] == tensors["key_document"][batch, key]
    if problem.mask.kind == "full":
        return True
    return key <= position and (problem.mask.kind == "causal" or key > position - problem.mask.size)


def states(problem, tensors, batch, block):
    """{(query block, key block): how many of its pairs are visible}."""
    counts = {}
    for query in range(problem.queries):
        for key in range(problem.keys):
            place = (query // block, key // block)
            counts[place] = counts.get(place, 0) + bool(seen_by(problem, tensors, batch, query, key))
    return counts


def listed(count, index, batch, transposed):
    """The blocks of a list as (query block, key block); a list that all batches share is that of each of them."""
    batch = min(batch, count.shape[0] - 1)
    blocks = [
        (entry, int(block))
        for entry in range(count.shape[1])
        for block in index[batch, entry, : int(count[batch, entry])]
    ]
    assert blocks == sorted(blocks)
    return {(column, row) for row, column in blocks} if transposed else set(blocks)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.id)
@pytest.mark.parametrize(("queries", "keys"), SIZES)
def test_lists_hold_the_visible_blocks(queries, keys, mask, transposed):
    problem = Attention("attention", 2, 1, queries, keys, 16, mask=mask, block=16)
    tensors = tensors_of(problem)
    lists = block_lists(problem, tensors, transposed=transposed)
    assert lists.stride == (lists.partial_count.shape[1] if mask.kind == "document" else 0)
    for batch in range(problem.batch):
        counts = states(problem, tensors, batch, 16)
        partial = listed(lists.partial_count, lists.partial_index, batch, transposed)
        full = listed(lists.full_count, lists.full_index, batch, transposed)
        assert full == {place for place, count in counts.items() if count == 16 * 16}
        assert partial == {place for place, count in counts.items() if 0 < count < 16 * 16}


def test_a_ragged_block_is_never_full():
    lists = block_lists(Attention("attention", 1, 1, 40, 40, 16, block=32), {"q": torch.zeros(1)})
    assert lists.full_count.tolist() == [[1, 0]]
    assert lists.partial_count.tolist() == [[1, 2]]


@pytest.mark.parametrize("transposed", [False, True])
def test_lists_without_memory_have_the_shapes_of_real_ones(transposed):
    problem = Attention("attention", 2, 1, 40, 72, 16, mask=Mask("document"), block=16)
    real = block_lists(problem, tensors_of(problem), transposed=transposed)
    meta = block_lists(problem, {o.name: meta_tensor(o) for o in problem.tensors}, transposed=transposed)
    for name in ("partial_count", "partial_index", "full_count", "full_index"):
        one, other = getattr(real, name), getattr(meta, name)
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
    assert real.stride == meta.stride
