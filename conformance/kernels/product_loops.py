"""mm whose loop does more or other work: several products a turn, an fp16 sum, two accumulators, sums of rows.

A row of :data:`KERNELS` is a kernel, and a :class:`Loop` states what its turns load and multiply.

Triton 3.6 to 3.8 multiply wrongly where Blackwell's tensor core adds such products to one accumulator:
https://github.com/triton-lang/triton/issues/10821.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import triton
from torch import Tensor

from conformance.families.examples import matrix_sizes, rest
from conformance.families.gemm.problem import Gemm
from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.configs import AnyConfig, ChainedConfig, Config
from conformance.kernels.device import product_loops as device
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch, dot_precision, pointer_arguments
from conformance.numerics.contract import FMA16, Contract
from conformance.numerics.sum_order import SumOrder
from conformance.problems import Problem, itemsize
from conformance.records import ExecutorName, Reason, ReasonCode

#: Tensor of a problem -> its parameter in a device function, and the names of its dimensions there.
Operands = Mapping[str, tuple[str, str]]
RESULT: Operands = {"out": ("c", "mn")}
#: The operands of a second product are c and d, and the output is o.
TWO_PRODUCTS: Operands = {"c": ("c", "mk"), "d": ("d", "kn"), "out": ("o", "mn")}


@dataclass(frozen=True)
class Loop:
    """The loop of a device function.

    A turn loads ``rows`` tiles of BLOCK_M x BLOCK_K and ``columns`` tiles of BLOCK_K x BLOCK_N, and multiplies
    ``products`` pairs of them. A chain does so once for each link.

    ``operands`` are the matrices that it is given besides A and B, ``more`` the other tensors by parameter.
    ``in_order`` is False where the bits of a device are not known. These are the bits of its exp, of an fp16 sum, and
    of a sum in which the k-blocks of two products alternate. ``zero_sign``: see :class:`Contract`.
    """

    function: Any
    operands: Operands = dataclasses.field(default_factory=lambda: RESULT)
    more: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rows: int = 1
    columns: int = 1
    products: int = 1
    in_order: bool = True
    zero_sign: str = "any"


class LoopGemm(PointerGemm):
    """A product by the loop of its row."""

    weight = 1

    def __init__(self, loop: Loop, name: str, operation: str, table: str | None = None, **options: Any) -> None:
        super().__init__(name, operation, table, **options)
        self.loop = loop

    @property
    def declared_zero_sign(self) -> str:
        """See :class:`Kernel`: what the row says of its loop."""
        return self.loop.zero_sign

    def order(self, plan: Plan) -> SumOrder | None:
        return super().order(plan) if self.loop.in_order else None

    def multiply_adds(self, problem: Problem, config: AnyConfig) -> int:
        """See :class:`Kernel`: those of every product of a turn."""
        return self.loop.products * _links(config) * math.prod(config.tile)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: the tiles of every product of a turn are staged."""
        config, loop = plan.config, self.loop
        if loop.rows == loop.columns:
            return loop.rows * _links(config) * super().shared_memory(plan)
        staged = (loop.rows * config.block_m + loop.columns * config.block_n) * config.block_k * config.num_stages
        return int(staged * itemsize(plan.problem.dtype))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, loop = plan.problem, self.loop
        arguments = self._pointer_arguments(plan, tensors)
        for tensor, (parameter, dimensions) in loop.operands.items():
            view = problem.output if tensor == "out" else problem.operand(tensor)
            arguments |= pointer_arguments(parameter, tensors[tensor], view, dimensions)
        arguments |= {parameter: tensors[tensor] for parameter, tensor in loop.more.items()}
        return Launch(loop.function, plan.grid, arguments | self._switches(plan), plan.config.options)

    def _switches(self, plan: Plan) -> dict[str, Any]:
        """Returns the constexpr arguments of this loop only, and those that it has another value of."""
        return {"PRECISION": dot_precision(plan.problem)}


def _links(config: AnyConfig) -> int:
    """Returns the number of k-blocks that a turn multiplies."""
    return config.chain if isinstance(config, ChainedConfig) else 1


