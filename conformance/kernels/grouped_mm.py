"""Grouped mm by pointer loads and stores: a persistent loop over the tiles of all groups, any strides."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from conformance.heuristics.configs import Config
from conformance.kernels import carveout
from conformance.kernels.arguments import dot_precision, pointer_arguments, spans_wide
from conformance.kernels.device.grouped_mm import gemm_grouped
from conformance.kernels.families.grouped import GroupedFamily
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Features, Plan, check_tensors
from conformance.kernels.launch import Launch
from conformance.numerics.contract import Contract
from conformance.numerics.sum_order import SumOrder
from conformance.problems import Operand, mm
from conformance.records import ExecutorName, Reason, ReasonCode


class GroupedMm(GroupedFamily):
    """A product per group. What one group's product demands of dtypes, tiles and target, and what it promises of its
    arithmetic, is what the pointer kernel's does."""

    persistent = True
    table = "bmm"
    zero_sign = "ieee"

    def __init__(self, name: str) -> None:
        self.name = name
        self._single = PointerGemm(name, "mm", self.table)
        self.dtypes = self._single.dtypes
        self.configs = self._single.configs

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`."""
        problem, variant = plan.problem, plan.variant
        if problem.op not in self.operations:
            return Reason(ReasonCode.OPERATION, problem.op, f"{self.name} computes grouped_mm, not {problem.op}")
        if variant.flatten:
            detail = f"{self.name} has nothing to flatten, '{variant.id}' was asked for"
            return Reason(ReasonCode.CONFIG, "variant", detail)
        return self._single.refusal(_single(plan))

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`Kernel`: that of one group's product."""
        return self._single.shared_memory(_single(plan))

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`. The device alone knows the sizes of the groups: as many programs as there are SMs, or
        tiles at most."""
        return (min(carveout.available_sms(plan), most_tiles(plan.problem, plan.config)),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        problem, config, static = plan.problem, plan.config, plan.variant.static
        check_tensors(self.name, problem, tensors)
        sizes: dict[str, Any] = {"M": problem.M or 0, "N": problem.N or 0, "K": problem.K or 0}
        if static:  # the groups' own sizes are known to the device alone
            sizes |= {name: tl.constexpr(size) for name, size in sizes.items() if name != problem.ragged}
        arguments = {
            **pointer_arguments("a", tensors["a"], problem.operand("a"), "mk"),
            **pointer_arguments("b", tensors["b"], problem.operand("b"), "kn"),
            **pointer_arguments("c", tensors["out"], problem.output, "mn"),
            **_group_strides("a", problem.operand("a"), "MK", problem.ragged),
            **_group_strides("b", problem.operand("b"), "KN", problem.ragged),
            **_group_strides("c", problem.output, "MN", problem.ragged),
            "offsets_ptr": tensors.get("offsets"),
            "groups": problem.groups,
            **sizes,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "GROUP_M": config.group_m,
            "SPLIT": problem.ragged,
            "EVEN_K": static and problem.ragged != "K" and sizes["K"].value % config.block_k == 0,
            "WIDE_INDEX": spans_wide(problem),
            "PRECISION": dot_precision(problem),
        }
        return Launch(gemm_grouped, plan.grid, arguments, config.options)

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: that of one group's product."""
        contract = self._single.contract(_single(plan), executor)
        signed = contract.zero_sign != "any"
        return dataclasses.replace(contract, zero_sign=self.declared_zero_sign) if signed else contract

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`: that of one group's product."""
        return self._single.order(_single(plan))

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of one group's product."""
        return self._single.features(_single(plan))


def _single(plan: Plan) -> Plan:
    """The plan of a product like that of a group. The code does not depend on the groups' sizes, so none is empty."""
    problem = plan.problem
    m, n, k = (max(problem.extent(name), 1) for name in "MNK")
    product = mm(m, n, k, problem.dtype, out_dtype=problem.out_dtype, precision=problem.precision)
    return dataclasses.replace(plan, problem=product)


def most_tiles(problem: Any, config: Config) -> int:
    """A bound of the number of tiles that holds for all sizes of the groups with the same sum: each group has one
    ragged tile at most, and none is without elements."""

    def blocks(name: str, block: int) -> int:
        extent = int(problem.extent(name))
        if name == problem.ragged:
            return min(extent // block + int(problem.groups), extent)
        return int(triton.cdiv(extent, block))

    once = 1 if problem.ragged in ("M", "N") else problem.groups
    return blocks("M", config.block_m) * blocks("N", config.block_n) * int(once)


def _group_strides(name: str, operand: Operand, axes: str, ragged: str) -> dict[str, int]:
    """Strides in elements from one group to the next (g), and for each row, column or k of a group (s).

    ``axes`` names the dimensions of the operand's matrix, ``ragged`` the one whose extent differs by group.
    """
    return {
        f"stride_{name}g": operand.strides[0] if len(operand.shape) == 3 else 0,
        f"stride_{name}s": dict(zip(axes, operand.strides[-2:], strict=True)).get(ragged, 0),
    }


KERNELS: tuple[GroupedMm, ...] = (GroupedMm("grouped_mm"),)
