"""mm_plus_mm: two products in one accumulator, by pointer loads and stores."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl
from torch import Tensor

from conformance.heuristics.configs import Config
from conformance.kernels.family import ProductKernel
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch
from conformance.kernels.loops import accumulate
from conformance.kernels.tiles import store_pointers, swizzle
from conformance.problems import Gemm
from conformance.records import Reason, ReasonCode
from conformance.targets import Target


@triton.jit
def gemm_plus_gemm(
    a_ptr, b_ptr, c_ptr, d_ptr, o_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_ck, stride_dk, stride_dn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """O[M,N] = A[M,K] @ B[K,N] + C[M,K] @ D[K,N]; grid (tiles,)."""
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc = accumulate(
        acc, a_ptr, b_ptr, rm, rn, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
        BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION,
    )  # fmt: skip
    acc = accumulate(
        acc, c_ptr, d_ptr, rm, rn, M, N, K, stride_cm, stride_ck, stride_dk, stride_dn,
        BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION,
    )  # fmt: skip
    store_pointers(acc, o_ptr, rm, rn, M, N, stride_om, stride_on, WIDE_INDEX)


class PlusGemm(ProductKernel):
    """The sum of two products of one shape."""

    def _config(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        if 0 < problem.K <= config.block_k:
            detail = (
                f"{config.id}: K is {problem.K}, which is one block: compilers have crashed on two loops of a single "
                "step (Triton issue 1298). Use a BLOCK_K below K"
            )
            return Reason(ReasonCode.CONFIG, "BLOCK_K", detail)
        return super()._config(problem, config, target, variant)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        c, d = plan.problem.operand("c"), plan.problem.operand("d")
        arguments = {
            **self._arguments(plan, tensors, out="o"),
            "c_ptr": tensors["c"],
            "d_ptr": tensors["d"],
            "stride_cm": c.strides[0],
            "stride_ck": c.strides[1],
            "stride_dk": d.strides[0],
            "stride_dn": d.strides[1],
        }
        return Launch(gemm_plus_gemm, plan.grid, arguments, plan.config.options)


KERNELS = (PlusGemm("mm_plus_mm", "mm_plus_mm", "mm_plus_mm"),)
