"""Attention forward, backward and with few queries: masks, score modifications, shared heads, ragged lengths."""

import dataclasses
from typing import Any

from conformance.cases.scenarios import every_kernel, scenario, where
from conformance.cases.tier_rows import CROSSED
from conformance.cases.unrolled import UNROLLED
from conformance.families.attention.problem import LETTERS, Attention, Mask, Score
from conformance.families.examples import WHOLE_TILES, dtype_fields
from conformance.judging.plan_rules import expect_refusal
from conformance.kernels.attention import DECODE_QUERIES
from conformance.kernels.kernel import Variant
from conformance.records import ReasonCode

MASKS = {
    "full": Mask(),
    "causal": Mask("causal"),
    "sliding-window": Mask("sliding-window", 19),
    "document": Mask("document"),
}
SCORES = {"none": Score(), "soft-cap": Score("soft-cap", 15.0), "alibi": Score("alibi")}


#: Kernels that load by pointers: what those by descriptors do with masks and positions, these do.
POINTERS = where(family="attention", described=None)

#: Fills where a test is about sizes and strides. They show a key that is left out, taken twice or read from another
#: place, and a wrong maximum or scale.
SHAPE_FILLS = ("tie", "hot")


def attention(kernel, dtype, config, **fields):
    """A problem of the kernel's operation whose queries and keys end inside the second block, the queries with its
    first row; for a kernel that takes whole tiles only, with it. Batch, heads, lengths and dims all differ. A dtype
    whose products are unrolled has heads of 16 instead of 64: a quarter of the products to compile."""
    (operation,) = kernel.operations
    head_dim = 16 if dtype == UNROLLED else 64
    block = max(config.tile)
    queries = 5 if kernel.few_queries else block + 1
    plain = {"batch": 1, "heads": 2, "queries": queries, "keys": block + 11, "head_dim": head_dim}
    if kernel.usual_shape == WHOLE_TILES:
        plain |= {"queries": 2 * block, "keys": 2 * block}
    return Attention(operation, **{**plain, **dtype_fields(dtype), **fields})


def quick_fills(harness, *names):
    """In the quick tier these fills, later all. There every test has those that show what it is about."""
    return names if harness.settings.tier == "quick" else None


@scenario(POINTERS, mask=list(MASKS), score=list(SCORES), rotate={"block": [None, 128, 256]}, configs=2)
def test_masks_and_scores(conform, harness, kernel, target, dtype, config, mask, score, block):
    """Every mask with every score modification, walked by range or by lists of blocks."""
    if block and any(block % edge for edge in config.tile):
        block = 512  # a multiple of every listed tile
    fields = {"batch": 2, "heads": 3, "kv_heads": 1, "head_dim": 32} if mask == "document" or score == "alibi" else {}
    problem = attention(kernel, dtype, config, mask=MASKS[mask], score=SCORES[score], block=block, **fields)
    run = {"config": config, "target": target, "variant": kernel.example_variant()}
    conform(kernel, problem, fills=quick_fills(harness, "uniform"), **run)


#: The usual ones, one that is no power of two, the least, and values of another width than keys.
HEAD_DIMS = [64, 128, 256, 80, 16, (64, 128)]


@scenario(where(family="attention"), head_dim=HEAD_DIMS, dtypes=("bf16", "fp16"), configs=1)
def test_head_dims(conform, harness, kernel, target, dtype, config, head_dim):
    """Powers of two, the smallest head, one that is no power of two, and value heads wider than key heads."""
    head_dim, value_dim = head_dim if isinstance(head_dim, tuple) else (head_dim, None)
    problem = attention(kernel, dtype, config, heads=1, head_dim=head_dim, value_dim=value_dim, mask=Mask("causal"))
    run = {"config": config, "target": target, "variant": kernel.example_variant()}
    conform(kernel, problem, fills=quick_fills(harness, "hot", "special"), **run)


