"""The reference of functions of rows: the value of the computation that each function states, and its bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from conformance.families.rows.problem import RowProblem
from conformance.numerics.error_bounds import Computed, operand
from conformance.problems import Device, check_inputs


def evaluated(
    problem: RowProblem,
    inputs: Mapping[str, Tensor],
    *,
    device: Device = None,
    compute: Callable[[Any, Any], Mapping[str, Computed]] | None = None,
) -> Mapping[str, Computed]:
    """Returns the quantities of the outputs by name: of the problem's function, or of another ``compute``. Raises
    KeyError or ValueError for inputs that are missing or of another shape."""
    check_inputs(problem, inputs)
    if not problem.operands[0].numel:
        values = problem.function.of_nothing(problem)
        full = {
            part.name: torch.full(part.shape, values.get(part.name, 0.0), dtype=torch.float64, device=device)
            for part in problem.outputs
        }
        return {name: Computed(constant, constant, constant) for name, constant in full.items()}
    quantities = {part.name: operand(inputs[part.name], device) for part in problem.operands}
    outputs = (compute or problem.function.compute)(problem, quantities)
    shapes = {part.name: part.shape for part in problem.outputs}
    return {
        name: Computed(*(tensor.reshape(shapes[name]) for tensor in (part.value, part.low, part.high)))
        for name, part in outputs.items()
    }


def value(problem: RowProblem, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """See :func:`conformance.problems.value`."""
    return evaluated(problem, inputs, device=device)[problem.output.name].value
