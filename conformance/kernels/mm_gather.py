"""mm with a descriptor that is none of a tile: it gathers rows of A, scatters rows of the result, or loads a vector."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.draw import Draw
from conformance.families.gemm.problem import Fusion, Gemm
from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.device.mm_gather import gemm_described, gemm_gathered
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Features, Plan, Variant
from conformance.kernels.launch import Launch, dot_precision
from conformance.kernels.persistent_tma import BARRIER_BYTES, leading, row_major, undescribable, unstorable
from conformance.problems import Layout, itemsize
from conformance.records import Reason, ReasonCode

#: Tiles of large and of small matrix instructions, loops with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(64, 64, 32, 2, 4, group_m=4),
    Config(32, 32, 64, 1, 2),
    Config(128, 64, 32, 3, 8),
    Config(64, 32, 64, 2, 4, group_m=1),
)

#: The smallest tile of the kernel that gathers has other columns than rows, so that they are not taken for each other.
GATHERING: tuple[AnyConfig, ...] = (CONFIGS[0], Config(32, 16, 64, 1, 2), *CONFIGS[2:])


class GatheringGemm(PointerGemm):
    """One tile per program: A by descriptor gathers, B by descriptor loads of any order, stores by pointers."""

    limits = GemmLimits(prologue="gather", described=("a", "b"), needs=("tensor-descriptor", "descriptor-gather"))
    family = "loads"
    weight = 1
    #: what descriptors cover, whatever the config
    described: tuple[str, ...] = ("a", "b")
    #: what happens to A or to rows of the result
    prologue = "gather"
    #: what its code shows where descriptors do not become pointers
    shown = codegen.ROW_GATHER
    zero_sign = "ieee"

    def problem(self, dtype: str, M: int, N: int, K: int, **fields: Any) -> Gemm:
        """See :class:`GemmFamily`: with the kernel's prologue."""
        return super().problem(dtype, M, N, K, **{"fusion": Fusion(self.prologue), **fields})

    def draw_problem(self, draw: Draw) -> Any:
        """See :class:`Kernel`: mostly with rows that a descriptor can have."""
        problem = dataclasses.replace(super().draw_problem(draw), fusion=Fusion(self.prologue), bias=None)
        if draw.chance(0.2):
            return problem
        a, b = (Layout(order, pad=draw.pick((0, 16))) for order in ("row", draw.pick(("row", "col"))))
        sizes = {"N": 16 * triton.cdiv(problem.N, 16), "K": 16 * triton.cdiv(problem.K, 16)}
        return dataclasses.replace(problem, **sizes, layout_a=a, layout_b=b)

    def draw_variant(self, draw: Draw) -> Variant:
        return Variant(static=draw.chance(0.5))

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`. What is fused, and what the target lacks, come before what is wrong with the memory."""
        if reason := self._operation(plan):
            return reason
        fusion = plan.problem.fusion
        if fusion.prologue != self.prologue or fusion.epilogue:
            detail = f"{fusion} is asked for: {self.name} has the prologue {self.prologue} and no other. Use fused_mm"
            return Reason(ReasonCode.OPERATION, "fusion", detail)
        return self.lacking(plan) or super().refusal(plan)

    def _layout(self, plan: Plan) -> Reason | None:
        problem = plan.problem
        if self.prologue == "gather" and problem.operand("a").strides[1] != 1:
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
        problem = plan.problem
        a, b, out = problem.operand("a"), problem.operand("b"), problem.output
        arguments = {
            **self._arguments(plan, tensors),
            **{f"{name}_ptr": tensors.get(name) for name in ("a", "b", "rows")},
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
        features = super().features(plan)
        if not _moves_tiles(plan) or not plan.problem.has_product:
            return features
        loads = {codegen.TMA_LOAD, codegen.TENSOR_DESCRIPTOR}
        return Features(features.required | loads | {self.shown}, features.forbidden - loads)


class DescribedGemm(GatheringGemm):
    """Base of kernels that have descriptors of A and B in any order."""

    limits = GemmLimits(prologue="scale-k", described=("a", "b"), needs=("tensor-descriptor",))
    prologue = "scale-k"
    shown = codegen.VECTOR_LOAD
    zero_sign = "ieee"

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        launch, out = super().launch(plan, tensors), plan.problem.output
        arguments = {name: value for name, value in launch.arguments.items() if name != "source_rows"}
        more = {
            "k_scale_ptr": tensors.get("k_scale"),
            "stride_cm": leading(out) if row_major(out) else out.strides[0],
            "A_ROW_MAJOR": row_major(plan.problem.operand("a")),
        }
        return dataclasses.replace(launch, function=gemm_described, arguments=arguments | more)


class VectorGemm(DescribedGemm):
    """One tile per program: descriptors load tiles, and in the same loop a vector of factors of A's columns."""

    zero_sign = "ieee"

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: and the staged vectors, and a tile of A after it is scaled."""
        config = plan.config
        scaled = config.block_m * config.block_k * itemsize(plan.problem.dtype)
        return int(super().shared_memory(plan) + 4 * config.block_k * config.num_stages + scaled)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: where tiles are moved, nothing is loaded by a pointer."""
        features = super().features(plan)
        if self.shown not in features.required:
            return features
        return Features(features.required - {codegen.POINTER_LOAD}, features.forbidden | {codegen.POINTER_LOAD})


class ScatteringGemm(DescribedGemm):
    """One tile per program: descriptor loads of any order, and a descriptor that scatters the rows of a tile."""

    limits = GemmLimits(
        prologue="scatter", described=("a", "b", "out"), needs=("tensor-descriptor", "descriptor-scatter")
    )
    described = ("a", "b", "out")
    prologue = "scatter"
    shown = codegen.ROW_SCATTER
    zero_sign = "ieee"

    def draw_problem(self, draw: Draw) -> Any:
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

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: what scatters stores nothing through pointers."""
        features = super().features(plan)
        if not _moves_tiles(plan):
            return features
        required = features.required - {codegen.POINTER_STORE} | {self.shown}
        forbidden = features.forbidden - {codegen.TENSOR_DESCRIPTOR, codegen.TMA_STORE}
        return Features(required, forbidden | {codegen.POINTER_STORE})


def _moves_tiles(plan: Plan) -> bool:
    """True if the target has a copy unit, so that descriptors do not become pointers."""
    return any(plan.target.capability(name).available for name in ("tma", "tdm"))


KERNELS = (
    GatheringGemm("mm_gather", "fused_mm", configs=GATHERING),
    ScatteringGemm("mm_scatter", "fused_mm", configs=CONFIGS),
    VectorGemm("mm_scaled_k", "fused_mm", configs=CONFIGS),
)
