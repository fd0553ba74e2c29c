"""mm and addmm that first copy B to a row-major matrix (PyTorch's contiguous transform)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance.families.gemm.problem import Gemm
from conformance.families.gemm.refusals import GemmLimits
from conformance.kernels.device.pointer import copy_matrix
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch, workspace
from conformance.problems import Layout
from conformance.records import Reason, ReasonCode

#: Tile and compile options of the copying launch.
COPY_EDGE = 64
COPY_OPTIONS = {"num_stages": 1, "num_warps": 4}


class ContiguousGemm(PointerGemm):
    """The pointer kernel behind a copy of a B that is not row-major and contiguous."""

    limits = GemmLimits(copies=("b",))
    weight = 1
    zero_sign = "ieee"

    def problem(self, dtype: str, M: int, N: int, K: int, **fields: Any) -> Gemm:
        """See :class:`GemmFamily`: B is column-major, because one that is contiguous already is not for this kernel."""
        return super().problem(dtype, M, N, K, **{"layout_b": Layout("col"), **fields})

    def _layout(self, plan: Plan) -> Reason | None:
        problem, b = plan.problem, plan.problem.operand("b")
        if b.strides != (problem.N, 1):
            return super()._layout(plan)
        detail = f"b has strides {b.strides}: it is contiguous already, use {problem.op}"
        return Reason(ReasonCode.LAYOUT, "b", detail)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: the launch before the main one copies B to a row-major matrix."""
        main, b = super().launch(plan, tensors), plan.problem.operand("b")
        rows, columns = b.shape
        copy = workspace(b.shape, tensors["b"].dtype, tensors["b"])
        tiles = triton.cdiv(rows, COPY_EDGE) * triton.cdiv(columns, COPY_EDGE)
        arguments = {
            "source_ptr": tensors["b"],
            "copy_ptr": copy,
            "rows": rows,
            "columns": columns,
            "stride_m": b.strides[0],
            "stride_n": b.strides[1],
            "stride_copy": columns,
            "BLOCK_M": COPY_EDGE,
            "BLOCK_N": COPY_EDGE,
            "WIDE_INDEX": main.arguments["WIDE_INDEX"],
        }
        changed = {**main.arguments, "b_ptr": copy, "stride_bk": columns, "stride_bn": 1}
        before = Launch(copy_matrix, (tiles,), arguments, COPY_OPTIONS)
        return dataclasses.replace(main, arguments=changed, before=() if main.empty else (before,))


KERNELS = (ContiguousGemm("contiguous_mm", "mm", "mm"), ContiguousGemm("contiguous_addmm", "addmm", "mm"))
