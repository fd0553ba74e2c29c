"""Fills of convolutions, by the rules of :mod:`.exact` and :mod:`.bounded`.

The room for integers and the bound are those of the product that one output is: k runs over taps and channels of a
group. Zeros of the padding only make sums smaller.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from conformance.inputs import exact, gemm
from conformance.inputs.arrangement import formats, value_range
from conformance.inputs.draws import Draws, Floats, Integers, Shape
from conformance.inputs.exact import BudgetError, Room
from conformance.inputs.fill_set import FillSet
from conformance.numerics.bounds import U64, U, growth
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import Conv
from conformance.references.conv import correlate, magnitude, value
from conformance.references.operands import Device

#: The operands of the product that x and w stand for.
_SIDES = {"x": "a", "w": "b"}


def applicable(problem: Conv, contract: Contract) -> tuple[str, ...]:
    """Every fill of the family; an empty batch has only "transparent"."""
    return FILLS.names if problem.batch else FILLS.names[:1]


def build(name: str, problem: Conv, contract: Contract, seed: int, device: Device) -> Fill:
    """The fill called ``name``; see :class:`FillSet`. "wide-A" is about x and "wide-B" about w."""
    draws = Draws(seed, f"conv {name}")
    if name == "transparent":
        x, w = (_direct if problem.group_channels < 4 else _paired)(problem, contract, draws)
        return _exact(name, problem, contract, seed, draws, x, w, device)
    if name.startswith("wide-"):
        return _wide(name, problem, contract, seed, device)
    x_values, w_values = (draws.normal(problem.operand(side).shape) for side in "xw")
    if name == "special":
        _plant(problem, contract, draws, x_values, w_values)
        return _judged_by_bound(name, "special", problem, contract, seed, draws, x_values, w_values, device)
    if name == "hot":
        x_values, w_values = _hot(problem, draws)
    x_values, w_values = _fitted(problem, contract, x_values, w_values, device)
    return _judged_by_bound(name, "bounded", problem, contract, seed, draws, x_values, w_values, device)


# Exact fills


def _bits(problem: Conv, contract: Contract) -> int:
    """Significant bits of x's and w's elements."""
    return value_range(problem.product, contract, "a").bits


def _direct(problem: Conv, contract: Contract, draws: Draws) -> tuple[Integers, Integers]:
    """Small integers whose sums fit the output, for fewer channels than pairs need."""
    space, top = exact.room(problem.product, contract), 2 ** _bits(problem, contract) - 1
    product = max(1, min(int(space.per_k), space.cap // space.k))
    largest_x = min(top, math.isqrt(product))
    largest_w = min(top, product // largest_x)
    return draws.nonzero(largest_x, problem.operand("x").shape), draws.nonzero(largest_w, problem.operand("w").shape)


def _paired(problem: Conv, contract: Contract, draws: Draws) -> tuple[Integers, Integers]:
    """Channels of a group paired at random, x[:, v] = x[:, u] and w[:, v] = -w[:, u] + E with E sparse in {-1, 0, 1}:
    what remains is the convolution of x[:, u] with E. A channel without a partner has only its part of E."""
    space, top = exact.room(problem.product, contract), 2 ** _bits(problem, contract) - 1
    channels, taps = problem.group_channels, problem.taps
    pairs = channels // 2
    order = draws.permutation(channels)
    u, v, single = order[:pairs], order[pairs : 2 * pairs], order[2 * pairs :]
    wanted = 8 if space.cap >= 64 else 3 if space.cap >= 3 else 1
    balance = max(math.isqrt(int(space.per_k)), int(space.per_k) // top, 1)
    largest_x = max(1, min(top, space.cap // wanted, balance))
    largest_w = max(2, min(top, int(space.per_k) // largest_x))
    density = space.per_k / (largest_x * largest_w)

    x = draws.nonzero(largest_x, (problem.batch, problem.groups, channels, math.prod(problem.size)))
    x[:, :, v] = x[:, :, u]
    w = np.zeros((problem.out_channels, channels, taps), dtype=np.int64)
    base = draws.nonzero(largest_w - 1, (problem.out_channels, pairs, taps))
    if density < 1:
        base *= draws.chance(density, base.shape)
    w[:, u], w[:, v] = base, -base
    # E: evenly spaced over the taps of v and the single channel, from a random start per output channel
    slots = (len(v) + len(single)) * taps
    count = min(max(1, slots // 2), max(1, space.cap // largest_x))
    where = (draws.below(slots, (problem.out_channels, 1)) + np.arange(count) * slots // count) % slots
    channel = np.concatenate([v, single])[where // taps]
    w[np.arange(problem.out_channels)[:, None], channel, where % taps] += draws.signs(where.shape)
    return x.reshape(problem.operand("x").shape), w.reshape(problem.operand("w").shape)


def _wide(name: str, problem: Conv, contract: Contract, seed: int, device: Device) -> Fill:
    """Full-significand x ("wide-A") or w ("wide-B") times a small other one: sums wider than the output, leaning to
    one side per image and output channel, so that they come close to the accumulator's limit."""
    for daring in (True, False):
        draws = Draws(seed, f"conv {name}")
        x, w = _wide_pair(name == "wide-A", problem, contract, draws, daring)
        try:
            return _exact(name, problem, contract, seed, draws, x, w, device)
        except BudgetError:
            if not daring:
                raise
    raise AssertionError("unreachable")


