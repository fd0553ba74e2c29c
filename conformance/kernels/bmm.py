"""bmm and baddbmm by pointer loads and stores: one tile of one matrix per program, any strides."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from conformance.heuristics.configs import Config
from conformance.kernels.device.bmm import gemm_batched
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch
from conformance.kernels.product import GRID_LIMIT, ProductKernel, broadcast_strides
from conformance.problems import Gemm
from conformance.targets import Target


class BatchedGemm(ProductKernel):
    """bmm and baddbmm; matrices of a batch may lie apart, interleaved or on each other."""

    def grid(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> tuple[int, ...]:
        tiles = super().grid(problem, config, target, variant)[0]
        batch = problem.batch or 0
        planes = max(-(-batch // GRID_LIMIT), 1)
        return (tiles, -(-batch // planes), planes)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem = plan.problem
        arguments = {
            **self._arguments(plan, tensors),
            **self._bias_arguments(problem, tensors),
            "batch": problem.batch,
            "stride_az": problem.operand("a").strides[0],
            "stride_bz": problem.operand("b").strides[0],
            "stride_cz": problem.output.strides[0],
            "stride_bias_z": broadcast_strides(problem.operand("bias"))[0] if problem.reads_bias else 0,
            "alpha": problem.alpha,
            "beta": problem.beta,
            "ADDMM": problem.op == "baddbmm",
        }
        return Launch(gemm_batched, plan.grid, arguments, plan.config.options)


KERNELS = (
    BatchedGemm("bmm", "bmm", "bmm"),
    BatchedGemm("baddbmm", "baddbmm", "bmm"),
)
