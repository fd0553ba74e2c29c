"""mm, scaled mm and int8 mm whose warps have different work: in the inner or the outer loop, with each kind of load.

Releases of Triton lose or break single forms, so each form is a config of its own:
https://github.com/triton-lang/triton/issues/9728, https://github.com/triton-lang/triton/issues/10284 and, for int8,
https://github.com/triton-lang/triton/issues/11586.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.draw import Draw
from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.configs import AnyConfig, SpecialisedConfig
from conformance.kernels.device.mm_specialised import gemm_specialised
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.int_mm import IntegerGemm
from conformance.kernels.kernel import Features, Kernel, Plan, Variant
from conformance.kernels.launch import Launch
from conformance.kernels.persistent_tma import BARRIER_BYTES, leading, row_major, undescribable
from conformance.problems import Layout, itemsize
from conformance.records import Reason, ReasonCode

#: Each loop with each kind of load; tiles of every shape, four and eight warps, one and two blocks in a cluster.
CONFIGS: tuple[AnyConfig, ...] = (
    SpecialisedConfig(64, 32, 32, 2, 4, loop="inner", described="ab"),
    SpecialisedConfig(64, 64, 32, 3, 4, loop="outer", described="a", group_m=2),
    SpecialisedConfig(64, 64, 64, 2, 4, loop="flat", described=""),
    SpecialisedConfig(64, 32, 64, 3, 4, loop="inner", described=""),
    SpecialisedConfig(128, 64, 32, 3, 4, loop="outer", described="ab"),
    SpecialisedConfig(128, 32, 32, 3, 4, loop="inner", described="b"),
    SpecialisedConfig(64, 128, 32, 2, 8, loop="flat", described="ab"),
    SpecialisedConfig(128, 32, 64, 3, 4, loop="outer", described=""),
    SpecialisedConfig(128, 64, 64, 2, 4, loop="outer", described="ab", vendor=(("num_ctas", 2),)),
)
#: Of fp8 operands: each loop, and each kind of load.
FP8_CONFIGS = (*CONFIGS[:3], *CONFIGS[4:5])

#: Rows and warps with which every target from sm_90 on gives warps different work.
LEAST_ROWS, WARPS = 64, 4


def loop_refusal(config: AnyConfig) -> Reason | None:
    """Returns the reason for which Triton gives the warps of a tile the same work, or None."""
    if config.tile[0] >= LEAST_ROWS and config.num_warps % WARPS == 0 and config.num_stages >= 2:
        return None
    detail = (
        f"{config.id}: a specialised loop needs BLOCK_M >= {LEAST_ROWS}, a multiple of {WARPS} warps and two "
        "stages: use a larger tile, more warps and more stages"
    )
    return Reason(ReasonCode.CONFIG, "loop", detail)


class SpecialisedGemm(PointerGemm):
    """Persistent programs with a specialised loop, as the config says; operands of any order, stores by pointers."""

    limits = GemmLimits(
        states=("loop",),
        needs=("tma", "tensor-descriptor", "warp-specialization"),
        variant=GemmLimits().variant - {"flatten"},
        precisions=("tf32",),
    )
    family = "loads"
    weight = 1
    persistent = True
    specialised = True
    zero_sign = "ieee"
    sum_dtype: Any = tl.float32
    #: tcgen05 multiplies tf32 operands that lie along k, and other suites have those that do not
    usual_orders = ("row", "col")

    def dtype_names(self) -> list[str]:
        """See :class:`Kernel`: of fp32 operands those in tf32 precision."""
        return [name for name in super().dtype_names() if name != "fp32"]

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`. What the target lacks comes before what is wrong with the problem."""
        return self._operation(plan) or self.lacking(plan) or super().refusal(plan)

    def _dtype(self, plan: Plan) -> Reason | None:
        if plan.problem.dtype == "fp32" and plan.problem.precision == "ieee":
            detail = f"precision is ieee: {self.name} is about loops that feed a matrix unit. Use tf32"
            return Reason(ReasonCode.PRECISION, "ieee", detail)
        return super()._dtype(plan)

    def _layout(self, plan: Plan) -> Reason | None:
        problem = plan.problem
        described = [problem.operand(name) for name in getattr(plan.config, "described", "")]
        for operand in described if problem.has_product else ():
            if operand.numel and (reason := undescribable(operand)):
                return reason
        return super()._layout(plan)

    def _config(self, plan: Plan) -> Reason | None:
        config = plan.config
        if not isinstance(config, SpecialisedConfig):
            detail = f"{config.id} does not say which loop is specialised: use a SpecialisedConfig"
            return Reason(ReasonCode.CONFIG, "loop", detail)
        if reason := loop_refusal(config):
            return reason
        if plan.variant.flatten:
            return Reason(ReasonCode.CONFIG, "variant", f"{self.name} takes its loop from the config: {config.id}")
        return super()._config(plan)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: a tile of C changes its layout while the operands are there."""
        config = plan.config
        block = config.block_m * config.block_n * max(itemsize(plan.problem.output_dtype), 4)
        return int(super().shared_memory(plan) + block + BARRIER_BYTES)

    @property
    def drawn_configs(self) -> tuple[AnyConfig, ...]:
        """See :class:`Kernel`: those of one form. The id of a random case does not say which, and an expected failure
        of another could not name it."""
        return tuple(config for config in self.configs if config.id.endswith("-inner-tma.ab"))

    def draw_problem(self, draw: Draw) -> Any:
        """See :class:`Kernel`: mostly with rows that a descriptor can have."""
        problem = super().draw_problem(draw)
        if draw.chance(0.2):
            return problem
        a, b = (Layout(order, pad=draw.pick((0, 16))) for order in self.usual_orders)
        sizes = {"N": 16 * triton.cdiv(problem.N, 16), "K": 16 * triton.cdiv(problem.K, 16)}
        return dataclasses.replace(problem, **sizes, layout_a=a, layout_b=b)

    def draw_variant(self, draw: Draw) -> Variant:
        return Variant(sms=draw.pick((None, 2, 3)), static=draw.chance(0.5))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, config = plan.problem, plan.config
        a, b = problem.operand("a"), problem.operand("b")
        pointers, epilogue = self._pointer_arguments(plan, tensors), self._epilogue_arguments(plan, tensors)
        unknown = ("alpha", "beta", "ADDMM")
        arguments = {
            **pointers,
            **{name: value for name, value in epilogue.items() if name not in unknown},
            "lda": leading(a),
            "ldb": leading(b),
            "A_DESCRIBED": "a" in config.described,
            "B_DESCRIBED": "b" in config.described,
            "A_ROW_MAJOR": row_major(a),
            "B_ROW_MAJOR": row_major(b),
            "HAS_PRODUCT": problem.has_product,
            "INNER": config.loop == "inner",
            "FLATTEN": config.loop == "flat",
            "SUM": self.sum_dtype,
        }
        return Launch(gemm_specialised, plan.grid, arguments, config.options)

    def _unrolled(self, plan: Plan) -> bool:
        """True if the compiler knows that the specialised loop has one turn, so that there is no loop. Triton takes an
        argument of 1 for a constant."""
        is_constant = plan.variant.static or plan.problem.K == 1
        return bool(is_constant and plan.config.loop == "inner" and plan.config.block_k >= plan.problem.K)

    def _ever_specialised(self, plan: Plan) -> bool:
        """True if a release of Triton gave warps different work here. None did so in a loop over k whose operands both
        come by pointers, unless wgmma or tcgen05 multiplies them."""
        asynchronous = self._matrix_unit(plan) in (codegen.WGMMA, codegen.TCGEN05)
        return asynchronous or plan.config.loop == "outer" or bool(plan.config.described)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: warps with different work, whatever the loop and the loads; and each load as asked."""
        features, problem = super().features(plan), plan.problem
        if not problem.has_product:
            return features
        required, forbidden = features.required, features.forbidden
        if not self._unrolled(plan) and self._ever_specialised(plan):
            required |= {codegen.WARP_SPECIALIZED}
        if described := plan.config.described:
            loads = {codegen.TMA_LOAD, codegen.TENSOR_DESCRIPTOR}
            required, forbidden = required | loads, forbidden - loads
            if described == "ab":
                required -= {codegen.POINTER_LOAD}
                forbidden |= set() if problem.scaling else {codegen.POINTER_LOAD}
        return Features(required, forbidden)


class SpecialisedIntegerGemm(SpecialisedGemm, IntegerGemm):
    """int8 operands, int32 sums and result: exact."""

    limits = dataclasses.replace(SpecialisedGemm.limits, variant=SpecialisedGemm.limits.variant | {"implied_dtype"})
    sum_dtype = tl.int32
    zero_sign = IntegerGemm.zero_sign


KERNELS: tuple[Kernel, ...] = (
    SpecialisedGemm("mm_specialised", "mm", configs=CONFIGS),
    SpecialisedGemm("scaled_mm_specialised", "scaled_mm", configs=FP8_CONFIGS),
    SpecialisedIntegerGemm("int_mm_specialised", "int_mm", dtypes=("int8",), configs=FP8_CONFIGS),
)
