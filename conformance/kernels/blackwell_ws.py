"""The warp-specialised persistent kernels for Blackwell: mm, addmm and scaled mm."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.draw import Draw
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Features, Plan, Variant, lacking
from conformance.kernels.launch import Launch
from conformance.kernels.persistent_tma import BARRIER_BYTES, PersistentTmaGemm
from conformance.problems import itemsize
from conformance.records import Reason, ReasonCode

#: The compiler gives warps different work only in a pipelined loop: with one stage a kernel runs without.
SPECIALISED_STAGES = 2

#: tcgen05 is issued for at least so many rows, by whole groups of four warps.
TCGEN05_ROWS, TCGEN05_WARPS = 64, 4

#: Operation -> torch's own tables for it.
TORCH_TABLES = {
    "mm": ("blackwell_persistent_mm_configs",),
    "addmm": ("triton::blackwell_ws_persistent*/addmm.mm_configs", "blackwell_persistent_addmm_configs"),
    "scaled_mm": ("blackwell_scaled_persistent_mm_configs",),
}

#: Rows of tensor memory; each 32-bit column of it holds one fp32 of every row.
TENSOR_MEMORY_ROWS = 128


def specialises(config: Config) -> bool:
    """True if the loop over tiles asks for warp specialisation."""
    return config.num_stages >= SPECIALISED_STAGES


class BlackwellGemm(PersistentTmaGemm):
    """Descriptor loads, tcgen05 and warp specialisation; descriptor or pointer store. The loops over tiles and over k
    are usually flattened, as Inductor has them.

    With fp32 operands no row of their table fits, so one suite has those, with its own tiles. tcgen05 reads 32-bit
    operands along k only, and the compiler must transpose the others inside the specialised loop.
    """

    limits = dataclasses.replace(PersistentTmaGemm.limits, needs=("tma", "tcgen05", "warp-specialization"))
    weight = 1
    zero_sign = "ieee"
    specialised = True
    torch_spaces = ("triton::blackwell_ws_persistent*.exhaustive_configs",)
    usual_variant = Variant(flatten=True)

    def __init__(self, name: str, operation: str, table: str) -> None:
        super().__init__(name, operation, table)
        self.torch_tables = TORCH_TABLES[operation]
        if "fp32" in self.dtypes:
            self.dtypes = tuple(dtype for dtype in self.dtypes if dtype != "fp32")
            self.limits = dataclasses.replace(self.limits, dtypes=("fp32",))

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`. What the target lacks comes before what is wrong with the problem."""
        return self._operation(plan) or lacking(plan, *self.limits.needs) or super().refusal(plan)

    def _config(self, plan: Plan) -> Reason | None:
        config, target = plan.config, plan.target
        if config.block_m < TCGEN05_ROWS or config.num_warps % TCGEN05_WARPS:
            detail = (
                f"{config.id}: tcgen05 needs BLOCK_M >= {TCGEN05_ROWS} and a multiple of {TCGEN05_WARPS} warps: "
                "use a larger tile and more warps"
            )
            return Reason(ReasonCode.CONFIG, "tcgen05", detail)
        columns = triton.cdiv(config.block_m, TENSOR_MEMORY_ROWS) * config.block_n
        limit = target.limits.tensor_memory
        if limit is not None and columns > limit:
            detail = (
                f"{config.id}: sums take {columns} columns of tensor memory, {target.id} has {limit}: use smaller tiles"
            )
            return Reason(ReasonCode.CONFIG, "tensor memory", detail)
        return super()._config(plan)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: operand tiles, and what the epilogue's warps use while the next are being loaded.

        That is a block of C, wider where a bias joins it or where it has half of tensor memory's rows. The bytes per
        element of that block are the largest that Triton 3.7.1 uses in its code for sm_100.
        """
        problem, config, variant = plan.problem, plan.config, plan.variant
        tf32 = problem.precision == "tf32"  # an operand that does not lie along k is turned in one more tile
        of_a = config.num_stages + (tf32 and problem.operand("a").strides[1] != 1)
        of_b = config.num_stages + (tf32 and problem.operand("b").strides[0] != 1)
        tiles = (config.block_m * of_a + config.block_n * of_b) * config.block_k * itemsize(problem.dtype)
        block = config.block_m * config.block_n
        if not specialises(config):
            return int(tiles + 4 * block + BARRIER_BYTES)
        result = itemsize(problem.output_dtype)
        staged = result if config.block_m >= TENSOR_MEMORY_ROWS else 2 * result
        if problem.reads_bias:
            staged = max(4, staged + 2) if variant.tma_store else max(4, staged)
        return int(tiles + block // variant.epilogue_subtile * staged + BARRIER_BYTES)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: the arguments of the persistent kernel, and whether the loop is specialised."""
        plain = super().launch(plan, tensors)
        changed = {"WARP_SPECIALIZE": specialises(plan.config), "STORE_COUNTER": True}
        return dataclasses.replace(plain, arguments={**plain.arguments, **changed})

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: always flattened. The id of a random case does not say so, and an expected failure of
        the other loop could not name it."""
        return dataclasses.replace(super().draw_variant(draw), flatten=True)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of the persistent kernel, and warp specialisation."""
        features = super().features(plan)
        if plan.problem.has_product and specialises(plan.config):
            return Features(features.required | {codegen.WARP_SPECIALIZED}, features.forbidden)
        return features


KERNELS: tuple[BlackwellGemm, ...] = (
    BlackwellGemm("mm_blackwell_ws", "mm", "persistent_mm"),
    BlackwellGemm("addmm_blackwell_ws", "addmm", "persistent_mm"),
    BlackwellGemm("scaled_mm_blackwell_ws", "scaled_mm", "scaled_persistent_mm"),
)
