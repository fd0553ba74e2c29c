"""A product in the style of Triton's tutorial 03: a wrapper that launches, a tuner and a heuristic."""

import torch
import triton
import triton.language as tl


@triton.jit
def swizzled(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    band = tile // (GROUP * tiles_n)
    rows = min(tiles_m - band * GROUP, GROUP)
    inside = tile % (GROUP * tiles_n)
    return band * GROUP + inside % rows, inside // rows


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 4}, num_stages=3, num_warps=4),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 2}, num_stages=2, num_warps=4),
    ],
    key=["M", "N", "K"],
)
@triton.heuristics({"EVEN_K": lambda arguments: arguments["K"] % arguments["BLOCK_K"] == 0})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    m, n = swizzled(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP)
    rows, columns = m * BLOCK_M + tl.arange(0, BLOCK_M), n * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        depth = k * BLOCK_K + tl.arange(0, BLOCK_K)
        inside = depth < K if not EVEN_K else depth >= 0
        a_ptrs = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
        b_ptrs = b_ptr + depth[:, None] * stride_bk + columns[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(rows < M)[:, None] & inside[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=inside[:, None] & (columns < N)[None, :], other=0.0)
        total = tl.dot(a, b, total)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (columns < N)[None, :])


def matmul(a, b):
    if not a.is_contiguous():
        raise ValueError("a must be contiguous")
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride())
    return c
