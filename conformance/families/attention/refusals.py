"""The limits of attention kernels, and when which refusal is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from conformance.families.attention.problem import Attention
from conformance.families.family import LEAST
from conformance.families.gemm import refusals as gemm
from conformance.families.gemm.problem import mm, scaled_mm
from conformance.families.gemm.refusals import GemmLimits
from conformance.families.limits import (
    Broken,
    KernelLimits,
    Rule,
    capabilities,
    lacks,
    memory_rules,
    past_the_grid,
    together,
    undescribed,
    unstored,
    variants,
)
from conformance.problems import EVERY_FP8
from conformance.records import ReasonCode

#: Positions and numbers of rows are below this: 32-bit integers, and room for the last tile.
POSITIONS = 2**31 - 2**10


@dataclass(frozen=True)
class AttentionLimits(KernelLimits):
    """The limits of an attention kernel."""

    variant: frozenset[str] = frozenset({"sms", "splits"})
    #: whether it takes packed sequences, and no others
    packed: bool = False
    #: whether it takes keys in pages, and no others
    paged: bool = False
    #: whether it takes scales of q, k and v
    scales: bool = False
    #: whether it splits the keys into as many parts as the variant says
    splits_keys: bool = False
    #: the least extent that a product sums over: a head of k, and a block of keys
    depth: int = LEAST
    #: the queries are fewer than this, and their rows of all heads that share a head of k at most as many
    rows: int | None = None


def broken(plan: Any, limits: AttentionLimits) -> Iterator[Broken]:
    """Yields what descriptors over the rows of each batch and head cannot cover."""
    for name in limits.described:
        operand = plan.problem.operand(name)
        yield from undescribed(operand)
        if operand.strides[-1] != 1:
            yield ReasonCode.LAYOUT, name, f"an inner stride of {operand.strides[-1]} elements"
    if plan.variant.tma_store:
        yield from unstored(plan.problem.output)


def forms(plan: Any, limits: AttentionLimits) -> Iterator[str]:
    """Yields "mask" and "page" for sequences and keys that lie otherwise than the kernel takes them."""
    if plan.problem.mask.packed != limits.packed:
        yield "mask"
    if bool(plan.problem.page) != limits.paged:
        yield "page"


def needs(plan: Any, limits: AttentionLimits) -> Iterator[str]:
    """Yields the capabilities that the kernel needs, and the specialised loop of the config."""
    yield from capabilities(plan, limits)
    if _specialised(plan, limits) and lacks(plan.target, "warp-specialization"):
        yield "warp-specialization"


def scales(plan: Any, limits: AttentionLimits) -> Iterator[str]:
    """Yields "scaled" for a kernel without scales."""
    if plan.problem.scaled and not limits.scales:
        yield "scaled"


def _product(plan: Any) -> Any:
    """Returns the plan of a product inside, for its dtypes and precision."""
    problem: Attention = plan.problem
    narrow = {"out_dtype": problem.out_dtype or "bf16"}
    if problem.dtype in EVERY_FP8:
        return dataclasses.replace(plan, problem=scaled_mm(16, 16, 16, problem.dtype, **narrow))
    fields = {"out_dtype": problem.out_dtype, "precision": problem.precision}
    return dataclasses.replace(plan, problem=mm(16, 16, 16, problem.dtype, **fields))


def dtypes(plan: Any, limits: AttentionLimits) -> Iterator[str]:
    """Yields "q" for a dtype that is not taken, and dtypes that the target lacks."""
    if plan.problem.dtype not in limits.dtypes:
        yield "q"
    else:
        yield from gemm.dtypes(_product(plan), GemmLimits(dtypes=limits.dtypes))


def precisions(plan: Any, limits: AttentionLimits) -> Iterator[str]:
    """Yields the precision of fp32 operands that is not taken: a specialised loop feeds a matrix unit."""
    accepted = GemmLimits(precisions=("tf32",)) if _specialised(plan, limits) else GemmLimits()
    yield from gemm.precisions(_product(plan), accepted)


def extents(plan: Any, limits: AttentionLimits) -> Iterator[str]:
    """Yields sizes below a matrix unit's, past the grid or an index, and those for which another kernel is meant."""
    problem = plan.problem
    least = {"head_dim": (problem.head_dim, limits.depth), "value_dim": (problem.values_dim, LEAST)}
    yield from (name for name, (extent, smallest) in least.items() if extent < smallest)
    yield from past_the_grid(batch=problem.mask.size if limits.packed else problem.batch, heads=problem.heads)
    rows = problem.batch * max(problem.queries, problem.keys, problem.heads)
    if max(problem.queries + problem.keys + problem.mask.size, rows) >= POSITIONS:
        yield "positions"
    if limits.rows is not None:
        if problem.queries >= limits.rows:
            yield "queries"
        if problem.queries * (problem.heads // problem.key_heads) > limits.rows:
            yield "rows"


def blocks(plan: Any, limits: AttentionLimits) -> Iterator[str]:
    """Yields what tiles cannot be: too small, no power of two, no divisor of the blocks of lists."""
    block, tile = plan.problem.block, plan.config.tile
    if any(size < LEAST or size & (size - 1) for size in tile) or (tile[1:2] and tile[1] < limits.depth):
        yield "block size"
    many = limits.rows is not None and block and plan.problem.queries > block
    if block and (many or plan.config.merged or any(block % size for size in tile)):
        yield "block"


def loops(plan: Any, limits: AttentionLimits) -> Iterator[str]:
    """Yields "loop" for tiles, warps or stages with which a loop cannot be specialised."""
    config = plan.config
    if _specialised(plan, limits) and (config.block_m < 64 or config.num_warps % 4 or config.num_stages < 2):
        yield "loop"


def _specialised(plan: Any, limits: AttentionLimits) -> bool:
    return bool(plan.config.specialised and limits.described)


def splits(plan: Any, limits: AttentionLimits) -> Iterator[str]:
    """Yields "splits" for a kernel that does not split the keys."""
    if plan.variant.splits is not None and not limits.splits_keys:
        yield "splits"


REFUSALS: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        **memory_rules(broken),
        ReasonCode.OPERATION: forms,
        ReasonCode.CAPABILITY: needs,
        ReasonCode.DTYPE: dtypes,
        ReasonCode.PRECISION: precisions,
        ReasonCode.SCALE: scales,
        ReasonCode.EXTENT: together(memory_rules(broken)[ReasonCode.EXTENT], extents),
        ReasonCode.CONFIG: together(variants, blocks, loops, splits),
    }
)
