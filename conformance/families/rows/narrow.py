"""Formats with shared exponents and with codebooks: mxfp8, mxfp4 and four-bit codes, quantised and back.

The MX formats follow the OCP specification: 32 columns share a scale 2**(byte - 127). Its exponent is that of the
largest size less that of the format's largest number, at least -127; so a block of zeros has the byte 0. Elements are
rounded to nearest, ties to even, and saturate. A value that rounds to zero keeps its sign. Byte 255 stands for NaN when
values are read back. Operands are finite; what NaN becomes is up to a library.

A codebook is an operand: 16 rising numbers. A code is the place of the number that is nearest to ``x / scale``, where
32 columns share the scale ``max(amax, eps)``. Half-way the lower code is right. Two neighbours share a byte, the first
in its lower half; the upper half of a last column without a partner is 0.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from conformance.families.rows.functions import Compute, Quantities, X
from conformance.families.rows.problem import Arrays, Axis, Part, RowFunction, RowProblem, normal_values
from conformance.families.rows.quantisation import BLOCK, GROUP, divided, eps_of, in_blocks, per_column, size_of
from conformance.inputs.fills import Draws, Floats
from conformance.numerics.error_bounds import Computed, operand
from conformance.numerics.rounding import round_to

BYTE = Axis("byte", lambda problem: -(-problem.columns // 2))
CODE = Axis("code", lambda problem: 16)
AXES = {"b": BLOCK, "y": BYTE, "k": CODE}
#: The exponents of the largest numbers of the formats.
EMAX = {"e4m3": 8, "e2m1": 2}
#: The sizes of e2m1 numbers by their codes.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def packed(codes: Tensor) -> Tensor:
    """Returns the bytes of four-bit ``codes`` (rows, columns), 0 to 15.

    >>> packed(torch.tensor([[1, 2, 3]])).tolist()
    [[33, 3]]
    """
    even = torch.nn.functional.pad(codes, (0, codes.shape[1] % 2))
    return even[:, ::2] + 16 * even[:, 1::2]


def unpacked(t: Tensor, columns: int) -> Tensor:
    """Returns the codes (int64) of bytes ``t``; see :func:`packed`."""
    both = torch.stack([t.long() % 16, t.long() // 16], 2)
    return both.reshape(t.shape[0], 2 * t.shape[1])[:, :columns]


def e2m1_code(t: Tensor) -> Tensor:
    """Returns the code of the nearest e2m1 number: ties go to the even one, and the sign stays.

    >>> e2m1_code(torch.tensor([0.25, 0.75, -1.3, 5.0, 9.0])).tolist()
    [0, 2, 11, 6, 7]
    """
    size, code = t.abs(), torch.zeros_like(t, dtype=torch.int64)
    for number, (low, high) in enumerate(itertools.pairwise(E2M1)):
        half = (low + high) / 2
        code += (size > half if number % 2 == 0 else size >= half).long()
    return code + 8 * t.signbit().long()


def e2m1_value(codes: Tensor) -> Tensor:
    """Returns the numbers (fp64) of e2m1 ``codes`` (int64)."""
    sizes = torch.tensor(E2M1, dtype=torch.float64, device=codes.device)[codes % 8]
    return torch.where(codes >= 8, -sizes, sizes)


def _shared(problem: RowProblem, x: Tensor, form: str) -> tuple[Tensor, Tensor]:
    """Returns the bytes of the scales, and x divided by them."""
    amax = in_blocks(x.abs()).amax(2)
    exponent = torch.where(amax > 0, torch.frexp(amax)[1] - 1, -1000)
    byte = (exponent - EMAX[form] + 127).clamp(0, 254).double()
    return byte, torch.ldexp(x, 127 - per_column(byte, problem.columns))


def _mx(form: str) -> Compute:
    def compute(problem: RowProblem, q: Quantities) -> Quantities:
        byte, scaled = _shared(problem, q["x"].value, form)
        if form == "e2m1":
            return {"out": operand(packed(e2m1_code(scaled))), "scale": operand(byte)}
        return {"out": operand(round_to(scaled.clamp(-448.0, 448.0), form)), "scale": operand(byte)}

    return compute


def _mx_back(form: str) -> Compute:
    def compute(problem: RowProblem, q: Quantities) -> Quantities:
        byte, codes = per_column(q["scale"].value, problem.columns), q["codes"].value
        numbers = e2m1_value(unpacked(codes, problem.columns)) if form == "e2m1" else codes
        return {"out": operand(torch.where(byte == 255, torch.nan, torch.ldexp(numbers, byte - 127)))}

    return compute


def codebook(problem: RowProblem, q: Quantities) -> Quantities:
    """``out`` is the number of thresholds, half-way between two numbers of ``book``, that lie below ``x / scale``."""
    x, book = q["x"], q["book"]
    scale = size_of(x).moved(lambda t: in_blocks(t).amax(2).clamp(min=eps_of(problem)))
    v = divided(x, scale.moved(lambda t: per_column(t, problem.columns))).moved(lambda t: t[..., None])
    halves = (book.moved(lambda t: t[:-1]) + book.moved(lambda t: t[1:])) * 0.5
    ends = ((v.value, halves.value), (v.low, halves.high), (v.high, halves.low))
    return {"out": Computed(*(packed((a > b).sum(-1)).double() for a, b in ends)), "scale": scale}


def codebook_back(problem: RowProblem, q: Quantities) -> Quantities:
    """``out = book[code] * scale``."""
    codes = unpacked(q["codes"].value, problem.columns)
    return {"out": q["book"].moved(lambda t: t[codes]) * q["scale"].moved(lambda t: per_column(t, problem.columns))}


def _block_sizes(draws: Draws, shape: tuple[int, int], powers: int) -> Floats:
    """Returns a power of two for each block, of as many binades; every fourth block is zero."""
    rows, columns = shape
    blocks = -(-columns // GROUP)
    size = np.ldexp(1.0, draws.below(powers, (rows, blocks)) - powers // 2)
    size[(np.arange(rows)[:, None] + np.arange(blocks)) % 4 == 1] = 0.0
    return size.repeat(GROUP, 1)[:, :columns]


def _steps(problem: RowProblem, draws: Draws) -> Arrays:
    """Multiples of a 16th up to 8, so that half-way values and saturation come up in every block."""
    shape = (problem.rows, problem.columns)
    values = draws.below(128, shape) / 16 * draws.signs(shape)
    values[:, ::GROUP] = np.where(draws.chance(0.5, values[:, ::GROUP].shape), 7.75, 4.0)
    return {"x": _block_sizes(draws, shape, 20) * values}


def _block_spread(problem: RowProblem, draws: Draws) -> Arrays:
    """Near-normal blocks whose sizes differ, with elements that are far smaller."""
    shape = (problem.rows, problem.columns)
    x = _block_sizes(draws, shape, 24) * draws.normal(shape)
    return {"x": np.ldexp(x, -draws.below(16, shape))}


def _book(draws: Draws, exact: bool) -> Arrays:
    """Returns 16 rising numbers from -1 to 1, 8 bits each if ``exact``."""
    steps = np.concatenate([[0], np.cumsum(1 + draws.below(15, (15,)))]) if exact else np.cumsum(draws.uniform((16,)))
    if exact:
        return {"book": np.concatenate([[-1.0], (steps[1:-1] - steps[-1] // 2) / 128, [1.0]])}
    return {"book": 2 * (steps - steps[0]) / (steps[-1] - steps[0]) - 1}


def _among(offset: float) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns values in blocks whose largest size is a power of two: numbers of a codebook. With an ``offset`` they are
    as far from a threshold, on either side."""

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        shape, book = (problem.rows, problem.columns), _book(draws, not offset)["book"]
        points = book if not offset else (book[:-1] + book[1:]) / 2
        values = points[draws.below(len(points), shape)] + offset * draws.signs(shape)
        values[:, ::GROUP] = draws.signs(values[:, ::GROUP].shape)
        return {"x": _block_sizes(draws, shape, 9) * values, "book": book}

    return draw