def _wide_pair(
    wide_x: bool, problem: Conv, contract: Contract, draws: Draws, daring: bool
) -> tuple[Integers, Integers]:
    space, top = exact.room(problem.product, contract), 2 ** _bits(problem, contract) - 1
    shapes = problem.operand("x").shape, problem.operand("w").shape
    wide_shape, small_shape = shapes if wide_x else shapes[::-1]
    largest = min(top, space.chunk_total)
    wide = (1 + draws.below(largest, wide_shape)) * draws.signs(_leading(wide_shape))
    if space.chunk_total // largest < exact.ONE_HOT:
        small = _one_hot_weights(problem, draws) if wide_x else _one_hot_windows(problem, draws)
    else:
        small = _small(space, largest, top, small_shape, draws, daring)
    return (wide, small) if wide_x else (small, wide)


def _small(space: Room, largest: int, top: int, shape: Shape, draws: Draws, daring: bool) -> Integers:
    small_largest = max(1, min(top, int(space.per_k / largest)))
    density = space.per_k / (largest * small_largest)
    if daring:
        small_largest, density = exact.likely(space, largest, top)
    small = 1 + draws.below(small_largest, shape)
    if density < 1:
        small *= draws.chance(density, shape)
    flipped = 1 - 2 * draws.chance(1 / 8, shape).astype(np.int64)
    return small * draws.signs(_leading(shape)) * flipped


def _leading(shape: Shape) -> Shape:
    return (shape[0], *[1] * (len(shape) - 1))


def _one_hot_weights(problem: Conv, draws: Draws) -> Integers:
    """One weight of +-1 per output channel."""
    slots = problem.group_channels * problem.taps
    w = np.zeros((problem.out_channels, slots), dtype=np.int64)
    rows = np.arange(problem.out_channels)
    w[rows, draws.permutation(slots)[rows % slots]] = draws.signs((problem.out_channels,))
    return w.reshape(problem.operand("w").shape)


def _one_hot_windows(problem: Conv, draws: Draws) -> Integers:
    """At most one element of +-1 per group in what one output sees: on a lattice as wide as the kernel, shifted at
    random in each image and group, in a random channel at each point."""
    outer = (problem.batch, problem.groups)
    on_lattice = np.ones((*outer, *problem.size), dtype=np.bool_)
    for axis, (size, width) in enumerate(zip(problem.size, problem.kernel, strict=True)):
        shift = draws.below(width, (*outer, 1))
        line = np.arange(size) % width == shift
        on_lattice &= line.reshape(*outer, *(size if other == axis else 1 for other in range(len(problem.size))))
    channel = draws.below(problem.group_channels, (*outer, 1, *problem.size))
    every = np.arange(problem.group_channels).reshape(-1, *[1] * len(problem.size))
    values = np.where((channel == every) & on_lattice[:, :, None], draws.signs(channel.shape), 0)
    return values.reshape(problem.operand("x").shape)


def _exact(
    name: str,
    problem: Conv,
    contract: Contract,
    seed: int,
    draws: Draws,
    x: Integers,
    w: Integers,
    device: Device,
) -> Fill:
    """Choose units, make tensors, compute the reference and check that every partial sum is exact."""
    space, product = exact.room(problem.product, contract), problem.product
    largest = _subset_sum(problem, x, w, device)
    exact.check_budget(product, contract, name, largest, largest)
    unit_out = exact.output_unit(product, contract, space, largest)
    units = dict(zip("xw", exact.operand_units(product, contract, unit_out), strict=True))
    inputs = {
        name: exact.exactly(integers, units[name], problem.operand(name), formats(product, contract, _SIDES[name]))
        for name, integers in (("x", x), ("w", w))
    }
    if problem.bias:
        operand = problem.operand("bias")
        addend = draws.nonzero(space.addend, operand.shape)
        inputs["bias"] = exact.exactly(addend, unit_out, operand, (operand.dtype,))
    meta = {
        "unit_a": units["x"],
        "unit_b": units["w"],
        "unit_out": unit_out,
        "budget_bits": contract.accumulator.exact_bits,
        "max_subset_sum": largest,
    }
    return Fill(name, seed, "exact", inputs, value(problem, inputs, device=device), None, meta)


def _subset_sum(problem: Conv, x: Integers, w: Integers, device: Device) -> int:
    """max(P, N) over all outputs, in units."""
    if not problem.batch:
        return 0
    x_units, w_units = (torch.from_numpy(array).to(device or "cpu").double() for array in (x, w))
    total, size = correlate(problem, x_units, w_units), correlate(problem, x_units.abs(), w_units.abs())
    return int((size + total.abs()).max()) // 2


# Bounded and special fills