class ChainedGemm(LoopGemm):
    """mm that multiplies two or three k-blocks in each turn of its loop, as its config says."""

    limits = GemmLimits(states=("chain",))

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Gemm:
        """See :class:`Kernel`: K is measured in turns, of which the last is not whole where K has a rest."""
        turn = dataclasses.replace(config, block_k=config.block_k * config.chain)
        return self.problem(dtype, *matrix_sizes(turn, dtype, shape))

    def _config(self, plan: Plan) -> Reason | None:
        if not isinstance(plan.config, ChainedConfig):
            detail = f"{plan.config.id} does not say how many k-blocks a turn multiplies: use a ChainedConfig"
            return Reason(ReasonCode.CONFIG, "chain", detail)
        return super()._config(plan)

    def _switches(self, plan: Plan) -> dict[str, Any]:
        turn = plan.config.chain * plan.config.block_k
        whole = plan.variant.static and self._depth(plan) % turn == 0
        return {**super()._switches(plan), "CHAIN": plan.config.chain, "EVEN_K": whole}


class PlusGemm(LoopGemm):
    """The sum of two products of one shape, one loop after the other."""

    limits = GemmLimits(least_blocks=2)

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


class Fp16AccumulatorGemm(LoopGemm):
    """mm of fp16 operands into fp16, whose running sum is fp16 too."""

    limits = GemmLimits(output="fp16")

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

    def _switches(self, plan: Plan) -> dict[str, Any]:
        return {}


class GemmWithSums(LoopGemm):
    """The product of A and B, and the sum of each row of A in fp32."""

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per tile of the result, and one per tile row if that has no column."""
        problem, config = plan.problem, plan.config
        return (triton.cdiv(problem.M, config.block_m) * max(triton.cdiv(problem.N, config.block_n), 1),)


#: What a chain does is the same in fp16 and bf16.
CHAINED_DTYPES = ("bf16", "fp32")
CHAINED = (
    ChainedConfig(32, 32, 16, 2, 2),
    ChainedConfig(64, 64, 32, 3, 4),
    ChainedConfig(64, 32, 32, 2, 4, chain=3),
    ChainedConfig(128, 64, 32, 2, 8),
)
ONE_LOOP = (Config(32, 32, 16, 2, 2), Config(64, 64, 32, 3, 4), Config(128, 64, 32, 2, 8))
CONFIGS = (
    Config(32, 32, 16, 2, 2),
    Config(64, 64, 32, 3, 4),
    Config(64, 128, 64, 2, 4),
    Config(128, 64, 32, 2, 8),
)
DUAL_CONFIGS = (
    Config(32, 32, 16, 2, 2),
    Config(64, 32, 32, 3, 4),
    Config(64, 64, 32, 2, 4),
    Config(128, 64, 32, 2, 8),
)

CHAIN = Loop(device.gemm_chained, zero_sign="ieee")
ONE_AFTER_THE_OTHER = Loop(device.gemm_plus_gemm, TWO_PRODUCTS, zero_sign="ieee")
BOTH_IN_ONE = Loop(
    device.gemm_plus_gemm_one_loop, TWO_PRODUCTS, rows=2, columns=2, products=2, in_order=False, zero_sign="ieee"
)
NARROW_SUM = Loop(device.gemm_fp16_acc, in_order=False, zero_sign="ieee")
#: The sign of a zero is that of both factors, so no rule is promised.
GATED = Loop(device.gemm_dual, {**RESULT, "d": ("d", "kn")}, columns=2, products=2, in_order=False)
WITH_SUMS = Loop(device.gemm_with_sums, more={"sums_ptr": "sums"}, zero_sign="ieee")

KERNELS: tuple[LoopGemm, ...] = (
    ChainedGemm(CHAIN, "mm_chained", "mm", dtypes=CHAINED_DTYPES, configs=CHAINED),
    PlusGemm(ONE_AFTER_THE_OTHER, "mm_plus_mm", "mm_plus_mm", "mm_plus_mm"),
    LoopGemm(BOTH_IN_ONE, "mm_plus_mm_one_loop", "mm_plus_mm", dtypes=CHAINED_DTYPES, configs=ONE_LOOP),
    Fp16AccumulatorGemm(NARROW_SUM, "mm_fp16_acc", "mm", dtypes=("fp16",), configs=CONFIGS),
    LoopGemm(GATED, "dual_mm", "dual_mm", configs=DUAL_CONFIGS),
    GemmWithSums(WITH_SUMS, "mm_with_sums", "mm_with_sums", configs=CONFIGS),
)