def _with_book(problem: RowProblem, draws: Draws) -> Arrays:
    return {**normal_values(problem, draws), **_book(draws, False)}


def _bytes(problem: RowProblem, draws: Draws, *, powers: bool, nan: bool = False) -> Arrays:
    """Codes of the whole range, with scales near 1; ``nan``: some scales are the byte of NaN."""
    codes, scale = problem.function.operands[:2]
    shape, scales = problem.extents(codes), problem.extents(scale)
    if codes.dtype == "e4m3":
        values = np.ldexp(8.0 + draws.below(7, shape), draws.below(15, shape) - 9) * draws.signs(shape)
    else:
        values = draws.below(256, shape).astype(np.float64)
    if scale.dtype == "uint8":
        sizes = 117.0 + draws.below(21, scales)
        sizes[draws.chance(0.25 * nan, scales)] = 255
    else:
        sizes = np.ldexp(np.ones(scales) if powers else 1 + draws.uniform(scales), draws.below(17, scales) - 8)
    return {"codes": values, "scale": sizes, **_book(draws, powers)}


_exact_bytes = functools.partial(_bytes, powers=True)
_any_bytes = functools.partial(_bytes, powers=False)
_nan_bytes = functools.partial(_bytes, powers=True, nan=True)


def _exchanged(t: Tensor) -> Tensor:
    """Returns bytes with their halves exchanged."""
    return t.long() % 16 * 16 + t.long() // 16


