"""The reference of a weight gradient: its fp64 value, its magnitude, and the sums of a tensor core."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from conformance.families.conv import reference as conv
from conformance.families.conv.reference import product_count
from conformance.families.products import Inputs, UnitAnswers, seen_format, sum_of
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.tensor_core import Factors
from conformance.problems import Device, check_inputs


def value(problem: WeightGradient, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """grad_w; see :func:`conformance.problems.value`."""
    return _correlated(problem, inputs, device, magnitudes=False)


def magnitude(problem: WeightGradient, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """Returns the same of absolute values, without what meets padding; see :func:`conformance.problems.magnitude`."""
    return _correlated(problem, inputs, device, magnitudes=True)


def factors(problem: WeightGradient, inputs: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Returns for each group the matrices of its product in fp64. A (output channels, k) is grad_out. B (k, taps times
    channels) is what the positions see of x, channels fastest; k counts the positions of all images, in order."""
    forward = problem.forward
    x, grad_out = (inputs[name].double() for name in ("x", "grad_out"))
    taps = itertools.product(*map(range, forward.kernel))
    seen = torch.stack([conv.seen(forward.correlation, x, tap)[0] for tap in taps])
    seen = seen.unflatten(2, (forward.groups, forward.group_channels)).flatten(4).permute(2, 1, 4, 0, 3)
    rows = grad_out.unflatten(1, (forward.groups, -1)).flatten(3).permute(1, 2, 0, 3).flatten(2)
    yield from zip(rows, seen.flatten(3).flatten(1, 2), strict=True)


def matrices(problem: WeightGradient, grad_w: Tensor) -> Tensor:
    """``grad_w`` as the matrices of all groups, (groups, output channels of a group, taps times channels)."""
    split: Tensor = grad_w.unflatten(0, (problem.groups, -1)).flatten(3)
    return split.mT.flatten(2)


def joined(problem: WeightGradient, groups: Tensor) -> Tensor:
    """Returns the tensor that :func:`matrices` takes apart."""
    forward = problem.forward
    split: Tensor = groups.unflatten(2, (forward.taps, forward.group_channels))
    return split.mT.reshape(problem.output.shape)


def _correlated(problem: WeightGradient, inputs: Mapping[str, Tensor], device: Device, *, magnitudes: bool) -> Tensor:
    check_inputs(problem, inputs)
    target = inputs["x"].device if device is None else torch.device(device)
    if not problem.forward.batch:
        return torch.zeros(problem.output.shape, dtype=torch.float64, device=target)
    x, grad_out = (inputs[name].to(target).double() for name in ("x", "grad_out"))
    x, w = problem.correlated("x", x), problem.correlated("grad_out", grad_out)
    if magnitudes:
        x, w = x.abs(), w.abs()
    total = conv.correlate(problem.correlation.correlation, x, w, skip_padding=magnitudes)
    return problem.stored("grad_w", total)  # type: ignore[no-any-return]


def knows(problem: WeightGradient) -> bool:
    """True if there is anything to sum."""
    return problem.positions > 0


def unit_results(problem: WeightGradient, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """Returns the product of each group."""
    form = seen_format(problem, problem.dtype)
    groups = [sum_of(unit, order, [Factors(a, b, form, form)]) for a, b in factors(problem, inputs)]
    return [joined(problem, torch.stack(groups))]


UNIT = UnitAnswers(unit_results, product_count, knows)
