"""Grouped mm by pointer loads and stores: a persistent loop over the tiles of all groups, any strides."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from conformance.codegen_checks import Feature
from conformance.heuristics.configs import Config
from conformance.kernels import carveout
from conformance.kernels.device.grouped_mm import gemm_grouped
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Kernel, Plan, Variant, check_tensors
from conformance.kernels.launch import Launch
from conformance.numerics.contract import Contract
from conformance.problems import Gemm, GroupedGemm, Operand, mm
from conformance.records import Reason, ReasonCode
from conformance.targets import Target


class GroupedMm(Kernel):
    """A product per group. What one group's product demands of dtypes, tiles and target, and what it promises of its
    arithmetic, is what the pointer kernel's does."""

    family = "grouped"
    persistent = True
    table = "bmm"

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations = frozenset({"grouped_mm"})
        self._single = PointerGemm(name, "mm", self.table)
        self.dtypes = self._single.dtypes
        self.configs = self._single.configs

    def refusal(self, problem: GroupedGemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        if problem.op not in self.operations:
            return Reason(ReasonCode.OPERATION, problem.op, f"{self.name} computes grouped_mm, not {problem.op}")
        if variant.static or variant.flatten:
            detail = f"{self.name} takes its sizes at run time and has nothing to flatten, '{variant.id}' was asked for"
            return Reason(ReasonCode.CONFIG, "variant", detail)
        return self._single.refusal(_single(problem), config, target, variant)

    def grid(self, problem: GroupedGemm, config: Config, target: Target, variant: Variant) -> tuple[int, ...]:
        """The sizes of the groups are known on the device only: as many programs as there are SMs, or tiles at most."""
        available = (variant.sms or target.limits.multiprocessors or 1) - carveout.current()
        return (min(max(available, 1), _most_tiles(problem, config)),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, config = plan.problem, plan.config
        assert isinstance(problem, GroupedGemm)
        assert isinstance(config, Config)
        check_tensors(self.name, problem, tensors)
        arguments = {
            "a_ptr": tensors["a"],
            "b_ptr": tensors["b"],
            "c_ptr": tensors["out"],
            "offsets_ptr": tensors.get("offsets"),
            "groups": problem.groups,
            "M": problem.M or 0,
            "N": problem.N or 0,
            "K": problem.K or 0,
            **_strides("a", problem.operand("a"), "MK", problem.ragged),
            **_strides("b", problem.operand("b"), "KN", problem.ragged),
            **_strides("c", problem.output, "MN", problem.ragged),
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "GROUP_M": config.group_m,
            "SPLIT": problem.ragged,
            "WIDE_INDEX": any(operand.span >= 2**31 for operand in problem.tensors),
            "PRECISION": problem.precision if problem.dtype == "fp32" else "ieee",
        }
        return Launch(gemm_grouped, plan.grid, arguments, config.options)

    def contract(self, plan: Plan, executor: str) -> Contract:
        return self._single.contract(self._single_plan(plan), executor)

    def features(self, plan: Plan) -> tuple[frozenset[Feature], frozenset[Feature]]:
        return self._single.features(self._single_plan(plan))

    def _single_plan(self, plan: Plan) -> Plan:
        assert isinstance(plan.problem, GroupedGemm)
        return dataclasses.replace(plan, problem=_single(plan.problem))


def _single(problem: GroupedGemm) -> Gemm:
    """A product like that of a group. The code does not depend on the groups' sizes, so none is empty."""
    m, n, k = (max(problem.extent(name), 1) for name in "MNK")
    return mm(m, n, k, problem.dtype, out_dtype=problem.out_dtype, precision=problem.precision)


def _most_tiles(problem: GroupedGemm, config: Config) -> int:
    """A bound of the number of tiles that holds for all sizes of the groups with the same sum: each group has one
    ragged tile at most, and none is without elements."""

    def blocks(name: str, block: int) -> int:
        extent = problem.extent(name)
        if name == problem.ragged:
            return min(extent // block + problem.groups, extent)
        return -(-extent // block)

    once = 1 if problem.ragged in ("M", "N") else problem.groups
    return blocks("M", config.block_m) * blocks("N", config.block_n) * once


def _strides(name: str, operand: Operand, dims: str, split: str) -> dict[str, int]:
    """Strides of one group's matrix, from one group to the next (g), and along what the groups split (s)."""
    rows, columns = operand.strides[-2:]
    along = {dims[0]: rows, dims[1]: columns}.get(split, 0)
    return {
        f"stride_{name}g": operand.strides[0] if len(operand.shape) == 3 else 0,
        f"stride_{name}s": along,
        f"stride_{name}{dims[0].lower()}": rows,
        f"stride_{name}{dims[1].lower()}": columns,
    }


KERNELS: tuple[GroupedMm, ...] = (GroupedMm("grouped_mm"),)
