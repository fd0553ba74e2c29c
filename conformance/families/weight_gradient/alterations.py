"""Faults of weight gradients: other pixels and channels, what an element depends on, products that fail."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from conformance.families.conv.alterations import AXES, in_groups, other_geometry
from conformance.families.conv.problem import Correlation
from conformance.families.conv.reference import correlate, error_bound
from conformance.families.family import Indices, Needed, chosen, divided, every
from conformance.families.gemm.alterations import lines, other_indices
from conformance.families.gemm.reference import row_sums
from conformance.families.products import Product, with_inputs
from conformance.families.weight_gradient import reference
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.numerics.alterations import Alteration, Outputs, Tiling
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill

Change = Callable[[Tensor], Tensor]


def alterations(problem: WeightGradient, contract: Contract, tiling: Tiling, exact: bool) -> Iterator[Alteration]:
    """Every alteration of ``problem``; ``exact``: the fills round nothing, so no bounds are needed."""
    forward = problem.forward
    if not forward.batch:
        return
    right = problem.correlation.correlation

    def make(cause: str, view: Correlation, changes: Mapping[str, Change]) -> Alteration:
        return Alteration(cause, functools.partial(_computed, problem, contract, exact, view, changes))

    for axis, name in enumerate(AXES[-len(forward.size) :]):
        for what, other, places in _other_places(problem, axis):
            yield make(f"the {what} along {name} is {other}", right.with_places(axis, places), {})
        if forward.kernel[axis] > 1:
            yield make(f"the taps are flipped along {name}", right.with_places(axis, right.places[axis][::-1]), {})
    for what, index in other_indices(forward.batch):
        yield make(f"x of another image: {what}", right, {"x": lines(index)})
        yield make(f"grad_out of another image: {what}", right, {"grad_out": lines(index)})
    for what, index in other_indices(forward.groups):
        for name in ("x", "grad_out"):
            change = functools.partial(in_groups, 1, forward.groups, index)
            yield make(f"{name} of another group: {what}", right, {name: change})


def _other_places(problem: WeightGradient, axis: int) -> Iterator[tuple[str, str, tuple[tuple[int, ...], ...]]]:
    """Yields another stride, padding or dilation, and by how much it differs; and what taps and positions meet then
    along ``axis``."""
    forward = problem.forward
    size, taps, positions = forward.size[axis], forward.kernel[axis], forward.out_size[axis]
    geometry = {what: getattr(forward, what)[axis] for what in ("stride", "padding", "dilation")}
    for what, other, value in other_geometry(forward, axis):
        step, pad, apart = {**geometry, what: other}.values()
        places = [[p * step - pad + tap * apart for p in range(positions)] for tap in range(taps)]
        inside = tuple(tuple(place if 0 <= place < size else -1 for place in row) for row in places)
        yield what, f"{other}, not {value}", inside


def _computed(
    problem: WeightGradient,
    contract: Contract,
    exact: bool,
    view: Correlation,
    changes: Mapping[str, Change],
    inputs: Mapping[str, Tensor],
) -> Outputs:
    changed = {name: changes.get(name, Tensor.double)(inputs[name].double()) for name in ("x", "grad_out")}
    x, w = (problem.correlated(name, tensor) for name, tensor in changed.items())
    value = correlate(view, x, w)
    error = None if exact else error_bound(problem.correlation, contract, value, {"x": x, "w": w})
    outputs = {"grad_w": (problem.stored("grad_w", value), None if error is None else problem.stored("grad_w", error))}
    if problem.bias:
        total, of_sum = row_sums(contract, changed["grad_out"].movedim(1, 0).flatten(1))
        outputs["grad_bias"] = (total, None if exact else of_sum)
    return outputs


def axes(problem: WeightGradient, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand ``name``. Raises KeyError for an output, whose
    positions are taps and not those of an operand."""
    if name in {output.name for output in problem.outputs}:
        raise KeyError(name)
    return ("image", "channel" if name == "x" else "output channel", *AXES[1:])


def needed(problem: WeightGradient, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns the elements that ``stored`` of ``output`` need; see :class:`~conformance.families.family.Family`."""
    forward, channels = problem.forward, stored[0]
    images = every(forward.batch)
    if not forward.batch:
        return {}
    if output == "grad_bias":
        return {"grad_out": (images, channels, *map(every, forward.out_size))}
    seen, positions = [], []
    for index, size, axis in zip(stored[2:], forward.size, forward.correlation.places, strict=True):
        reached = torch.tensor(axis)[:, index]  # (positions, taps)
        inside = reached >= 0
        seen.append(chosen(size, reached[inside]))
        positions.append(inside.any(1))
    if not all(bool(index.any()) for index in seen):
        return {}
    groups = divided(channels, forward.out_channels // forward.groups, forward.groups)
    of_x = (groups[:, None] & stored[1]).flatten()
    return {"x": (images, of_x, *seen), "grad_out": (images, channels, *positions)}


def products(problem: WeightGradient, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    """Returns the products with a wrong element; see :class:`~conformance.families.family.Family`.

    Rows are output channels of a group, columns taps and channels; k runs over output positions of all images.
    """
    if not problem.positions:
        return
    inputs = {name: tensor.cpu() for name, tensor in fill.inputs.items()}
    matrices = [reference.matrices(problem, tensor) for tensor in (out, bad)]
    for group, (a, b) in enumerate(reference.factors(problem, inputs)):
        output, wrong = (matrix[group] for matrix in matrices)
        if bool(wrong.any()):
            name = f"group {group}" if problem.groups > 1 else ""
            yield Product(name, problem.product, with_inputs(fill, {"a": a, "b": b}), output, wrong, ((0, a.shape[1]),))
