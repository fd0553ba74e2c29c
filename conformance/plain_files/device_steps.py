"""Device functions for what a wrapper does with torch after a launch: it copies, fills, or adds partial results."""

from __future__ import annotations

import triton
import triton.language as tl

#: Elements of one program.
BLOCK = 512
#: Dimensions that a tensor may have.
MOST_DIMENSIONS = 4


@triton.jit
def copied_after_launch(
    source, target, count, size_1, size_2, size_3, from_0, from_1, from_2, from_3, to_0, to_1, to_2, to_3,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Copies ``count`` elements of a tensor of four dimensions, and rounds them to the dtype of ``target``."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    third, rest = place % size_3, place // size_3
    second, rest = rest % size_2, rest // size_2
    first, outer = rest % size_1, rest // size_1
    values = tl.load(source + outer * from_0 + first * from_1 + second * from_2 + third * from_3, mask=inside, other=0)
    address = target + outer * to_0 + first * to_1 + second * to_2 + third * to_3
    tl.store(address, values.to(target.dtype.element_ty), mask=inside)


@triton.jit
def filled_after_launch(
    target, value, count, size_1, size_2, size_3, to_0, to_1, to_2, to_3, BLOCK: tl.constexpr,
):  # fmt: skip
    """Stores ``value`` to ``count`` elements of a tensor of four dimensions."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    third, rest = place % size_3, place // size_3
    second, rest = rest % size_2, rest // size_2
    first, outer = rest % size_1, rest // size_1
    values = tl.zeros((BLOCK,), tl.float32) + value
    address = target + outer * to_0 + first * to_1 + second * to_2 + third * to_3
    tl.store(address, values.to(target.dtype.element_ty), mask=place < count)


@triton.jit
def added_after_launch(
    source, target, parts, step, count, size_1, size_2, size_3, from_0, from_1, from_2, from_3, to_0, to_1, to_2, to_3,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds ``parts`` tensors of four dimensions and ``count`` elements, which are ``step`` apart, in fp32."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    third, rest = place % size_3, place // size_3
    second, rest = rest % size_2, rest // size_2
    first, outer = rest % size_1, rest // size_1
    values = tl.zeros((BLOCK,), tl.float32)
    start = source + outer * from_0 + first * from_1 + second * from_2 + third * from_3
    for part in range(parts):
        values += tl.load(start + part * step, mask=inside, other=0).to(tl.float32)
    address = target + outer * to_0 + first * to_1 + second * to_2 + third * to_3
    tl.store(address, values.to(target.dtype.element_ty), mask=inside)
