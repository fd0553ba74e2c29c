"""Block-wise scaled mm: fp8 operands with one scale per 128 k, applied to each partial sum in the main loop.

By pointers, and by descriptors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from conformance.families.draw import Draw
from conformance.families.gemm.problem import BLOCK_SCALINGS, SCALE_BLOCK
from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.device.scaled_mm_blockwise import gemm_blockwise, gemm_blockwise_descriptors
from conformance.kernels.gemm import GemmKernel, PointerGemm
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch, pointer_arguments
from conformance.kernels.mm_descriptors import EveryTarget
from conformance.kernels.persistent_tma import leading
from conformance.numerics.contract import Accumulator
from conformance.problems import FNUZ
from conformance.records import Reason, ReasonCode

#: Tiles of large and of small matrix instructions, loops with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(64, 64, 128, 2, 4, group_m=4),
    Config(32, 32, 64, 1, 2),
    Config(128, 128, 128, 3, 8),
    Config(128, 64, 64, 2, 4, group_m=1),
)


class BlockwiseScaledGemm(GemmKernel):
    """scaled_mm with one scale per 1x128 or 128x128 elements of an operand. Fast accumulation changes nothing: each
    step's partial sum is promoted."""

    weight = 1
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

    def _scale_arguments(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Scales, bias and what a scale holds for."""
        problem = plan.problem
        rows, columns = (1 if kind == "1x128" else SCALE_BLOCK for kind in problem.scaling.split("/"))
        return {
            **pointer_arguments("scale_a", tensors["scale_a"], problem.operand("scale_a"), "mk"),
            **pointer_arguments("scale_b", tensors["scale_b"], problem.operand("scale_b"), "kn"),
            **self._bias_arguments(plan, tensors),
            "SCALE_K": SCALE_BLOCK,
            "SCALE_M": rows,
            "SCALE_N": columns,
            "HAS_BIAS": problem.reads_bias,
        }


class BlockScaledGemm(BlockwiseScaledGemm, PointerGemm):
    """One tile per program, by pointer loads and stores."""

    limits = GemmLimits(scalings=BLOCK_SCALINGS)
    zero_sign = "ieee"

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        return self._launch(gemm_blockwise, plan, tensors, **self._scale_arguments(plan, tensors))


class BlockScaledDescriptors(BlockwiseScaledGemm, EveryTarget):
    """Persistent programs: operands by descriptors, scales by pointers, pointer or descriptor store."""

    limits = dataclasses.replace(EveryTarget.limits, scalings=BLOCK_SCALINGS)
    zero_sign = "ieee"

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, host = plan.problem, plan.variant.descriptors == "host"
        arguments = {
            **self._arguments(plan, tensors),
            **pointer_arguments("c", tensors["out"], problem.output, "mn"),
            **self._scale_arguments(plan, tensors),
            **(self._host_descriptors(plan, tensors) if host else dict.fromkeys(("a_desc", "b_desc", "c_desc"))),
            "a_ptr": tensors["a"],
            "b_ptr": tensors["b"],
            "lda": leading(problem.operand("a")),
            "ldb": leading(problem.operand("b")),
            "HAS_PRODUCT": problem.has_product,
            "ON_DEVICE": not host,
            "TMA_STORE": plan.variant.tma_store,
        }
        return Launch(gemm_blockwise_descriptors, plan.grid, arguments, plan.config.options)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: descriptors of both kinds, on few programs."""
        return Variant(draw.pick(("device", "host")), draw.chance(0.5), sms=draw.pick((None, 2, 3)))


KERNELS: tuple[BlockwiseScaledGemm, ...] = (
    BlockScaledGemm("scaled_mm_blockwise", "scaled_mm", "scaled_persistent_mm", rare_dtypes=FNUZ),
    BlockScaledDescriptors("scaled_mm_blockwise_descriptors", "scaled_mm", configs=CONFIGS),
)
