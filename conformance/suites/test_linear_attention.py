"""Gated linear attention: lengths around a block, chunks of several blocks, unlike sizes and strides, far offsets."""

from typing import Any

from conformance.cases.scenarios import scenario, where
from conformance.cases.tier_rows import CROSSED
from conformance.families.linear_attention.problem import LinearAttention

#: Lengths from no position to more blocks than the pipeline has stages, as functions of a block and the stages.
LENGTHS = {
    "none": lambda block, stages: 0,
    "one": lambda block, stages: 1,
    "one-less-than-a-block": lambda block, stages: block - 1,
    "one-block": lambda block, stages: block,
    "one-more-than-a-block": lambda block, stages: block + 1,
    "many-blocks": lambda block, stages: (stages + 3) * block + 7,
}

#: Sizes, counts and strides that are all unlike, so that none can stand for another.
UNLIKE: dict[str, dict[str, Any]] = {
    "heads-first": {"batch": 3, "heads": 2, "head_dim": 40, "order": "bhsd"},
    "positions-first": {"batch": 2, "heads": 3, "head_dim": 24, "order": "bshd"},
    "dims-first": {"batch": 2, "heads": 5, "head_dim": 32, "order": "bhds"},
}


@scenario(where(family="linear-attention"), length=list(LENGTHS), rotate={"blocks": [1, 2]}, configs=2)
def test_lengths(conform, kernel, target, dtype, config, length, blocks):
    """The last block is ragged or whole, and a chunk has one block or two. Without a position the state stays."""
    positions = LENGTHS[length](config.block_t, config.num_stages)
    problem = LinearAttention(1, 2, positions, 32, 24, blocks * config.block_t, dtype)
    conform(kernel, problem, config=config, target=target)


@scenario(where(family="linear-attention"), unlike=list(UNLIKE), rotate={"blocks": [1, 3]}, configs=1)
def test_unlike_sizes(conform, kernel, target, dtype, config, unlike, blocks):
    """Every size, stride and count differs from every other: each index must be the right one."""
    sizes = {"length": 4 * config.block_t + 5, "value_dim": 2 * config.block_v + 3, "chunk": blocks * config.block_t}
    problem = LinearAttention(dtype=dtype, pad=3, **UNLIKE[unlike], **sizes)
    conform(kernel, problem, config=config, target=target)


#: Problems in which the last row, dim or batch of some tensors lies 2**31 elements or more after the first.
FAR: dict[str, dict[str, Any]] = {
    "rows": {"padded": "qkvo"},
    "dims": {"padded": "qkvo", "order": "bhds"},
    "batches": {"padded": "qkvo", "batch": 3, "batch_pad": 2**30},
    **{f"rows-of-{letter}": {"padded": letter} for letter in "qkvo"},
}


@scenario(
    where(family="linear-attention"),
    far={"quick": ("dims",), **dict.fromkeys(("default", *CROSSED), tuple(FAR))},
    dtypes=("bf16",),
    configs=1,
)
def test_strides_past_2_31_elements(conform, harness, kernel, target, dtype, config, far):
    """The last row, dim or matrix lies that far behind the first, and so does the second block of columns of v. The
    memory between is not used. Below the full tier one fill shows what was read and written."""
    sizes = {"length": config.block_t + 8, "head_dim": 32, "value_dim": config.block_v + 1}
    fields = {"batch": 1, **FAR[far]}
    if "batch_pad" not in fields:
        steps = min(sizes["head_dim"] - 1, config.block_v) if "order" in fields else config.block_t + 7
        fields["pad"] = -(-(2**31) // steps) // 16 * 16 + 16
    problem = LinearAttention(heads=1, chunk=config.block_t, dtype=dtype, **sizes, **fields)
    fills = None if harness.settings.whole_tier else ("routes",)
    conform(kernel, problem, config=config, target=target, fills=fills)
