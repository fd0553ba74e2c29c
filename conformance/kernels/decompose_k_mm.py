"""mm with K split: programs multiply parts of K, a second launch sums the parts (PyTorch's decompose-K)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
import triton
from torch import Tensor

from conformance.families.draw import Draw
from conformance.families.examples import SPLITS, TIMED_EDGE, matrix_sizes, rest
from conformance.families.gemm.problem import Gemm, mm
from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.configs import decompose_k_splits
from conformance.kernels.device.split_k import gemm_split_k, sum_parts
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import GRID_LIMIT, Launch, dot_precision, pointer_arguments, workspace
from conformance.numerics.sum_order import SumOrder
from conformance.records import Reason, ReasonCode

#: Tile and compile options of the summing launch.
SUM_ROWS, SUM_COLUMNS = 32, 64
SUM_OPTIONS = {"num_stages": 1, "num_warps": 4}


class SplitKGemm(PointerGemm):
    """mm of a deep product. ``Variant.splits`` says into how many parts K is divided; None is the most promising
    number of :func:`~conformance.heuristics.configs.decompose_k_splits`."""

    limits = GemmLimits(splits_k=True)
    weight = 1
    zero_sign = "ieee"
    family = "split-k"

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Gemm:
        """See :class:`Kernel`: each part of K is as long as K of an undivided product."""
        m, n, k = matrix_sizes(config, dtype, shape)
        return self.problem(dtype, m, n, SPLITS * k)

    def example_variant(self) -> Variant:
        return Variant(splits=SPLITS)

    def timed(self, dtype: str) -> Gemm:
        """See :class:`Kernel`: a small result of a deep product."""
        edge = 64 + rest(dtype)
        return self.problem(dtype, edge, edge, 16 * TIMED_EDGE)

    def draw_problem(self, draw: Draw) -> Gemm:
        """See :class:`Kernel`: K is a multiple of 2 or 4, the parts of :meth:`draw_variant`."""
        k = draw.pick((2, 4, 6, 12)) * draw.pick((8, 17, 32, 40))
        fields: dict[str, Any] = {name: draw.layout() for name in ("layout_a", "layout_b", "layout_out")}
        dtype = draw.pick(self.dtypes)
        if dtype == "fp32":
            fields["precision"] = draw.pick(("ieee", "tf32"))
        return mm(draw.size(), draw.size(), k, dtype, **fields)

    def draw_variant(self, draw: Draw) -> Variant:
        return Variant(splits=draw.pick((2, 4)))

    def _config(self, plan: Plan) -> Reason | None:
        problem, splits = plan.problem, self._splits(plan)
        if splits is None:
            detail = f"no split of K={problem.K} is worth it for a result of {problem.M} x {problem.N}: say how many"
            return Reason(ReasonCode.CONFIG, "splits", detail)
        if problem.K % splits or not 2 <= splits <= GRID_LIMIT:
            detail = f"splits is {splits}: it must be 2 to {GRID_LIMIT} and divide K={problem.K}"
            return Reason(ReasonCode.CONFIG, "splits", detail)
        return super()._config(dataclasses.replace(plan, variant=dataclasses.replace(plan.variant, splits=None)))

    def _splits(self, plan: Plan) -> int | None:
        """The parts into which K is divided; None if the variant does not say and no number is promising."""
        if plan.variant.splits is not None:
            return plan.variant.splits
        return next(iter(decompose_k_splits(plan.problem.M, plan.problem.N, plan.problem.K)), None)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (tiles of the result, parts of K)."""
        return (*super().grid(plan), self._splits(plan) or 1)

    def _depth(self, plan: Plan) -> int:
        return int(plan.problem.K) // plan.grid[1]

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`: the second launch adds the parts from the first to the last."""
        of_part = super().order(plan)
        return None if of_part is None else dataclasses.replace(of_part, splits=self._splits(plan) or 1)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: the main launch writes fp32 parts, (splits, M, N), which the one after it sums."""
        problem, splits, pointers = plan.problem, plan.grid[1], self._pointer_arguments(plan, tensors)
        parts = workspace((splits, problem.M, problem.N), torch.float32, tensors["out"])
        arguments = {
            **pointers,
            "c_ptr": parts,
            "stride_cs": problem.M * problem.N,
            "stride_cm": problem.N,
            "stride_cn": 1,
            "PRECISION": dot_precision(problem),
        }
        total = {
            **{name: arguments[name] for name in ("M", "N", "WIDE_INDEX")},
            **pointer_arguments("c", tensors["out"], problem.output, "mn"),
            "parts_ptr": parts,
            "splits": splits,
            "stride_parts_s": problem.M * problem.N,
            "stride_parts_m": problem.N,
            "BLOCK_M": SUM_ROWS,
            "BLOCK_N": SUM_COLUMNS,
        }
        tiles = triton.cdiv(problem.M, SUM_ROWS) * triton.cdiv(problem.N, SUM_COLUMNS)
        after = Launch(sum_parts, (tiles,), total, SUM_OPTIONS)
        return Launch(gemm_split_k, plan.grid, arguments, plan.config.options, after=(after,))


KERNELS = (SplitKGemm("decompose_k_mm", "mm", "bmm"),)
