"""Attention forward, backward and with few queries: masks, score modifications, shared heads, ragged lengths."""

import dataclasses

from conformance.cases.scenarios import scenario, where
from conformance.judging.refusals import expect_refusal
from conformance.kernels.families.examples import WHOLE_TILES
from conformance.problems import Attention, Mask, Score
from conformance.records import ReasonCode

MASKS = {
    "full": Mask(),
    "causal": Mask("causal"),
    "sliding-window": Mask("sliding-window", 37),
    "document": Mask("document"),
}
SCORES = {"none": Score(), "soft-cap": Score("soft-cap", 15.0), "alibi": Score("alibi")}


#: The fills of the quick tier where a test is about sizes and strides: a key that is left out, taken twice or read from
#: elsewhere, and a maximum or scale that is wrong.
SHAPE_FILLS = ("tie", "hot")


def attention(kernel, dtype, config, *, more=5, **fields):
    """A problem of the kernel's operation whose queries and keys end inside the second block; for a kernel that takes
    whole tiles only, with it. Batch, heads, lengths and dims all differ."""
    (operation,) = kernel.operations
    if dtype == "tf32":
        dtype, fields["precision"] = "fp32", "tf32"
    block = max(config.tile)
    queries = 5 if kernel.few_queries else block + more
    plain = {"batch": 1, "heads": 2, "queries": queries, "keys": block + more + 6, "head_dim": 64}
    if kernel.usual_shape == WHOLE_TILES:
        plain |= {"queries": 2 * block, "keys": 2 * block}
    return Attention(operation, dtype=dtype, **{**plain, **fields})


def shape_fills(harness, *more):
    """The fills of a test about sizes and strides: in the quick tier two and ``more``, later all."""
    return (*SHAPE_FILLS, *more) if harness.settings.tier == "quick" else None


@scenario(
    where(family="attention"), mask=list(MASKS), score=list(SCORES), rotate={"block": [None, 128, 256]}, configs=2
)
def test_masks_and_scores(conform, kernel, target, dtype, config, mask, score, block):
    """Every mask with every score modification, walked by range or by lists of blocks."""
    if block and any(block % edge for edge in config.tile):
        block = 512  # a multiple of every listed tile
    fields = {"batch": 2, "heads": 3, "kv_heads": 1, "head_dim": 32} if mask == "document" or score == "alibi" else {}
    problem = attention(kernel, dtype, config, mask=MASKS[mask], score=SCORES[score], block=block, **fields)
    conform(kernel, problem, config=config, target=target, variant=kernel.example_variant())


#: The usual ones, one that is no power of two, the least, and values of another width than keys.
HEAD_DIMS = [64, 128, 256, 80, 16, (64, 128)]


@scenario(where(family="attention"), head_dim=HEAD_DIMS, dtypes=("bf16", "fp16"), configs=1)
def test_head_dims(conform, harness, kernel, target, dtype, config, head_dim):
    """Powers of two, the smallest head, one that is no power of two, and value heads wider than key heads."""
    head_dim, value_dim = head_dim if isinstance(head_dim, tuple) else (head_dim, None)
    problem = attention(kernel, dtype, config, heads=1, head_dim=head_dim, value_dim=value_dim, mask=Mask("causal"))
    run = {"config": config, "target": target, "variant": kernel.example_variant()}
    conform(kernel, problem, fills=shape_fills(harness, "special"), **run)


#: Query heads that share keys: as a power of two and not, and batches that share them. Batch, heads and heads of keys
#: all differ.
SHARED = {
    "two-heads-of-four": {"batch": 3, "heads": 4, "kv_heads": 2},
    "one-head-for-three": {"batch": 2, "heads": 3, "kv_heads": 1},
    "one-batch-for-two": {"batch": 2, "heads": 6, "kv_heads": 3, "kv_batch": 1},
}


@scenario(where(family="attention"), shared=list(SHARED), rotate={"order": ["bhsd", "bshd"]}, configs=1)
def test_shared_keys(conform, harness, kernel, target, dtype, config, shared, order):
    """Grouped queries, and one batch of keys for all. Gradients of keys are summed over all that share them."""
    problem = attention(kernel, dtype, config, order=order, pad=8, head_dim=32, **SHARED[shared])
    run = {"config": config, "target": target, "variant": kernel.example_variant()}
    conform(kernel, problem, fills=shape_fills(harness), **run)


