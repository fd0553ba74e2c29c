"""mm_plus_mm: two products in one accumulator, by pointer loads and stores."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from conformance.heuristics.configs import Config
from conformance.kernels.device.mm_plus_mm import gemm_plus_gemm
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch
from conformance.kernels.product import ProductKernel
from conformance.problems import Gemm
from conformance.records import Reason, ReasonCode
from conformance.targets import Target


class PlusGemm(ProductKernel):
    """The sum of two products of one shape."""

    def _config(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        if 0 < problem.K <= config.block_k:
            detail = (
                f"{config.id}: K is {problem.K}, which is one block: compilers have crashed on two loops of a single "
                "step (Triton issue 1298). Use a BLOCK_K below K"
            )
            return Reason(ReasonCode.CONFIG, "BLOCK_K", detail)
        return super()._config(problem, config, target, variant)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        c, d = plan.problem.operand("c"), plan.problem.operand("d")
        arguments = {
            **self._arguments(plan, tensors, out="o"),
            "c_ptr": tensors["c"],
            "d_ptr": tensors["d"],
            "stride_cm": c.strides[0],
            "stride_ck": c.strides[1],
            "stride_dk": d.strides[0],
            "stride_dn": d.strides[1],
        }
        return Launch(gemm_plus_gemm, plan.grid, arguments, plan.config.options)


KERNELS = (PlusGemm("mm_plus_mm", "mm_plus_mm", "mm_plus_mm"),)
