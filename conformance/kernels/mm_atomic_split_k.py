"""mm with K split: each program adds the sum of its part of K to the output, by atomic additions in no fixed order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.draw import Draw
from conformance.families.gemm.problem import Gemm
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.decompose_k_mm import SplitKGemm
from conformance.kernels.device.split_k import gemm_atomic_split_k, zero_matrix
from conformance.kernels.kernel import Features, Plan
from conformance.kernels.launch import Launch, dot_precision
from conformance.kernels.persistent_tma import BARRIER_BYTES, leading, unstorable
from conformance.numerics.contract import Contract
from conformance.problems import Layout
from conformance.records import ExecutorName, Reason, ReasonCode

#: Tiles of large and of small matrix instructions, loops with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(64, 64, 32, 2, 4, group_m=4),
    Config(16, 32, 64, 1, 2),
    Config(64, 128, 32, 3, 8),
)
#: Tile and compile options of the zeroing launch.
ZERO_ROWS, ZERO_COLUMNS = 32, 64
ZERO_OPTIONS = {"num_stages": 1, "num_warps": 4}


class AtomicSplitKGemm(SplitKGemm):
    """mm of a deep product into fp32, in one main launch and without a workspace. Parts are those of the kernel that
    sums them in a second launch."""

    limits = dataclasses.replace(SplitKGemm.limits, output="fp32")
    zero_sign = "ieee"
    #: whether a descriptor adds whole tiles to the output
    adds_tiles = False

    def problem(self, dtype: str, M: int, N: int, K: int, **fields: Any) -> Gemm:
        """See :class:`GemmFamily`: the result is fp32."""
        return super().problem(dtype, M, N, K, **{"out_dtype": "fp32", **fields})

    def draw_problem(self, draw: Draw) -> Any:
        return dataclasses.replace(super().draw_problem(draw), out_dtype="fp32")

    def _dtype(self, plan: Plan) -> Reason | None:
        output = plan.problem.output_dtype
        if output != "fp32":
            detail = (
                f"out is {output}: {self.name} adds partial sums in the output's own dtype, and a narrower one would "
                "round each of them. Use out_dtype fp32"
            )
            return Reason(ReasonCode.DTYPE, "out", detail)
        return super()._dtype(plan)

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`. On a device programs add in any order. An atomic addition in global memory may take a
        subnormal for zero (PTX says that ``atom.add.f32`` does). The interpreter runs one program after the other."""
        contract = dataclasses.replace(super().contract(plan, executor), stores_once=False)
        if executor == ExecutorName.INTERPRETER:
            return contract
        return dataclasses.replace(contract, deterministic=False, flushes_subnormals=True)

    def order(self, plan: Plan) -> None:
        """See :class:`Kernel`: parts are added in any order."""
        return

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: the launch before the main one zeroes the output."""
        problem = plan.problem
        more = {"PRECISION": dot_precision(problem), "BY_DESCRIPTOR": self.adds_tiles}
        main = self._launch(gemm_atomic_split_k, plan, tensors, **more)
        names = ("c_ptr", "M", "N", "stride_cm", "stride_cn", "WIDE_INDEX")
        arguments = {name: main.arguments[name] for name in names} | {"BLOCK_M": ZERO_ROWS, "BLOCK_N": ZERO_COLUMNS}
        tiles = triton.cdiv(problem.M, ZERO_ROWS) * triton.cdiv(problem.N, ZERO_COLUMNS)
        before = Launch(zero_matrix, (tiles,), arguments, ZERO_OPTIONS)
        return dataclasses.replace(main, before=(before,))

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: the main launch adds atomically and stores nothing."""
        features = super().features(plan)
        required = features.required - {codegen.POINTER_STORE} | {codegen.ATOMIC_ADD}
        return Features(required, features.forbidden | {codegen.POINTER_STORE})


class DescriptorSplitKGemm(AtomicSplitKGemm):
    """The same by a descriptor of the output. The copy unit adds a tile to memory; where there is none, the compiler
    makes atomics of it."""

    limits = dataclasses.replace(
        AtomicSplitKGemm.limits, described=("out",), needs=("tensor-descriptor", "descriptor-reduce")
    )
    described = ("out",)
    adds_tiles = True
    zero_sign = "ieee"

    def draw_problem(self, draw: Draw) -> Any:
        """See :class:`Kernel`: mostly with an output that a descriptor can have."""
        problem = super().draw_problem(draw)
        if draw.chance(0.2):
            return problem
        return dataclasses.replace(
            problem, N=4 * triton.cdiv(problem.N, 4), layout_out=Layout(pad=draw.pick((0, 4, 16)))
        )

    def _layout(self, plan: Plan) -> Reason | None:
        return unstorable(plan.problem.output) or super()._layout(plan)

    def _config(self, plan: Plan) -> Reason | None:
        return self.lacking(plan) or super()._config(plan)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: the staged tiles, or the one that is added."""
        return int(max(super().shared_memory(plan), 4 * plan.config.block_m * plan.config.block_n) + BARRIER_BYTES)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        launch = super().launch(plan, tensors)
        return dataclasses.replace(launch, arguments={**launch.arguments, "stride_cm": leading(plan.problem.output)})

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: the copy unit adds tiles, where there is one."""
        features = super().features(plan)
        if not plan.target.capability("tma").available:
            return features
        required = features.required - {codegen.ATOMIC_ADD} | {codegen.TILE_ADD, codegen.TENSOR_DESCRIPTOR}
        return Features(required, features.forbidden - {codegen.TENSOR_DESCRIPTOR})


KERNELS = (
    AtomicSplitKGemm("mm_atomic_split_k", "mm", configs=CONFIGS),
    DescriptorSplitKGemm("mm_reduce_split_k", "mm", configs=CONFIGS),
)
