"""Fills of products with four-bit weights.

In "codes-A" and "codes-B" each result is one product, and "sums" has integers whose sums the accumulator holds: all
three are exact. A weight is (code - zero) * scale, which fp32 holds, rounded once.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from conformance.families.gemm.problem import mm
from conformance.families.gemm.reference import error_bound
from conformance.families.int4 import reference as int4
from conformance.families.int4.problem import Int4Gemm
from conformance.inputs.fills import Draws, FillError, FillKind, FillRequest, FillSet, Floats, Integers
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import round_to
from conformance.problems import DTYPES

CODES_A = FillKind(
    "codes-A",
    True,
    "numbers of eight bits in A; one weight that is not zero in each column",
    "an element of A, or a zero point, that is read wrongly or from another place",
)
CODES_B = FillKind(
    "codes-B",
    True,
    "all 16 codes under scales and zero points of many values; one element in each row of A",
    "a code, a scale or a zero point that is read wrongly or from another place, and a weight that is rounded twice",
)
SUMS = FillKind(
    "sums",
    True,
    "small integers, whose sums the accumulator holds",
    "a wrong, missing or double product",
)
RANDN = FillKind("randn", False, "near-normal A, codes of any value", "errors past the bound")
SPECIAL = FillKind(
    "special",
    False,
    "a scale that is infinite and one that is NaN; infinity and NaN in A",
    "a NaN or infinity that is lost, or made where K ends",
)

#: Bits of the numbers that scales and zero points have in fills whose weights must not be rounded twice.
_SCALE_BITS = {"bf16": 8, "fp16": 11}


def applicable(problem: Int4Gemm, contract: Contract) -> tuple[str, ...]:
    """With an empty output or without a product only "sums"."""
    return FILLS.names if problem.output.numel and problem.has_product else ("sums",)


def build(request: FillRequest[Int4Gemm]) -> Fill:
    """Returns the fill that ``request`` names; see :class:`FillSet`."""
    makers = {"codes-A": _codes_a, "codes-B": _codes_b, "sums": _sums, "randn": _randn, "special": _special}
    return makers[request.name](request)


def packed(codes: Integers, axis: int, signed: bool) -> Tensor:
    """``codes`` as bytes, half as long along ``axis``, the first of two in the lower half. Raises FillError for a
    number that is no code."""
    least = -8 if signed else 0
    if codes.size and (codes.min() < least or codes.max() > least + 15):
        raise FillError(f"codes from {codes.min()} to {codes.max()} do not fit {'int4' if signed else 'uint4'}")
    low, high = torch.from_numpy(codes & 15).unflatten(axis, (-1, 2)).unbind(axis + 1)
    byte: Tensor = (low | high << 4).to(torch.uint8)
    return byte.view(torch.int8) if signed else byte


def _inputs(problem: Int4Gemm, a: Floats, codes: Integers, scale: Floats, zero: Floats) -> dict[str, Tensor]:
    """Returns the tensors of A (M, K), codes (K, N), scales and zero points (groups, N)."""
    dtype = DTYPES[problem.dtype]
    inputs = {
        "a": torch.from_numpy(a).to(dtype),
        "b": packed(codes, "kn".index(problem.packed), problem.signed),
        "scale": torch.from_numpy(scale).to(dtype),
    }
    if problem.zero == "packed":
        inputs["zero"] = packed(zero.astype(np.int64), 1, problem.signed)
    elif problem.zero == "float":
        inputs["zero"] = torch.from_numpy(zero).to(dtype)
    return inputs


def _codes(problem: Int4Gemm, draws: Draws) -> Integers:
    """(K, N): each of the 16 codes as often as the others, in random order."""
    count = problem.K * problem.N
    return (draws.permutation(count) % 16).reshape(problem.K, problem.N) + problem.codes.start


def _zeros(problem: Int4Gemm, draws: Draws, *, whole: bool) -> Floats:
    """Zero points (groups, N): codes; for float ones also quarters between them, unless ``whole``."""
    shape = (problem.groups, problem.N)
    if problem.zero == "none":
        return np.zeros(shape)
    quarters = np.zeros(shape) if whole or problem.zero == "packed" else draws.below(4, shape) / 4.0
    return np.asarray(draws.below(16, shape) + float(problem.codes.start) + quarters, np.float64)


def _scales(problem: Int4Gemm, draws: Draws) -> Floats:
    """Numbers of as many bits as the dtype holds, from 1/8 to 4."""
    shape, bits = (problem.groups, problem.N), _SCALE_BITS[problem.dtype]
    numbers = draws.below(2 ** (bits - 1), shape) + 2.0 ** (bits - 1)
    return np.asarray(np.ldexp(numbers, draws.below(5, shape) - bits - 2), np.float64)


def _places(problem: Int4Gemm, draws: Draws, lines: int) -> Integers:
    """One k for each line: neighbours are a few k apart, and no k is taken twice before all are."""
    step = next(step for step in (37, 5, 3, 1) if math.gcd(step, problem.K) == 1)
    return (np.arange(lines) * step + int(draws.below(problem.K, ())[()])) % problem.K


def _one_in_each_row(problem: Int4Gemm, draws: Draws) -> Floats:
    a = np.zeros((problem.M, problem.K))
    a[np.arange(problem.M), _places(problem, draws, problem.M)] = np.array([1.0, -1.0, 1.5, -1.5])[
        draws.below(4, (problem.M,))
    ]
    return a


def _codes_a(request: FillRequest[Int4Gemm]) -> Fill:
    """In every place but one of each column the code is the zero point."""
    problem, draws = request.problem, request.draws()
    numbers = draws.nonzero(255, (problem.M, problem.K)) / 16.0
    zero = _zeros(problem, draws, whole=True)
    codes = np.repeat(zero, problem.group or max(problem.K, 1), 0)[: problem.K].astype(np.int64)
    places = (_places(problem, draws, problem.N), np.arange(problem.N))
    other = 1 + draws.below(15, (problem.N,))  # modulo 16 it is another code
    codes[places] = (codes[places] - problem.codes.start + other) % 16 + problem.codes.start
    return _exact(request, _inputs(problem, numbers, codes, _scales(problem, draws), zero), least=0.9)


def _codes_b(request: FillRequest[Int4Gemm]) -> Fill:
    problem, draws = request.problem, request.draws()
    a, codes = _one_in_each_row(problem, draws), _codes(problem, draws)
    zero = _zeros(problem, draws, whole=False)
    return _exact(request, _inputs(problem, a, codes, _scales(problem, draws), zero), least=0.5)


def _sums(request: FillRequest[Int4Gemm]) -> Fill:
    """Weights of -30 to 30, and integers in A as large as the accumulator holds the sum of all; if it does not even
    hold K ones, only as many k are not zero."""
    problem, draws = request.problem, request.draws()
    scale = np.asarray(draws.below(2, (problem.groups, problem.N)) + 1.0, np.float64)
    room = int(2.0**request.contract.accumulator.exact_bits / 30)
    numbers = draws.nonzero(min(max(room // max(problem.K, 1), 1), 127), (problem.M, problem.K)).astype(np.float64)
    numbers[:, draws.permutation(problem.K)[room:]] = 0.0
    zero = _zeros(problem, draws, whole=True)
    return _exact(request, _inputs(problem, numbers, _codes(problem, draws), scale, zero), least=0.5)


def _exact(request: FillRequest[Int4Gemm], inputs: dict[str, Tensor], least: float) -> Fill:
    """``least``: the share of results that must not be zero, in a matrix large enough for shares."""
    problem = request.problem
    expected = int4.value(problem, inputs, device=request.device)
    shown = float((expected != 0).double().mean()) if expected.numel() else 1.0
    if problem.has_product and expected.numel() >= 256 and shown < least:
        text = f"{shown:.0%} of its results are not zero, {least:.0%} is required"
        raise FillError(f"{problem.id}, fill {request.name}, seed {request.seed}: {text}")
    return request.fill("exact", inputs, expected, None)


def _random(problem: Int4Gemm, draws: Draws) -> tuple[Floats, Integers, Floats, Floats]:
    a = round_to(torch.from_numpy(draws.normal((problem.M, problem.K))), problem.dtype).double().numpy()
    return a, _codes(problem, draws), _scales(problem, draws), _zeros(problem, draws, whole=False)


def _bounded(request: FillRequest[Int4Gemm], inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The value, and the bound of the product with the weights: what remains is an error of its sums."""
    problem = request.problem
    value = int4.value(problem, inputs, device=request.device)
    magnitude = int4.magnitude(problem, inputs, device=request.device)
    a, b = int4.decoded(problem, inputs, request.device)
    product = mm(problem.M, problem.N, problem.K, "fp32", out_dtype=problem.out_dtype)
    return value, error_bound(product, request.contract, value, magnitude, {"a": a, "b": b})


