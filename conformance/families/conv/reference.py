"""The reference of a convolution: its fp64 value, its error bound, and the sums of a tensor core.

It sums one batched product per tap of the kernel, over the elements of x that its outputs see there. So sums of
integers below 2**53 are exact. What a weight of NaN or infinity makes of padding depends on the kernel: 0 * NaN is NaN,
but a kernel may skip padding instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.families.conv.problem import Conv, Correlation
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.reference import U64, U, growth
from conformance.families.products import Inputs, UnitAnswers, seen_format, sum_of
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import FORMATS
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.tensor_core import Factors
from conformance.problems import Device, check_inputs, in_fp64


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
    """The convolution and its bias in fp64; arguments and errors are those of :func:`conformance.problems.value`, and
    ``skip_padding`` is that of :func:`correlate`."""
    result = correlate(problem.correlation, *_operands(problem, inputs, device), skip_padding=skip_padding)
    if problem.bias:
        result = result + inputs["bias"].to(result.device).double().reshape(-1, *[1] * len(problem.size))
    return result


def _operands(problem: Conv, inputs: Mapping[str, Tensor], device: Device) -> list[Tensor]:
    check_inputs(problem, inputs)
    x, w = in_fp64(inputs, "xw", device)
    return [x, problem.by_output(w)]


def error_bound(problem: Conv, contract: Contract, expected: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """Bound, in fp64 and the output's shape, of |computed - expected| before the output rounding.

    Returns the bound of the product (see :mod:`conformance.families.gemm.reference`) with k of taps times channels of a
    group. It includes the rounding of the bias's addition, the reference's own error and underflow. A tensor core does
    not normalise a subnormal operand: in the magnitude it counts as the smallest normal.
    """
    k = problem.product.K
    sizes = {name: inputs[name].double().abs() for name in "xw"}
    if contract.accumulator.kind == "tensor-core":
        smallest = FORMATS[problem.dtype].smallest_normal
        sizes = {name: torch.where(size > 0, size.clamp(min=smallest), size) for name, size in sizes.items()}
    size = magnitude(problem, {**inputs, **sizes}, device=expected.device)
    tiny = 2.0**-126 if contract.flushes_subnormals else 2.0 ** (-126 - contract.accumulator.result_bits)
    error = size * (growth(contract.accumulator, k, fused=problem.bias) + (k + 8) * U64) + (k + 8) * tiny
    if problem.bias:
        addend = inputs["bias"].to(expected.device).double().abs().reshape(-1, *[1] * len(problem.size))
        error = error + 2 * U * (expected.abs() + error) + 8 * U64 * addend
    error = error + 8 * U64 * expected.abs()
    if contract.flushes_subnormals:
        error = error + FORMATS[contract.out_dtype].smallest_normal
    return error * (1 + 2.0**-20)


def product_count(problem: Any) -> int:
    """Returns how many products are summed: those of the product of each group."""
    return gemm.product_count(problem.product) * int(problem.groups)


def unit_results(problem: Conv, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """Returns the implicit product of each group, and the bias."""
    totals = [sum_of(unit, order, runs) for runs in _runs(problem, inputs)]
    values = [_output(problem, totals)]
    if not problem.bias:
        return values
    bias = inputs["bias"].float()
    values = [values[0] + bias.reshape(-1, *[1] * len(problem.size))]
    if order.begins_at_addend:
        pairs = zip(_runs(problem, inputs), bias.split(problem.out_channels // problem.groups), strict=True)
        values.append(_output(problem, [sum_of(unit, order, runs, begin) for runs, begin in pairs]))
    return values


def _output(problem: Conv, groups: Sequence[Tensor]) -> Tensor:
    """The output of products (positions, channels of a group)."""
    total = torch.cat(list(groups), -1).reshape(problem.batch, *problem.out_size, problem.out_channels)
    return total.movedim(-1, 1)


def _runs(problem: Conv, inputs: Inputs) -> Iterator[list[Factors]]:
    """For each group the products that follow each other: taps in the order of the kernel's dimensions, the last
    fastest, and channels within a tap."""
    form = seen_format(problem, problem.dtype)
    view = problem.correlation
    by_tap = {tap: seen(view, inputs["x"].double(), tap)[0] for tap in itertools.product(*map(range, view.kernel))}
    w = problem.by_output(inputs["w"].double())
    weights = w.reshape(problem.groups, problem.out_channels // problem.groups, problem.group_channels, *problem.kernel)
    for group in range(problem.groups):
        runs = []
        for tap, values in by_tap.items():
            at_tap: Any = (..., *tap)
            of_group = values.unflatten(1, (problem.groups, problem.group_channels))[:, group]
            rows = of_group.movedim(1, -1).reshape(-1, problem.group_channels)
            runs.append(Factors(rows, weights[group][at_tap].t(), form, form))
        yield runs


UNIT = UnitAnswers(unit_results, product_count)
