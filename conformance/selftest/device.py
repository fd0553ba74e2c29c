"""A kernel that causes an illegal access."""

import triton
import triton.language as tl


@triton.jit
def store_far(pointer, offset):  # type: ignore[no-untyped-def]
    """Stores a zero ``offset`` elements after ``pointer``."""
    tl.store(pointer + offset.to(tl.int64), 0.0)
