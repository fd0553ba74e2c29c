"""Fills on a device: the inputs of several fills of one problem, and what they allow, made once and moved once.

Where several processes share a device, each wait for it is long. So many runs are judged there together, and what the
device says of them is read back at once.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.inputs.fills import Fill
from conformance.inputs.guarded_batch import GuardedBatch, row_bytes
from conformance.inputs.guarded_memory import POISON
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import bits
from conformance.numerics.verdict import Limits
from conformance.problems import DTYPES, Problem

#: Bytes of device memory that a process keeps for groups.
KEPT = 64 << 20
#: Bytes of device memory that the fills of a group may take while they run and are judged.
AT_ONCE = 64 << 20
#: The same of a fill that takes more, and has a group for itself. Above it fills run and are judged one by one.
ALONE = 512 << 20
#: Bytes of the largest tensor of which a pinned copy is made: torch keeps the memory of these.
PINNED = 8 << 20


@dataclass(frozen=True)
class FillGroup:
    """``inputs``: the bits of the ``fills``' dense inputs by name, (fills, *shape). ``limits``: what they allow each
    output to be, by name. Both lie on the device, where they take ``size`` bytes."""

    fills: tuple[Fill, ...]
    inputs: Mapping[str, Tensor]
    limits: Mapping[str, Limits]
    size: int


class KeptGroups:
    """Groups by what they are made of, the latest ones up to ``limit`` bytes."""

    def __init__(self, limit: int = KEPT) -> None:
        self._limit = limit
        self._groups: OrderedDict[object, FillGroup] = OrderedDict()

    def get(self, problem: Problem, contract: Contract, fills: Sequence[Fill], device: torch.device) -> FillGroup:
        """The group of ``fills``, which belong to ``problem`` or one that differs in layouts."""
        key = (problem.dense, contract, device, *((fill.name, fill.seed) for fill in fills))
        group = self._groups.pop(key, None) or group_of(problem, contract, fills, device)
        self._groups[key] = group
        while sum(kept.size for kept in self._groups.values()) > self._limit:
            self._groups.popitem(last=False)
        return group

    def forget(self) -> None:
        """Gives up every group, so that its memory can be used for something else."""
        self._groups.clear()


#: Of this process.
GROUPS = KeptGroups()


def group_of(problem: Problem, contract: Contract, fills: Sequence[Fill], device: torch.device) -> FillGroup:
    """``fills`` of ``problem`` as a group on ``device``."""
    move = functools.partial(_moved, device=device)
    inputs = {
        name: move(torch.stack([bits(fill.inputs[name].contiguous()) for fill in fills])) for name in fills[0].inputs
    }
    limits = {output.name: Limits.of(problem, contract, fills, output.name, move) for output in problem.outputs}
    size = sum(tensor.nbytes for tensor in inputs.values()) + sum(allowed.nbytes for allowed in limits.values())
    return FillGroup(tuple(fills), inputs, limits, size)


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """``tensor`` on ``device``. Nothing waits for the transfer of a small one, whose copy cannot be paged out."""
    pinned = device.type == "cuda" and tensor.nbytes <= PINNED
    return (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=pinned)


def fills_at_once(problem: Problem) -> int:
    """How many fills of ``problem`` a group may have; 0 if one takes too much memory."""
    elements = sum(output.numel for output in problem.outputs)
    # memory and its copy, for each pattern; limits and what is computed from them, about 128 bytes an element
    needed = 2 * len(POISON) * row_bytes(problem) + 128 * elements
    return 0 if needed > ALONE else max(1, AT_ONCE // needed)


@dataclass(frozen=True)
class Judgement:
    """What the device says of all runs of one fill. ``right``: nothing is wrong with them. ``used``: by output, how
    much of the bound the first run uses. ``output``: the first run's first output, dense, on the CPU."""

    right: bool
    used: Mapping[str, float]
    output: Tensor


def read_judgements(problem: Problem, group: FillGroup, batch: GuardedBatch) -> list[Judgement]:
    """A judgement of each fill of ``group``, whose runs in ``batch`` may not have ended yet; waits for the device."""
    wrong = batch.changed().any(1)
    used = []
    for output in problem.outputs:
        runs = batch.outputs(output.name)
        wrong_runs, used_by_first = group.limits[output.name].judge(runs)
        wrong |= wrong_runs.any(1)
        wrong |= (runs[:, :1] != runs[:, 1:]).flatten(1).any(1)
        used.append(used_by_first)
    first = batch.outputs(problem.output.name)[:, 0]
    figures = torch.stack([wrong.double(), *used])
    packed = torch.cat([figures.flatten().view(torch.uint8), first.flatten().view(torch.uint8)])
    bytes_read = packed.cpu()
    figures_read = bytes_read[: figures.nbytes].view(torch.float64).view(figures.shape).tolist()
    outputs = bytes_read[figures.nbytes :].view(DTYPES[problem.output.dtype]).view(first.shape)
    return [
        Judgement(
            not figures_read[0][number],
            {output.name: row[number] for output, row in zip(problem.outputs, figures_read[1:], strict=True)},
            outputs[number],
        )
        for number in range(len(group.fills))
    ]
