"""mm of fp64 operands by pointers: products are summed in fp64, by matrix units that can and else by multiply-adds."""

from __future__ import annotations

import dataclasses

import triton.language as tl

from conformance import codegen_checks as codegen
from conformance.families.gemm.problem import Gemm
from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.int_mm import ConvertingGemm
from conformance.kernels.kernel import Plan
from conformance.numerics.contract import FMA64, Contract
from conformance.records import ExecutorName, Reason, ReasonCode

#: Loops with and without a pipeline; where multiply-adds compute the products, a step has a few hundred per thread.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(32, 32, 16, 3, 4),
    Config(16, 32, 32, 1, 2),
    Config(64, 32, 16, 2, 4, group_m=4),
)
#: NVIDIA's architectures whose fp64 matrix instruction every release uses. On sm_100 some do, and others unroll.
WITH_FP64_MMA = (80, 90)


class DoubleGemm(ConvertingGemm):
    """fp64 throughout: operands, sums and result."""

    limits = GemmLimits(output="fp64")
    sum_dtype = tl.float64
    zero_sign = "ieee"

    def _dtype(self, plan: Plan) -> Reason | None:
        problem: Gemm = plan.problem
        if problem.output_dtype != "fp64":
            detail = f"out is {problem.output_dtype}: {self.name} stores its fp64 sums as they are. Use out_dtype fp64"
            return Reason(ReasonCode.DTYPE, "out", detail)
        return super()._dtype(plan)

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: fused multiply-adds of fp64, which matrix units are assumed to agree with."""
        if executor == ExecutorName.INTERPRETER:
            return Contract("fp64", FMA64, zero_sign=self.declared_zero_sign)
        assumed = dataclasses.replace(FMA64, assumed=True)
        return Contract("fp64", assumed, flushes_subnormals=plan.target.vendor == "amd")

    def order(self, plan: Plan) -> None:
        """See :class:`Kernel`: the order in which fp64 units sum has not been measured."""
        return

    def _matrix_unit(self, plan: Plan) -> codegen.Feature | None:
        target = plan.target
        if not plan.problem.has_product:
            return None
        if target.vendor == "amd":
            return codegen.MFMA if target.capability("mfma").available else None
        return codegen.MMA if target.vendor == "nvidia" and target.arch in WITH_FP64_MMA else None


KERNELS = (DoubleGemm("mm_fp64", "mm", dtypes=("fp64",), configs=CONFIGS),)
