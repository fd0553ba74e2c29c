"""The reference of a problem by its class: the families register theirs here."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.problems import Problem

#: Where fp64 values are computed; what None means is up to the function that takes it.
Device = torch.device | str | None


@functools.singledispatch
def value(problem: Problem, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The first output of ``problem`` in fp64 and in its shape, before it is rounded to the output dtype.

    ``inputs`` maps operand names to tensors of the operands' shapes. ``device`` is where the value is computed and
    where it lives (None: where the first operand lives; for attention the CPU). Raises KeyError for a missing operand,
    ValueError for one of another shape, TypeError for a family without a reference.
    """
    raise TypeError(_unknown(problem, "reference value"))


@functools.singledispatch
def magnitude(problem: Problem, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The sum of the products' absolute values, in fp64 and in the shape of the first output, without the epilogue.

    Arguments and errors are those of :func:`value`. Attention has none: its bounds follow every step of the softmax.
    """
    raise TypeError(_unknown(problem, "magnitude"))


def _unknown(problem: Problem, what: str) -> str:
    name = type(problem).__name__
    return f"{problem.id} is a {name}, for which there is no {what}: register one for {name}"


def in_fp64(inputs: Mapping[str, Tensor], names: str, device: Device) -> list[Tensor]:
    """The inputs with these names, of one letter each, in fp64 on ``device`` (None: where the first of them lives)."""
    target = inputs[names[0]].device if device is None else torch.device(device)
    return [inputs[name].to(target).double() for name in names]


def check_inputs(problem: Problem, inputs: Mapping[str, Tensor]) -> None:
    """Raises KeyError if an operand of ``problem`` is missing in ``inputs``, ValueError if one has another shape."""
    for operand in problem.operands:
        if operand.name not in inputs:
            raise KeyError(f"{problem.id} needs the input {operand.name!r}: given are {sorted(inputs)}")
        shape = tuple(inputs[operand.name].shape)
        if shape != operand.shape:
            raise ValueError(f"{problem.id}: input {operand.name!r} has shape {shape}, it must have {operand.shape}")