def _hot(problem: Conv, draws: Draws) -> tuple[Floats, Floats]:
    """Lognormal over many binades, but positive uniform in the right half of x and in odd output channels: positive
    times positive shows biased truncation, which grows with k, lognormal lost small terms."""
    x, w = (draws.lognormal(problem.operand(name).shape) for name in "xw")
    half = problem.size[-1] // 2
    x[..., half:] = draws.uniform(x[..., half:].shape)
    w[1::2] = draws.uniform(w[1::2].shape)
    return x, w


def _fitted(problem: Conv, contract: Contract, x: Floats, w: Floats, device: Device) -> tuple[Floats, Floats]:
    """Scale by powers of two so that results stay a factor of four inside a narrow output's range."""
    largest = FORMATS[contract.out_dtype].largest
    if largest > 2.0**100:
        return x, w
    sizes = (torch.from_numpy(np.abs(array)).to(device or "cpu") for array in (x, w))
    shift = max(0, math.frexp(float(correlate(problem, *sizes).max()) / (largest / 4))[1])
    return np.ldexp(x, -(shift - shift // 2)), np.ldexp(w, -(shift // 2))


def _plant(problem: Conv, contract: Contract, draws: Draws, x: Floats, w: Floats) -> None:
    """NaN, infinities and the largest finite value at single places of x, so few that at most half of the positions see
    one; the same in w, and rows of -0, of subnormals and, for narrow outputs, of values that overflow the output, each
    in an output channel of its own, in at most half of them."""
    form = FORMATS[problem.dtype]
    positions = problem.batch * math.prod(problem.out_size)
    kinds = ["largest", "nan", "+inf", "-inf"][: positions // (2 * problem.taps)]
    taken = None
    for kind in kinds:
        index = np.unravel_index(int(draws.below(x.size, ())[()]), x.shape)
        x[index] = form.largest if kind == "largest" else float(kind)
        if kind == "largest":
            # its weights are kept small, and no largest weight meets its channel: no sum overflows fp32
            group, taken = divmod(int(index[1]), problem.group_channels)
            rows = problem.out_channels // problem.groups
            w[group * rows : (group + 1) * rows, taken] *= 2.0**-6
    kinds = ["nan", "zero", "largest", "+inf", "-inf"]
    kinds += [] if contract.flushes_subnormals else ["subnormal"]
    kinds += ["overflow"] if FORMATS[contract.out_dtype].largest < 2**20 else []
    channels = draws.permutation(problem.out_channels)[: problem.out_channels // 2]
    if len(channels) < len(kinds):
        kinds = [kinds[place] for place in draws.permutation(len(kinds))]
    for kind, out_channel in zip(kinds, channels, strict=False):
        _plant_weight(kind, problem, contract, draws, x, w, int(out_channel), taken)


def _plant_weight(
    kind: str,
    problem: Conv,
    contract: Contract,
    draws: Draws,
    x: Floats,
    w: Floats,
    out_channel: int,
    taken: int | None,
) -> None:
    form, row = FORMATS[problem.dtype], w[out_channel]
    slot = np.unravel_index(int(draws.below(row.size, ())[()]), row.shape)
    if kind in ("nan", "+inf", "-inf"):
        row[slot] = float(kind)
    elif kind == "zero":
        row[...] = -0.0
    elif kind == "subnormal":
        row[...] = np.clip(np.abs(row), 0.25, 1.75) * form.smallest_normal * 0.5
    elif kind == "overflow":
        row[...] = np.copysign(2.0 ** min(form.max_exponent - 2, 17), row)
    elif slot[0] != taken:
        group = out_channel // (problem.out_channels // problem.groups)
        row[slot] = form.largest
        x[:, group * problem.group_channels + slot[0]] *= 2.0**-6


def _judged_by_bound(
    name: str,
    method: str,
    problem: Conv,
    contract: Contract,
    seed: int,
    draws: Draws,
    x: Floats,
    w: Floats,
    device: Device,
) -> Fill:
    inputs: dict[str, Tensor] = {}
    for operand, values in (("x", x), ("w", w)):
        form = formats(problem.product, contract, _SIDES[operand])[-1]
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        # finite values past the format's range are cut to it; NaN and infinities stay
        largest = FORMATS[form].largest
        inputs[operand] = round_to(torch.where(tensor.isinf(), tensor, tensor.clamp(-largest, largest)), form)
    if problem.bias:
        addend = problem.operand("bias")
        inputs["bias"] = round_to(torch.from_numpy(draws.normal(addend.shape)), addend.dtype)
    expected = value(problem, inputs, device=device)
    error = error_bound(problem, contract, expected, inputs)
    return Fill(name, seed, method, inputs, expected, error, {"contract_assumed": contract.accumulator.assumed})


def error_bound(problem: Conv, contract: Contract, expected: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    """Bound, in fp64 and the output's shape, of |computed - expected| before the output rounding.

    That of the product (see :mod:`conformance.numerics.bounds`) with k of taps times channels of a group, the rounding
    of the bias's addition, the reference's own error and underflow. A tensor core does not normalise a subnormal
    operand: in the magnitude it counts as the smallest normal.
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


FILLS = FillSet(gemm.UNSCALED, applicable, build)
