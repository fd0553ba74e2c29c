"""mm with a prologue on A and an epilogue on the result, by pointer loads and stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from conformance.families.examples import FLOATS
from conformance.families.gemm.refusals import GemmLimits
from conformance.kernels.device.fused_mm import gemm_fused
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch, dot_precision
from conformance.numerics.sum_order import SumOrder
from conformance.problems import FP8, itemsize
from conformance.records import Reason, ReasonCode

#: dtypes from which a prologue converts.
STORED = (*FLOATS, *FP8, "int8", "uint8")


class FusedGemm(PointerGemm):
    """A product with what its problem's :class:`~conformance.families.gemm.problem.Fusion` asks for."""

    limits = GemmLimits(converts={"a": STORED}, needs=("constant-item",))
    weight = 1
    zero_sign = "ieee"

    def _dtype(self, plan: Plan) -> Reason | None:
        problem, target = plan.problem, plan.target
        if problem.a_dtype not in STORED:
            detail = f"a is stored as {problem.a_dtype}, {self.name} converts from {', '.join(STORED)}"
            return Reason(ReasonCode.DTYPE, "a", detail)
        if problem.a_dtype in FP8 and not (capability := target.capability(problem.a_dtype)).available:
            return Reason(ReasonCode.DTYPE, "a", f"{target.id}: {capability.why}")
        converted = dataclasses.replace(problem, op="mm", fusion=None, bias=None)
        return super()._dtype(dataclasses.replace(plan, problem=converted))

    def _config(self, plan: Plan) -> Reason | None:
        items = plan.target.capability("constant-item")
        if not items.available:
            return Reason(ReasonCode.CAPABILITY, items.name, items.why)
        return super()._config(plan)

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`. Where A is converted in registers, the compiler chooses which k a step of mma.sync
        adds."""
        order, problem = super().order(plan), plan.problem
        converted = itemsize(problem.a_dtype) != itemsize(problem.dtype)
        if order is None or (order.instruction == "mma" and converted):
            return None
        is_constant = plan.variant.static or problem.K == 1  # Triton takes an argument of 1 for a constant
        return dataclasses.replace(order, begins_at_addend=is_constant and plan.config.block_k >= problem.K)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: the staged tiles as they are stored, and one of A as it is multiplied, if the
        prologue changes it."""
        problem, config = plan.problem, plan.config
        a, b = config.block_m * itemsize(problem.a_dtype), config.block_n * itemsize(problem.dtype)
        changed = problem.fusion is not None and problem.fusion.prologue in ("cast", "scale", "scale-k")
        converted = config.block_m * itemsize(problem.dtype) if changed else 0
        return int(config.block_k * ((a + b) * config.num_stages + converted))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem = plan.problem
        pitches = {operand.name: operand.strides[0] for operand in problem.operands}
        more = {
            **self._bias_arguments(plan, tensors),
            **{f"{name}_ptr": tensors.get(name) for name in ("row_scale", "k_scale", "rows", "residual", "mask")},
            **{f"stride_{name}_m": pitches.get(name, 0) for name in ("residual", "mask")},
            "PRECISION": dot_precision(problem),
            "PROLOGUE": problem.fusion.prologue,
            "EPILOGUE": problem.fusion.epilogue,
        }
        return self._launch(gemm_fused, plan, tensors, **more)


KERNELS = (FusedGemm("fused_mm", "fused_mm", "mm"),)
