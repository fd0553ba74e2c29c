"""A device function that copies a tensor, for copies that a wrapper makes with torch after a launch."""

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
