"""Grouped products of block-scaled operands, a matrix B for each group of rows, by pointers and by descriptors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.draw import Draw
from conformance.families.grouped.problem import spaced
from conformance.families.microscaled.refusals import MicroscaledLimits
from conformance.families.microscaled_grouped.problem import MicroscaledGroupedGemm
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels import carveout
from conformance.kernels.device.microscaled_mm_grouped import gemm_microscaled_grouped
from conformance.kernels.grouped_mm import most_tiles
from conformance.kernels.kernel import Features, Kernel, Plan, Variant, check_tensors
from conformance.kernels.launch import Launch
from conformance.kernels.microscaled_mm import MicroscaledMm, pointed_arguments, tile_arguments
from conformance.kernels.microscaled_persistent_tma import MicroscaledPersistentTma, code_descriptors
from conformance.kernels.persistent_tma import begins_within_unit, leading, row_major, undescribable
from conformance.numerics.contract import Contract
from conformance.records import ExecutorName, Reason, ReasonCode

#: Tiles for the scaled units and for smaller ones, with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(128, 128, 128, 2, 4),
    Config(64, 128, 128, 3, 8, group_m=2),
    Config(32, 64, 64, 1, 4),
)


#: The order of A and of B in memory, and whether there is anything to multiply.
_SWITCHES = ("A_ROW_MAJOR", "B_ROW_MAJOR", "HAS_PRODUCT")


class MicroscaledMmGrouped(Kernel):
    """A product per group, in a persistent loop over the tiles of all. What one group's product demands of formats,
    tiles and target, and what it promises of its arithmetic, is what the pointer kernel's does."""

    problems = MicroscaledGroupedGemm
    weight = 1
    family = "microscaled-grouped"
    operations = frozenset({"microscaled_grouped_mm"})
    limits = MicroscaledLimits(variant=frozenset({"static", "sms"}), needs=("scaled-packing",))
    offered = MicroscaledMm.offered
    persistent = True
    dtypes = ("e4m3", "uint8", "bf16")
    configs = CONFIGS
    zero_sign = "ieee"

    def __init__(self, name: str) -> None:
        self.name = name
        self._single = MicroscaledMm(name)

    def problem(
        self, formats: tuple[str, str], sizes: tuple[int, ...], N: int, K: int, **fields: Any
    ) -> MicroscaledGroupedGemm:
        """Returns a product in these ``formats``; ``fields`` are those of
        :class:`~conformance.families.microscaled_grouped.problem.MicroscaledGroupedGemm`. A and B of a kernel with
        descriptors lie at multiples of 32 bytes. tcgen05 needs that for four-bit codes that meet eight-bit ones."""
        problem = MicroscaledGroupedGemm(*formats, sizes, N, K, **fields)
        return spaced(problem, "ab", 32) if self.descriptors else problem

    def refusal(self, plan: Plan) -> Reason | None:
        return self.foreign(plan) or self._single.refusal(self._one(plan))

    def _one(self, plan: Plan) -> Plan:
        """Returns the plan of a product like that of a group. The code does not depend on sizes: no group is empty."""
        product = dataclasses.replace(plan.problem.group(0), M=max(plan.problem.M, 1))
        return dataclasses.replace(plan, problem=product, variant=dataclasses.replace(plan.variant, sms=None))

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`. The device alone knows the sizes of the groups: as many programs as there are SMs, or
        tiles at most."""
        return (min(carveout.available_sms(plan), most_tiles(plan.problem, plan.config)),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem = plan.problem
        check_tensors(self.name, problem, tensors)
        arguments = {
            **pointed_arguments(plan, tensors),
            "EVEN_K": plan.variant.static and problem.K % plan.config.block_k == 0,
            "offsets_ptr": tensors["offsets"],
            "groups": problem.groups,
            **self.loading(plan, tensors),
        }
        for name in ("stride_az", "stride_cz", "stride_scale_az"):
            del arguments[name]
        return Launch(gemm_microscaled_grouped, plan.grid, arguments, plan.config.options)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: sizes as constants, or not, on few programs."""
        return Variant(static=draw.chance(0.5), sms=draw.pick((None, 2, 3)))

    def loading(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """The arguments that say how codes are loaded: by pointers."""
        plain = dict.fromkeys(("a_desc", "b_desc"))
        return {**plain, "lda": 0, "ldb": 0, "DESCRIPTORS": "", **dict.fromkeys(_SWITCHES, True)}

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: that of one group's product."""
        contract = self._single.contract(self._one(plan), executor)
        signed = contract.zero_sign != "any"
        return dataclasses.replace(contract, zero_sign=self.declared_zero_sign) if signed else contract

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of one group's product."""
        return self._single.features(self._one(plan))


class MicroscaledGroupedTma(MicroscaledMmGrouped):
    """The same with codes by descriptors. The host makes one of all rows of A and one of all matrices B. The device
    makes one of all rows of A, and one of B for each group."""

    limits = dataclasses.replace(
        MicroscaledPersistentTma.limits, variant=frozenset({"descriptors", "sms", "implied_dtype"}), matrices="any"
    )
    descriptors = True
    zero_sign = "ieee"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._single = MicroscaledPersistentTma(name)

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`: what the kernel of one product refuses, and matrices B that no descriptor can have."""
        problem, variant = plan.problem, plan.variant
        if self.foreign(plan) is None and (variant.tma_store or variant.flatten):
            detail = f"{self.name} stores by pointers, in nested loops, '{variant.id}' was asked for"
            return Reason(ReasonCode.CONFIG, "variant", detail)
        reason = super().refusal(plan)
        if reason is None and problem.has_product and problem.operand("b").numel:
            return undescribable(problem.operand("b")) or begins_within_unit(problem, problem.operand("a"), "MK")
        return reason

    def _one(self, plan: Plan) -> Plan:
        """See :class:`MicroscaledMmGrouped`: with the operands as descriptors have them."""
        one, problem = super()._one(plan), plan.problem
        product = dataclasses.replace(one.problem, layout_a=problem.layout_a, layout_b=problem.layout_b)
        return dataclasses.replace(one, problem=product)

    def loading(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        problem, host = plan.problem, plan.variant.descriptors == "host"
        a, b = problem.operand("a"), problem.operand("b")
        tiles = tile_arguments(problem, plan.config)
        descriptors = (
            code_descriptors(plan, tensors, tiles) if host and problem.has_product and 0 not in plan.grid else {}
        )
        switches = dict(zip(_SWITCHES, (row_major(a), row_major(b), problem.has_product), strict=True))
        arguments = {"lda": leading(a), "ldb": leading(b), "DESCRIPTORS": plan.variant.descriptors}
        return {**super().loading(plan, tensors), **descriptors, **arguments, **switches}

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of one group's product, and offsets by pointers."""
        features = super().features(plan)
        return Features(features.required, features.forbidden - {codegen.POINTER_LOAD})

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: descriptors of both kinds, on few programs."""
        return Variant(draw.pick(("device", "host")), sms=draw.pick((None, 2, 3)))


KERNELS: tuple[MicroscaledMmGrouped, ...] = (
    MicroscaledMmGrouped("microscaled_mm_grouped"),
    MicroscaledGroupedTma("microscaled_mm_grouped_persistent_tma"),
)
