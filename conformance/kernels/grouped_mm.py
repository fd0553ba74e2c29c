"""Grouped mm: a persistent loop over the tiles of all groups, by pointers and by descriptors, plain and scaled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.gemm.refusals import MAKERS, GemmLimits
from conformance.families.grouped.problem import GroupedGemm
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels import carveout
from conformance.kernels.device.grouped_mm import gemm_grouped
from conformance.kernels.families.grouped import GroupedFamily
from conformance.kernels.gemm import GemmKernel, PointerGemm
from conformance.kernels.kernel import Features, Plan, check_tensors
from conformance.kernels.launch import Launch, dot_precision, pointer_arguments, spans_wide
from conformance.kernels.mm_descriptors import EveryTarget
from conformance.kernels.persistent_tma import (
    begins_within_unit,
    host_descriptor,
    leading,
    row_major,
    undescribable,
    unstorable,
)
from conformance.numerics.contract import Contract
from conformance.numerics.sum_order import SumOrder
from conformance.problems import FNUZ, Operand
from conformance.records import ExecutorName, Reason, ReasonCode

#: Tiles of large and of small matrix instructions, loops with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(64, 64, 32, 2, 4, group_m=4),
    Config(32, 32, 64, 1, 2),
    Config(128, 64, 64, 3, 8),
    Config(64, 32, 64, 2, 4, group_m=1),
)


class GroupedMm(GroupedFamily):
    """A product per group. What one group's product demands of dtypes, tiles and target, and what it promises of its
    arithmetic, is what the kernel of one product does."""

    limits = GemmLimits(variant=frozenset({"static", "sms", "splits"}))
    persistent = True
    zero_sign = "ieee"

    def __init__(self, name: str, operation: str = "grouped_mm", table: str | None = None) -> None:
        """``operation`` is the op of its problems, ``table`` its config table, without which it has :data:`CONFIGS`."""
        self.name = name
        self.operations = frozenset({operation})
        self.table = table
        self._single = self._kernel(PointerGemm)
        self.dtypes, self.rare_dtypes = self._single.dtypes, self._single.rare_dtypes
        self.configs = self._single.configs

    def _kernel(self, base: type[GemmKernel]) -> GemmKernel:
        """The kernel of one product that is like this one."""
        operation = "mm" if self.operations == {"grouped_mm"} else "scaled_mm"
        rare = FNUZ if operation == "scaled_mm" and not self.descriptors else ()
        return base(self.name, operation, self.table, configs=() if self.table else CONFIGS, rare_dtypes=rare)

    def refusal(self, plan: Plan) -> Reason | None:
        if reason := self.foreign(plan):
            return reason
        return self._variant(plan) or self._single.refusal(self._one(plan)) or self._layout(plan)

    def _variant(self, plan: Plan) -> Reason | None:
        """Returns the reason why the kernel does not work as the plan's variant says; None if it does."""
        if not plan.variant.flatten:
            return None
        detail = f"{self.name} has nothing to flatten, '{plan.variant.id}' was asked for"
        return Reason(ReasonCode.CONFIG, "variant", detail)

    def _layout(self, plan: Plan) -> Reason | None:
        """Returns the reason why operands of fp8 cannot lie as they do: matrix units of Hopper read k of both side by
        side."""
        for name, k in (("a", -1), ("b", -2)) if plan.problem.scaling else ():
            operand = plan.problem.operand(name)
            if operand.strides[k] != 1:
                detail = f"{name} has strides {operand.strides}: {self.name} needs unit stride along k"
                return Reason(ReasonCode.LAYOUT, name, detail)
        return None

    def _one(self, plan: Plan) -> Plan:
        """Returns the plan of a product like that of a group, in its plainest layout, which descriptors can have. The
        code of loads by pointers does not depend on the groups' sizes, so none is empty; descriptors of nothing are not
        made.
        """
        problem = plan.problem
        m, n, k = (-(-max(problem.extent(name), 1) // 16) * 16 for name in "MNK")
        depth = 0 if self.descriptors and not problem.has_product else k
        return dataclasses.replace(plan, problem=problem.product_of(m, n, depth))

    def shared_memory(self, plan: Plan) -> int | None:
        """See :class:`Kernel`: that of one group's product."""
        return self._single.shared_memory(self._one(plan))

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`. The device alone knows the sizes of the groups: as many programs as there are SMs, or
        tiles at most."""
        return (min(carveout.available_sms(plan), most_tiles(plan.problem, plan.config)),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
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
            **_scale_arguments(problem, tensors),
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
            "PROMOTE": self.promotion(plan),
            **self.loading(plan, tensors),
        }
        return Launch(gemm_grouped, plan.grid, arguments, config.options)

    def loading(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """The arguments that say how operands are loaded and the result is stored: by pointers."""
        return no_descriptors()

    def promotion(self, plan: Plan) -> int | None:
        return self._single.promotion(self._one(plan))

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: that of one group's product."""
        contract = self._single.contract(self._one(plan), executor)
        signed = contract.zero_sign != "any"
        return dataclasses.replace(contract, zero_sign=self.declared_zero_sign) if signed else contract

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`: that of one group's product."""
        return self._single.order(self._one(plan))

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of one group's product."""
        return self._single.features(self._one(plan))


class GroupedDescriptors(GroupedMm):
    """The same by descriptors. Those of the device are made for each group and end with it. Those of the host are of
    whole tensors; where the groups have parts of k, both operands are masked where a group ends."""

    limits = GemmLimits(
        variant=frozenset({"descriptors", "tma_store", "sms", "splits"}), makers=MAKERS, described=("a", "b")
    )
    descriptors = True
    zero_sign = "ieee"

    def __init__(self, name: str, operation: str = "grouped_mm") -> None:
        super().__init__(name, operation)
        self._single = self._kernel(EveryTarget)

    def _variant(self, plan: Plan) -> Reason | None:
        variant, ragged = plan.variant, plan.problem.ragged
        reason = super()._variant(plan)
        if (
            reason is None
            and variant.tma_store
            and (ragged == "N" or (ragged == "M" and variant.descriptors == "host"))
        ):
            detail = (
                f"a descriptor of the {variant.descriptors} does not end where groups of {ragged} do, and what it "
                "stores would overwrite the next one"
            )
            return Reason(ReasonCode.CONFIG, "tma_store", detail)
        return reason

    def _layout(self, plan: Plan) -> Reason | None:
        problem = plan.problem
        for operand in (problem.operand("a"), problem.operand("b")) if problem.has_product else ():
            axes = "MK" if operand.name == "a" else "KN"
            if reason := undescribable(operand) or begins_within_unit(problem, operand, axes):
                return reason
        if plan.variant.tma_store and (reason := unstorable(problem.output)):
            return reason
        return super()._layout(plan)

    def loading(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """See :class:`GroupedMm`: descriptors of the host, or pitches for those of the device."""
        return descriptor_arguments(plan, tensors)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of one group's product. Offsets and scales are loaded by pointers."""
        features = super().features(plan)
        return Features(features.required, features.forbidden - {codegen.POINTER_LOAD})


def batch_arguments(plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns the arguments of ``gemm_grouped`` for a batch of products without scales: groups that split no
    dimension."""
    problem = plan.problem
    operands = {"a": problem.operand("a"), "b": problem.operand("b"), "c": problem.output}
    arguments: dict[str, Any] = {"offsets_ptr": None, "groups": problem.batch, "SPLIT": "", "EVEN_K": False}
    for name, axes in (("a", "mk"), ("b", "kn"), ("c", "mn")):
        tensor = tensors["out" if name == "c" else name]
        arguments |= pointer_arguments(name, tensor, operands[name], axes)
        arguments |= _group_strides(name, operands[name], axes, "")
    return arguments | _scale_arguments(problem, tensors) | descriptor_arguments(plan, tensors)


def no_descriptors() -> dict[str, Any]:
    """The arguments of ``gemm_grouped`` for loads and stores by pointers."""
    switches = {"DESCRIPTORS": "", "A_ROW_MAJOR": True, "B_ROW_MAJOR": True, "HAS_PRODUCT": True, "TMA_STORE": False}
    return {"a_desc": None, "b_desc": None, "c_desc": None, "lda": 0, "ldb": 0, **switches}


def descriptor_arguments(plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of ``gemm_grouped`` for loads, and perhaps stores, by descriptors: of the plan's problem, which is
    grouped or a batch."""
    problem, config, variant = plan.problem, plan.config, plan.variant
    a, b = problem.operand("a"), problem.operand("b")
    arguments = {
        **no_descriptors(),
        "DESCRIPTORS": variant.descriptors,
        "lda": leading(a),
        "ldb": leading(b),
        "A_ROW_MAJOR": row_major(a),
        "B_ROW_MAJOR": row_major(b),
        "HAS_PRODUCT": problem.has_product,
        "TMA_STORE": variant.tma_store,
    }
    # what is split is not advanced from group to group: its descriptor begins where the tensor does
    arguments |= {f"stride_{operand.name}s": 0 for operand in (a, b) if len(operand.shape) == 2}
    if variant.descriptors == "host" and 0 not in plan.grid:
        if problem.has_product:
            arguments["a_desc"] = host_descriptor(tensors["a"], a, (config.block_m, config.block_k))
            arguments["b_desc"] = host_descriptor(tensors["b"], b, (config.block_k, config.block_n))
        if variant.tma_store:
            arguments["c_desc"] = host_descriptor(tensors["out"], problem.output, (config.block_m, config.block_n))
    return arguments


def most_tiles(problem: Any, config: Config) -> int:
    """Returns a bound of the number of tiles that holds for all sizes of the groups with the same sum. Each group has
    one ragged tile at most, and none is without elements."""

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


def _scale_arguments(problem: GroupedGemm, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns the scales and three strides; 0 for a scale of all. They go to the next group (g), to the next line of a
    group with shared scales (s), and to the next line. A line is a row or column."""
    arguments: dict[str, Any] = {"SCALED": problem.scaling is not None}
    for name, axis in (("scale_a", "M"), ("scale_b", "N")):
        by_line = int(problem.scaling == "row")
        shared = by_line and problem.ragged == axis
        arguments |= {
            f"{name}_ptr": tensors.get(name),
            f"stride_{name}": by_line,
            f"stride_{name}s": int(shared),
            f"stride_{name}g": 0 if shared or not problem.scaling else problem.operand(name).strides[0],
        }
    return arguments


KERNELS: tuple[GroupedMm, ...] = (
    GroupedMm("grouped_mm", table="bmm"),
    GroupedMm("scaled_grouped_mm", "scaled_grouped_mm"),
    GroupedDescriptors("grouped_mm_descriptors"),
    GroupedDescriptors("scaled_grouped_mm_descriptors", "scaled_grouped_mm"),
)
