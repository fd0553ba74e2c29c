"""Fills on a device: the inputs of several fills of one problem, and what they allow, made once and moved once.

Where several processes share a device, each wait for it is long. So many runs are judged there together, and what the
device says of them is read back at once.

Transfers between the CPU and a device, and the model that judges the bits of a launch, are here too.

Where several processes share a device, each of them has it for some milliseconds in turn: every wait costs a turn.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from conformance.families.unit_verdict import UnitModel, can_model, differing, operand_name
from conformance.inputs.fills import Fill, applicable_fills, fills
from conformance.inputs.guarded_memory import POISON, GuardedBatch, row_bytes
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Executor
from conformance.numerics.contract import Contract
from conformance.numerics.measured_units import known_unit
from conformance.numerics.rounding import bits
from conformance.numerics.sum_order import SumOrder
from conformance.numerics.verdict import AllowedValues
from conformance.problems import DTYPES, Problem
from conformance.records import ExecutorName

#: Bytes of the largest tensor of which a pinned copy is made: torch keeps the memory of these.
PINNED = 8 << 20
#: Tensors that are read together begin at multiples of this many bytes.
ALIGNMENT = 8


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """``tensor`` on ``device``. Nothing waits for the transfer of a small one, whose copy cannot be paged out."""
    pinned = device.type == "cuda" and tensor.nbytes <= PINNED
    return (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=pinned)


def read_together(tensors: Sequence[Tensor]) -> list[Tensor]:
    """``tensors``, all on one device, dense on the CPU after one transfer. Waits for what the device still does."""
    if tensors[0].device.type == "cpu":
        return [tensor.contiguous() for tensor in tensors]
    parts = []
    for tensor in tensors:
        # a copy, because a tensor of one element may have any strides, and views refuse some
        flat = tensor.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)
        parts += [flat, flat.new_empty(-flat.numel() % ALIGNMENT)]
    read = torch.cat(parts).cpu()
    copies, start = [], 0
    for tensor, flat in zip(tensors, parts[::2], strict=True):
        copies.append(read[start : start + flat.numel()].view(tensor.dtype).view(tensor.shape))
        start += flat.numel() + -flat.numel() % ALIGNMENT
    return copies


Result = TypeVar("Result")


class Kept(Generic[Result]):
    """Results by their key, those that were asked for last, up to ``limit`` bytes by ``size``. A result that is larger
    than that is made each time."""

    def __init__(self, limit: int, size: Callable[[Result], int]) -> None:
        self._limit, self._size = limit, size
        self._results: OrderedDict[Hashable, Result] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], Result]) -> Result:
        """The result of ``key``, from ``make`` if it is not kept."""
        if key in self._results:
            self._results.move_to_end(key)
            return self._results[key]
        result = make()
        if self._size(result) > self._limit:
            return result
        self._results[key] = result
        self._bytes += self._size(result)
        while self._bytes > self._limit:
            _, oldest = self._results.popitem(last=False)
            self._bytes -= self._size(oldest)
        return result

    def forget(self) -> None:
        """Gives up every result."""
        self._results.clear()
        self._bytes = 0


#: Bytes of device memory that the fills of a group may take while they run and are judged.
AT_ONCE = 64 << 20
#: The same of a fill that takes more, and has a group for itself. Above it fills run and are judged one by one.
ALONE = 1 << 30


#: Fills that this process has made, by problem, contract, seed and name.
FILLS: Kept[Fill] = Kept(256 << 20, lambda fill: fill.nbytes)


def fills_for(problem: Problem, contract: Contract, seed: int, names: Sequence[str] | None = None) -> tuple[Fill, ...]:
    """The fills of ``problem``, or those in ``names``, shared by all its layouts; raises as :func:`fills` does."""

    def one(name: str) -> Fill:
        (fill,) = fills(problem.dense, contract, seed, (name,))
        return fill

    chosen = applicable_fills(problem, contract, names)
    return tuple(FILLS.get((problem.dense, contract, seed, name), functools.partial(one, name)) for name in chosen)


@dataclass(frozen=True)
class FillGroup:
    """``inputs``: the bits of the ``fills``' dense inputs by name, (fills, *shape). ``limits``: what they allow each
    output to be, by name. Both lie on the device, where they take ``size`` bytes."""

    fills: tuple[Fill, ...]
    inputs: Mapping[str, Tensor]
    limits: Mapping[str, AllowedValues]
    size: int


#: The groups of this process.
GROUPS: Kept[FillGroup] = Kept(64 << 20, lambda group: group.size)


def kept_group(
    problem: Problem, contract: Contract, seed: int, names: tuple[str, ...], device: torch.device
) -> FillGroup:
    """The fills ``names`` of ``problem`` as a group, which problems that differ in layouts share; made if it is not
    kept. Raises as :func:`fills_for` does."""
    key = (problem.dense, contract, seed, names, device)
    return GROUPS.get(key, lambda: group_of(problem, contract, fills_for(problem, contract, seed, names), device))


def group_of(problem: Problem, contract: Contract, fills: Sequence[Fill], device: torch.device) -> FillGroup:
    """``fills`` of ``problem`` as a group on ``device``."""
    move = functools.partial(moved, device=device)
    inputs = {
        name: move(torch.stack([bits(fill.inputs[name].contiguous()) for fill in fills])) for name in fills[0].inputs
    }
    limits = {output.name: AllowedValues.of(problem, contract, fills, output.name, move) for output in problem.outputs}
    size = sum(tensor.nbytes for tensor in inputs.values()) + sum(allowed.nbytes for allowed in limits.values())
    return FillGroup(tuple(fills), inputs, limits, size)


def fills_at_once(problem: Problem) -> int:
    """Returns the number of fills of ``problem`` that a group may have; 0 if one takes too much memory."""
    elements = sum(output.numel for output in problem.outputs)
    # memory and its copy, for each pattern; limits and what is computed from them, about 128 bytes an element
    needed = 2 * len(POISON) * row_bytes(problem) + 128 * elements
    return 0 if needed > ALONE else max(1, AT_ONCE // needed)


@dataclass(frozen=True)
class Judgement:
    """The device's judgement of all runs of one fill. ``right``: nothing is wrong with them. ``used``: by output, how
    much of the bound the first run uses. ``output``: the first run's first output, dense, on the CPU. ``other_bits``:
    elements of it that have other bits than the tensor core's model; None where that says nothing of the fill."""

    right: bool
    used: Mapping[str, float]
    output: Tensor
    other_bits: int | None = None


