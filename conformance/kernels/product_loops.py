"""mm whose loop does more or other work: several products a turn, an fp16 sum, two accumulators, sums of rows.

Triton 3.6 to 3.8 multiply wrongly where Blackwell's tensor core adds such products to one accumulator:
https://github.com/triton-lang/triton/issues/10821.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance.families.gemm.problem import Gemm
from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.configs import AnyConfig, ChainedConfig, Config
from conformance.kernels.arguments import dot_precision, pointer_arguments
from conformance.kernels.device.product_loops import (
    gemm_chained,
    gemm_dual,
    gemm_fp16_acc,
    gemm_plus_gemm_one_loop,
    gemm_with_sums,
)
from conformance.kernels.families.examples import matrix_sizes
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch
from conformance.numerics.contract import FMA16, Contract
from conformance.numerics.sum_order import SumOrder
from conformance.problems import Problem, itemsize
from conformance.records import ExecutorName, Reason, ReasonCode


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
CHAINED_DTYPES = ("bf16", "fp32")
CHAINED = (
    ChainedConfig(32, 32, 16, 2, 2),
    ChainedConfig(64, 64, 32, 3, 4),
    ChainedConfig(64, 32, 32, 2, 4, chain=3),
    ChainedConfig(128, 64, 32, 2, 8),
)
ONE_LOOP = (Config(32, 32, 16, 2, 2), Config(64, 64, 32, 3, 4), Config(128, 64, 32, 2, 8))


class Fp16AccumulatorGemm(PointerGemm):
    """mm of fp16 operands into fp16, whose running sum is fp16 too."""

    limits = GemmLimits(output="fp16")
    weight = 1
    zero_sign = "ieee"

    def _dtype(self, plan: Plan) -> Reason | None:
        if plan.problem.output_dtype == "fp16":
            return super()._dtype(plan)
        detail = f"the output is {plan.problem.output_dtype}, {self.name} sums in fp16: use mm, or an fp16 output"
        return Reason(ReasonCode.DTYPE, "out", detail)

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`. NVIDIA's units keep an fp16 sum after every step; on AMD Triton sums a k-block in fp32
        and rounds it then, which is within the same bound. The figures are not measured."""
        contract = super().contract(plan, executor)
        if executor == ExecutorName.INTERPRETER:
            return dataclasses.replace(contract, accumulator=FMA16)
        narrow = dataclasses.replace(contract.accumulator, result_bits=10, dtype="fp16", assumed=True)
        return dataclasses.replace(contract, accumulator=narrow)

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`. The bits of an fp16 sum are not measured."""
        return None

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        return self._launch(gemm_fp16_acc, plan, tensors)


CONFIGS = (
    Config(32, 32, 16, 2, 2),
    Config(64, 64, 32, 3, 4),
    Config(64, 128, 64, 2, 4),
    Config(128, 64, 32, 2, 8),
)


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


DUAL_CONFIGS = (
    Config(32, 32, 16, 2, 2),
    Config(64, 32, 32, 3, 4),
    Config(64, 64, 32, 2, 4),
    Config(128, 64, 32, 2, 8),
)


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


KERNELS: tuple[PointerGemm, ...] = (
    ChainedGemm("mm_chained", "mm", dtypes=CHAINED_DTYPES, configs=CHAINED),
    PlusGemmOneLoop("mm_plus_mm_one_loop", "mm_plus_mm", dtypes=CHAINED_DTYPES, configs=ONE_LOOP),
    Fp16AccumulatorGemm("mm_fp16_acc", "mm", dtypes=("fp16",), configs=CONFIGS),
    DualGemm("dual_mm", "dual_mm", configs=DUAL_CONFIGS),
    GemmWithSums("mm_with_sums", "mm_with_sums", configs=CONFIGS),
)
