"""bmm and baddbmm by pointer loads and stores: one tile of one matrix per program, any strides."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl
from torch import Tensor

from conformance.heuristics.configs import Config
from conformance.kernels.family import GRID_LIMIT, ProductKernel, broadcast_strides
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch
from conformance.kernels.tiles import dot_pointers, epilogue, store_pointers, swizzle
from conformance.problems import Gemm
from conformance.targets import Target


@triton.jit
def gemm_batched(
    a_ptr, b_ptr, c_ptr, bias_ptr, batch, M, N, K,
    stride_az, stride_am, stride_ak, stride_bz, stride_bk, stride_bn, stride_cz, stride_cm, stride_cn,
    stride_bias_z, stride_bias_m, stride_bias_n, alpha, beta,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
    HAS_BIAS: tl.constexpr, ADDMM: tl.constexpr,
):  # fmt: skip
    """C[z] = alpha * A[z] @ B[z] + beta * bias[z]; grid (tiles of one matrix, y, z) with y * z >= batch.

    Matrices are numbered along the second and third dimension together, so that a batch may exceed the limit of one.
    """
    matrix = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    if matrix < batch:
        z = matrix.to(tl.int64)
        tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = dot_pointers(
            a_ptr + z * stride_az, b_ptr + z * stride_bz, rm, rn, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
            BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, None,
        )  # fmt: skip
        if HAS_BIAS:
            bias_ptr += z * stride_bias_z
        acc = epilogue(
            acc, rm, rn, M, N, None, None, 0, 0, bias_ptr, stride_bias_m, stride_bias_n, alpha, beta,
            False, HAS_BIAS, ADDMM, WIDE_INDEX,
        )  # fmt: skip
        store_pointers(acc, c_ptr + z * stride_cz, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


class BatchedGemm(ProductKernel):
    """bmm and baddbmm; matrices of a batch may lie apart, interleaved or on each other."""

    def grid(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> tuple[int, ...]:
        tiles = super().grid(problem, config, target, variant)[0]
        batch = problem.batch or 0
        planes = max(-(-batch // GRID_LIMIT), 1)
        return (tiles, -(-batch // planes), planes)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem = plan.problem
        arguments = {
            **self._arguments(plan, tensors),
            **self._bias_arguments(problem, tensors),
            "batch": problem.batch,
            "stride_az": problem.operand("a").strides[0],
            "stride_bz": problem.operand("b").strides[0],
            "stride_cz": problem.output.strides[0],
            "stride_bias_z": broadcast_strides(problem.operand("bias"))[0] if problem.reads_bias else 0,
            "alpha": problem.alpha,
            "beta": problem.beta,
            "ADDMM": problem.op == "baddbmm",
        }
        return Launch(gemm_batched, plan.grid, arguments, plan.config.options)


KERNELS = (
    BatchedGemm("bmm", "bmm", "bmm"),
    BatchedGemm("baddbmm", "baddbmm", "bmm"),
)
