"""Block-wise scaled mm: fp8 operands with one scale per 128 k, applied to each partial sum in the main loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from conformance.kernels.arguments import pointer_arguments
from conformance.kernels.device.scaled_mm_blockwise import gemm_blockwise
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch
from conformance.numerics.contract import Accumulator
from conformance.problems.gemm import SCALE_BLOCK
from conformance.records import Reason, ReasonCode


class BlockScaledGemm(PointerGemm):
    """scaled_mm with one scale per 1x128 or 128x128 elements of an operand. Fast accumulation changes nothing: each
    step's partial sum is promoted."""

    core = False
    zero_sign = "ieee"
    block_scaled = True

    def _config(self, plan: Plan) -> Reason | None:
        if SCALE_BLOCK % plan.config.block_k:
            detail = f"{plan.config.id}: a scale holds for {SCALE_BLOCK} k, which BLOCK_K must divide"
            return Reason(ReasonCode.CONFIG, "BLOCK_K", detail)
        return super()._config(plan)

    def promotion(self, plan: Plan) -> int | None:
        """See :class:`GemmKernel`: each step's partial sum is promoted."""
        return int(plan.config.block_k)

    def _accumulator(self, plan: Plan) -> Accumulator:
        return dataclasses.replace(super()._accumulator(plan), promote=self.promotion(plan))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        problem = plan.problem
        rows, columns = (1 if kind == "1x128" else SCALE_BLOCK for kind in problem.scaling.split("/"))
        more = {
            **pointer_arguments("scale_a", tensors["scale_a"], problem.operand("scale_a"), "mk"),
            **pointer_arguments("scale_b", tensors["scale_b"], problem.operand("scale_b"), "kn"),
            **self._bias_arguments(plan, tensors),
            "SCALE_K": SCALE_BLOCK,
            "SCALE_M": rows,
            "SCALE_N": columns,
            "HAS_BIAS": problem.reads_bias,
        }
        return self._launch(gemm_blockwise, plan, tensors, **more)


KERNELS = (BlockScaledGemm("scaled_mm_blockwise", "scaled_mm", "scaled_persistent_mm"),)
