"""What a convolution means: its fp64 value and the magnitude that error bounds need.

One batched product per tap of the kernel over x with explicit zeros around it, so that sums of integers below 2**53 are
exact. What a weight of NaN or infinity makes of padding depends on the kernel: 0 * NaN is NaN, but a kernel may skip
padding instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from conformance.problems import Conv
from conformance.references import dispatch
from conformance.references.dispatch import Device, check_inputs, in_fp64


def correlate(problem: Conv, x: Tensor, w: Tensor, *, skip_padding: bool = False) -> Tensor:
    """The sum over channels and taps of x times w, fp64, in the output's shape; x and w in fp64 and the shapes of the
    problem's operands, on one device, where the result is too. With ``skip_padding`` what meets padding adds nothing,
    not even NaN. Raises ValueError for other shapes."""
    for name, tensor in (("x", x), ("w", w)):
        if tuple(tensor.shape) != problem.operand(name).shape:
            wanted = problem.operand(name).shape
            raise ValueError(f"{problem.id}: input {name!r} has shape {tuple(tensor.shape)}, it must have {wanted}")
    groups, positions = problem.groups, problem.out_size
    around = [count for padding in reversed(problem.padding) for count in (padding, padding)]
    padded = torch.nn.functional.pad(x, around)
    inside = torch.nn.functional.pad(x.new_ones(problem.size, dtype=torch.bool), around)
    padded = padded.reshape(problem.batch, groups, problem.group_channels, *padded.shape[2:])
    weights = w.reshape(groups, problem.out_channels // groups, problem.group_channels, *problem.kernel)
    total = x.new_zeros(problem.batch, groups, problem.out_channels // groups, *positions)
    flat = total.flatten(3)
    for tap in itertools.product(*map(range, problem.kernel)):
        steps = zip(tap, positions, problem.stride, strict=True)
        seen = tuple(slice(first, first + (count - 1) * step + 1, step) for first, count, step in steps)
        weight = weights
        for first in tap:
            weight = weight.select(3, first)
        windows: Any = (..., *seen)
        product = weight @ padded[windows].flatten(3)
        if skip_padding and any(problem.padding):
            product.masked_fill_(~inside[seen].flatten(), 0.0)
        flat += product
    return total.reshape(problem.output.shape)


def magnitude(problem: Conv, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The same of ``|x|`` and ``|w|``, without the bias and without what meets padding."""
    x, w = _operands(problem, inputs, device)
    return correlate(problem, x.abs(), w.abs(), skip_padding=True)


def value(problem: Conv, inputs: Mapping[str, Tensor], *, device: Device = None, skip_padding: bool = False) -> Tensor:
    """The convolution and its bias in fp64; arguments and errors are those of :func:`.dispatch.value`, and
    ``skip_padding`` is that of :func:`correlate`."""
    result = correlate(problem, *_operands(problem, inputs, device), skip_padding=skip_padding)
    if problem.bias:
        result = result + inputs["bias"].to(result.device).double().reshape(-1, *[1] * len(problem.size))
    return result


def _operands(problem: Conv, inputs: Mapping[str, Tensor], device: Device) -> list[Tensor]:
    check_inputs(problem, inputs)
    return in_fp64(inputs, "xw", device)


dispatch.value.register(Conv, value)
dispatch.magnitude.register(Conv, magnitude)
