"""Chooses the model that judges the bits of a launch: the kernel's order, and the known figures of the device's
unit."""

from __future__ import annotations

import functools
from typing import Any

from conformance.execution.device.transfers import moved
from conformance.execution.trial.observation import Executor
from conformance.families.unit_verdict import UnitModel, can_model, operand_name
from conformance.kernels.kernel import Plan
from conformance.numerics.contract import Contract
from conformance.numerics.measured_units import known_unit
from conformance.numerics.sum_order import SumOrder
from conformance.records import ExecutorName


def unit_model(kernel: Any, plan: Plan, contract: Contract, executor: Executor) -> UnitModel | None:
    """The model of the bits that ``kernel`` owes for ``plan`` on a device; None where its order, the unit or the
    operation is not known, and for the interpreter, whose sums are not those of a unit."""
    if executor.name != ExecutorName.DEVICE or not hasattr(kernel, "order") or not can_model(plan.problem, contract):
        return None
    order: SumOrder | None = kernel.order(plan)
    unit = None if order is None else known_unit(plan.target, order.instruction, operand_name(plan.problem))
    if order is None or unit is None:
        return None
    move = functools.partial(moved, device=executor.device)
    return UnitModel(plan.problem, contract, order, unit, executor.device, move)
