"""The reference of a convolution: its fp64 value and the magnitude that error bounds need.

It sums one batched product per tap of the kernel, over the elements of x that its outputs see there. So sums of
integers below 2**53 are exact. What a weight of NaN or infinity makes of padding depends on the kernel: 0 * NaN is NaN,
but a kernel may skip padding instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from conformance.families.conv.problem import Conv, Correlation
from conformance.problems import reference_dispatch as dispatch
from conformance.problems.reference_dispatch import Device, check_inputs, in_fp64


def seen(view: Correlation, x: Tensor, tap: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Returns the elements that each output position sees at ``tap``: (batch, channels, *out_size), 0 where that is no
    element of x; and a bool tensor (*out_size) that says where it is one. x has the shape of ``view`` and any dtype."""
    inside = torch.ones(view.out_size, dtype=torch.bool, device=x.device)
    for axis, number in enumerate(tap):
        places = torch.tensor([taps[number] for taps in view.places[axis]], device=x.device)
        x = x.index_select(2 + axis, places.clamp(min=0))
        inside = inside & (places >= 0).reshape(-1, *[1] * (len(tap) - 1 - axis))
    return torch.where(inside, x, torch.zeros((), dtype=x.dtype, device=x.device)), inside


def correlate(view: Correlation, x: Tensor, w: Tensor, *, skip_padding: bool = False) -> Tensor:
    """The sum over channels and taps of x times w, fp64, in the output's shape; x and w in fp64 and the shapes of
    ``view``, on one device, where the result is too. With ``skip_padding`` what meets padding adds nothing, not even
    NaN. Raises ValueError for other shapes."""
    for name, tensor in (("x", x), ("w", w)):
        if tuple(tensor.shape) != view.shapes[name]:
            raise ValueError(f"input {name!r} has shape {tuple(tensor.shape)}, it must have {view.shapes[name]}")
    columns = view.out_channels // view.groups
    weights = w.reshape(view.groups, columns, view.group_channels, *view.kernel)
    total = x.new_zeros(view.batch, view.groups, columns, *view.out_size)
    flat = total.flatten(3)
    for tap in itertools.product(*map(range, view.kernel)):
        at_tap: Any = (..., *tap)
        values, inside = seen(view, x, tap)
        windows = values.reshape(view.batch, view.groups, view.group_channels, inside.numel())
        product = weights[at_tap] @ windows
        if skip_padding:
            product.masked_fill_(~inside.flatten(), 0.0)
        flat += product
    return total.reshape(view.shapes["out"])


def magnitude(problem: Conv, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """Returns the same of ``|x|`` and ``|w|``, without the bias and without what meets padding."""
    x, w = _operands(problem, inputs, device)
    return correlate(problem.correlation, x.abs(), w.abs(), skip_padding=True)


def value(problem: Conv, inputs: Mapping[str, Tensor], *, device: Device = None, skip_padding: bool = False) -> Tensor:
    """The convolution and its bias in fp64; arguments and errors are those of :func:`.dispatch.value`, and
    ``skip_padding`` is that of :func:`correlate`."""
    result = correlate(problem.correlation, *_operands(problem, inputs, device), skip_padding=skip_padding)
    if problem.bias:
        result = result + inputs["bias"].to(result.device).double().reshape(-1, *[1] * len(problem.size))
    return result


def _operands(problem: Conv, inputs: Mapping[str, Tensor], device: Device) -> list[Tensor]:
    check_inputs(problem, inputs)
    x, w = in_fp64(inputs, "xw", device)
    return [x, problem.by_output(w)]


dispatch.value.register(Conv, value)
dispatch.magnitude.register(Conv, magnitude)
