"""mm with an fp16 accumulator: ``tl.dot(..., out_dtype=tl.float16)``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.configs import Config
from conformance.kernels.device.fp16_acc_mm import gemm_fp16_acc
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch
from conformance.numerics.contract import FMA16, Contract
from conformance.numerics.sum_order import SumOrder
from conformance.records import ExecutorName, Reason, ReasonCode


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

KERNELS = (Fp16AccumulatorGemm("mm_fp16_acc", "mm", dtypes=("fp16",), configs=CONFIGS),)
