"""Products of bf16 or fp16 with four-bit weights, which have a scale and perhaps a zero point for a group of k."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import triton
from torch import Tensor

from conformance.families.draw import Draw
from conformance.families.gemm.problem import mm
from conformance.families.int4.examples import EXAMPLES
from conformance.families.int4.problem import Int4Gemm
from conformance.families.limits import KernelLimits
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.device.int4_mm import gemm_int4
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Features, Kernel, Plan, Variant, check_tensors, lacking
from conformance.kernels.launch import Launch, pointer_arguments, size_arguments, spans_wide
from conformance.numerics.contract import Contract
from conformance.problems import itemsize
from conformance.records import ExecutorName, Reason, ReasonCode

#: Tiles of large and of small matrix instructions, loops with and without a pipeline, blocks of K below and above the
#: groups of the examples.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(64, 64, 64, 2, 4, group_m=4),
    Config(16, 32, 32, 1, 2),
    Config(32, 64, 128, 2, 4),
    Config(128, 64, 64, 3, 4),
    Config(64, 128, 32, 4, 8),
    Config(16, 64, 16, 3, 4),
)


class Int4Mm(Kernel):
    """One tile per program, operands of any strides."""

    problems = Int4Gemm
    weight = 1
    family = "int4"
    operations = frozenset({"int4_mm"})
    dtypes = ("bf16", "fp16")
    limits = KernelLimits(variant=frozenset({"static"}))
    configs = CONFIGS

    def __init__(self, name: str) -> None:
        self.name = name
        self._decoded = PointerGemm(name, "mm", dtypes=("bf16", "fp16"), configs=CONFIGS)

    def dtype_names(self) -> list[str]:
        """See :class:`Kernel`: the dtypes of A and of codes, such as "bf16xint4"."""
        return list(EXAMPLES)

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`: operation, variant, dtype and config are checked in this order."""
        problem, config = plan.problem, plan.config
        if reason := self.foreign(plan) or self.other_variant(plan):
            return reason
        dtypes = sorted({problem.dtype, problem.out_dtype} & {"bf16", "fp16"})
        if reason := lacking(plan, *dtypes, code=ReasonCode.DTYPE):
            return reason
        if min(config.tile) < 16:
            return Reason(ReasonCode.CONFIG, "block size", f"{config.id}: each block needs 16 elements or more")
        return None

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per tile of the result."""
        problem, config = plan.problem, plan.config
        return (triton.cdiv(problem.M, config.block_m) * triton.cdiv(problem.N, config.block_n),)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: sizes as constants, or not."""
        return Variant(static=draw.chance(0.5))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        static = plan.variant.static
        arguments = size_arguments({"M": problem.M, "N": problem.N, "K": problem.K}, static)
        for name, operand, axes in (("a", "a", "mk"), ("b", "b", "kn"), ("c", "out", "mn")):
            arguments |= pointer_arguments(name, tensors[operand], problem.operand(operand), axes)
        for name in ("scale", "zero"):
            strides = problem.operand(name).strides if name in tensors else (0, 0)
            arguments |= {f"{name}_ptr": tensors.get(name)}
            arguments |= {f"stride_{name}_g": strides[0], f"stride_{name}_n": strides[1]}
        arguments |= {
            "SIGNED": problem.signed,
            "ALONG_K": problem.packed == "k",
            "GROUP": problem.group,
            "ZERO": problem.zero,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "GROUP_M": config.group_m,
            "EVEN_K": static and problem.K % config.block_k == 0,
            "WIDE_INDEX": spans_wide(problem),
        }
        return Launch(gemm_int4, plan.grid, arguments, config.options)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`Kernel`: the staged tiles of A, bytes, scales and zero points, and a tile of W."""
        problem, config = plan.problem, plan.config
        size, rows = itemsize(problem.dtype), 1 if problem.group % config.block_k == 0 else config.block_k
        codes = config.block_k * config.block_n // (1 if problem.packed == "k" else 2)
        scales = rows * config.block_n * {"none": size, "packed": size + 1, "float": 2 * size}[problem.zero]
        staged = config.block_m * config.block_k * size + codes + scales
        return int(staged * config.num_stages + config.block_k * config.block_n * size)

    def _as_mm(self, plan: Plan) -> Plan:
        """The plan of the product with the weights as they are multiplied."""
        problem = plan.problem
        product = mm(problem.M, problem.N, problem.K, problem.dtype, out_dtype=problem.out_dtype)
        return dataclasses.replace(plan, problem=product)

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: that of the product with the weights, which are rounded once to A's dtype."""
        return self._decoded.contract(self._as_mm(plan), executor)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of the product with the weights."""
        return self._decoded.features(self._as_mm(plan))


KERNELS: tuple[Int4Mm, ...] = (Int4Mm("int4_mm"),)
