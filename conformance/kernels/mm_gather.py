"""mm of rows of A that an index vector names, gathered by a tensor descriptor."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.arguments import dot_precision
from conformance.kernels.device.mm_gather import gemm_gathered
from conformance.kernels.families.draw import Draw
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Features, Plan, Variant
from conformance.kernels.launch import Launch
from conformance.kernels.persistent_tma import BARRIER_BYTES, leading, row_major, undescribable
from conformance.problems import Fusion, Gemm, Layout
from conformance.records import Reason, ReasonCode

#: Tiles of large and of small matrix instructions, loops with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(64, 64, 32, 2, 4, group_m=4),
    Config(32, 32, 64, 1, 2),
    Config(128, 64, 32, 3, 8),
    Config(64, 32, 64, 2, 4, group_m=1),
)


class GatheringGemm(PointerGemm):
    """One tile per program: A by descriptor gathers, B by descriptor loads of any order, stores by pointers."""

    family = "loads"
    core = False
    #: operands that descriptors load, whatever the config
    described = "ab"
    #: whether its A must be row-major, because whole rows are gathered
    gathers = True
    zero_sign = "ieee"

    def problem(self, dtype: str, M: int, N: int, K: int, **fields: Any) -> Gemm:
        """See :class:`GemmFamily`: A's rows are gathered."""
        return super().problem(dtype, M, N, K, **{"fusion": Fusion("gather"), **fields})

    def draw_problem(self, draw: Draw) -> Gemm:
        """See :class:`Kernel`: mostly with rows that a descriptor can have."""
        problem = dataclasses.replace(super().draw_problem(draw), fusion=Fusion("gather"), bias=None)
        if draw.chance(0.2):
            return problem
        a, b = (Layout(order, pad=draw.pick((0, 16))) for order in ("row", draw.pick(("row", "col"))))
        sizes = {"N": 16 * triton.cdiv(problem.N, 16), "K": 16 * triton.cdiv(problem.K, 16)}
        return dataclasses.replace(problem, **sizes, layout_a=a, layout_b=b)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`."""
        return Variant(static=draw.chance(0.5))

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`. What is fused, and what the target lacks, come before what is wrong with the memory."""
        if reason := self._operation(plan):
            return reason
        fusion = plan.problem.fusion
        if fusion.prologue != "gather" or fusion.epilogue:
            detail = f"{fusion} is asked for: {self.name} gathers rows of A and has no epilogue. Use fused_mm"
            return Reason(ReasonCode.OPERATION, "fusion", detail)
        for name in ("tensor-descriptor", "descriptor-gather"):
            capability = plan.target.capability(name)
            if not capability.available:
                return Reason(ReasonCode.CAPABILITY, name, f"{plan.target.id}: {capability.why}")
        return super().refusal(plan)

    def _layout(self, plan: Plan) -> Reason | None:
        problem = plan.problem
        if problem.operand("a").strides[1] != 1:
            detail = f"a has strides {problem.operand('a').strides}: whole rows are gathered, so it must be row-major"
            return Reason(ReasonCode.LAYOUT, "a", detail)
        for name in self.described if problem.has_product else "":
            operand = problem.operand(name)
            if operand.numel and (reason := undescribable(operand)):
                return reason
        return super()._layout(plan)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: and barriers."""
        return super().shared_memory(plan) + BARRIER_BYTES

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        problem = plan.problem
        a, b, out = problem.operand("a"), problem.operand("b"), problem.output
        arguments = {
            **self._arguments(plan, tensors),
            **{f"{name}_ptr": tensors[name] for name in ("a", "b", "rows")},
            "c_ptr": tensors["out"],
            "source_rows": a.shape[0],
            "lda": leading(a),
            "ldb": leading(b),
            "stride_cm": out.strides[0],
            "stride_cn": out.strides[1],
            "B_ROW_MAJOR": row_major(b),
            "HAS_PRODUCT": problem.has_product,
            "PRECISION": dot_precision(problem),
        }
        return Launch(gemm_gathered, plan.grid, arguments, plan.config.options)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: rows are gathered by the copy unit of the target; where it has none, by pointers."""
        features, target = super().features(plan), plan.target
        moves = target.capability("tma").available or target.capability("tdm").available
        if not moves or not plan.problem.has_product:
            return features
        loads = {codegen.TMA_LOAD, codegen.TENSOR_DESCRIPTOR}
        return Features(features.required | loads | {codegen.ROW_GATHER}, features.forbidden - loads)


KERNELS = (GatheringGemm("mm_gather", "fused_mm", configs=CONFIGS),)
