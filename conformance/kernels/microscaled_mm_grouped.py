"""Grouped products of block-scaled operands, a matrix B for each group of rows, by pointer loads and stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels import carveout
from conformance.kernels.device.microscaled_mm_grouped import gemm_microscaled_grouped
from conformance.kernels.families.microscaled_grouped import MicroscaledGroupedFamily
from conformance.kernels.grouped_mm import most_tiles
from conformance.kernels.kernel import Features, Plan, check_tensors
from conformance.kernels.launch import Launch
from conformance.kernels.microscaled_mm import MicroscaledMm, code_arguments, scale_arguments, tile_arguments
from conformance.numerics.contract import Contract
from conformance.records import ExecutorName, Reason, ReasonCode

#: Tiles for the scaled units and for smaller ones, with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(128, 128, 128, 2, 4),
    Config(64, 128, 128, 3, 8, group_m=2),
    Config(32, 64, 64, 1, 4),
)


class MicroscaledMmGrouped(MicroscaledGroupedFamily):
    """A product per group, in a persistent loop over the tiles of all. What one group's product demands of formats,
    tiles and target, and what it promises of its arithmetic, is what the pointer kernel's does."""

    offered = MicroscaledMm.offered
    persistent = True
    dtypes = ("e4m3", "uint8", "bf16")
    configs = CONFIGS
    zero_sign = "ieee"

    def __init__(self, name: str) -> None:
        self.name = name
        self._single = MicroscaledMm(name)

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`."""
        problem = plan.problem
        if problem.op not in self.operations:
            detail = f"{self.name} computes microscaled_grouped_mm, not {problem.op}"
            return Reason(ReasonCode.OPERATION, problem.op, detail)
        return self._single.refusal(_single(plan))

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`. The device alone knows the sizes of the groups: as many programs as there are SMs, or
        tiles at most."""
        return (min(carveout.available_sms(plan), most_tiles(plan.problem, plan.config)),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        problem = plan.problem
        check_tensors(self.name, problem, tensors)
        arguments = {
            **code_arguments("a", tensors["a"], problem.operand("a").strides, "mk"),
            **code_arguments("b", tensors["b"], problem.operand("b").strides, "kn"),
            **code_arguments("c", tensors["out"], problem.output.strides, "mn"),
            **scale_arguments(problem, "a", tensors),
            **scale_arguments(problem, "b", tensors),
            **tile_arguments(problem, plan.config),
            "offsets_ptr": tensors["offsets"],
            "groups": problem.groups,
        }
        for name in ("M", "stride_az", "stride_cz", "stride_scale_az"):
            del arguments[name]
        return Launch(gemm_microscaled_grouped, plan.grid, arguments, plan.config.options)

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: that of one group's product."""
        contract = self._single.contract(_single(plan), executor)
        signed = contract.zero_sign != "any"
        return dataclasses.replace(contract, zero_sign=self.declared_zero_sign) if signed else contract

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of one group's product."""
        return self._single.features(_single(plan))


def _single(plan: Plan) -> Plan:
    """The plan of a product like that of a group. The code does not depend on the groups' sizes, so none is empty."""
    product = dataclasses.replace(plan.problem.group(0), M=max(plan.problem.M, 1))
    return dataclasses.replace(plan, problem=product, variant=dataclasses.replace(plan.variant, sms=None))


KERNELS: tuple[MicroscaledMmGrouped, ...] = (MicroscaledMmGrouped("microscaled_mm_grouped"),)
