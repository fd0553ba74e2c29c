"""What every reference asks of its inputs, and the type of the device on which it computes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.problems import Problem

#: Where fp64 values are computed; what None means is up to the function that takes it.
Device = torch.device | str | None


def check_inputs(problem: Problem, inputs: Mapping[str, Tensor]) -> None:
    """Raises KeyError if an operand of ``problem`` is missing in ``inputs``, ValueError if one has another shape."""
    for operand in problem.operands:
        if operand.name not in inputs:
            raise KeyError(f"{problem.id} needs the input {operand.name!r}: given are {sorted(inputs)}")
        shape = tuple(inputs[operand.name].shape)
        if shape != operand.shape:
            raise ValueError(f"{problem.id}: input {operand.name!r} has shape {shape}, it must have {operand.shape}")
