"""mm_with_sums: a product, and the sums of A's rows from the same loads."""

from __future__ import annotations

from collections.abc import Mapping

import triton
from torch import Tensor

from conformance.heuristics.configs import Config
from conformance.kernels.arguments import dot_precision
from conformance.kernels.device.mm_with_sums import gemm_with_sums
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch


class GemmWithSums(PointerGemm):
    """The product of A and B, and the sum of each row of A in fp32."""

    weight = 1
    zero_sign = "ieee"

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per tile of the result, and one per tile row if that has no column."""
        problem, config = plan.problem, plan.config
        return (triton.cdiv(problem.M, config.block_m) * max(triton.cdiv(problem.N, config.block_n), 1),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        more = {"sums_ptr": tensors["sums"], "PRECISION": dot_precision(plan.problem)}
        return self._launch(gemm_with_sums, plan, tensors, **more)


CONFIGS = (
    Config(32, 32, 16, 2, 2),
    Config(64, 64, 32, 3, 4),
    Config(64, 128, 64, 2, 4),
    Config(128, 64, 32, 2, 8),
)

KERNELS = (GemmWithSums("mm_with_sums", "mm_with_sums", configs=CONFIGS),)
