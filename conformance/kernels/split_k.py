"""mm with K split: programs multiply parts of K, a second launch sums the parts (PyTorch's decompose-K)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
import triton
import triton.language as tl
from torch import Tensor

from conformance.heuristics.configs import Config
from conformance.heuristics.splitting import decompose_k_splits
from conformance.kernels.family import GRID_LIMIT, ProductKernel
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch, workspace
from conformance.kernels.tiles import dot_pointers, store_pointers, swizzle
from conformance.problems import Gemm
from conformance.records import Reason, ReasonCode
from conformance.targets import Target

#: Tile and compile options of the summing launch.
SUM_ROWS, SUM_COLUMNS = 32, 64
SUM_OPTIONS = {"num_stages": 1, "num_warps": 4}


@triton.jit
def gemm_split_k(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C[s] = A[:, s * K : (s + 1) * K] @ B[s * K : (s + 1) * K] in fp32, where K is that of one part; grid (tiles of C,
    parts)."""
    part = tl.program_id(1).to(tl.int64)
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    first_k = part * K
    acc = dot_pointers(
        a_ptr + first_k * stride_ak, b_ptr + first_k * stride_bk, rm, rn, M, N, K,
        stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, None,
    )  # fmt: skip
    store_pointers(acc, c_ptr + part * stride_cs, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def sum_parts(
    parts_ptr, c_ptr, splits, M, N, stride_parts_s, stride_parts_m, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """C[M,N] = parts[0] + parts[1] + ... in this order, summed in fp32; grid (tiles,)."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rm = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    row, column = rm, rn
    if WIDE_INDEX:
        row = rm.to(tl.int64)
        column = rn.to(tl.int64)
    inside = (rm < M)[:, None] & (rn < N)[None, :]
    tile = parts_ptr + row[:, None] * stride_parts_m + column[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _part in range(splits):
        acc += tl.load(tile, mask=inside, other=0.0)
        tile += stride_parts_s
    store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


class SplitKGemm(ProductKernel):
    """mm of a deep product. ``Variant.splits`` says into how many parts K is divided; None is the most promising
    number of :func:`~conformance.heuristics.splitting.decompose_k_splits`."""

    family = "split-k"

    def _config(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        splits = self._splits(problem, variant)
        if splits is None:
            detail = f"no split of K={problem.K} is worth it for a result of {problem.M} x {problem.N}: say how many"
            return Reason(ReasonCode.CONFIG, "splits", detail)
        if problem.K % splits or not 2 <= splits <= GRID_LIMIT:
            detail = f"splits is {splits}: it must be 2 to {GRID_LIMIT} and divide K={problem.K}"
            return Reason(ReasonCode.CONFIG, "splits", detail)
        return super()._config(problem, config, target, dataclasses.replace(variant, splits=None))

    def _splits(self, problem: Gemm, variant: Variant) -> int | None:
        if variant.splits is not None:
            return variant.splits
        return next(iter(decompose_k_splits(problem.M, problem.N, problem.K)), None)

    def grid(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> tuple[int, ...]:
        return (*super().grid(problem, config, target, variant), self._splits(problem, variant) or 1)

    def _depth(self, plan: Plan) -> int:
        return int(plan.problem.K) // plan.grid[1]

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, splits = plan.problem, plan.grid[1]
        parts = workspace((splits, problem.M, problem.N), torch.float32, tensors["out"])
        arguments = self._arguments(plan, tensors)
        total = {
            **{name: arguments[name] for name in ("c_ptr", "M", "N", "stride_cm", "stride_cn", "WIDE_INDEX")},
            "parts_ptr": parts,
            "splits": splits,
            "stride_parts_s": problem.M * problem.N,
            "stride_parts_m": problem.N,
            "BLOCK_M": SUM_ROWS,
            "BLOCK_N": SUM_COLUMNS,
        }
        arguments |= {
            "c_ptr": parts,
            "stride_cs": problem.M * problem.N,
            "stride_cm": problem.N,
            "stride_cn": 1,
        }
        tiles = -(-problem.M // SUM_ROWS) * -(-problem.N // SUM_COLUMNS)
        after = Launch(sum_parts, (tiles,), total, SUM_OPTIONS)
        return Launch(gemm_split_k, plan.grid, arguments, plan.config.options, after=(after,))


KERNELS = (SplitKGemm("decompose_k_mm", "mm", "bmm"),)
