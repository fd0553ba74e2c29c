"""Fills on a device: the inputs of several fills of one problem, and what they allow, made once and moved once.

Where several processes share a device, each wait for it is long. So many runs are judged there together, and what the
device says of them is read back at once.
"""

from __future__ import annotations

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
ALONE = 256 << 20
#: Tensors that are moved together begin at multiples of this many bytes.
ALIGNMENT = 16


@dataclass(frozen=True)
class FillGroup:
    """``inputs``: the bits of the ``fills``' dense inputs by name, (fills, *shape). ``limits``: what they allow each
    output to be, by name. Both lie on the device; ``size`` in bytes."""

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
    inputs = {name: torch.stack([bits(fill.inputs[name].contiguous()) for fill in fills]) for name in fills[0].inputs}
    limits = {output.name: Limits.of(problem, contract, fills, output.name) for output in problem.outputs}
    together = _Together(device)
    for tensor in inputs.values():
        together.add(tensor)
    for allowed in limits.values():
        allowed.moved(together.add)
    together.move()
    return FillGroup(
        tuple(fills),
        {name: together.take() for name in inputs},
        {name: allowed.moved(lambda tensor: together.take()) for name, allowed in limits.items()},
        together.size,
    )


def fills_at_once(problem: Problem) -> int:
    """How many fills of ``problem`` a group may have; 0 if one takes too much memory."""
    elements = sum(output.numel for output in problem.outputs)
    # memory and its copy, for each pattern; limits and what is computed from them, about 96 bytes an element
    needed = 2 * len(POISON) * row_bytes(problem) + 96 * elements
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


class _Together:
    """Moves tensors to a device in one transfer, which a device that is shared with others takes its time to begin."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tensors: list[Tensor] = []
        self._moved: list[Tensor] = []
        self.size = 0

    def add(self, tensor: Tensor) -> Tensor:
        self._tensors.append(tensor)
        self.size += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        return tensor

    def move(self) -> None:
        packed = torch.empty(self.size, dtype=torch.uint8, pin_memory=self._device.type == "cuda")
        for tensor, part in zip(self._tensors, self._parts(packed), strict=True):
            part.copy_(tensor)
        self._moved = self._parts(packed.to(self._device, non_blocking=True))

    def take(self) -> Tensor:
        """The first tensor added that was not taken yet, on the device."""
        return self._moved.pop(0)

    def _parts(self, packed: Tensor) -> list[Tensor]:
        parts, start = [], 0
        for tensor in self._tensors:
            parts.append(packed[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape))
            start += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        return parts
