"""mm_plus_mm: two products in one accumulator, by pointer loads and stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from conformance.families.gemm.problem import Gemm
from conformance.families.gemm.refusals import GemmLimits
from conformance.kernels.arguments import dot_precision, pointer_arguments
from conformance.kernels.device.product_loops import gemm_plus_gemm
from conformance.kernels.families.examples import matrix_sizes, rest
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch
from conformance.records import Reason, ReasonCode


class PlusGemm(PointerGemm):
    """The sum of two products of one shape."""

    limits = GemmLimits(least_blocks=2)
    weight = 1
    zero_sign = "ieee"

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Gemm:
        """See :class:`Kernel`: K is more than one block, which the kernel needs."""
        m, n, k = matrix_sizes(config, dtype, shape)
        return self.problem(dtype, m, n, max(k, config.block_k + rest(dtype, shape)))

    def _config(self, plan: Plan) -> Reason | None:
        problem, config = plan.problem, plan.config
        if 0 < problem.K <= config.block_k:
            detail = (
                f"{config.id}: K is {problem.K}, which is one block: compilers have crashed on two loops of a single "
                "step (Triton issue 1298). Use a BLOCK_K below K"
            )
            return Reason(ReasonCode.CONFIG, "BLOCK_K", detail)
        return super()._config(plan)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`. The kernel calls the operands of the second product c and d, and the output o."""
        problem = plan.problem
        arguments = {
            **self._pointer_arguments(plan, tensors),
            **pointer_arguments("c", tensors["c"], problem.operand("c"), "mk"),
            **pointer_arguments("d", tensors["d"], problem.operand("d"), "kn"),
            **pointer_arguments("o", tensors["out"], problem.output, "mn"),
            "PRECISION": dot_precision(problem),
        }
        return Launch(gemm_plus_gemm, plan.grid, arguments, plan.config.options)


KERNELS = (PlusGemm("mm_plus_mm", "mm_plus_mm", "mm_plus_mm"),)
