"""dual_mm: ``silu(A @ B) * (A @ D)``, the gated product of a language model's feed-forward layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.arguments import dot_precision, pointer_arguments
from conformance.kernels.device.dual_mm import gemm_dual
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch
from conformance.numerics.sum_order import SumOrder
from conformance.problems import Problem, itemsize


class DualGemm(PointerGemm):
    """Two products of one A with an accumulator each, which the epilogue multiplies. The sign of a zero is that of both
    factors, so no rule is promised."""

    weight = 1

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`. The bits of a device's exp are not known, so none are asked for."""
        return None

    def multiply_adds(self, problem: Problem, config: AnyConfig) -> int:
        """See :class:`Kernel`: a step multiplies tiles of both products."""
        return 2 * math.prod(config.tile)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: the tiles of A, B and D are staged."""
        config = plan.config
        staged = (config.block_m + 2 * config.block_n) * config.block_k * config.num_stages
        return int(staged * itemsize(plan.problem.dtype))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        more = {
            **pointer_arguments("d", tensors["d"], plan.problem.operand("d"), "kn"),
            "PRECISION": dot_precision(plan.problem),
        }
        return self._launch(gemm_dual, plan, tensors, **more)


CONFIGS = (
    Config(32, 32, 16, 2, 2),
    Config(64, 32, 32, 3, 4),
    Config(64, 64, 32, 2, 4),
    Config(128, 64, 32, 2, 8),
)

KERNELS = (DualGemm("dual_mm", "dual_mm", configs=CONFIGS),)
