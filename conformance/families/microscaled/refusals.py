"""The limits of kernels that multiply block-scaled operands, and when which refusal is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from conformance.families.gemm import refusals as gemm
from conformance.families.gemm.refusals import GemmLimits
from conformance.families.limits import (
    DESCRIPTOR_BYTES,
    GRID_LIMIT,
    Broken,
    Rule,
    capabilities,
    lacks,
    memory_rules,
    statements,
    together,
    variants,
)
from conformance.families.microscaled.problem import SWIZZLED_BLOCKS, SWIZZLED_LINES
from conformance.records import ReasonCode

#: Bytes of which the base and the pitch of a descriptor with gaps are multiples, and codes of its rows.
GAPS_BYTES, GAPS_CODES = 32, 128


@dataclass(frozen=True)
class MicroscaledLimits(GemmLimits):
    """The limits of a kernel that multiplies block-scaled operands."""

    #: "any" number of matrices, "one" without a batch, or a "batch" only
    matrices: str = "any"
    #: whether scales may lie in tiles, must lie in tiles (then descriptors load them), or must not: None, True, False
    swizzled: bool | None = None


def broken(plan: Any, limits: MicroscaledLimits) -> Iterator[Broken]:
    """Yields the rules of descriptors that the plan's memory breaks, those of descriptors with gaps, too."""
    yield from gemm.broken(plan, limits)
    if limits.described and plan.problem.has_product and plan.problem.output.numel:
        yield from _broken_by_gaps(plan)


def _broken_by_gaps(plan: Any) -> Iterator[Broken]:
    """Yields the rules of a descriptor with gaps (CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B) that memory breaks: by it
    tcgen05 gets four-bit codes together with eight-bit ones. There are none where the unit multiplies without scales,
    and Triton converts the codes."""
    problem = plan.problem
    scaled = all(form.scale for form in problem.formats) and plan.config.block_m >= 128
    mixed = len({form.codes == "e2m1" for form in problem.formats}) == 2
    if not (scaled and mixed) or lacks(plan.target, "tcgen05"):
        return
    operand = problem.operand("a" if problem.formats[0].codes == "e2m1" else "b")
    rows = -2 if operand.strides[-1] == 1 else -1
    codes, pitch = 2 * operand.shape[-3 - rows], operand.strides[rows]
    apart = operand.strides[0] if len(operand.shape) == 3 and operand.shape[0] > 1 else 0
    if operand.offset % GAPS_BYTES:
        yield ReasonCode.ALIGNMENT_BASE, operand.name, f"a base {operand.offset % GAPS_BYTES} bytes past {GAPS_BYTES}"
    if operand.shape[rows] > 1 and pitch % GAPS_BYTES:
        yield ReasonCode.ALIGNMENT_PITCH, operand.name, f"a pitch of {pitch} bytes, no multiple of {GAPS_BYTES}"
    if apart % GAPS_BYTES:
        yield ReasonCode.ALIGNMENT_PITCH, operand.name, f"matrices {apart} bytes apart, no multiple of {GAPS_BYTES}"
    if codes % GAPS_CODES:
        yield ReasonCode.ALIGNMENT_EXTENT, operand.name, f"rows of {codes} codes, no multiple of {GAPS_CODES}"


def dtypes(plan: Any, limits: MicroscaledLimits) -> Iterator[str]:
    """Yields codes and scales that the target lacks."""
    names = {name for form in plan.problem.formats for name in (form.codes, form.scale)}
    return (name for name in names & {"e4m3", "e5m2", "bf16", "fp16"} if lacks(plan.target, name))


def layouts(plan: Any, limits: MicroscaledLimits) -> Iterator[str]:
    """Yields scales that lie in tiles, or do not, against the limits; tiles begin on 16 bytes."""
    problem = plan.problem
    for operand in problem.operands if limits.swizzled is not None else ():
        in_tiles = problem.swizzled and not (limits.swizzled and operand.offset % DESCRIPTOR_BYTES)
        if operand.name.startswith("scale") and in_tiles != limits.swizzled:
            yield operand.name


def scales(plan: Any, limits: MicroscaledLimits) -> Iterator[str]:
    """Yields "scale_b" if the scales of A and B are for different numbers of k."""
    if len({form.block for form in plan.problem.formats if form.scale is not None}) > 1:
        yield "scale_b"


def extents(plan: Any, limits: MicroscaledLimits) -> Iterator[str]:
    """Yields "batch" for one matrix, for several or for too many, against the limits."""
    batch = plan.problem.batch
    if {"one": batch is not None, "batch": batch is None, "any": (batch or 0) > GRID_LIMIT}[limits.matrices]:
        yield "batch"


def block_size(plan: Any, limits: MicroscaledLimits) -> Iterator[str]:
    """Yields "block size" below the least tiles of scaled products."""
    config = plan.config
    if config.block_k < 64 or min(config.block_m, config.block_n) < 32:
        yield "block size"


def tiles_of_scales(plan: Any, limits: MicroscaledLimits) -> Iterator[str]:
    """Yields "tiles of scales" if descriptors load scales and a block has a part of their tile."""
    config = plan.config
    sides = zip((config.block_m, config.block_n), plan.problem.formats, strict=True)
    whole = (
        lines % SWIZZLED_LINES == 0 and config.block_k % (SWIZZLED_BLOCKS * form.block) == 0
        for lines, form in sides
        if form.scale
    )
    if limits.swizzled and not all(whole):
        yield "tiles of scales"


_MEMORY = memory_rules(broken)
REFUSALS: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        **_MEMORY,
        ReasonCode.CAPABILITY: capabilities,
        ReasonCode.DTYPE: dtypes,
        ReasonCode.SCALE: scales,
        ReasonCode.LAYOUT: together(_MEMORY[ReasonCode.LAYOUT], layouts),
        ReasonCode.EXTENT: together(_MEMORY[ReasonCode.EXTENT], extents),
        ReasonCode.CONFIG: together(variants, statements, block_size, tiles_of_scales, gemm.tcgen05),
    }
)
