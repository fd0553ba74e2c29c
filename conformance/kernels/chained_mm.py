"""mm and mm_plus_mm with several products through one accumulator in each turn of the loop.

Triton 3.6 to 3.8 multiply wrongly where Blackwell's tensor core adds such products to one accumulator:
https://github.com/triton-lang/triton/issues/10821.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from conformance.families.gemm.problem import Gemm
from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.configs import AnyConfig, ChainedConfig, Config
from conformance.kernels.arguments import dot_precision, pointer_arguments
from conformance.kernels.device.chained_mm import gemm_chained, gemm_plus_gemm_one_loop
from conformance.kernels.families.examples import matrix_sizes
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch
from conformance.numerics.sum_order import SumOrder
from conformance.problems import Problem
from conformance.records import Reason, ReasonCode


class ChainedGemm(PointerGemm):
    """mm that multiplies two or three k-blocks in each turn of its loop, as its config says."""

    limits = GemmLimits(states=("chain",))
    weight = 1
    zero_sign = "ieee"

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Gemm:
        """See :class:`Kernel`: K is measured in turns, of which the last is not whole where K has a rest."""
        turn = dataclasses.replace(config, block_k=config.block_k * config.chain)
        return self.problem(dtype, *matrix_sizes(turn, dtype, shape))

    def _config(self, plan: Plan) -> Reason | None:
        if not isinstance(plan.config, ChainedConfig):
            detail = f"{plan.config.id} does not say how many k-blocks a turn multiplies: use a ChainedConfig"
            return Reason(ReasonCode.CONFIG, "chain", detail)
        return super()._config(plan)

    def multiply_adds(self, problem: Problem, config: AnyConfig) -> int:
        """See :class:`Kernel`: the code of a step holds every link of the chain."""
        assert isinstance(config, ChainedConfig)
        return config.chain * math.prod(config.tile)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: the tiles of every link are staged."""
        return int(plan.config.chain) * super().shared_memory(plan)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        turn = plan.config.chain * plan.config.block_k
        more = {
            "CHAIN": plan.config.chain,
            "EVEN_K": plan.variant.static and self._depth(plan) % turn == 0,
            "PRECISION": dot_precision(plan.problem),
        }
        return self._launch(gemm_chained, plan, tensors, **more)


class PlusGemmOneLoop(PointerGemm):
    """The sum of two products of one shape, both in the same loop."""

    weight = 1
    zero_sign = "ieee"

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`. The k-blocks of both products alternate, for which an order has no words."""
        return None

    def multiply_adds(self, problem: Problem, config: AnyConfig) -> int:
        """See :class:`Kernel`: a step multiplies tiles of both products."""
        return 2 * math.prod(config.tile)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: the tiles of both products are staged."""
        return 2 * super().shared_memory(plan)

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
        return Launch(gemm_plus_gemm_one_loop, plan.grid, arguments, plan.config.options)


#: What a chain does is the same in fp16 and bf16.
DTYPES = ("bf16", "fp32")
CHAINED = (
    ChainedConfig(32, 32, 16, 2, 2),
    ChainedConfig(64, 64, 32, 3, 4),
    ChainedConfig(64, 32, 32, 2, 4, chain=3),
    ChainedConfig(128, 64, 32, 2, 8),
)
ONE_LOOP = (Config(32, 32, 16, 2, 2), Config(64, 64, 32, 3, 4), Config(128, 64, 32, 2, 8))

KERNELS: tuple[PointerGemm, ...] = (
    ChainedGemm("mm_chained", "mm", dtypes=DTYPES, configs=CHAINED),
    PlusGemmOneLoop("mm_plus_mm_one_loop", "mm_plus_mm", dtypes=DTYPES, configs=ONE_LOOP),
)
