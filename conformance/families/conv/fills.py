"""Fills of convolutions, by the rules of :mod:`.exact` and :mod:`.bounded`.

The budget for integers and the bound are those of the product that one output is: k runs over taps and channels of a
group. Zeros of the padding only make sums smaller.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import torch

from conformance.families.conv.problem import Conv
from conformance.families.conv.reference import correlate, error_bound, magnitude, value
from conformance.families.gemm import fills as gemm
from conformance.families.gemm import integer_budget, ties
from conformance.families.gemm.arrangement import formats, value_range
from conformance.families.gemm.fills import check_trust, plant, representable, without_error_of_nothing
from conformance.families.gemm.integer_budget import IntegerBudget, budget_of, exactly
from conformance.families.gemm.ties import TieBits
from conformance.inputs.fills import Draws, FillRequest, FillSet, Floats, Integers, Shape
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to

#: Least share of outputs that see one tap inside of the image, for a fill of ties.
FEWEST_AT_ONE_TAP = 0.55
#: The operands of the product that x and w stand for.
_SIDES = {"x": "a", "w": "b"}


def applicable(problem: Conv, contract: Contract) -> tuple[str, ...]:
    """Returns every fill of the family; an empty batch has only "transparent"."""
    return FILLS.names if problem.batch else FILLS.names[:1]


def build(request: FillRequest[Conv]) -> Fill:
    """The fill that ``request`` names; see :class:`FillSet`. "wide-A" is about x and "wide-B" about w. Raises FillError
    if it shows less than it promises."""
    problem, contract = request.problem, request.contract
    bits = _tie_bits(problem, contract) if request.name == "wide-B" else None
    fill = _built(request, bits)
    # a fill may have one product for each output, at the tap that fewest outputs see
    possible = math.prod(
        min(map(sum, zip(*axis, strict=True)), default=0) / max(len(axis), 1) for axis in _taps_inside(problem)
    )
    return check_trust(problem, problem.product, contract, fill, ties=bits is not None, possible=possible)


def _built(request: FillRequest[Conv], bits: TieBits | None) -> Fill:
    if request.name in ("wide-A", "wide-B"):
        make = functools.partial(_wide, request) if bits is None else functools.partial(_ties, request, bits)
        return integer_budget.first_that_fits(_budget(request)[0], make)
    problem, draws = request.problem, request.draws("conv")
    if request.name == "transparent":
        return _exact(request, draws, *(_direct if problem.group_channels < 4 else _paired)(request, draws))
    x, w = (draws.normal(problem.correlation.shapes[side]) for side in "xw")
    if request.name == "special":
        _plant(problem, request.contract, draws, x, w)
        return _judged_by_bound(request, "special", draws, x, w)
    if request.name == "hot":
        x, w = _hot(problem, draws)
    return _judged_by_bound(request, "bounded", draws, *_fitted(request, x, w))


def _taps_inside(problem: Conv) -> list[list[list[bool]]]:
    """For each axis, output position along it and tap, whether the tap lies inside of the image."""
    return [[[place >= 0 for place in taps] for taps in axis] for axis in problem.correlation.places]


# Exact fills


def _budget(request: FillRequest[Conv]) -> tuple[IntegerBudget, int]:
    """Returns the budget of one output's product, and the largest integer that x's and w's significands hold."""
    product, contract = request.problem.product, request.contract
    return budget_of(product, contract), value_range(product, contract, "a").top


def _direct(request: FillRequest[Conv], draws: Draws) -> tuple[Integers, Integers]:
    """Small integers whose sums fit the output, for fewer channels than pairs need."""
    budget, top = _budget(request)
    largest_x, largest_w = integer_budget.direct_sizes(budget, top, top)
    shapes = request.problem.correlation.shapes
    return draws.nonzero(largest_x, shapes["x"]), draws.nonzero(largest_w, shapes["w"])


