"""Faults of convolutions: other pixels and channels, what an element depends on, products that fail."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.conv import reference
from conformance.families.conv.problem import Conv, Correlation, TransposedConv, transposed_places
from conformance.families.conv.reference import correlate, error_bound
from conformance.families.family import Indices, Needed, chosen, divided, every
from conformance.families.gemm.alterations import lines, other_indices
from conformance.families.gemm.problem import addmm, mm
from conformance.families.products import Product, padded, with_inputs
from conformance.numerics.alterations import Alteration, Outputs, Tiling
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill

#: Names of the axes of space; a convolution in two dimensions has the last two.
AXES = ("depth", "height", "width")


@dataclass(frozen=True)
class _Geometry:
    """The places where an output position meets x: ``positions`` times ``stride`` less ``padding``, plus the tap times
    ``dilation``, for each axis. ``weight_taps``: which of the weight's taps stands for each tap of x, by axis."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    positions: tuple[tuple[int, ...], ...]
    weight_taps: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, problem: Conv) -> _Geometry:
        return cls(
            problem.stride,
            problem.padding,
            problem.dilation,
            tuple(tuple(range(size)) for size in problem.out_size),
            tuple(tuple(range(size)) for size in problem.kernel),
        )

    def changed(self, name: str, axis: int, content: object) -> _Geometry:
        values = list(getattr(self, name))
        values[axis] = content
        return dataclasses.replace(self, **{name: tuple(values)})