def read_judgements(
    problem: Problem,
    group: FillGroup,
    batch: GuardedBatch,
    repeats: Sequence[bool],
    model: UnitModel | None = None,
) -> list[Judgement]:
    """A judgement of each fill of ``group``, whose runs in ``batch`` may not have ended yet; waits for the device.

    ``repeats``: of which fills both runs must agree bit by bit. ``model`` knows the bits that the tensor core owes.
    """
    wrong = batch.changed().any(1)
    must_agree = None if all(repeats) else moved(torch.tensor(repeats), wrong.device)
    used = []
    for output in problem.outputs:
        runs = batch.outputs(output.name)
        wrong_runs, used_by_first = group.limits[output.name].judge(runs)
        wrong |= wrong_runs.any(1)
        differ = (runs[:, :1] != runs[:, 1:]).flatten(1).any(1)
        wrong |= differ if must_agree is None else differ & must_agree
        used.append(used_by_first)
    patterns = batch.outputs(problem.output.name)
    other_bits = torch.full((len(group.fills),), math.nan, dtype=torch.float64, device=wrong.device)
    if model is not None:
        for number, fill in enumerate(group.fills):
            allowed = model.allowed(fill)
            if allowed is not None:
                other_bits[number] = differing(allowed, patterns[number, 0]).sum()
        if model.unit.proven:
            wrong |= other_bits > 0
    first = patterns[:, 0].view(DTYPES[problem.output.dtype])
    figures, outputs = read_together([torch.stack([wrong.double(), other_bits, *used]), first])
    wrongs, others, *shares = figures.tolist()
    return [
        Judgement(
            not wrongs[number],
            {output.name: row[number] for output, row in zip(problem.outputs, shares, strict=True)},
            outputs[number],
            None if math.isnan(others[number]) else int(others[number]),
        )
        for number in range(len(group.fills))
    ]


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
