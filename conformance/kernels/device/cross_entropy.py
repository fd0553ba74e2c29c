"""Device code of cross entropy and its gradient: each program has a block of rows and walks over their columns."""

import triton
import triton.language as tl

from conformance.kernels.device.rows import load_block, row_block, store_block


@triton.jit
def cross_entropy_rows(
    x_ptr, target_ptr, loss_ptr, lse_ptr, rows, columns, eps, stride_xm, stride_xn,
    SMOOTHING: tl.constexpr, IGNORED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """The loss of each row, and the logarithm of the sum of its exponentials. The sum is rescaled when a block has a
    larger maximum."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    plain = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, float("-inf"), BLOCK_N, WIDE_INDEX)
        higher = tl.maximum(top, tl.max(x, 1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift[:, None]), 1)
        top = higher
        if SMOOTHING > 0:
            inside = (start + tl.arange(0, BLOCK_N) < columns)[None, :]
            plain += tl.sum(tl.where(inside, x, 0.0), 1)
    lse = top + tl.log(total)
    target = tl.load(target_ptr + rm, mask=there, other=IGNORED)
    counts = target != IGNORED
    place = x_ptr + rm * stride_xm + target.to(rm.dtype) * stride_xn
    logit = tl.load(place, mask=there & counts, other=0.0).to(tl.float32)
    loss = lse - (1.0 - SMOOTHING) * logit
    if SMOOTHING > 0:
        loss = loss - SMOOTHING * (plain / columns)
    tl.store(loss_ptr + rm, tl.where(counts, loss, 0.0), mask=there)
    tl.store(lse_ptr + rm, lse, mask=there)


@triton.jit
def cross_entropy_gradient_rows(
    x_ptr, target_ptr, lse_ptr, grad_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    SMOOTHING: tl.constexpr, IGNORED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    target = tl.load(target_ptr + rm, mask=there, other=IGNORED)
    counts = target != IGNORED
    lse = tl.load(lse_ptr + rm, mask=there, other=0.0)
    grad = tl.load(grad_ptr + rm, mask=there, other=0.0)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, float("-inf"), BLOCK_N, WIDE_INDEX)
        here = (start + tl.arange(0, BLOCK_N))[None, :] == target[:, None]
        out = tl.exp(x - lse[:, None]) - tl.where(here, 1.0 - SMOOTHING, 0.0)
        if SMOOTHING > 0:
            out = out - SMOOTHING / columns
        out = tl.where(counts[:, None], out * grad[:, None], 0.0)
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)