def alterations(problem: Conv, contract: Contract, tiling: Tiling, exact: bool) -> Iterator[Alteration]:
    """Every alteration of ``problem``; ``exact``: the fills round nothing, so no bounds are needed."""
    unchanged = _Geometry.of(problem)
    right: _Geometry | Correlation = problem.correlation if isinstance(problem, TransposedConv) else unchanged

    def of_geometry(cause: str, geometry: _Geometry) -> Alteration:
        return Alteration(cause, _computed(problem, contract, exact, geometry, lambda inputs: inputs))

    def of_inputs(cause: str, **changes: Callable[[Tensor], Tensor]) -> Alteration:
        def change(inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
            return {**inputs, **{name: make(inputs[name].double()) for name, make in changes.items()}}

        return Alteration(cause, _computed(problem, contract, exact, right, change))

    if isinstance(problem, TransposedConv):
        yield from _about_transposed_geometry(problem, contract, exact)
    else:
        yield from _about_geometry(problem, unchanged, of_geometry)
    yield from _about_operands(problem, tiling, of_inputs)


def _about_geometry(
    problem: Conv, right: _Geometry, make: Callable[[str, _Geometry], Alteration]
) -> Iterator[Alteration]:
    names = AXES[-len(problem.kernel) :]
    for axis, name in enumerate(names):
        padding = problem.padding[axis]
        if padding:
            yield make(f"no padding along {name}", right.changed("padding", axis, 0))
        for off in (-1, 1):
            other = right.changed("padding", axis, padding + off)
            if (padding + off) or padding != 1:
                yield make(f"the padding along {name} is {padding + off}, not {padding}", other)
        for what, other_step, step in other_geometry(problem, axis):
            if what != "padding":
                cause = f"the {what} along {name} is {other_step}, not {step}"
                yield make(cause, right.changed(what, axis, other_step))
        size, taps = problem.out_size[axis], problem.kernel[axis]
        if taps > 1:
            flipped = right.changed("weight_taps", axis, tuple(reversed(range(taps))))
            yield make(f"the weights are flipped along {name}", flipped)
            first = right.changed("weight_taps", axis, (0,) * taps)
            yield make(f"the weights of the first tap along {name} are used for all", first)
        for modulus in dict.fromkeys((size - 1, size + 1)):
            if modulus > 0:
                wrapped = tuple(place % modulus for place in range(size))
                if wrapped != tuple(range(size)):
                    cause = f"output positions along {name} are counted modulo {modulus}, not {size}"
                    yield make(cause, right.changed("positions", axis, wrapped))
        if size > 1:
            yield make(
                f"all output positions along {name} are the first", right.changed("positions", axis, (0,) * size)
            )
    if any(size > 1 for size in problem.kernel[1:]):
        every = right
        for axis, taps in enumerate(problem.kernel):
            every = every.changed("weight_taps", axis, tuple(reversed(range(taps))))
        yield make("the weights are flipped along every axis", every)
    for what in ("dilation", "stride", "padding"):
        values = getattr(problem, what)
        if len(set(values)) > 1:
            exchanged = dataclasses.replace(right, **{what: values[::-1]})
            yield make(f"the {what}s of the axes are exchanged", exchanged)


def other_geometry(problem: Conv, axis: int) -> Iterator[tuple[str, int, int]]:
    """Yields other strides, paddings and dilations along ``axis``: the name, the other value and the right one."""
    for what, least in (("stride", 1), ("padding", 0), ("dilation", 1)):
        right = getattr(problem, what)[axis]
        for other in dict.fromkeys((least, right - 1, right + 1)):
            if other >= least and other != right:
                yield what, other, right


def _about_transposed_geometry(problem: TransposedConv, contract: Contract, exact: bool) -> Iterator[Alteration]:
    view = problem.correlation

    def make(cause: str, axis: int, places: tuple[tuple[int, ...], ...]) -> Alteration:
        changed = _computed(problem, contract, exact, view.with_places(axis, places), lambda inputs: inputs)
        return Alteration(cause, changed)

    for axis, name in enumerate(AXES[-len(problem.kernel) :]):
        sizes = problem.size[axis], problem.out_size[axis], problem.kernel[axis]
        geometry = {what: getattr(problem, what)[axis] for what in ("stride", "padding", "dilation")}
        for what, other, value in other_geometry(problem, axis):
            places = transposed_places(*sizes, **{**geometry, what: other})
            yield make(f"the {what} along {name} is {other}, not {value}", axis, places)
        if problem.kernel[axis] > 1:
            flipped = tuple(taps[::-1] for taps in view.places[axis])
            yield make(f"the weights are flipped along {name}", axis, flipped)
        if problem.out_size[axis] > 1:
            cause = f"all output positions along {name} are the first"
            yield make(cause, axis, view.places[axis][:1] * problem.out_size[axis])


def _about_operands(problem: Conv, tiling: Tiling, make: Callable[..., Alteration]) -> Iterator[Alteration]:
    groups, channels, block_k = problem.groups, problem.group_channels, tiling.block[2]
    columns = problem.out_channels // groups
    for what, index in other_indices(problem.batch):
        if problem.batch > 1:
            yield make(f"x of another image: {what}", x=lines(index))
    if groups > 1:
        for what, index in other_indices(groups):
            yield make(f"x of another group: {what}", x=functools.partial(in_groups, 1, groups, index))
            yield make(f"the weights of another group: {what}", w=functools.partial(in_groups, 0, groups, index))
            if problem.bias:
                cause = f"the bias of another group: {what}"
                yield make(cause, bias=functools.partial(in_groups, 0, groups, index))
    if channels > block_k:
        place = torch.arange(channels)
        transposed = isinstance(problem, TransposedConv)  # whose w has the channels in its first dimension
        first_of = {
            name: functools.partial(_within, int(name == "x" or not transposed), channels, place % block_k)
            for name in "xw"
        }
        for names, text in ((("x", "w"), "x and w"), (("x",), "x"), (("w",), "w")):
            first = {name: first_of[name] for name in names}
            yield make(f"the first block of channels of {text} is used for all", **first)
    if problem.bias:
        yield make("the bias is absent", bias=torch.zeros_like)
        yield make("the bias is added twice", bias=lambda t: 2 * t)
        for what, index in other_indices(problem.out_channels):
            yield make(f"the bias of another channel: {what}", bias=lines(index))
        inside = torch.arange(problem.out_channels) % columns % tiling.block[1]
        yield make("the bias is indexed within the tile", bias=lines(inside))


def in_groups(dim: int, groups: int, index: Tensor, tensor: Tensor) -> Tensor:
    """``tensor`` with the channels of group index[g] in place of those of group g."""
    split: Tensor = tensor.unflatten(dim, (groups, -1))
    return split.index_select(dim, index).flatten(dim, dim + 1)


def _within(dim: int, channels: int, index: Tensor, tensor: Tensor) -> Tensor:
    split: Tensor = tensor.unflatten(dim, (-1, channels))
    return split.index_select(dim + 1, index).flatten(dim, dim + 1)


def _computed(
    problem: Conv,
    contract: Contract,
    exact: bool,
    geometry: _Geometry | Correlation,
    change: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
) -> Callable[[Mapping[str, Tensor]], Outputs]:
    def compute(inputs: Mapping[str, Tensor]) -> Outputs:
        changed = change(inputs)
        x, w = changed["x"].double(), problem.by_output(changed["w"].double())
        value = correlate(geometry, x, w) if isinstance(geometry, Correlation) else _correlated(problem, geometry, x, w)
        if problem.bias:
            value = value + changed["bias"].double().reshape(-1, *[1] * len(problem.size))
        return {"out": (value, None if exact else error_bound(problem, contract, value, changed))}

    return compute


def _correlated(problem: Conv, geometry: _Geometry, x: Tensor, w: Tensor) -> Tensor:
    """Returns the convolution with this geometry: zero wherever a tap lies outside x."""
    groups, count = problem.groups, problem.out_channels // problem.groups
    images = x.reshape(problem.batch, groups, problem.group_channels, *problem.size)
    weights = w.reshape(groups, count, problem.group_channels, *problem.kernel)
    total = x.new_zeros(problem.batch, groups, count, *problem.out_size)
    flat = total.flatten(3)
    for tap in itertools.product(*map(range, problem.kernel)):
        seen, weight = images, weights
        for axis, place in enumerate(tap):
            positions = torch.tensor(geometry.positions[axis])
            index = positions * geometry.stride[axis] - geometry.padding[axis] + place * geometry.dilation[axis]
            size = problem.size[axis]
            inside = (index >= 0) & (index < size)
            seen = seen.index_select(3 + axis, index.clamp(0, size - 1))
            shape = [1] * seen.dim()
            shape[3 + axis] = len(index)
            seen = torch.where(inside.reshape(shape), seen, 0.0)
        for axis, place in enumerate(tap):
            weight = weight.select(3, geometry.weight_taps[axis][place])
        flat += weight @ seen.flatten(3)
    return total.reshape(problem.output.shape)


def axes(problem: Conv, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand ``name``. Raises KeyError for an output, whose
    positions are not those of an operand."""
    if name in {output.name for output in problem.outputs}:
        raise KeyError(name)
    rank = len(problem.operand(name).shape)
    first = {"x": ("image", "channel"), "w": problem.weight_axes}.get(name, ("output channel",))
    return (*first, *AXES[len(first) - rank :]) if rank > len(first) else first


def needed(problem: Conv, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns the elements that ``stored`` of ``output`` need; see :class:`~conformance.families.family.Family`."""
    batch, channels, *places = stored
    groups = divided(channels, problem.out_channels // problem.groups, problem.groups)
    seen, taps = [], []
    for index, size, axis in zip(places, problem.size, problem.correlation.places, strict=True):
        reached = torch.tensor(axis)[index]  # (positions, taps)
        inside = reached >= 0
        seen.append(chosen(size, reached[inside]))
        taps.append(inside.any(0))
    if not all(bool(index.any()) for index in seen):
        return {}
    inner = groups.repeat_interleave(problem.group_channels)
    # of the two axes of channels, the first spans all groups, the second one group
    in_group = {"channel": every(problem.group_channels), "output channel": channels.reshape(problem.groups, -1).any(0)}
    first, second = problem.weight_axes
    of_weights = {"channel": inner, "output channel": channels}[first], in_group[second]
    result: Needed = {"x": (batch, inner, *seen), "w": (*of_weights, *taps)}
    return {**result, "bias": (channels,)} if problem.bias else result


def products(problem: Conv, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    """Returns the products with a wrong element; see :class:`~conformance.families.family.Family`.

    Rows are output positions, columns output channels of a group; k runs over channels within taps.
    """
    windows = _windows(problem, fill.inputs["x"].cpu().double())
    weights = problem.by_output(fill.inputs["w"].cpu().double())
    weights = weights.reshape(problem.groups, -1, problem.group_channels, problem.taps)
    columns = problem.out_channels // problem.groups
    rows = problem.batch * math.prod(problem.out_size)
    matrices = [tensor.movedim(1, -1).reshape(rows, problem.groups, columns) for tensor in (out, bad)]
    for group in range(problem.groups):
        output, wrong = (matrix[:, group] for matrix in matrices)
        if not bool(wrong.any()):
            continue
        a = windows[:, group].reshape(rows, -1)
        b = weights[group].permute(2, 1, 0).reshape(-1, columns)
        a, b, segments = padded(a, b, [problem.group_channels] * problem.taps, tiling.block[2])
        inputs = {"a": a, "b": b}
        out_dtype = problem.out_dtype or problem.dtype
        if problem.bias:
            inputs["bias"] = fill.inputs["bias"].reshape(problem.groups, columns)[group]
            inner = addmm(rows, columns, a.shape[1], problem.dtype, alpha=1.0, beta=1.0, out_dtype=out_dtype)
        else:
            inner = mm(rows, columns, a.shape[1], problem.dtype, out_dtype=out_dtype)
        name = f"group {group}" if problem.groups > 1 else ""
        yield Product(name, inner, with_inputs(fill, inputs), output, wrong, segments, "tap")


def _windows(problem: Conv, x: Tensor) -> Tensor:
    """Returns the window of x for each output position: (positions, groups, taps, channels of a group)."""
    taps = []
    for tap in itertools.product(*map(range, problem.correlation.kernel)):
        values, _ = reference.seen(problem.correlation, x, tap)
        taps.append(values.movedim(1, -1).reshape(-1, problem.groups, problem.group_channels))
    return torch.stack(taps, 2)
