"""bmm and baddbmm by pointer loads and stores: one tile of one matrix per program, any strides."""

from __future__ import annotations

from collections.abc import Mapping

import triton
from torch import Tensor

from conformance.kernels.arguments import GRID_LIMIT, broadcast_strides, dot_precision
from conformance.kernels.device.bmm import gemm_batched
from conformance.kernels.families.examples import TIMED_EDGE, rest
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch
from conformance.problems import Gemm


class BatchedGemm(PointerGemm):
    """bmm and baddbmm; matrices of a batch may lie apart, interleaved or on each other."""

    core = False
    zero_sign = "ieee"

    def timed(self, dtype: str) -> Gemm:
        """See :class:`Kernel`: 16 smaller square products."""
        edge = (TIMED_EDGE + rest(dtype)) // 4 // 8 * 8
        return self.problem(dtype, edge, edge, edge, batch=16)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (tiles of one matrix, y, z), where y * z is the batch or a little more."""
        batch = plan.problem.batch or 0
        planes = max(triton.cdiv(batch, GRID_LIMIT), 1)
        return (*super().grid(plan), triton.cdiv(batch, planes), planes)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        problem = plan.problem
        more = {
            **self._bias_arguments(plan, tensors),
            "batch": problem.batch,
            "stride_az": problem.operand("a").strides[0],
            "stride_bz": problem.operand("b").strides[0],
            "stride_cz": problem.output.strides[0],
            "stride_bias_z": broadcast_strides(problem.operand("bias"))[0] if problem.reads_bias else 0,
            "alpha": problem.alpha,
            "beta": problem.beta,
            "PRECISION": dot_precision(problem),
            "HAS_BIAS": problem.reads_bias,
            "ADDMM": problem.op == "baddbmm",
        }
        return self._launch(gemm_batched, plan, tensors, **more)


KERNELS = (BatchedGemm("bmm", "bmm", "bmm"), BatchedGemm("baddbmm", "baddbmm", "bmm"))
