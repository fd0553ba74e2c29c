"""The reference of gated linear attention: the state step by step, in fp64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.linear_attention.problem import LinearAttention
from conformance.problems import reference_dispatch as dispatch
from conformance.problems.reference_dispatch import Device, check_inputs

#: Positions of one step: the smallest block in which a kernel may walk through a chunk.
STEP = 16


@dataclass(frozen=True)
class LinearValues:
    """``out`` is (batch, heads, length, value_dim), ``states`` are (batch, heads, steps + 1, head_dim, value_dim).
    States are those that the positions of each step find, decayed already, and the last one. Steps of :data:`STEP`
    positions begin again with each chunk. All in fp64."""

    out: Tensor
    states: Tensor

    @property
    def state(self) -> Tensor:
        """The state of the last position."""
        return self.states[:, :, -1]


def steps(problem: LinearAttention) -> list[slice]:
    """Returns the positions of each step."""
    ends = [min(first + problem.chunk, problem.length) for first in range(0, problem.length, problem.chunk)]
    return [
        slice(first, min(first + STEP, end))
        for chunk, end in enumerate(ends)
        for first in range(chunk * problem.chunk, end, STEP)
    ]


def evaluated(
    problem: LinearAttention, inputs: Mapping[str, Tensor], *, device: Device = None, magnitudes: bool = False
) -> LinearValues:
    """Returns the values of ``problem``; with ``magnitudes`` those of the operands' absolute values. Raises KeyError or
    ValueError for inputs that are missing or of another shape."""
    check_inputs(problem, inputs)
    target = inputs["q"].device if device is None else torch.device(device)
    names = ("q", "k", "v", "decay", "initial")
    values = [inputs[name].to(target).double() for name in names]
    q, k, v, decay, state = (value.abs() if magnitudes else value for value in values)
    outs, states = [torch.zeros_like(v[:, :, :0])], []
    for here in steps(problem):
        if here.start % problem.chunk == 0:
            state = decay[:, :, here.start // problem.chunk, None, None] * state
        states.append(state)
        scores = (q[:, :, here] @ k[:, :, here].mT).tril()
        outs.append(q[:, :, here] @ state + scores @ v[:, :, here])
        state = state + k[:, :, here].mT @ v[:, :, here]
    return LinearValues(torch.cat(outs, 2).add_(0.0), torch.stack([*states, state], 2).add_(0.0))


@dispatch.value.register
def value(problem: LinearAttention, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """See :func:`.dispatch.value`."""
    return evaluated(problem, inputs, device=device).out
