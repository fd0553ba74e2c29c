"""mm with K split: programs multiply parts of K, a second launch sums the parts (PyTorch's decompose-K)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.heuristics.configs import Config
from conformance.heuristics.split_k_choice import decompose_k_splits
from conformance.kernels.device.decompose_k_mm import gemm_split_k, sum_parts
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch, workspace
from conformance.kernels.product import GRID_LIMIT, ProductKernel
from conformance.problems import Gemm
from conformance.records import Reason, ReasonCode
from conformance.targets import Target

#: Tile and compile options of the summing launch.
SUM_ROWS, SUM_COLUMNS = 32, 64
SUM_OPTIONS = {"num_stages": 1, "num_warps": 4}


class SplitKGemm(ProductKernel):
    """mm of a deep product. ``Variant.splits`` says into how many parts K is divided; None is the most promising
    number of :func:`~conformance.heuristics.split_k_choice.decompose_k_splits`."""

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
