"""Says on which elements of the input and the weights an element of a convolution depends."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.conv.problem import Conv
from conformance.families.index_sets import Indices, Needed, chosen, divided, every

#: Names of the axes of space; a convolution in two dimensions has the last two.
SPACE = ("depth", "height", "width")


def axes(problem: Conv, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand ``name``."""
    rank = len(problem.operand(name).shape)
    first = {"x": ("image", "channel"), "w": problem.weight_axes}.get(name, ("output channel",))
    return (*first, *SPACE[len(first) - rank :]) if rank > len(first) else first


def needed(problem: Conv, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns the elements that ``stored`` of ``output`` need; see :class:`~conformance.families.family.Family`."""
    batch, channels, *places = stored
    groups = divided(channels, problem.out_channels // problem.groups, problem.groups)
    seen, taps = [], []
    for index, size, axis in zip(places, problem.size, problem.correlation.places, strict=True):
        reached = torch.tensor(axis)[index]  # (positions, taps)
        inside = reached >= 0
        seen.append(chosen(size, reached[inside]))
        taps.append(inside.any(0))
    if not all(bool(index.any()) for index in seen):
        return {}
    inner = groups.repeat_interleave(problem.group_channels)
    # of the two axes of channels, the first spans all groups, the second one group
    in_group = {"channel": every(problem.group_channels), "output channel": channels.reshape(problem.groups, -1).any(0)}
    first, second = problem.weight_axes
    of_weights = {"channel": inner, "output channel": channels}[first], in_group[second]
    result: Needed = {"x": (batch, inner, *seen), "w": (*of_weights, *taps)}
    return {**result, "bias": (channels,)} if problem.bias else result
