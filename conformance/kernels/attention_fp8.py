"""Attention forward of fp8 operands: scores in fp32, and probabilities in the operands' fp8 for the second product.

Operands are loaded by pointers, or by tensor descriptors in loops over keys that may be warp-specialised.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from conformance.families.attention.problem import Attention
from conformance.families.attention.refusals import AttentionLimits
from conformance.families.draw import Draw
from conformance.families.gemm.problem import Gemm, scaled_mm
from conformance.heuristics.configs import AnyConfig, FlexConfig
from conformance.kernels import attention_descriptors
from conformance.kernels.attention import Forward
from conformance.kernels.attention_descriptors import DescribedForward
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.problems import FNUZ, FP8
from conformance.records import Reason, ReasonCode

#: Tiles of large and of small matrix instructions, with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    FlexConfig(64, 32, 2, 4),
    FlexConfig(32, 64, 1, 4),
    FlexConfig(128, 64, 2, 8),
)


class Fp8Forward(Forward):
    """One block of queries of one batch and head per program; see :class:`Forward`.

    The compiler may add products in the narrow sums of Hopper's fp8 unit over all keys: fast accumulation.
    """

    limits = AttentionLimits(scales=True, depth=32)
    family = "fp8-attention"
    dtypes = FP8
    rare_dtypes: tuple[str, ...] = FNUZ
    product = PointerGemm("scaled_mm", "scaled_mm", "scaled_mm", rare_dtypes=FNUZ)

    def draw_problem(self, draw: Draw) -> Any:
        """See :class:`Kernel`: also outputs in fp16 and fp32, with scales and without."""
        problem = super().draw_problem(draw)
        own = {"out_dtype": draw.pick((None, "fp16", "fp32")), "scaled": draw.chance(0.5)}
        return dataclasses.replace(problem, head_dim=max(problem.head_dim, self.limits.depth), **own)

    def _config(self, plan: Plan) -> Reason | None:
        if plan.config.block_n < self.limits.depth:
            detail = f"{plan.config.id}: products of {plan.problem.dtype} sum over {self.limits.depth} keys at least"
            return Reason(ReasonCode.CONFIG, "block size", detail)
        return super()._config(plan)

    def _product_of(self, problem: Attention, rows: int) -> Gemm:
        fields = {"scaling": "tensor", "fast_accum": True, "out_dtype": problem.output_dtype}
        return scaled_mm(rows, 16, problem.head_dim, problem.dtype, **fields)


class DescribedFp8Forward(DescribedForward, Fp8Forward):
    """Loads, stores and loops of :class:`DescribedForward`, arithmetic of :class:`Fp8Forward`."""

    limits = dataclasses.replace(DescribedForward.limits, scales=True, depth=32)
    rare_dtypes: tuple[str, ...] = ()


KERNELS = (
    Fp8Forward("attention_fp8", None, CONFIGS),
    DescribedFp8Forward("attention_fp8_descriptors", None, attention_descriptors.CONFIGS),
)
