"""Says on which elements of the input and the output's gradient an element of a weight's gradient depends."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.conv.dependence import SPACE
from conformance.families.index_sets import Indices, Needed, chosen, divided, every
from conformance.families.weight_gradient.problem import WeightGradient


def axes(problem: WeightGradient, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand ``name``."""
    return ("image", "channel" if name == "x" else "output channel", *SPACE[1:])


def needed(problem: WeightGradient, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns the elements that ``stored`` of ``output`` need; see :class:`~conformance.families.family.Family`."""
    forward, channels = problem.forward, stored[0]
    images = every(forward.batch)
    if not forward.batch:
        return {}
    if output == "grad_bias":
        return {"grad_out": (images, channels, *map(every, forward.out_size))}
    seen, positions = [], []
    for index, size, axis in zip(stored[2:], forward.size, forward.correlation.places, strict=True):
        reached = torch.tensor(axis)[:, index]  # (positions, taps)
        inside = reached >= 0
        seen.append(chosen(size, reached[inside]))
        positions.append(inside.any(1))
    if not all(bool(index.any()) for index in seen):
        return {}
    groups = divided(channels, forward.out_channels // forward.groups, forward.groups)
    of_x = (groups[:, None] & stored[1]).flatten()
    return {"x": (images, of_x, *seen), "grad_out": (images, channels, *positions)}
