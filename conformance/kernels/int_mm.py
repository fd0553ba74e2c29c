"""int_mm and mixed_mm: int8 operands summed in int32, and an integer B converted to A's floating-point dtype."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import triton.language as tl
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.base import BASE
from conformance.kernels.device.pointer import gemm_integer
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch, dot_precision
from conformance.numerics.contract import INT32, Contract
from conformance.numerics.sum_order import SumOrder
from conformance.problems import itemsize
from conformance.records import ExecutorName, Reason, ReasonCode

#: Matrix instructions take this many k of 8-bit operands at least.
LEAST_BLOCK_K = 32


class ConvertingGemm(PointerGemm):
    """A product whose kernel converts B to A's dtype, and sums in a dtype that the subclass names."""

    weight = 1
    sum_dtype: Any

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        precision = dot_precision(plan.problem)
        sums = {"SUM": self.sum_dtype, "IMPLIED_DTYPE": plan.variant.implied_dtype}
        return self._launch(gemm_integer, plan, tensors, PRECISION=precision, **sums)


class IntegerGemm(ConvertingGemm):
    """int8 operands, int32 sums and result: exact."""

    limits = dataclasses.replace(PointerGemm.limits, variant=PointerGemm.limits.variant | {"implied_dtype"})
    sum_dtype = tl.int32

    def _config(self, plan: Plan) -> Reason | None:
        if plan.config.block_k < LEAST_BLOCK_K:
            detail = f"{plan.config.id}: {plan.problem.dtype} needs BLOCK_K >= {LEAST_BLOCK_K}"
            return Reason(ReasonCode.CONFIG, "block size", detail)
        return super()._config(plan)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: the staged tiles, or the int32 result if that is larger, which changes its layout to
        be stored."""
        result = plan.config.block_m * plan.config.block_n * itemsize(plan.problem.output_dtype)
        return int(max(super().shared_memory(plan), result))

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: exact sums in int32."""
        return Contract("int32", INT32)

    def _matrix_unit(self, plan: Plan) -> codegen.Feature | None:
        """Returns no required unit where the target has tcgen05: there the compiler's release decides between it and
        mma.sync for int8."""
        unit = super()._matrix_unit(plan)
        return None if unit is codegen.TCGEN05 else unit


class MixedGemm(ConvertingGemm):
    """A of a floating-point dtype, B of int8 or uint8, of which every value is exact in A's dtype."""

    limits = GemmLimits(converts={"b": ("int8", "uint8")})
    sum_dtype = tl.float32
    zero_sign = "ieee"

    def __init__(self, name: str, operation: str, table: str, dtypes: tuple[str, ...]) -> None:
        super().__init__(name, operation, table, dtypes)
        self.configs = (*BASE.table("mm"), *self.configs)  # the table lists only what is tried beyond those of mm

    def dtype_names(self) -> list[str]:
        """See :class:`Kernel`: the dtypes of A and B, such as "fp16xint8"."""
        return [f"{name}x{second}" for name in super().dtype_names() for second in ("int8", "uint8")]

    def _dtype(self, plan: Plan) -> Reason | None:
        like_a = dataclasses.replace(plan.problem, op="mm", b_dtype=None)
        return super()._dtype(dataclasses.replace(plan, problem=like_a))

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`. wgmma reads B from shared memory, in order. Where B goes from registers to mma.sync, the
        compiler chooses which k a step adds."""
        order = super().order(plan)
        return order if order is not None and order.instruction == "wgmma" else None

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: the staged tiles, and one tile of B as it is multiplied."""
        problem, config = plan.problem, plan.config
        a, b = config.block_m * itemsize(problem.dtype), config.block_n * itemsize(problem.second_dtype)
        converted = config.block_n * itemsize(problem.dtype)
        return int(config.block_k * ((a + b) * config.num_stages + converted))


KERNELS = (
    IntegerGemm("int_mm", "int_mm", "int8_mm", ("int8",)),
    MixedGemm("mixed_mm", "mixed_mm", "mixed_mm", ("bf16", "fp16")),
)
