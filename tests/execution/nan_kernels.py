"""Small kernels in which NaN begins, each in one way on one line, with the kind of origin that must be named.

A comment marks the line: ``# way``. A process that interprets imports this module.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import triton
import triton.language as tl

SIZE = 32

#: Way -> the kind of the origin, and words that its sentence must hold.
ELEMENTS = {
    "undefined lanes": ("undefined lanes", "the mask of the load leaves lanes without a value"),
    "other": ("constant", "a constant or an argument of the kernel"),
    "operand": ("operand", "x holds NaN at [3]"),
    "constant": ("constant", "a constant or an argument of the kernel"),
    "zero times inf": ("0 * inf", "0 * inf, the second operand is infinite; inf begins at"),
    "inf times zero": ("0 * inf", "0 * inf, the first operand is infinite"),
    "zero by zero": ("0 / 0", "0 / 0"),
    "inf by inf": ("inf / inf", "inf / inf; inf begins at"),
    "inf minus inf": ("inf - inf", "inf - inf"),
    "minus inf plus inf": ("inf - inf", "inf - inf"),
    "square root": ("sqrt of -3", "sqrt of -3"),
    "reciprocal root": ("rsqrt of -3", "rsqrt of -3"),
    "logarithm": ("log of -3", "log of -3"),
    "base two": ("log2 of -3", "log2 of -3"),
    "sine": ("sin of inf", "sin of inf"),
    "fused": ("0 * inf", "0 * inf, the first operand is infinite"),
    "fused sum": ("inf - inf", "inf - inf"),
    "lost multiply": ("operand, 0 * NaN", "x holds NaN at [3]; the first operand is NaN in 0 * NaN at"),
    "softmax": ("inf - inf", "inf - inf; inf begins at"),
    "sum": ("inf - inf", "inf - inf in a sum"),
    "running sum": ("inf - inf", "inf - inf in a sum"),
    "maximum": ("operand", "x holds NaN at [3]"),
    "bf16": ("0 / 0", "0 / 0"),
    "fp8": ("inf - inf", "inf - inf"),
    "moved": ("sqrt of -3", "sqrt of -3"),
    "chosen": ("log of -3", "log of -3"),
    "not stored": ("not stored", "work is read where no program has stored"),
    "stored before": ("0 / 0", "0 / 0"),
    "atomic": ("inf - inf", "inf - inf"),
    "called": ("log of -3", "log of -3"),
}
TILES = {
    "undefined lanes": (
        "undefined lanes, 0 * NaN",
        "leaves lanes without a value; the first operand is NaN in 0 * NaN",
    ),
    "undefined sums": ("undefined lanes", "the mask of the load leaves lanes without a value"),
    "zero times inf": ("0 * inf", "0 * inf in a product, the first operand is infinite at k 5 of the tile"),
    "inf minus inf": ("inf - inf", "inf - inf in the sum of a product at k 0 of the tile"),
    "accumulator": ("0 / 0", "0 / 0"),
    "second operand": ("operand", "y holds NaN at [2, 4]"),
}


@triton.jit
def _logarithm(v):
    return tl.log(v)  # called


@triton.jit
def elements(x, out, work, n, WAY: tl.constexpr):
    """``x`` holds 0, 1, -3, NaN, inf and then ones."""
    at = tl.arange(0, 32)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=1.0)  # operand; maximum
    one = tl.where((v == v) & (tl.abs(v) < 2), v, 1.0)  # without what is not finite
    zero = one - one
    inf = tl.where(one > 0.5, float("inf"), 1.0)
    last = tl.arange(0, 32) == 31
    result = one
    if WAY == "undefined lanes":
        w = tl.load(x + at, mask=(at < n) & (at != 7))  # undefined lanes
        result = tl.where(at == 7, w, 1.0)
    elif WAY == "other":
        result = tl.where(at == 7, tl.load(x + at, mask=at > n, other=float("nan")), 1.0)  # other
    elif WAY == "operand":
        result = tl.where(at == 3, v, 1.0)
    elif WAY == "constant":
        result = tl.where(last, float("nan"), 1.0)  # constant
    elif WAY == "zero times inf":
        result = zero * inf  # zero times inf
    elif WAY == "inf times zero":
        result = inf * zero  # inf times zero
    elif WAY == "zero by zero":
        result = zero / zero  # zero by zero
    elif WAY == "inf by inf":
        result = inf / inf  # inf by inf
    elif WAY == "inf minus inf":
        result = inf - inf  # inf minus inf
    elif WAY == "minus inf plus inf":
        result = -inf + inf  # minus inf plus inf
    elif WAY == "square root":
        result = tl.sqrt(one - 4.0 * one)  # square root
    elif WAY == "reciprocal root":
        result = tl.rsqrt(one - 4.0 * one)  # reciprocal root
    elif WAY == "logarithm":
        result = tl.log(one - 4.0 * one)  # logarithm
    elif WAY == "base two":
        result = tl.log2(one - 4.0 * one)  # base two
    elif WAY == "sine":
        result = tl.sin(inf)  # sine
    elif WAY == "fused":
        result = tl.fma(inf, zero, one)  # fused
    elif WAY == "fused sum":
        result = tl.fma(inf, one, -inf)  # fused sum
    elif WAY == "lost multiply":
        w = tl.load(x + at, mask=inside, other=1.0)  # lost multiply
        result = tl.where(at == 3, w, 1.0) * zero
    elif WAY == "softmax":
        scores = tl.where(at < 0, one, float("-inf"))
        result = tl.exp(scores - tl.max(scores, 0))  # softmax
    elif WAY == "sum":
        result = one + tl.sum(tl.where(at == 3, inf, tl.where(last, -inf, one)), 0)  # sum
    elif WAY == "running sum":
        result = tl.cumsum(tl.where(at == 3, inf, tl.where(last, -inf, one)), 0)  # running sum
    elif WAY == "maximum":
        result = tl.maximum(one, tl.where(at == 3, v, 1.0), propagate_nan=tl.PropagateNan.ALL)
    elif WAY == "bf16":
        result = (zero.to(tl.bfloat16) / zero.to(tl.bfloat16)).to(tl.float32)  # bf16
    elif WAY == "fp8":
        result = (inf - inf).to(tl.float8e5).to(tl.float32)  # fp8
    elif WAY == "moved":
        root = tl.sqrt(tl.reshape(one - 4.0 * one, (4, 8)))  # moved
        result = tl.reshape(tl.trans(root), (32,)) + 1.0
    elif WAY == "chosen":
        result = tl.where(last, tl.log(one - 4.0 * one), tl.sqrt(one))  # chosen
    elif WAY == "not stored":
        result = tl.load(work + at)  # not stored
    elif WAY == "stored before":
        tl.store(work + at, zero / zero)  # stored before
        result = tl.load(work + at)
    elif WAY == "atomic":
        tl.store(work + at, inf)
        tl.atomic_add(work + at, -inf)  # atomic
        result = tl.load(work + at)
    elif WAY == "called":
        result = _logarithm(one - 4.0 * one)
    tl.store(out + at, result.to(out.dtype.element_ty))


@triton.jit
def tiles(x, y, out, k, WAY: tl.constexpr):
    """Products of 16 x 16 tiles: ``x`` has an infinity at [1, 5], ``y`` a NaN at [2, 4]."""
    at = tl.arange(0, 16)
    rows, columns = at[:, None], at[None, :]
    place = rows * 16 + columns
    a = tl.where(rows + columns < 99, 1.0, 0.0)
    b = tl.where(rows + columns < 99, 1.0, 0.0)
    total = tl.zeros((16, 16), tl.float32)
    if WAY == "undefined lanes":
        a = tl.load(x + place, mask=columns < k)  # undefined lanes
        a = tl.where(columns == 5, 1.0, a)
        b = tl.where(rows < k, b, 0.0)
    elif WAY == "undefined sums":
        a = tl.load(x + place, mask=columns < k)  # undefined sums
        a = tl.where(columns == 5, 1.0, a)
    elif WAY == "zero times inf":
        a = tl.load(x + place)
        b = tl.where(rows == 5, 0.0, b)
    elif WAY == "inf minus inf":
        a = tl.where(columns == 0, float("inf"), a)
        b = tl.where(rows == 0, -1.0, b)
        total += float("inf")
    elif WAY == "accumulator":
        total = total / total  # accumulator
    elif WAY == "second operand":
        b = tl.load(y + place)  # second operand
    total = tl.dot(a, b, total, input_precision="ieee")  # zero times inf; inf minus inf
    tl.store(out + place, total)


def line_of(function: Any, way: str) -> int:
    """Returns the number of the line of a kernel that the comment of ``way`` marks."""
    source = inspect.getsource(inspect.getmodule(function.fn))
    lines = source.splitlines()
    first = function.fn.__code__.co_firstlineno
    marked = [
        number
        for number, line in enumerate(lines, 1)
        if way in line.partition("  # ")[2].split("; ") and (number >= first or way == "called")
    ]
    return marked[0]


def traced(name: str, way: str) -> tuple[list[str], set[str]]:
    """Returns the sentences about the NaN of the outputs of one kernel in the interpreter, and the kinds of origin."""
    from conformance.execution.interpreter.accesses import Lanes
    from conformance.kernels.launch import Launch
    from tests.kernels.interpreter_runs import executor

    x, y, out = inputs(name)
    work = torch.full((SIZE,), torch.nan)
    arguments = {"x": x, "out": out, "WAY": tl.constexpr(way)}
    arguments |= {"work": work, "n": 20} if name == "elements" else {"y": y, "k": 9}
    views = {key: value for key, value in arguments.items() if key in ("x", "y", "out")}
    with executor().tracing_nan(views, ["out"], Lanes()) as tracing:
        executor().run(Launch(globals()[name], (1,), arguments))
    numbers = [tracing.of_output("out", tuple(element)) for element in out.isnan().nonzero().tolist()]
    return tracing.origins.words(numbers), {tracing.origins.origin(number).kind for number in numbers}


def inputs(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the operands and the output of one kernel."""
    if name == "elements":
        x = torch.ones(SIZE)
        x[:5] = torch.tensor([0.0, 1.0, -3.0, torch.nan, torch.inf])
        return x, x, torch.zeros(SIZE)
    x, y = torch.ones(16, 16), torch.ones(16, 16)
    x[1, 5], y[2, 4] = torch.inf, torch.nan
    return x, y, torch.zeros(16, 16)


def everything() -> dict[tuple[str, str], Any]:
    return {(name, way): traced(name, way) for name, ways in (("elements", ELEMENTS), ("tiles", TILES)) for way in ways}