def _halves(compute: Compute, name: str) -> tuple[str, Compute]:
    def fault(problem: RowProblem, q: Quantities) -> Quantities:
        if name in q:
            return compute(problem, {**q, name: q[name].moved(lambda t: _exchanged(t).double())})
        outputs = compute(problem, q)
        return {**outputs, name: outputs[name].moved(lambda t: _exchanged(t).double())}

    return "the halves of each byte are exchanged", fault


def _formats(form: str, name: str) -> tuple[RowFunction, RowFunction]:
    """Returns the functions to and from an MX format."""
    there, back = _mx(form), _mx_back(form)
    codes = Part("codes", "ry", "uint8") if form == "e2m1" else Part("codes", "rc", form)
    scale, out = Part("scale", "rb", "uint8"), Part("out", codes.axes, codes.dtype)
    halves = form == "e2m1"
    return (
        RowFunction(
            f"quantize_{name}", (X,), (out, scale), there, _steps, _block_spread, steps=True, special=False, axes=AXES,
            faults=(_halves(there, "out"),) if halves else (),
        ),
        RowFunction(
            f"dequantize_{name}", (codes, scale), (Part("out"),), back, _exact_bytes, _nan_bytes, steps=True,
            usual=_exact_bytes, special=False, axes=AXES, faults=(_halves(back, "codes"),) if halves else (),
        ),
    )  # fmt: skip


BOOK, CODES, SCALE = Part("book", "k", "fp32"), Part("codes", "ry", "uint8"), Part("scale", "rb", "fp32")
MXFP8, MXFP4 = _formats("e4m3", "mxfp8"), _formats("e2m1", "mxfp4")
QUANTIZE_CODEBOOK = RowFunction(
    "quantize_codebook", (X, BOOK), (Part("out", "ry", "uint8"), SCALE), codebook, _among(0.0), _among(2.0**-14),
    steps=("scale",), usual=_with_book, special=False, axes=AXES, faults=(_halves(codebook, "out"),),
)  # fmt: skip
DEQUANTIZE_CODEBOOK = RowFunction(
    "dequantize_codebook", (CODES, SCALE, BOOK), (Part("out"),), codebook_back, _exact_bytes, _any_bytes, steps=True,
    usual=_any_bytes, special=False, axes=AXES, faults=(_halves(codebook_back, "codes"),),
)  # fmt: skip
NARROW = (*MXFP8, *MXFP4, QUANTIZE_CODEBOOK, DEQUANTIZE_CODEBOOK)
