"""Small kernels in which an integer of 32 bits overflows; a process that interprets imports this module."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import triton
import triton.language as tl

#: Way -> the line is marked by it, and words of the sentence.
WAYS = {
    "product": "2 * 1073741824 = 2147483648, and became -2147483648 [1 elements]",
    "sum": "2147483647 + 1 = 2147483648, and became -2147483648 [1 elements]",
    "shift": "2 << 31 = 4294967296, and became 0 [1 elements]",
    "reduction": "a sum is 4294967296, and became 0 [4 elements]",
    "dot": "a sum of products is 2147483663, and became -2147483633 [256 elements]",
    "moved": "2 * 1073741824 = 2147483648, and became -2147483648 [1 elements]",
    "offset": "2 * 1073741824 = 2147483648, and became -2147483648; overflow_kernels.py:",
}


@triton.jit
def overflowing(x, out, n, WAY: tl.constexpr):
    """``n`` is 2**30."""
    at = tl.arange(0, 4)
    value = at + 0
    if WAY == "product":
        value = at * n  # product
        value = tl.where(at == 3, value, 1)
    elif WAY == "sum":
        value = tl.where(at == 2, n - 1 + n, 0) + (at == 2).to(tl.int32)  # sum
    elif WAY == "shift":
        value = tl.where(at == 2, at, 0) << 31  # shift
    elif WAY == "reduction":
        value = at + tl.sum(at * 0 + n, 0)  # reduction
    elif WAY == "moved":
        value = at * n  # moved
        value = tl.reshape(tl.trans(tl.reshape(tl.where(at == 3, value, 1), (2, 2))), (4,))
    elif WAY == "offset":
        value = tl.load(x + at * n, mask=(at == 0) | (at == 2)).to(tl.int32)  # offset
    tl.store(out + at, value)


@triton.jit
def dotted(x, out, n):
    at = tl.arange(0, 16)
    ones = tl.full((16, 16), 1, tl.int8)
    start = tl.zeros((16, 16), tl.int32) + (n - 1 + n)
    total = tl.dot(ones, ones, start, out_dtype=tl.int32)  # dot
    tl.store(out + at[:, None] * 16 + at[None, :], total)


def line_of(way: str) -> int:
    """Returns the number of the line that the comment of ``way`` marks."""
    lines = inspect.getsource(inspect.getmodule(overflowing.fn)).splitlines()  # type: ignore[arg-type]
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"  # {way}"))


def everything() -> dict[str, list[str]]:
    """Returns the sentences about each way, as if every element was wrong."""
    from conformance.execution.interpreter.accesses import Lanes
    from conformance.kernels.launch import Launch
    from tests.kernels.interpreter_runs import executor

    answers = {}
    for way in (*WAYS, "none"):
        x, out = torch.ones(4, dtype=torch.int32), torch.zeros(256 if way == "dot" else 4, dtype=torch.int32)
        arguments: dict[str, Any] = {"x": x, "out": out, "n": 2**30}
        function = dotted if way == "dot" else overflowing
        arguments |= {} if way == "dot" else {"WAY": tl.constexpr(way)}
        with executor().tracing_overflow({"x": x, "out": out}, ["out"], Lanes()) as tracing:
            executor().run(Launch(function, (1,), arguments))
        numbers = [tracing.of_output("out", (element,)) for element in range(len(out))]
        answers[way] = tracing.sentences([number for number in numbers if number])
    return answers
