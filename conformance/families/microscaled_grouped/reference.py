"""The reference of a grouped product of block-scaled operands: that of each group, one below the other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance import problems as dispatch
from conformance.families.microscaled_grouped.problem import MicroscaledGroupedGemm
from conformance.problems import Device, check_inputs


def group_inputs(problem: MicroscaledGroupedGemm, inputs: Mapping[str, Tensor], group: int) -> dict[str, Tensor]:
    """Returns the operands of one group's product: views."""
    end = problem.ends[group]
    rows = slice(end - problem.sizes[group], end)
    return {
        name: tensor[rows] if name in ("a", "scale_a") else tensor[group]
        for name, tensor in inputs.items()
        if name != "offsets"
    }


def value(problem: MicroscaledGroupedGemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """See :func:`conformance.problems.value`; ValueError is raised for offsets that are not those of the problem."""
    check_inputs(problem, inputs)
    if inputs["offsets"].tolist() != list(problem.ends):
        raise ValueError(f"{problem.id}: the offsets are {inputs['offsets'].tolist()}, they must be {problem.ends}")
    groups = range(problem.groups)
    return torch.cat(
        [dispatch.value(problem.group(i), group_inputs(problem, inputs, i), device=device) for i in groups]
    )


def magnitude(problem: MicroscaledGroupedGemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """See :func:`conformance.problems.magnitude`."""
    check_inputs(problem, inputs)
    groups = range(problem.groups)
    return torch.cat(
        [dispatch.magnitude(problem.group(i), group_inputs(problem, inputs, i), device=device) for i in groups]
    )
