"""Each access outside the operands is told in the interpreter, whatever it gives, and no access inside them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from tests.kernels.interpreter_runs import executor, in_interpreter

SIZE = 20  # elements of each operand, in blocks of 16


@triton.jit
def copied(a, out, n, shift, READS: tl.constexpr, STORES: tl.constexpr, ATOMIC: tl.constexpr):
    """Copies ``n`` elements, with a mask for reads, stores or both. ``shift`` moves the reads."""
    index = tl.program_id(0) * 16 + tl.arange(0, 16)
    value = tl.load(a + index + shift, mask=index < n, other=0.0) if READS else tl.load(a + index + shift)
    if ATOMIC:
        tl.atomic_add(out + index, value)
    elif STORES:
        tl.store(out + index, value, mask=index < n)
    else:
        tl.store(out + index, value)


@triton.jit
def doubled(a, out, n, UNDEFINED: tl.constexpr):
    """Twice each element; with ``UNDEFINED`` lanes that were not loaded are summed, too."""
    index = tl.arange(0, 16)
    value = tl.load(a + index, mask=index < n)
    if UNDEFINED:
        tl.store(out, tl.sum(value.to(tl.float32), 0))
    else:
        tl.store(out + index, value.to(tl.float32) * 2, mask=index < n)


@triton.jit
def by_table(table, out):
    """Copies from the addresses that a table holds."""
    source = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.program_id(0) * 4 + tl.arange(0, 4), tl.load(source + tl.arange(0, 4)))


@triton.jit
def by_descriptor(a, out, n):
    source = tl.make_tensor_descriptor(a, [n, 8], [16, 1], [4, 8])
    target = tl.make_tensor_descriptor(out, [n, 8], [8, 1], [4, 8])
    row = tl.program_id(0) * 4
    target.store([row, 0], source.load([row, 0]))


@triton.jit
def every_row(out, n, ROWS: tl.constexpr):
    """Each program stores its row; with more ``ROWS`` the next ones, too."""
    for row in range(ROWS):
        tl.store(out + (tl.program_id(0) + row) % n * 4 + tl.arange(0, 4), 1.0)


def launched(function: str, grid: int, tensors: dict[str, Any], once: tuple[str, ...] = (), **more: Any) -> list[str]:
    """Returns the stray accesses of a launch over ``tensors``, the operands."""
    from conformance.kernels.launch import Launch

    with executor().watching(tensors, once=once) as accesses:
        executor().run(Launch(globals()[function], (grid,), {**tensors, **more}))
    return list(accesses.strays.values())


def copies(**changed: Any) -> list[str]:
    tensors = {"a": torch.arange(float(SIZE)), "out": torch.zeros(SIZE)}
    return launched("copied", 2, tensors, **{**MASKED, **changed})


def in_gaps(whole: bool) -> list[str]:
    memory = torch.zeros(4, 8)
    tensors = {"a": memory if whole else memory[:, :5], "out": torch.zeros(32)}
    return launched("copied", 1, tensors, **{**MASKED, "n": 16})


def with_descriptors(rows: int) -> list[str]:
    tensors = {"a": torch.ones(6, 16)[:, :8], "out": torch.zeros(rows, 8)}
    return launched("by_descriptor", 2, tensors, n=rows)


def stored(grid: int, rows: int, once: tuple[str, ...] = ("out",)) -> list[str]:
    return launched("every_row", grid, {"out": torch.zeros(12)}, once, n=grid, ROWS=rows)


def undefined_lanes(dtype: torch.dtype) -> list[float]:
    """Twice 9 of 16 ones and what was there behind them, and the sum of all 16 lanes of the load."""
    a, out, total = torch.ones(16).to(dtype), torch.zeros(16), torch.zeros(1)
    launched("doubled", 1, {"a": a, "out": out}, n=9, UNDEFINED=False)
    launched("doubled", 1, {"a": a, "out": total}, n=9, UNDEFINED=True)
    return [*out.tolist(), *total.tolist()]


def with_a_table(behind: bool) -> list[str]:
    """One of two addresses in a table is that of an operand; the other leads ``behind`` it or to unknown memory."""
    from conformance.kernels.launch import Launch

    operand, unknown, out = torch.ones(4), torch.ones(4), torch.zeros(8)
    table = torch.tensor([operand.data_ptr(), operand.data_ptr() + 8 if behind else unknown.data_ptr()])
    with executor().watching({"operand": operand, "out": out}) as accesses:
        executor().run(Launch(by_table, (2,), {"table": table, "out": out}))
    return list(accesses.strays.values())


MASKED = {"READS": True, "STORES": True, "ATOMIC": False, "shift": 0, "n": SIZE}
OUTSIDE = "12 elements outside the operands, one of them 1 behind the last element of"
#: What is launched, and the text about what strays; empty: nothing does.
LAUNCHES: dict[str, tuple[Callable[[], list[str]], str]] = {
    "all masked": (copies, ""),
    "reads": (partial(copies, READS=False), f"program (1, 0, 0) loads {OUTSIDE} 'a'"),
    "before": (
        partial(copies, shift=-3),
        "program (0, 0, 0) loads 3 elements outside the operands, one of them 3 before",
    ),
    "far behind": (partial(copies, shift=1 << 33), "behind the last element of"),
    "far before": (partial(copies, shift=-(1 << 33)), "before the first element of"),
    "stores": (partial(copies, STORES=False), f"program (1, 0, 0) stores {OUTSIDE} 'out'"),
    "atomics": (partial(copies, ATOMIC=True), f"program (1, 0, 0) changes {OUTSIDE} 'out'"),
    "a whole matrix": (partial(in_gaps, True), ""),
    "gaps": (
        partial(in_gaps, False),
        "loads 6 elements outside the operands, one of them 5 behind the first element of 'a'",
    ),
    "descriptors": (partial(with_descriptors, 6), ""),
    "a descriptor of more rows": (partial(with_descriptors, 8), "loads 16 elements outside the operands, one of them"),
    "one store": (partial(stored, 3, 1), ""),
    "stores of two programs": (
        partial(stored, 3, 2),
        "program (1, 0, 0) stores 4 elements of 'out' again: program (0, 0, 0) has stored element 4",
    ),
    "two stores of one program": (partial(stored, 1, 2), "again: program (0, 0, 0) has stored element 0"),
    "two stores that are allowed": (partial(stored, 3, 2, ()), ""),
    "a table of addresses": (partial(with_a_table, False), ""),
    "a table of wrong addresses": (partial(with_a_table, True), "loads 2 elements outside the operands"),
}
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


def everything() -> tuple[dict[str, list[str]], list[list[float]]]:
    return {name: launch() for name, (launch, _) in LAUNCHES.items()}, [undefined_lanes(dtype) for dtype in DTYPES]


@pytest.fixture(scope="module")
def results() -> Any:
    """Returns the answers of one process for everything, because its start takes longer."""
    return in_interpreter(everything)


@pytest.mark.parametrize("name", LAUNCHES)
def test_what_strays_is_told(results: Any, name: str) -> None:
    strays, text = results[0][name], LAUNCHES[name][1]
    assert len(strays) == (1 if text else 0), strays
    assert not text or (strays[0].startswith("test_interpreter_accesses.py:") and text in strays[0])


@pytest.mark.parametrize("number", range(len(DTYPES)), ids=[str(dtype) for dtype in DTYPES])
def test_lanes_that_nothing_stands_for_are_nan(results: Any, number: int) -> None:
    *out, total = results[1][number]
    assert out == [2.0] * 9 + [0.0] * 7
    assert math.isnan(total)
