"""Block-wise scaled mm: fp8 operands with one scale per 128 k, applied to each partial sum in the main loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from conformance.heuristics.configs import Config
from conformance.kernels.device.scaled_mm_blockwise import gemm_blockwise
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch
from conformance.kernels.product import ProductKernel
from conformance.numerics.contract import Accumulator
from conformance.problems import FP8, Gemm
from conformance.problems.gemm import SCALE_BLOCK
from conformance.records import Reason, ReasonCode
from conformance.targets import Target


class BlockScaledGemm(ProductKernel):
    """scaled_mm with one scale per 1x128 or 128x128 elements of an operand. Fast accumulation changes nothing: each
    step's partial sum is promoted."""

    block_scaled = True

    def _config(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        if SCALE_BLOCK % config.block_k:
            detail = f"{config.id}: a scale holds for {SCALE_BLOCK} k, which BLOCK_K must divide"
            return Reason(ReasonCode.CONFIG, "BLOCK_K", detail)
        return super()._config(problem, config, target, variant)

    def promotion(self, plan: Plan) -> int | None:
        return int(plan.config.block_k)

    def _accumulator(self, plan: Plan) -> Accumulator:
        return dataclasses.replace(super()._accumulator(plan), promote=self.promotion(plan))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem = plan.problem
        rows, columns = (1 if kind == "1x128" else SCALE_BLOCK for kind in problem.scaling.split("/"))
        scale_a, scale_b = problem.operand("scale_a"), problem.operand("scale_b")
        arguments = {
            **self._arguments(plan, tensors),
            "scale_a_ptr": tensors["scale_a"],
            "scale_b_ptr": tensors["scale_b"],
            **self._bias_arguments(problem, tensors),
            "stride_scale_am": scale_a.strides[0],
            "stride_scale_ak": scale_a.strides[1],
            "stride_scale_bk": scale_b.strides[0],
            "stride_scale_bn": scale_b.strides[1],
            "SCALE_K": SCALE_BLOCK,
            "SCALE_M": rows,
            "SCALE_N": columns,
        }
        del arguments["PRECISION"]
        return Launch(gemm_blockwise, plan.grid, arguments, plan.config.options)


KERNELS = (BlockScaledGemm("scaled_mm_blockwise", "scaled_mm", "scaled_persistent_mm", FP8),)