#: Problems in which sizes, counts and strides are all unlike, so that none can stand in for another. Queries, keys and
#: windows are (blocks, more): so many of the larger edge of a tile, and more; "block" counts the same edges.
UNLIKE = {
    # several steps and blocks of queries in each block of the lists, which are whole
    "lists-of-windows": {"heads": 1, "queries": (4, 0), "keys": (6, 0), "block": 2}
    | {"head_dim": 40, "value_dim": 16, "window": (4, 9), "score": Score("soft-cap", 5.0), "order": "bshd"},
    # three batches, two heads of k with two of q each; documents begin within blocks; no inner stride is 1
    "strides": {"batch": 3, "heads": 4, "kv_heads": 2, "queries": (0, 33), "keys": (1, 1), "order": "bhds"}
    | {"head_dim": 24, "value_dim": 40, "mask": Mask("document"), "score": Score("soft-cap", 5.0)},
    # queries that see nothing, as whole blocks of them, the first more than a block before all keys. A block misses
    # being covered by one key, at either end
    "window-with-slopes": {"heads": 2, "kv_heads": 1, "queries": (6, 13), "keys": (3, 11), "order": "bshd"}
    | {"head_dim": 16, "value_dim": 48, "window": (3, -3), "score": Score("alibi")},
    # lists that differ by batch and by block, also those of full blocks; all batches share the keys. The last block of
    # queries and that of keys hold one
    "lists-of-documents": {"batch": 3, "kv_batch": 1, "heads": 2, "kv_heads": 1, "queries": (2, 1), "keys": (3, 1)}
    | {"block": 1, "head_dim": 16, "value_dim": 24, "mask": Mask("document"), "score": Score("alibi")},
    # blocks that the window begins in, covers, and ends in, each with inner strides other than 1. The first key that a
    # block of queries sees is the last of its block, and the last one the first. The window of the first query begins
    # more than two blocks behind the first key
    "window": {"heads": 2, "kv_heads": 1, "queries": (1, 29), "keys": (5, 30), "order": "bhds"}
    | {"head_dim": 32, "value_dim": 16, "window": (2, 3), "score": Score("soft-cap", 5.0)},
}


@scenario(
    where(family="attention"), unlike=list(UNLIKE), dtypes=("bf16", "fp16", "fp32"), configs=1, every_row=every_kernel
)
def test_unlike_sizes(conform, harness, kernel, target, dtype, config, unlike):
    """Every size, stride and count differs from every other: each index must be the right one."""
    fields, edge = UNLIKE[unlike], max(config.tile)
    sizes = {name: value[0] * edge + value[1] for name, value in fields.items() if isinstance(value, tuple)}
    fields = fields | sizes | ({"block": fields["block"] * edge} if "block" in fields else {})
    if "window" in fields:
        fields["mask"] = Mask("sliding-window", fields.pop("window"))
    if kernel.few_queries:
        whole = fields.get("block") == edge  # one block of the lists, of which each query is merged alone
        fields |= {"queries": min(edge, DECODE_QUERIES - 1), "heads": 1} if whole else {"queries": 5}
    described = hasattr(kernel, "described")
    if described and fields.get("order") == "bhds":
        fields["order"] = "bshd"  # a descriptor needs rows whose stride is 1, and pitches of whole 16 bytes
    problem = attention(kernel, dtype, config, pad=16 if described else 3, padded="qkvofg", **fields)
    run = {"config": config, "target": target, "variant": kernel.example_variant()}
    conform(kernel, problem, fills=quick_fills(harness, "randn"), **run)


LENGTHS = {
    "one-of-each": (1, 1),
    "one-query": (1, 70),
    "one-key": (9, 1),
    "more-queries-than-keys": (40, 17),  # the first 23 rows of a causal mask see nothing
    "whole-blocks": None,  # as many queries as the larger block, and twice as many keys
    "many-blocks": None,  # three of queries and more of keys than the pipeline has stages, the last ones ragged
}


