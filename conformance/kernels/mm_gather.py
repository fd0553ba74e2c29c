"""mm whose rows an index vector names: those of A are gathered, or those of the result scattered, by a descriptor."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.arguments import dot_precision
from conformance.kernels.device.mm_gather import gemm_gathered, gemm_scattered
from conformance.kernels.families.draw import Draw
from conformance.kernels.gemm import PointerGemm, lacking
from conformance.kernels.kernel import Features, Plan, Variant
from conformance.kernels.launch import Launch
from conformance.kernels.persistent_tma import BARRIER_BYTES, leading, row_major, undescribable, unstorable
from conformance.problems import Fusion, Gemm, Layout, itemsize
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
    #: what descriptors cover, whatever the config
    described: tuple[str, ...] = ("a", "b")
    #: what happens to rows, as a :class:`Fusion` calls it
    moves = "gather"
    zero_sign = "ieee"

    def problem(self, dtype: str, M: int, N: int, K: int, **fields: Any) -> Gemm:
        """See :class:`GemmFamily`: rows are moved."""
        return super().problem(dtype, M, N, K, **{"fusion": Fusion(self.moves), **fields})

    def draw_problem(self, draw: Draw) -> Gemm:
        """See :class:`Kernel`: mostly with rows that a descriptor can have."""
        problem = dataclasses.replace(super().draw_problem(draw), fusion=Fusion(self.moves), bias=None)
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
        if fusion.prologue != self.moves or fusion.epilogue:
            detail = f"{fusion} is asked for: {self.name} can {self.moves} rows and has no epilogue. Use fused_mm"
            return Reason(ReasonCode.OPERATION, "fusion", detail)
        return lacking(plan, "tensor-descriptor", f"descriptor-{self.moves}") or super().refusal(plan)

    def _layout(self, plan: Plan) -> Reason | None:
        problem = plan.problem
        if self.moves == "gather" and problem.operand("a").strides[1] != 1:
            detail = f"a has strides {problem.operand('a').strides}: whole rows are gathered, so it must be row-major"
            return Reason(ReasonCode.LAYOUT, "a", detail)
        for name in "ab" if problem.has_product else "":
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


class ScatteringGemm(GatheringGemm):
    """One tile per program: descriptor loads of any order, and a descriptor that scatters the rows of a tile."""

    described = ("a", "b", "out")
    moves = "scatter"
    zero_sign = "ieee"

    def draw_problem(self, draw: Draw) -> Gemm:
        """See :class:`Kernel`: mostly with rows that a descriptor can have."""
        problem = super().draw_problem(draw)
        return dataclasses.replace(problem, layout_out=Layout(pad=draw.pick((0, 16)))) if draw.chance(0.9) else problem

    def _layout(self, plan: Plan) -> Reason | None:
        return super()._layout(plan) or unstorable(plan.problem.output)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: and the tile that is scattered."""
        config = plan.config
        staged = config.block_m * config.block_n * itemsize(plan.problem.output_dtype)
        return int(super().shared_memory(plan) + staged)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        launch = super().launch(plan, tensors)
        omitted = ("source_rows", "stride_cm", "stride_cn", "WIDE_INDEX")
        arguments = {name: value for name, value in launch.arguments.items() if name not in omitted}
        more = {"ldc": leading(plan.problem.output), "A_ROW_MAJOR": row_major(plan.problem.operand("a"))}
        return dataclasses.replace(launch, function=gemm_scattered, arguments=arguments | more)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: rows are scattered by the copy unit of the target; where it has none, by pointers."""
        features, target = super().features(plan), plan.target
        if not (target.capability("tma").available or target.capability("tdm").available):
            return features
        required = features.required - {codegen.ROW_GATHER, codegen.POINTER_STORE}
        forbidden = features.forbidden - {codegen.TENSOR_DESCRIPTOR, codegen.TMA_STORE}
        return Features(required | {codegen.ROW_SCATTER}, forbidden | {codegen.POINTER_STORE})


KERNELS = (
    GatheringGemm("mm_gather", "fused_mm", configs=CONFIGS),
    ScatteringGemm("mm_scatter", "fused_mm", configs=CONFIGS),
)
