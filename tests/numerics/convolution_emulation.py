"""Random correct convolutions: fp32 sums tap by tap, where a tap outside the image is skipped or multiplied by zero."""

from __future__ import annotations

import itertools

import torch

from conformance.families.conv.problem import Conv, conv2d, conv3d
from conformance.inputs.fills import Draws, fills
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.numerics.rounding import round_to
from conformance.numerics.verdict import judge


def judged(seed: int) -> tuple[int, list[str]]:
    """Returns the number of judgements that the problem and the kernel of ``seed`` gave, and the alarms among them."""
    draws = Draws(seed, "correct convolutions")
    problem = _drawn(draws)
    contract = Contract(problem.dtype, FMA if problem.dtype == "fp32" else Accumulator())
    alarms = []
    every_fill = fills(problem, contract, seed)
    for fill in every_fill:
        out = _convolution(problem, fill.inputs, draws)
        verdict = judge(problem, contract, fill, round_to(out.double(), problem.output_dtype))
        if not verdict.passed:
            alarms.append(f"seed {seed}: {problem.id}: {verdict.text}")
    return len(every_fill), alarms


def _pick(draws: Draws, choices):
    return choices[int(draws.below(len(choices), ())[()])]


def _drawn(draws: Draws) -> Conv:
    rank, groups = _pick(draws, (2, 2, 3)), _pick(draws, (1, 1, 2, 3))

    def each(choices):
        return tuple(_pick(draws, choices) for _ in range(rank))

    return (conv2d if rank == 2 else conv3d)(
        _pick(draws, (1, 2, 3)),
        groups * _pick(draws, (1, 3, 8, 20)),
        each((4, 6, 9)),
        groups * _pick(draws, (2, 6, 12)),
        each((1, 2, 3)),
        _pick(draws, ("fp16", "bf16", "fp32")),
        padding=each((0, 1, 2, 3)),
        stride=each((1, 2, 3)),
        groups=groups,
        bias=_pick(draws, (False, True)),
    )


def _convolution(problem: Conv, inputs, draws: Draws) -> torch.Tensor:
    """The output in fp32, before it is rounded."""
    x, w = (inputs[name].float() for name in "xw")
    around = [size for pair in reversed(problem.padding) for size in (pair, pair)]
    inside = torch.nn.functional.pad(torch.ones(problem.size, dtype=torch.bool), around)
    x = torch.nn.functional.pad(x, around)
    x = x.reshape(problem.batch, problem.groups, problem.group_channels, *x.shape[2:])
    w = w.reshape(problem.groups, -1, problem.group_channels, *problem.kernel)
    out = torch.zeros(problem.batch, problem.groups, w.shape[1], *problem.out_size)
    for tap in itertools.product(*map(range, problem.kernel)):
        read = tuple(
            slice(first, first + (count - 1) * step + 1, step)
            for first, count, step in zip(tap, problem.out_size, problem.stride, strict=True)
        )
        product = w[(..., *tap)] @ x[(slice(None),) * 3 + read].flatten(3)
        if _pick(draws, (False, True)):
            product = torch.where(inside[read].flatten(), product, 0.0)
        out.flatten(3).add_(product)
    out = out.reshape(problem.output.shape)
    rank = len(problem.kernel)
    return out + inputs["bias"].float().reshape(-1, *[1] * rank) if problem.bias else out
