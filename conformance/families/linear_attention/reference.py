"""The reference of gated linear attention in fp64, and rigorous bounds of the errors that a contract allows.

The model: the unit sums the state as the contract says, over all positions and the initial state; each decay rounds
once, and so does each step if its products are added to the state by an operation of their own. As an operand the state
is rounded to ``contract.intermediate``, and so are the scores of a chunk. A kernel may walk through a chunk in blocks
of any multiple of :data:`STEP`, and each sees the state at its begin.
So the largest state of a chunk bounds what is rounded, and all scores of a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.attention.bounds import TINY, UP, cast
from conformance.families.gemm.reference import U, growth
from conformance.families.linear_attention.problem import LinearAttention
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import FORMATS
from conformance.problems import Device, check_inputs

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


def value(problem: LinearAttention, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """See :func:`conformance.problems.value`."""
    return evaluated(problem, inputs, device=device).out


def linear_attention_error(
    problem: LinearAttention, contract: Contract, inputs: Mapping[str, Tensor], exact: LinearValues, sizes: LinearValues
) -> tuple[Tensor, Tensor]:
    """Bounds of |out' - out| and |state' - state| in fp64 and in the shapes of the outputs, on the device of ``exact``.

    ``sizes``: the values of the operands' absolute values. For decays of 1 at most, whose errors do not grow.
    """
    accumulator, rounding = contract.accumulator, cast(contract)
    roundings = problem.chunks + math.ceil(problem.length / STEP)
    relative = math.expm1(math.log1p(growth(accumulator, problem.length + 1)) + roundings * math.log1p(U))
    of_states = relative * sizes.states + (problem.length + roundings + 4) * TINY

    device = exact.out.device
    q, k, v = (inputs[name].to(device).double() for name in "qkv")
    q_size, k_size, v_size = (torch.where(x != 0, x.abs().clamp(min=rounding.aligned), 0.0) for x in (q, k, v))
    terms = growth(accumulator, problem.head_dim + problem.chunk + 2)
    of_scores = growth(accumulator, problem.head_dim)
    error = torch.zeros_like(exact.out)
    chunk_of = torch.tensor([step.start // problem.chunk for step in steps(problem)], dtype=torch.int64, device=device)
    for chunk in range(problem.chunks):
        here, which = slice(chunk * problem.chunk, (chunk + 1) * problem.chunk), chunk_of == chunk
        lost = of_states[:, :, :-1][:, :, which].amax(2)
        largest = exact.states[:, :, :-1][:, :, which].abs().amax(2)
        of_state = lost + rounding.unit * (largest + lost) + rounding.tiny
        scores = (q[:, :, here] @ k[:, :, here].mT).tril().abs()
        of_score = of_scores * (q_size[:, :, here] @ k_size[:, :, here].mT).tril()
        of_score = (of_score + rounding.unit * (scores + of_score) + rounding.tiny).tril()
        size = q_size[:, :, here] @ (largest + of_state + rounding.aligned)
        size = size + (scores + of_score + rounding.aligned) @ v_size[:, :, here]
        carried = q_size[:, :, here] @ of_state + of_score @ v_size[:, :, here]
        error[:, :, here] = carried + terms * size
    error = error + (problem.head_dim + problem.chunk + 4) * TINY
    if contract.flushes_subnormals:
        error = error + FORMATS[contract.out_dtype].smallest_normal
    return error * UP, of_states[:, :, -1] * UP
