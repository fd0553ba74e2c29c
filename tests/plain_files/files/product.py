"""A kernel without a wrapper. The file next to it says how it is launched."""

import triton
import triton.language as tl


@triton.jit
def product(a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BLOCK: tl.constexpr, SKIPPED: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(K - SKIPPED):
        x = tl.load(a + rows * am + k * ak, mask=rows < M, other=0.0).to(tl.float32)
        y = tl.load(b + k * bk + columns * bn, mask=columns < N, other=0.0).to(tl.float32)
        total += x[:, None] * y[None, :]
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(c + rows[:, None] * cm + columns[None, :] * cn, total.to(c.dtype.element_ty), mask=inside)
