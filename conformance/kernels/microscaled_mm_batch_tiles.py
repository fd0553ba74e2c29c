"""Batches of products of block-scaled operands by ``tl.dot_scaled`` of three dimensions, by pointer loads and stores.

Triton up to 3.5, and from 3.7 on, takes operands of three dimensions. 3.7 and 3.8 abort where the matrix unit of sm_120
would take their scales: https://github.com/triton-lang/triton/pull/11262.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.draw import Draw
from conformance.heuristics.configs import AnyConfig, BatchConfig
from conformance.kernels.device.microscaled_mm import gemm_microscaled_batch_tiles
from conformance.kernels.gemm import output_tiles
from conformance.kernels.kernel import Features, Plan, check_tensors
from conformance.kernels.launch import Launch
from conformance.kernels.microscaled_mm import MicroscaledMm, pointed_arguments
from conformance.problems import Problem
from conformance.records import Reason, ReasonCode

#: Tiles of two matrices and of four, loops with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    BatchConfig(64, 64, 128, 2, 4),
    BatchConfig(32, 64, 64, 1, 4),
    BatchConfig(32, 32, 128, 2, 8, matrices=4),
)


class BatchTiles(MicroscaledMm):
    """One tile of several matrices per program, as many as the config says; operands of any strides, scales in rows or
    columns."""

    limits = dataclasses.replace(
        MicroscaledMm.limits,
        needs=("scaled-packing", "scaled-batch"),
        matrices="batch",
        swizzled=False,
        states=("matrices",),
    )
    dtypes = ("e4m3", "e5m2", "uint8", "bf16")
    configs = CONFIGS
    batched = True
    matrices = 3  # one more than most tiles have
    zero_sign = "ieee"

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`MicroscaledMm`. Its config must say how many matrices a tile has, and scales in tiles of their
        own are refused."""
        if reason := super().refusal(plan):
            return reason
        if not isinstance(plan.config, BatchConfig):
            detail = f"{plan.config.id} does not say how many matrices a tile has: use a BatchConfig"
            return Reason(ReasonCode.CONFIG, "matrices", detail)
        if plan.problem.swizzled:
            name = next(each.name for each in plan.problem.operands if each.name.startswith("scale"))
            detail = f"{name} lies in tiles of 128 lines: {self.name} loads rows or columns. Use microscaled_mm"
            return Reason(ReasonCode.LAYOUT, name, detail)
        capability = plan.target.capability("scaled-batch")
        return None if capability.available else Reason(ReasonCode.CAPABILITY, capability.name, capability.why)

    def _batch(self, plan: Plan) -> Reason | None:
        if plan.problem.batch is not None:
            return None
        detail = f"one product without a batch: a tile of {self.name} has several matrices. Use microscaled_mm"
        return Reason(ReasonCode.EXTENT, "batch", detail)

    def multiply_adds(self, problem: Problem, config: AnyConfig) -> int:
        """See :class:`Kernel`: the code of a step multiplies tiles of every matrix."""
        assert isinstance(config, BatchConfig)
        return config.matrices * math.prod(config.tile)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per tile of several matrices."""
        return (output_tiles(plan) * triton.cdiv(plan.problem.batch, plan.config.matrices),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem = plan.problem
        check_tensors(self.name, problem, tensors)
        arguments = {
            **pointed_arguments(plan, tensors),
            "batch": problem.batch,
            "MATRICES": plan.config.matrices,
        }
        del arguments["SWIZZLED"]
        return Launch(gemm_microscaled_batch_tiles, plan.grid, arguments, plan.config.options)

    def multiplies_scaled(self, plan: Plan) -> bool:
        """See :class:`MicroscaledMm`: of the units that take scales, that of sm_120 alone multiplies three
        dimensions."""
        return bool(plan.target.arch == 120 and super().multiplies_scaled(plan))

    def features(self, plan: Plan) -> Features:
        """See :class:`MicroscaledMm`. Neither wgmma nor tcgen05 multiplies three dimensions: mma.sync does."""
        features = super().features(plan)
        wide = features.required & {codegen.WGMMA, codegen.TCGEN05}
        return dataclasses.replace(features, required=features.required - wide | ({codegen.MMA} if wide else set()))

    def draw_problem(self, draw: Draw) -> Any:
        """See :class:`Kernel`: one matrix or several, in whole tiles or not."""
        return dataclasses.replace(super().draw_problem(draw), batch=draw.pick((1, 2, 3, 5)))


KERNELS: tuple[BatchTiles, ...] = (BatchTiles("microscaled_mm_batch_tiles"),)
