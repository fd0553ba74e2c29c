"""Fills of products of block-scaled operands.

"codes-A" and "codes-B" have one product in each sum, and "sums" has integers so small that the accumulator holds every
partial sum. So they are exact, whatever multiplies: a unit that takes scales, or one that gets bf16 or fp16.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from conformance.families.gemm.problem import mm
from conformance.families.gemm.reference import error_bound
from conformance.families.microscaled import reference as microscaled
from conformance.families.microscaled.problem import SWIZZLED_BLOCKS, SWIZZLED_LINES, MicroscaledGemm
from conformance.families.microscaled.reference import E2M1
from conformance.inputs.fills import Draws, FillError, FillKind, FillRequest, FillSet, Floats, Integers
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import round_to
from conformance.problems import DTYPES

CODES_A = FillKind(
    "codes-A",
    True,
    "every finite code of A under scales far apart; one element in each column of B",
    "a code, a scale or a nibble that is read wrongly or from another place",
)
CODES_B = FillKind(
    "codes-B",
    True,
    "every finite code of B under scales far apart; one element in each row of A",
    "a code, a scale or a nibble that is read wrongly or from another place",
)
SUMS = FillKind(
    "sums",
    True,
    "small integers under scales of a few values, whose sums the accumulator holds",
    "a wrong, missing or double product",
)
RANDN = FillKind("randn", False, "near-normal values, rounded to codes, and scales", "errors past the bound")
LARGE = FillKind(
    "large-scales",
    False,
    "scales at the upper end of their range, and NaN in one block",
    "a scale that is clipped or lost",
)
SMALL = FillKind(
    "small-scales", False, "scales at the lower end of their range, without the least", "a scale that becomes zero"
)
LEAST = FillKind(
    "least-scale",
    False,
    "the scale 2**-127, whose byte is 0",
    "a byte that is taken for the exponent of a bf16 number, which would be zero",
    on_request=True,
)

#: The integers that the codes of "sums" stand for, in units of its own, and that unit.
_INTEGERS: dict[str, tuple[tuple[int, ...], float]] = {
    "e2m1": ((1, 2, 3, 4, 6, 8, 12), 0.5),
    "e4m3": (tuple(range(1, 16)), 1.0),
    "e5m2": ((1, 2, 3, 4, 5, 6, 7), 1.0),
    "bf16": (tuple(range(1, 16)), 1.0),
    "fp16": (tuple(range(1, 16)), 1.0),
}
#: Exponents of scales: those of "sums" and "randn", and those of codes, less wide where a partner is fp16.
_NARROW, _WIDE, _WIDE_FP16 = 1, 40, 5
#: Scales of the fills that have one end of their range: powers of two, and numbers of e4m3.
_ENDS = {
    "large-scales": (2.0**127, 2.0**126, 2.0**125),
    "small-scales": (2.0**-126, 2.0**-125, 2.0**-124),
    "least-scale": (2.0**-127, 2.0**-126),
}
_ENDS_E4M3 = {"large-scales": (448.0, 416.0, 240.0), "small-scales": (2.0**-9, 2.0**-8, 3 * 2.0**-9)}


def applicable(problem: MicroscaledGemm, contract: Contract) -> tuple[str, ...]:
    """With an empty output or without a product only "sums". The ends of a scale's range are not for a partner of fp16,
    to which Triton converts the scaled operand; nor are they for an fp16 output."""
    if problem.output.numel == 0 or not problem.has_product:
        return ("sums",)
    names = FILLS.names
    if "fp16" in (problem.a_format, problem.b_format, problem.out_dtype):
        names = tuple(name for name in names if name not in _ENDS)
    if "uint8" not in {form.scale for form in problem.formats}:
        names = tuple(name for name in names if name != "least-scale")
    return names


def build(request: FillRequest[MicroscaledGemm]) -> Fill:
    """Returns the fill that ``request`` names; see :class:`FillSet`."""
    name = request.name
    if name in ("codes-A", "codes-B"):
        return _selected(request, "ab"["AB".index(name[-1])])
    if name in _ENDS:
        return _ends(request)
    return _sums(request) if name == "sums" else _randn(request)


def _matrix(problem: MicroscaledGemm, name: str, array: Floats) -> Floats:
    """Lines of ``name`` times k, which is how the fills draw, as the problem has the operand: B is (k, columns)."""
    return array if name == "a" else np.swapaxes(array, -1, -2)


def _lines(problem: MicroscaledGemm, name: str) -> tuple[int, ...]:
    lead = () if problem.batch is None else (problem.batch,)
    return (*lead, problem.M if name == "a" else problem.N)


def stored(problem: MicroscaledGemm, name: str, values: Floats) -> Tensor:
    """``values`` in lines times k, which the format's codes hold, as the tensor of operand ``name``. Raises FillError
    for a value that no code has."""
    form = problem.format_of(name)
    matrix = torch.from_numpy(np.ascontiguousarray(_matrix(problem, name, values)))
    if form.codes != "e2m1":
        tensor = round_to(matrix, form.dtype)
        if not torch.equal(tensor.double(), matrix):
            raise FillError(f"{problem.id}: {name} has values that {form.codes} does not hold")
        return tensor
    table = torch.tensor(E2M1, dtype=torch.float64)
    index = torch.searchsorted(table, matrix.abs())
    if not torch.equal(table[index.clamp(max=7)], matrix.abs()):
        raise FillError(f"{problem.id}: {name} has values that e2m1 does not hold")
    codes = (index + 8 * torch.signbit(matrix)).to(torch.uint8)
    along_k = problem.packed(name) == "k"
    axis = (-1 if along_k else -2) if name == "a" else (-2 if along_k else -1)
    low, high = codes.unflatten(axis, (-1, 2)).unbind(axis % codes.ndim + 1)
    return torch.bitwise_or(low, high << 4)


def scale_tensor(problem: MicroscaledGemm, name: str, values: Floats) -> Tensor:
    """Scales (lines, blocks of k), powers of two for E8M0, as the tensor of ``scale_<name>``."""
    tensor = torch.from_numpy(np.ascontiguousarray(swizzled(values) if problem.swizzled else values))
    if problem.format_of(name).scale == "uint8":
        exponents = torch.frexp(tensor)[1] - 1 + 127
        return torch.where(tensor.isnan(), 255, exponents).to(torch.uint8)
    return tensor.to(DTYPES["e4m3"])


def swizzled(values: Floats) -> Floats:
    """Scales (lines, blocks of k) in tiles, (lines / 128, blocks / 4, 32, 4, 4). The padding of lines is NaN, that of
    blocks the largest scale that every format holds. So whatever takes it for another's scale is wrong."""
    *lead, lines, blocks = values.shape
    tiles = -(-lines // SWIZZLED_LINES), -(-blocks // SWIZZLED_BLOCKS)
    padded = np.full((*lead, tiles[0] * SWIZZLED_LINES, tiles[1] * SWIZZLED_BLOCKS), 256.0)
    padded[..., lines:, :] = math.nan
    padded[..., :lines, :blocks] = values
    split = padded.reshape(*lead, tiles[0], 4, 32, tiles[1], 4)
    first = len(lead)
    return np.transpose(split, (*range(first), *(first + axis for axis in (0, 3, 2, 1, 4))))


def _inputs(problem: MicroscaledGemm, values: dict[str, Floats], scales: dict[str, Floats]) -> dict[str, Tensor]:
    inputs = {name: stored(problem, name, values[name]) for name in "ab"}
    for name, array in scales.items():
        inputs[f"scale_{name}"] = scale_tensor(problem, name, array)
    return inputs


def _scaled(problem: MicroscaledGemm) -> list[str]:
    return [name for name in "ab" if problem.format_of(name).scale is not None]


def _scales(problem: MicroscaledGemm, draws: Draws, name: str, reach: int) -> Floats:
    """Scales whose exponents lie within ``reach`` of 0; numbers of 1 to 15 eighths where scales are e4m3."""
    shape = (*_lines(problem, name), problem.blocks(name))
    if problem.format_of(name).scale == "uint8":
        return np.ldexp(1.0, draws.below(2 * reach + 1, shape) - reach)
    numbers = draws.below(15, shape) / 8.0 + 0.125 if reach > _NARROW else draws.below(2, shape) + 1.0
    return np.asarray(numbers, np.float64)


def _codes(name: str) -> Floats:
    """Returns every finite value of a format of at most 8 bits, without zeros; of wider ones those of few bits."""
    if name == "e2m1":
        positive = np.array(E2M1[1:])
    elif name in ("e4m3", "e5m2"):
        numbers = torch.arange(1, 128, dtype=torch.uint8).view(DTYPES[name]).double()
        positive = numbers[numbers.isfinite()].numpy()
    else:
        positive = np.arange(1, 256) / 16.0
    return np.concatenate([positive, -positive])


def _selected(request: FillRequest[MicroscaledGemm], full: str) -> Fill:
    """One operand with all codes, the other with one element in each line: each result is one product."""
    problem, draws = request.problem, request.draws()
    single = "b" if full == "a" else "a"
    reach = _WIDE_FP16 if "fp16" in (problem.a_format, problem.b_format, problem.out_dtype) else _WIDE
    scales = {name: _scales(problem, draws, name, reach) for name in _scaled(problem)}
    shape = (*_lines(problem, full), problem.K)
    codes = _codes(problem.format_of(full).codes)
    if problem.out_dtype == "fp16":
        codes = codes[np.abs(codes) < 16]
    numbers = np.resize(codes[draws.permutation(len(codes))], math.prod(shape)).reshape(shape)
    shape = (*_lines(problem, single), problem.K)
    ones = np.zeros(shape)
    values = np.array([1.0, -1.0, 1.5, -1.5])[draws.below(4, shape[:-1])]
    np.put_along_axis(ones, _places(problem, draws, shape[:-1])[..., None], values[..., None], -1)
    return _exact(request, {full: numbers, single: ones}, scales)


def _places(problem: MicroscaledGemm, draws: Draws, lines: tuple[int, ...]) -> Integers:
    """One k for each line: neighbours are a few k apart, and no k is taken twice before all are."""
    step = next(step for step in (37, 5, 3, 1) if math.gcd(step, problem.K) == 1)
    first = int(draws.below(problem.K, ())[()])
    return (np.arange(math.prod(lines)).reshape(lines) * step + first) % problem.K


def _sums(request: FillRequest[MicroscaledGemm]) -> Fill:
    """Integers of both operands, as large as the accumulator holds the sum of all of them; if it does not even hold K
    ones, only as many k are not zero."""
    problem, draws = request.problem, request.draws()
    scales = {name: _scales(problem, draws, name, _NARROW) for name in _scaled(problem)}
    room = 2.0**request.contract.accumulator.exact_bits
    for array in scales.values():
        room /= array.max() / array.min() if array.size else 1.0
    values = {}
    for name in "ab":
        integers, unit = _INTEGERS[problem.format_of(name).codes]
        fitting = [number for number in integers if number <= math.sqrt(room / max(problem.K, 1))] or [1]
        numbers = np.array(fitting)[draws.below(len(fitting), (*_lines(problem, name), problem.K))]
        values[name] = np.asarray(numbers * draws.signs(numbers.shape) * unit, np.float64)
    values["a"][..., draws.permutation(problem.K)[int(room) :]] = 0.0
    return _exact(request, values, scales)


def _exact(request: FillRequest[MicroscaledGemm], values: dict[str, Floats], scales: dict[str, Floats]) -> Fill:
    problem = request.problem
    inputs = _inputs(problem, values, scales)
    expected = microscaled.value(problem, inputs, device=request.device)
    shown = float((expected != 0).double().mean()) if expected.numel() else 1.0
    if problem.has_product and shown < 0.5:
        raise FillError(
            f"{problem.id}, fill {request.name}, seed {request.seed}: {shown:.0%} of its results are not zero"
        )
    return request.fill("exact", inputs, expected, None)


def _randn(request: FillRequest[MicroscaledGemm]) -> Fill:
    problem, draws = request.problem, request.draws()
    scales = {name: _scales(problem, draws, name, 2 * _NARROW) for name in _scaled(problem)}
    values = {name: _nearest(problem, name, 2 * draws.normal((*_lines(problem, name), problem.K))) for name in "ab"}
    inputs = _inputs(problem, values, scales)
    return request.bounded_fill("bounded", inputs, *_with_bound(request, inputs))


def _nearest(problem: MicroscaledGemm, name: str, values: Floats) -> Floats:
    """``values`` rounded to the codes of operand ``name``."""
    form = problem.format_of(name)
    if form.codes != "e2m1":
        return np.asarray(round_to(torch.from_numpy(values), form.dtype).double().numpy())
    table = np.array(E2M1)
    index = np.abs(np.abs(values)[..., None] - table).argmin(-1)
    return np.asarray(np.copysign(table[index], values))


def _with_bound(request: FillRequest[MicroscaledGemm], inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The value, and the bound of the product of decoded operands: what remains is an error of its sums."""
    problem, contract, device = request.problem, request.contract, request.device
    value = microscaled.value(problem, inputs, device=device)
    magnitude = microscaled.magnitude(problem, inputs, device=device)
    product = mm(problem.M, problem.N, problem.K, "fp32", out_dtype=problem.out_dtype)
    a, b = microscaled.decoded(problem, inputs, device)
    if problem.batch is None:
        return value, error_bound(product, contract, value, magnitude, {"a": a, "b": b})
    bounds = [
        error_bound(product, contract, value[i], magnitude[i], {"a": a[i], "b": b[i]}) for i in range(problem.batch)
    ]
    return value, torch.stack(bounds)


def _ends(request: FillRequest[MicroscaledGemm]) -> Fill:
    """One product in each sum, of an element that has a scale from an end of its range; the other operand brings small
    ones back into fp32's normal numbers. One block of one line is NaN. The sizes say which operand it is."""
    problem, draws = request.problem, request.draws()
    scaled = _scaled(problem)
    full = scaled[(problem.M + problem.N + problem.K) // 2 % len(scaled)]
    single = "b" if full == "a" else "a"
    powers_of_two = problem.format_of(full).scale == "uint8"
    ends = (_ENDS if powers_of_two else _ENDS_E4M3)[request.name]
    scale = np.array(ends)[draws.below(len(ends), (*_lines(problem, full), problem.blocks(full)))]
    scale.reshape(-1)[int(draws.below(scale.size, ())[()])] = math.nan
    scales, back = {full: scale}, 2.0**20 if powers_of_two and request.name != "large-scales" else 1.0
    if single in scaled:
        scales[single] = np.full((*_lines(problem, single), problem.blocks(single)), back)
        back = 1.0
    numbers = np.array([1.0, -1.0, 1.5, -1.5])[draws.below(4, (*_lines(problem, full), problem.K))]
    ones = np.zeros((*_lines(problem, single), problem.K))
    np.put_along_axis(ones, _places(problem, draws, ones.shape[:-1])[..., None], back, -1)
    inputs = _inputs(problem, {full: numbers, single: ones}, scales)
    expected = microscaled.value(problem, inputs, device=request.device)
    return request.fill("special", inputs, expected, torch.zeros_like(expected))


FILLS = FillSet((CODES_A, CODES_B, SUMS, RANDN, LARGE, SMALL, LEAST), applicable, build)