def _paired(request: FillRequest[Conv], draws: Draws) -> tuple[Integers, Integers]:
    """Returns channels of a group paired at random, x[:, v] = x[:, u] and w[:, v] = -w[:, u] + E with E sparse in {-1,
    0, 1}. The sum of a pair is the convolution of x[:, u] with E. A channel without a partner has only its part of E.
    """
    problem = request.problem
    budget, top = _budget(request)
    channels, taps = problem.group_channels, problem.taps
    pairs = channels // 2
    order = draws.permutation(channels)
    u, v, single = order[:pairs], order[pairs : 2 * pairs], order[2 * pairs :]
    largest_x, largest_w, density = integer_budget.paired_sizes(budget, top, top)

    x = draws.nonzero(largest_x, (problem.batch, problem.groups, channels, math.prod(problem.size)))
    x[:, :, v] = x[:, :, u]
    w = np.zeros((problem.out_channels, channels, taps), dtype=np.int64)
    base = draws.nonzero(largest_w - 1, (problem.out_channels, pairs, taps))
    if density < 1:
        base *= draws.chance(density, base.shape)
    w[:, u], w[:, v] = base, -base
    # E: evenly spaced over the taps of v and the single channel, from a random start per output channel
    slots = (len(v) + len(single)) * taps
    count = min(max(1, slots // 2), max(1, budget.visible // largest_x))
    where = (draws.below(slots, (problem.out_channels, 1)) + np.arange(count) * slots // count) % slots
    channel = np.concatenate([v, single])[where // taps]
    w[np.arange(problem.out_channels)[:, None], channel, where % taps] += draws.signs(where.shape)
    return x.reshape(problem.correlation.shapes["x"]), w.reshape(problem.correlation.shapes["w"])


def _wide(request: FillRequest[Conv], boost: float) -> Fill:
    """Returns full-significand x ("wide-A") or w ("wide-B") and a small other one. Sums are wider than the output. They
    lean to one side per image and output channel, so that they come close to the accumulator's limit."""
    problem, draws = request.problem, request.draws("conv")
    budget, _ = _budget(request)
    reach = value_range(problem.product, request.contract, "a")
    wide_x = request.name == "wide-A"
    shapes = problem.correlation.shapes["x"], problem.correlation.shapes["w"]
    wide_shape, small_shape = shapes if wide_x else shapes[::-1]
    tops = integer_budget.wide_tops(budget, (reach, reach))
    largest = min(tops[0], budget.chunk_limit)
    wide = integer_budget.with_bits(1 + draws.below(largest, wide_shape), reach.bits)
    wide *= draws.signs(_leading(wide_shape))
    if integer_budget.needs_one_hot(budget, largest):
        small = _one_hot_weights(problem, draws) if wide_x else _one_hot_windows(problem, draws)
    else:
        sizes = integer_budget.small_sizes(budget, largest, tops[1], boost)
        small = integer_budget.with_bits(_small(sizes, small_shape, draws), reach.bits)
    return _exact(request, draws, *((wide, small) if wide_x else (small, wide)))


def _tie_bits(problem: Conv, contract: Contract) -> TieBits | None:
    """See :func:`ties.tie_bits`; here carriers and groups are channels. None too where no tap is seen by most."""
    if problem.group_channels < ties.FEWEST_K or _inner_tap(problem)[1] < FEWEST_AT_ONE_TAP:
        return None
    return ties.tie_bits(problem.product, contract)


def _ties(request: FillRequest[Conv], bits: TieBits, boost: float) -> Fill:
    """The channels of a group are the k of :mod:`.ties`. A carrier has one weight that is not 0, at the tap that lies
    inside of most images; the other channels cancel at every tap, so zeros of the padding change nothing."""
    problem, draws = request.problem, request.draws("conv")
    reach = value_range(problem.product, request.contract, "a")
    channels, pixels = problem.group_channels, math.prod(problem.size)
    images, outer = problem.batch * problem.groups * pixels, problem.out_channels
    carried = ties.carriers(bits, draws, images, outer, (reach, reach))
    carriers = np.sort(draws.permutation(channels)[: ties.CARRIERS])
    groups = ties.groups_of(np.setdiff1d(np.arange(channels), carriers), draws)
    x = np.zeros((images, channels), dtype=np.int64)
    w = np.zeros((channels, outer, problem.taps), dtype=np.int64)
    tap = np.ravel_multi_index(_inner_tap(problem)[0], problem.kernel)
    x[:, carriers], w[carriers, :, tap] = carried.a, carried.b
    budget = ties.room_of_groups(
        budget_of(problem.product, request.contract), bits, int(groups.falling.sum()) * problem.taps
    )
    largest = min(reach.top, max(1, budget.chunk_limit // 8))
    small = ties.small_integers(budget, draws, largest, reach, (images, len(groups.rising)), boost)
    # of one sign per image and group of channels
    small = small * np.repeat(draws.signs((images // pixels, 1)), pixels, 0)
    x[:, groups.places] = small[:, groups.members] * groups.signs
    wide = ties.cancelling(groups, draws, np.full(outer * problem.taps, largest))
    w[groups.places] = (wide.reshape(outer, problem.taps, -1) * carried.signs_b[:, None, None]).transpose(2, 0, 1)
    x = x.reshape(problem.batch, problem.groups, pixels, channels).transpose(0, 1, 3, 2)
    w = w.transpose(1, 0, 2)
    return _exact(
        request, draws, x.reshape(problem.correlation.shapes["x"]), w.reshape(problem.correlation.shapes["w"]), tie=bits
    )


def _inner_tap(problem: Conv) -> tuple[tuple[int, ...], float]:
    """Returns the tap that lies inside of the image for most outputs, along each axis, and the share of these
    outputs."""
    counts = [[sum(tap) for tap in zip(*axis, strict=True)] for axis in _taps_inside(problem)]
    best = tuple(count.index(max(count)) for count in counts)
    return best, math.prod(max(count) for count in counts) / math.prod(problem.out_size)


def _small(sizes: tuple[int, float], shape: Shape, draws: Draws) -> Integers:
    """Integers up to the first of ``sizes``, of the density that the second says; one in eight has the other sign."""
    largest, density = sizes
    small = 1 + draws.below(largest, shape)
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
    return w.reshape(problem.correlation.shapes["w"])


def _one_hot_windows(problem: Conv, draws: Draws) -> Integers:
    """Images of which one output sees at most one element of +-1. These lie on a lattice that begins somewhere else in
    each image and group; each point of the lattice has its element in a random channel."""
    outer = (problem.batch, problem.groups)
    on_lattice = np.ones((*outer, *problem.size), dtype=np.bool_)
    for axis, (size, places) in enumerate(zip(problem.size, problem.correlation.places, strict=True)):
        lines = np.array([_apart(places, size, start) for start in range(size)])
        line = lines[draws.below(size, outer)]
        on_lattice &= line.reshape(*outer, *(size if other == axis else 1 for other in range(len(problem.size))))
    channel = draws.below(problem.group_channels, (*outer, 1, *problem.size))
    every = np.arange(problem.group_channels).reshape(-1, *[1] * len(problem.size))
    values = np.where((channel == every) & on_lattice[:, :, None], draws.signs(channel.shape), 0)
    return values.reshape(problem.correlation.shapes["x"])


def _apart(places: tuple[tuple[int, ...], ...], size: int, start: int) -> list[bool]:
    """Chooses some of ``size`` indices along an axis, so that no output position sees two of them. The first is
    ``start``; then come all that are possible after it, and before it. ``places`` are those of the axis."""
    seen_by: list[set[int]] = [set() for _ in range(size)]
    for position, taps in enumerate(places):
        for place in taps:
            if place >= 0:
                seen_by[place].add(position)
    chosen, used = [False] * size, set[int]()
    for place in (*range(start, size), *reversed(range(start))):
        if not used & seen_by[place]:
            chosen[place] = True
            used |= seen_by[place]
    return chosen


def _exact(request: FillRequest[Conv], draws: Draws, x: Integers, w: Integers, tie: TieBits | None = None) -> Fill:
    """Chooses units, makes tensors, computes the reference and checks that every partial sum is exact. ``tie``: what
    the sums of ties are made of, which says how large the bias is."""
    problem, contract, product = request.problem, request.contract, request.problem.product
    budget = budget_of(product, contract)
    largest = _subset_sum(request, x, w)
    integer_budget.check_budget(product, contract, request.name, largest, largest)
    step, addend = (1, budget.addend) if tie is None else (tie.step, tie.addend)
    unit_out = integer_budget.output_unit(product, contract, budget, largest if tie is None else tie.largest, addend)
    sizes = (int(np.abs(x).max()), int(np.abs(w).max())) if problem.batch else (0, 0)
    units = integer_budget.operand_units(product, contract, unit_out, sizes)
    unit_out = sum(units)
    inputs = {
        name: exactly(integers, unit, problem.operand(name), formats(product, contract, _SIDES[name]))
        for name, integers, unit in zip("xw", (x, problem.as_stored(w)), units, strict=True)
    }
    if problem.bias:
        operand = problem.operand("bias")
        values = step * draws.nonzero(max(1, addend // step), operand.shape) if addend else np.zeros(operand.shape)
        inputs["bias"] = exactly(values, unit_out, operand, (operand.dtype,))
    meta = {
        "unit_a": units[0],
        "unit_b": units[1],
        "unit_out": unit_out,
        "budget_bits": contract.accumulator.exact_bits,
        "max_subset_sum": largest,
    }
    return request.fill("exact", inputs, value(problem, inputs, device=request.device), None, meta)


def _subset_sum(request: FillRequest[Conv], x: Integers, w: Integers) -> int:
    """max(P, N) over all outputs, in units of the products."""
    problem = request.problem
    if not problem.batch:
        return 0
    x_units, w_units = (torch.from_numpy(array).to(request.device or "cpu").double() for array in (x, w))
    view = problem.correlation
    total, size = correlate(view, x_units, w_units), correlate(view, x_units.abs(), w_units.abs())
    return integer_budget.larger_part(total, size)


# Bounded and special fills


def _hot(problem: Conv, draws: Draws) -> tuple[Floats, Floats]:
    """Returns lognormal values over many binades, but positive uniform ones in the right half of x and in odd output
    channels. Positive times positive shows biased truncation, which grows with k; lognormal values show lost small
    terms."""
    x, w = (draws.lognormal(problem.correlation.shapes[name]) for name in "xw")
    half = problem.size[-1] // 2
    x[..., half:] = draws.uniform(x[..., half:].shape)
    w[1::2] = draws.uniform(w[1::2].shape)
    return x, w


def _fitted(request: FillRequest[Conv], x: Floats, w: Floats) -> tuple[Floats, Floats]:
    """Scale by powers of two so that results stay a factor of four inside a narrow output's range."""
    largest = FORMATS[request.contract.out_dtype].largest
    if largest > 2.0**100:
        return x, w
    sizes = (torch.from_numpy(np.abs(array)).to(request.device or "cpu") for array in (x, w))
    shift = max(0, math.frexp(float(correlate(request.problem.correlation, *sizes).max()) / (largest / 4))[1])
    return np.ldexp(x, -(shift - shift // 2)), np.ldexp(w, -(shift // 2))


def _plant(problem: Conv, contract: Contract, draws: Draws, x: Floats, w: Floats) -> None:
    """Special values in x and w.

    x gets NaN, infinities and the largest finite value at single places, so few that at most half of the positions see
    one. At most half of the output channels of w get one kind each. That is the same values at single places, or a row
    of -0, of subnormals or, for narrow outputs, of values that overflow the output.
    """
    form = FORMATS[problem.dtype]
    positions = problem.batch * math.prod(problem.out_size)
    kinds = ["largest", "nan", "+inf", "-inf"][: positions // (2 * problem.taps)]
    channel = None
    for kind in kinds:
        index = np.unravel_index(int(draws.below(x.size, ())[()]), x.shape)
        x[index] = form.largest if kind == "largest" else float(kind)
        if kind == "largest":
            # its weights are kept small, and no largest weight meets its channel: no sum overflows fp32
            group, channel = divmod(int(index[1]), problem.group_channels)
            rows = problem.out_channels // problem.groups
            w[group * rows : (group + 1) * rows, channel] *= 2.0**-6
    kinds = ["nan", "zero", "largest", "+inf", "-inf"]
    kinds += [] if contract.flushes_subnormals else ["subnormal"]
    kinds += ["overflow"] if FORMATS[contract.out_dtype].largest < 2**20 else []
    channels = draws.permutation(problem.out_channels)[: problem.out_channels // 2]
    if len(channels) < len(kinds):
        kinds = [kinds[place] for place in draws.permutation(len(kinds))]
    for kind, out_channel in zip(kinds, channels, strict=False):
        row = w[out_channel]
        place = np.unravel_index(int(draws.below(row.size, ())[()]), row.shape)
        if kind == "largest":
            if place[0] == channel:
                continue
            group = out_channel // (problem.out_channels // problem.groups)
            x[:, group * problem.group_channels + place[0]] *= 2.0**-6
        plant(kind, row, place, form)


def _judged_by_bound(request: FillRequest[Conv], method: str, draws: Draws, x: Floats, w: Floats) -> Fill:
    problem, contract = request.problem, request.contract
    inputs = {
        name: representable(values, formats(problem.product, contract, _SIDES[name]))
        for name, values in (("x", x), ("w", problem.as_stored(w)))
    }
    if problem.bias:
        bias = problem.operand("bias")
        inputs["bias"] = round_to(torch.from_numpy(draws.normal(bias.shape)), bias.dtype)
    expected = value(problem, inputs, device=request.device, skip_padding=contract.hidden_nan != "multiplied")
    error = error_bound(problem, contract, expected, inputs)
    if method == "special" and not problem.bias:
        error = without_error_of_nothing(contract, error, magnitude(problem, inputs, device=request.device))
    fill = request.bounded_fill(method, inputs, expected, error)
    if method != "special" or contract.hidden_nan in ("skipped", "multiplied"):
        return fill
    return dataclasses.replace(fill, or_nan=value(problem, inputs, device=request.device).isnan())


FILLS = FillSet(gemm.UNSCALED, applicable, build)
