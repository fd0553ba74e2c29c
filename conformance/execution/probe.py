"""The smallest kernel that shows whether the interpreter can count a loop at all."""

import triton
import triton.language as tl


@triton.jit
def count_blocks(out, size, BLOCK: tl.constexpr):
    """Stores cdiv(size, BLOCK) in ``out``, counted by a loop."""
    total = 0
    for _ in range(0, tl.cdiv(size, BLOCK)):
        total += 1
    tl.store(out, total)