@scenario(
    where(family="attention"), lengths=list(LENGTHS), rotate={"mask": ["causal", "sliding-window", "full"]}, configs=1
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
    conform(kernel, problem, fills=quick_fills(harness, "randn" if keys == 1 else "tie"), **run)


def far_problem(kernel, dtype, config, **fields):
    """Returns a problem whose padded tensors have their last row or dim 2**31 elements or more after the first.
    ``fields`` may give another padding. The memory between is not used."""
    by_rows = not fields.keys() & {"order", "pad", "batch_pad"}
    if by_rows and kernel.few_queries:
        fields["queries"] = 33  # a pitch that takes few queries so far would take the keys much further
    problem = attention(kernel, dtype, config, **{"heads": 1, "head_dim": 32, **fields})
    if problem.pad or problem.batch_pad:
        return problem
    steps = min(problem.queries, problem.keys) - 1 if by_rows else problem.head_dim - 1
    return dataclasses.replace(problem, pad=-(-(2**31) // steps) // 16 * 16 + 16)


def far_fills(harness):
    """In the whole tiers all fills, in the quick tier one whose values are unlike in every row and dim."""
    return None if harness.settings.whole_tier else quick_fills(harness, "hot") or SHAPE_FILLS


@scenario(where(family="attention"), dtypes=("bf16",), configs=1, every_row=every_kernel)
def test_rows_past_2_31_elements(conform, harness, kernel, target, dtype, config):
    """All tensors have rows whose offsets need over 32 bits, as products of a number and a pitch that do not. Scores
    lie far from zero and the last blocks are ragged: what is read past the last row must not count."""
    problem = far_problem(kernel, dtype, config, padded=LETTERS)
    run = {"config": config, "target": target, "variant": kernel.example_variant()}
    conform(kernel, problem, fills=far_fills(harness), **run)


#: Which tensors have dims, matrices or rows that far apart.
FAR: dict[str, dict[str, Any]] = {
    "dims": {"padded": LETTERS, "order": "bhds"},
    "batches": {"padded": LETTERS, "batch": 3, "batch_pad": 2**30},
    "heads-of-q": {"padded": "q", "order": "bshd", "heads": 3, "queries": 1, "pad": 2**30},
    **{f"rows-of-{letter}": {"padded": letter} for letter in "qkvo"},
}
#: In the quick tier: one of each kind of offset that the kernels have code for.
FAR_KINDS = ("dims", "batches", "heads-of-q")
#: A kernel of each operation that is no other's with few queries: what it does with these offsets, they do.
FORWARD = where(family="attention", operation="attention", few_queries=False)


@scenario(
    where(family="attention"),
    far={"quick": FAR_KINDS, **dict.fromkeys(("default", *CROSSED), tuple(FAR))},
    dtypes=("bf16",),
    configs=1,
    every_row=FORWARD,
)
def test_strides_past_2_31_elements(conform, harness, kernel, target, dtype, config, far):
    """The last dim, matrix or row lies 2**31 elements behind the first."""
    problem = far_problem(kernel, dtype, config, **FAR[far])
    run = {"config": config, "target": target, "variant": kernel.example_variant()}
    conform(kernel, problem, fills=far_fills(harness), **run)


@scenario(
    where(family="attention", operation="attention", few_queries=False, described=None),
    dtypes=("bf16", "fp32"),
    configs=2,
)
def test_distant_positions(conform, harness, kernel, target, dtype, config):
    """Slopes meet distances past 2,048, which half precision rounds: the queries stand before all keys."""
    problem = attention(kernel, dtype, config, queries=2085, keys=9, heads=1, head_dim=16, score=Score("alibi"))
    run = {"config": config, "target": target, "variant": kernel.example_variant()}
    conform(kernel, problem, fills=quick_fills(harness, "randn"), **run)


@scenario(
    where(family="attention", described=("q", "k", "v", "out")),
    mask=list(MASKS),
    tma_store=[False, True],
    rotate={"order": ["bhsd", "bshd"], "score": list(SCORES)},
    configs=4,
    every_row=every_kernel,
)
def test_described_operands(conform, harness, kernel, target, dtype, config, mask, tma_store, order, score):
    """Descriptors over the rows of each batch and head, in any order of both, padded; loops that give warps different
    work, and others. The last blocks are ragged, and rows of the output end inside their block."""
    fields = {"batch": 2, "heads": 4, "kv_heads": 2, "head_dim": 40, "value_dim": 24, "order": order, "pad": 8}
    problem = attention(kernel, dtype, config, mask=MASKS[mask], score=SCORES[score], padded="qkvo", **fields)
    run = {"config": config, "target": target, "tma_store": tma_store}
    conform(kernel, problem, fills=quick_fills(harness, "randn"), **run)


#: More parts than are merged at a time, all but one with a block of keys; and more parts than blocks.
MORE_SPLITS = 20


@scenario(
    where(family="attention", few_queries=True),
    splits=[None, 1, 3, MORE_SPLITS],
    dtypes=("bf16", "fp16"),
    configs=1,
    every_row=every_kernel,
)
def test_splits(conform, harness, kernel, target, dtype, config, splits):
    """Any number of parts: more than are merged at a time, each with keys of its own, and more parts than blocks of
    keys. None is the kernel's own choice."""
    blocks = {MORE_SPLITS: MORE_SPLITS - 2, 3: 7}.get(splits, 1)
    problem = attention(kernel, dtype, config, keys=blocks * config.block_n + 7, heads=2, kv_heads=1)
    variant = {"splits": splits} if splits else {"sms": None if harness.settings.has_gpu else 4}
    conform(kernel, problem, config=config, target=target, fills=quick_fills(harness, *SHAPE_FILLS), **variant)


#: What a descriptor cannot lie over.
UNDESCRIBED: dict[str, tuple[dict[str, Any], Variant, ReasonCode]] = {
    "rows-apart": ({"order": "bhds"}, Variant(), ReasonCode.LAYOUT),
    "pitch": ({"pad": 3}, Variant(), ReasonCode.ALIGNMENT_PITCH),
    "matrices-apart": ({"batch": 2, "batch_pad": 3, "pad": 8}, Variant(), ReasonCode.ALIGNMENT_PITCH),
    "stored-rows": ({"value_dim": 20, "pad": 20, "padded": "vo"}, Variant(tma_store=True), ReasonCode.ALIGNMENT_EXTENT),
}


@scenario(
    where(family="attention", described=("q", "k", "v", "out")),
    undescribed=list(UNDESCRIBED),
    dtypes=("bf16",),
    configs=1,
)
def test_undescribed_operands(conform, recorder, kernel, target, dtype, config, undescribed):
    """A kernel refuses operands over which a descriptor cannot lie, for a typed reason."""
    fields, variant, code = UNDESCRIBED[undescribed]
    problem = attention(kernel, dtype, config, **fields)
    run = {"config": config, "target": target, "variant": variant}
    expect_refusal(conform, recorder, kernel, problem, code=code, **run)


REFUSED = {
    "head-dim-below-16": ({"head_dim": 8}, ReasonCode.EXTENT),
    "blocks-that-no-tile-divides": ({"block": 24}, ReasonCode.CONFIG),
}


@scenario(where(family="attention"), refused=list(REFUSED), dtypes=("bf16",), configs=1)
def test_refusals(conform, recorder, kernel, target, dtype, config, refused):
    """A kernel refuses what it cannot compute, for a typed reason."""
    fields, code = REFUSED[refused]
    problem = attention(kernel, dtype, config, **fields)
    expect_refusal(conform, recorder, kernel, problem, config=config, target=target, code=code)
