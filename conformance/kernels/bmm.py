"""bmm and baddbmm by pointer loads and stores: one tile of one matrix per program, any strides."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from conformance.families.examples import TIMED_EDGE, rest
from conformance.families.gemm.problem import Gemm
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.device.pointer import gemm_batched
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch, broadcast_strides, dot_precision
from conformance.problems import FNUZ, FP8

#: Tiles of fp8 operands, loops with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(64, 64, 64, 2, 4),
    Config(32, 32, 32, 1, 2, group_m=2),
    Config(128, 64, 64, 3, 8),
)


class BatchedGemm(PointerGemm):
    """bmm and baddbmm; matrices of a batch may lie apart, interleaved or on each other."""

    weight = 1
    zero_sign = "ieee"

    def timed(self, dtype: str) -> Gemm:
        """See :class:`Kernel`: 16 smaller square products."""
        edge = (TIMED_EDGE + rest(dtype)) // 4 // 8 * 8
        return self.problem(dtype, edge, edge, edge, batch=16)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per tile of each matrix."""
        (tiles,) = super().grid(plan)
        return (tiles * (plan.problem.batch or 0),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem = plan.problem
        more = {
            **self._bias_arguments(plan, tensors),
            "stride_az": problem.operand("a").strides[0],
            "stride_bz": problem.operand("b").strides[0],
            "stride_cz": problem.output.strides[0],
            "stride_bias_z": broadcast_strides(problem.operand("bias"))[0] if problem.reads_bias else 0,
            "alpha": problem.alpha,
            "beta": problem.beta,
            "PRECISION": dot_precision(problem),
            "PROMOTE": self.promotion(plan),
            "HAS_BIAS": problem.reads_bias,
            "ADDMM": problem.bias is not None,
        }
        return self._launch(gemm_batched, plan, tensors, **more)


KERNELS = (
    BatchedGemm("bmm", "bmm", "bmm"),
    BatchedGemm("baddbmm", "baddbmm", "bmm"),
    BatchedGemm("fp8_bmm", "bmm", dtypes=FP8, configs=CONFIGS, rare_dtypes=FNUZ),
)