def _randn(request: FillRequest[Int4Gemm]) -> Fill:
    inputs = _inputs(request.problem, *_random(request.problem, request.draws()))
    return request.bounded_fill("bounded", inputs, *_bounded(request, inputs))


def _special(request: FillRequest[Int4Gemm]) -> Fill:
    """One column ends with a group whose scale is infinite and whose weights are positive, as A is. Its results are
    infinite, and NaN where the end of K is multiplied, too. Another column has a scale that is NaN. One row of A has an
    infinity, another one NaN."""
    problem, draws = request.problem, request.draws()
    a, codes, scale, zero = _random(problem, draws)
    a = np.abs(a) + 0.125
    places = [int(place) for place in draws.permutation(problem.N)[:2]]
    last = (problem.groups - 1) * (problem.group or problem.K)
    zero[-1, places[0]] = problem.codes.start
    codes[last:, places[0]] = problem.codes.stop - 1
    scale[-1, places[0]] = math.inf
    scale[0, places[-1]] = math.nan if len(places) > 1 else scale[0, places[-1]]
    rows = [int(row) for row in draws.permutation(problem.M)[:3]]
    if len(rows) > 2:  # one row at least keeps its numbers
        a[rows[0], int(draws.below(problem.K, ())[()])] = math.inf
        a[rows[1], int(draws.below(problem.K, ())[()])] = math.nan
    inputs = _inputs(problem, a, codes, scale, zero)
    value, error = _bounded(request, inputs)
    return request.fill("special", inputs, value, torch.where(value.isfinite(), error, 0.0))


FILLS = FillSet((CODES_A, CODES_B, SUMS, RANDN, SPECIAL), applicable, build)