LENGTHS = {
    "one-of-each": (1, 1),
    "one-query": (1, 70),
    "one-key": (9, 1),
    "more-queries-than-keys": (40, 17),  # the first 23 rows of a causal mask see nothing
    "whole-blocks": None,  # as many queries as the larger block, and twice as many keys
    "many-blocks": None,  # three of queries and more of keys than the pipeline has stages, the last ones ragged
}


@scenario(
    where(family="attention"), lengths=list(LENGTHS), rotate={"mask": ["full", "causal", "sliding-window"]}, configs=1
)
def test_lengths(conform, harness, kernel, target, dtype, config, lengths, mask):
    """Ragged lengths, and rows that see no key: their output is 0 and their logsumexp -inf."""
    block = max(config.tile)
    queries, keys = LENGTHS[lengths] or (block, 2 * block)
    if lengths == "many-blocks":
        queries, keys = 2 * block + 3, (config.num_stages + 1) * block + 7
    if kernel.few_queries:
        queries = min(queries, 16)
    problem = attention(kernel, dtype, config, queries=queries, keys=keys, mask=MASKS[mask])
    run = {"config": config, "target": target, "variant": kernel.example_variant()}
    conform(kernel, problem, fills=shape_fills(harness), **run)


#: Which tensor has rows, or matrices of a batch, whose offsets need over 32 bits.
FAR = {
    "q": {"padded": "q"},
    "k": {"padded": "k"},
    "v": {"padded": "v"},
    "outputs": {"padded": "o"},
    "batches-of-k": {"padded": "k", "batch": 2},
    "batches-of-v": {"padded": "v", "batch": 2},
    "batches-of-outputs": {"padded": "o", "batch": 2},
}


@scenario(where(family="attention"), far=list(FAR), dtypes=("bf16",), configs=1)
def test_strides_past_2_31_elements(conform, harness, kernel, target, dtype, config, far):
    """The last row or matrix lies 2**31 elements behind the first. The memory between is not used."""
    problem = attention(kernel, dtype, config, heads=1, head_dim=32, **FAR[far])
    if problem.batch > 1:
        problem = dataclasses.replace(problem, batch_pad=2**31)
    else:
        rows = {"q": problem.queries, "o": min(problem.queries, problem.keys)}.get(problem.padded, problem.keys)
        problem = dataclasses.replace(problem, pad=-(-(2**31) // (rows - 1)) // 16 * 16 + 16)
    run = {"config": config, "target": target, "variant": kernel.example_variant()}
    conform(kernel, problem, fills=None if harness.settings.whole_tier else SHAPE_FILLS, **run)


#: More parts than are merged at a time, all but one with a block of keys; and more parts than blocks.
MORE_SPLITS = 20


@scenario(
    where(family="attention", few_queries=True),
    splits=[None, 1, 3, MORE_SPLITS],
    dtypes=("bf16", "fp16"),
    configs=1,
    every_target=True,  # short cases: with them the quick tier has attention on every target
)
def test_splits(conform, harness, kernel, target, dtype, config, splits):
    """Any number of parts: more than are merged at a time, each with keys of its own, and more parts than blocks of
    keys. None is the kernel's own choice."""
    blocks = {MORE_SPLITS: MORE_SPLITS - 2, 3: 7}.get(splits, 1)
    problem = attention(kernel, dtype, config, keys=blocks * config.block_n + 7, heads=2, kv_heads=1)
    variant = {"splits": splits} if splits else {"sms": None if harness.settings.has_gpu else 4}
    conform(kernel, problem, config=config, target=target, fills=shape_fills(harness), **variant)


REFUSED = {
    "head-dim-below-16": ({"head_dim": 8}, ReasonCode.EXTENT),
    "blocks-that-no-tile-divides": ({"block": 24}, ReasonCode.CONFIG),
}


@scenario(where(family="attention"), refused=list(REFUSED), dtypes=("bf16",), configs=1)
def test_refusals(conform, recorder, kernel, target, dtype, config, refused):
    """What a kernel cannot compute is refused for a typed reason."""
    fields, code = REFUSED[refused]
    problem = attention(kernel, dtype, config, **fields)
    expect_refusal(conform, recorder, kernel, problem, config=config, target=target, code=code)
