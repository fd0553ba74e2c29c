"""Products with integer operands by pointer loads and stores: int8 summed in int32, and mixed, with B converted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import triton.language as tl
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.heuristics.base import BASE
from conformance.heuristics.configs import Config
from conformance.kernels.device.int_mm import gemm_integer
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch
from conformance.kernels.product import ProductKernel
from conformance.numerics.contract import INT32, Contract
from conformance.problems import Gemm, itemsize
from conformance.records import Reason, ReasonCode
from conformance.targets import Target

#: Matrix instructions take this many k of 8-bit operands at least.
LEAST_BLOCK_K = 32


class IntegerGemm(ProductKernel):
    """int8 operands, int32 sums and result: exact."""

    def _config(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        if config.block_k < LEAST_BLOCK_K:
            detail = f"{config.id}: {problem.dtype} needs BLOCK_K >= {LEAST_BLOCK_K}"
            return Reason(ReasonCode.CONFIG, "block size", detail)
        return super()._config(problem, config, target, variant)

    def _shared_memory(self, problem: Gemm, config: Config, variant: Variant) -> int:
        """The staged tiles, or the int32 result where it changes its layout to be stored, which may be larger."""
        result = config.block_m * config.block_n * itemsize(problem.output_dtype)
        return max(super()._shared_memory(problem, config, variant), result)

    def contract(self, plan: Plan, executor: str) -> Contract:
        return Contract("int32", INT32)

    def _matrix_unit(self, plan: Plan) -> codegen.Feature | None:
        """Where there is tcgen05, the compiler's release decides between it and mma.sync for int8: none is required."""
        unit = super()._matrix_unit(plan)
        return None if unit is codegen.TCGEN05 else unit

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        arguments = {**self._arguments(plan, tensors), "SUM": tl.int32}
        return Launch(gemm_integer, plan.grid, arguments, plan.config.options)


class MixedGemm(ProductKernel):
    """A of a floating-point dtype, B of int8 or uint8, of which every value is exact in A's dtype."""

    def __init__(self, name: str, operation: str, table: str, dtypes: tuple[str, ...]) -> None:
        super().__init__(name, operation, table, dtypes)
        self.configs = (*BASE.table("mm"), *self.configs)  # the table lists only what is tried beyond those of mm

    def _dtype(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        like_a = dataclasses.replace(problem, op="mm", b_dtype=None)
        return super()._dtype(like_a, config, target, variant)

    def _shared_memory(self, problem: Gemm, config: Config, variant: Variant) -> int:
        """The staged tiles, and one tile of B as it is multiplied."""
        a, b = config.block_m * itemsize(problem.dtype), config.block_n * itemsize(problem.second_dtype)
        converted = config.block_n * itemsize(problem.dtype)
        return config.block_k * ((a + b) * config.num_stages + converted)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        arguments = {**self._arguments(plan, tensors), "SUM": tl.float32}
        return Launch(gemm_integer, plan.grid, arguments, plan.config.options)


KERNELS = (
    IntegerGemm("int_mm", "int_mm", "int8_mm", ("int8",)),
    MixedGemm("mixed_mm", "mixed_mm", "mixed_mm", ("bf16", "fp16")),
)
