"""mm with a prologue on A and an epilogue on the result, by pointer loads and stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from conformance.heuristics.configs import Config
from conformance.kernels.device.fused_mm import gemm_fused
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch
from conformance.kernels.product import FLOATS, ProductKernel
from conformance.problems import FP8, Gemm, itemsize
from conformance.records import Reason, ReasonCode
from conformance.targets import Target

#: dtypes from which a prologue converts.
STORED = (*FLOATS, *FP8, "int8", "uint8")


class FusedGemm(ProductKernel):
    """A product with what its problem's :class:`~conformance.problems.Fusion` asks for."""

    def _dtype(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        if problem.a_dtype not in STORED:
            detail = f"a is stored as {problem.a_dtype}, {self.name} converts from {', '.join(STORED)}"
            return Reason(ReasonCode.DTYPE, "a", detail)
        if problem.a_dtype in FP8 and not (capability := target.capability(problem.a_dtype)).available:
            return Reason(ReasonCode.DTYPE, "a", f"{target.id}: {capability.why}")
        converted = dataclasses.replace(problem, op="mm", fusion=None, bias=None)
        return super()._dtype(converted, config, target, variant)

    def _shared_memory(self, problem: Gemm, config: Config, variant: Variant) -> int:
        """The staged tiles as they are stored, and one of A as it is multiplied if the prologue changes it."""
        a, b = config.block_m * itemsize(problem.a_dtype), config.block_n * itemsize(problem.dtype)
        changed = problem.fusion is not None and problem.fusion.prologue in ("cast", "scale")
        converted = config.block_m * itemsize(problem.dtype) if changed else 0
        return config.block_k * ((a + b) * config.num_stages + converted)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem = plan.problem
        arguments: dict[str, Any] = {
            **self._arguments(plan, tensors),
            **self._bias_arguments(problem, tensors),
            **{f"{name}_ptr": tensors.get(name) for name in ("row_scale", "rows", "residual", "mask")},
            "stride_residual_m": problem.N,
            "stride_mask_m": problem.N,
            "PROLOGUE": problem.fusion.prologue,
            "EPILOGUE": problem.fusion.epilogue,
        }
        del arguments["HAS_BIAS"]
        return Launch(gemm_fused, plan.grid, arguments, plan.config.options)


KERNELS = (FusedGemm("fused_mm", "fused_mm", "mm"),)
