"""Rigorous bounds of the errors that a contract allows gated linear attention, before its results are rounded.

The model: the unit sums the state as the contract says, over all positions and the initial state; each decay rounds
once, and so does each step if its products are added to the state by an operation of their own. As an operand the state
is rounded to ``contract.intermediate``, and so are the scores of a chunk. A kernel may walk through a chunk in blocks
of any multiple of :data:`~conformance.families.linear_attention.reference.STEP`, and each sees the state at its begin.
So the largest state of a chunk bounds what is rounded, and all scores of a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.attention.bounds import TINY, UP, cast
from conformance.families.gemm.bounds import U, growth
from conformance.families.linear_attention.problem import LinearAttention
from conformance.families.linear_attention.reference import STEP, LinearValues, steps
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import FORMATS


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
