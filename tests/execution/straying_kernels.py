"""Small kernels whose accesses stray in each way that Triton has, with what the verdict must say of them."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
import triton
import triton.language as tl

from tests.kernels.interpreter_runs import executor

SIZE = 20  # elements of each operand


@triton.jit
def loaded(a, out, n, WAY: tl.constexpr):
    """Loads 32 elements of ``a``, which has fewer; the store has a mask."""
    at = tl.arange(0, 32)
    if WAY == "volatile":
        value = tl.load(a + at, volatile=True)
    elif WAY == "cached":
        value = tl.load(a + at, cache_modifier=".cg", eviction_policy="evict_first")
    elif WAY == "from int64":
        value = tl.load((a.to(tl.int64) + at * 4).to(tl.pointer_type(tl.float32)))
    elif WAY == "scalar":
        value = tl.load(a + n)
    elif WAY == "printed":
        tl.device_print("", tl.load(a + at))
        value = 1.0
    elif WAY == "gathered":
        value = tl.gather(tl.load(a + at), at, 0)
    elif WAY == "two dimensions":
        rows = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
        value = tl.reshape(tl.load(a + rows), (32,))
    elif WAY == "half a mask":
        value = tl.load(a + at, mask=at < n + 4, other=0.0)
    elif WAY == "all masked":
        value = tl.load(a + at, mask=at < n, other=0.0)
    tl.store(out + at, value, mask=at < n)


@triton.jit
def changed(a, out, n, WAY: tl.constexpr):
    """Changes elements that no kernel may change."""
    at = tl.arange(0, 32)
    if WAY == "add":
        tl.atomic_add(out + at, 1.0)
    elif WAY == "add, masked":
        tl.atomic_add(out + at, 1.0, mask=at <= n)
    elif WAY == "maximum":
        tl.atomic_max(out + at, 1.0)
    elif WAY == "compare and swap":
        tl.atomic_cas(out + at, 0.0, 1.0)
    elif WAY == "add to an input":
        tl.atomic_add(a + at, 0.0, mask=at < 1)
    elif WAY == "store to an input":
        tl.store(a + at, tl.load(a + at, mask=at < n, other=0.0), mask=at < n)
    elif WAY == "add twice":
        tl.atomic_add(out + at * 0, 1.0)
    elif WAY == "store, cached":
        tl.store(out + at, 1.0, cache_modifier=".wt")


@triton.jit
def advanced(a, out, n, WAY: tl.constexpr):
    """Copies through block pointers."""
    source = tl.make_block_ptr(a, (n,), (1,), (0,), (16,), (0,))
    target = tl.make_block_ptr(out, (n,), (1,), (0,), (16,), (0,))
    if WAY != "first block":
        source, target = tl.advance(source, (16,)), tl.advance(target, (16,))
    if WAY == "checked":
        tl.store(target, tl.load(source, boundary_check=(0,)), boundary_check=(0,))
    elif WAY == "load":
        tl.store(target, tl.load(source), boundary_check=(0,))
    elif WAY == "store":
        tl.store(target, tl.load(source, boundary_check=(0,), padding_option="zero"))
    else:
        tl.store(target, tl.load(source))


@triton.jit
def described(a, out, rows, columns, pitch, WAY: tl.constexpr):
    """Copies a block of 4 rows of 8 by descriptor."""
    source = tl.make_tensor_descriptor(a, [rows, columns], [pitch, 1], [4, 8])
    if WAY == "rows":
        value = source.load([4, 0])
    elif WAY == "offset":
        value = source.load([0, 2])
    else:
        value = source.load([0, 0])
    if WAY == "store":
        tl.make_tensor_descriptor(out, [rows, columns], [pitch, 1], [4, 8]).store([0, 0], value)
    elif WAY == "store inside":
        tl.make_tensor_descriptor(out, [rows, columns], [pitch, 1], [4, 4]).store([0, 0], tl.zeros((4, 4), tl.float32))
    else:
        at = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
        tl.store(out + at, value)


@triton.jit
def lanes(a, out, n, SIZE: tl.constexpr):
    """Stores what a mask without a value leaves undefined."""
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.load(a + at, mask=at < n))


BEHIND = "elements outside the operands, one of them 1 behind the last element of"
#: Kernel and way -> what is said; empty: nothing.
WAYS: dict[tuple[str, str], str] = {
    ("loaded", "all masked"): "",
    **{("loaded", way): f"loads 12 {BEHIND} 'a'" for way in ("volatile", "cached", "from int64", "printed")},
    **{("loaded", way): f"loads 12 {BEHIND} 'a'" for way in ("gathered", "two dimensions")},
    ("loaded", "scalar"): f"loads 1 {BEHIND} 'a'",
    ("loaded", "half a mask"): f"loads 4 {BEHIND} 'a'",
    ("changed", "add"): f"changes 12 {BEHIND} 'out'",
    ("changed", "add, masked"): f"changes 1 {BEHIND} 'out'",
    ("changed", "maximum"): f"changes 12 {BEHIND} 'out'",
    ("changed", "compare and swap"): f"changes 12 {BEHIND} 'out'",
    ("changed", "add to an input"): "stores to 1 elements of 'a', which is no output, one of them element 0",
    ("changed", "store to an input"): "stores to 20 elements of 'a', which is no output",
    ("changed", "add twice"): "stores 1 elements of 'out' again",
    ("changed", "store, cached"): f"stores 12 {BEHIND} 'out'",
    ("advanced", "first block"): "",
    ("advanced", "checked"): "",
    ("advanced", "load"): f"loads 12 {BEHIND} 'a'",
    ("advanced", "store"): f"stores 12 {BEHIND} 'out'",
}
#: Of `described`: rows, columns, pitch of 6 x 16 fp32 elements, how many elements the base is shifted -> what is said.
DESCRIBED: dict[tuple[str, int, int, int, int], str] = {
    ("plain", 6, 8, 16, 0): "",
    ("rows", 8, 8, 16, 0): "loads 16 elements outside the operands, one of them",
    ("plain", 6, 8, 15, 0): "describes 'a' with a pitch of 60 bytes: of a tensor map they must be multiples of 16",
    ("plain", 5, 8, 16, 1): "describes 'a' with a base 4 bytes behind a multiple of 16",
    ("plain", 6, 6, 16, 0): "",
    ("store", 6, 6, 16, 0): "stores to 'out' with a block over the end of rows of 24 bytes, which is no multiple of 16",
    ("store inside", 6, 6, 16, 0): "",
    ("store", 6, 8, 16, 0): "",
}


def strays() -> dict[tuple[Any, ...], list[str]]:
    """Returns the findings about each launch."""
    from conformance.kernels.launch import Launch

    def said(kernel: str, tensors: dict[str, torch.Tensor], **arguments: Any) -> list[str]:
        launch = Launch(globals()[kernel], (1,), {**tensors, **arguments})
        watching = executor().watching(tensors, once=["out"], written=["out"])
        with watching as accesses, contextlib.redirect_stdout(io.StringIO()):  # a kernel prints
            executor().run(launch)
        return list(accesses.strays.values())

    result: dict[tuple[Any, ...], list[str]] = {}
    for kernel, way in WAYS:
        if kernel == "advanced" and not hasattr(tl, "advance"):
            continue  # Triton 3.9
        tensors = {"a": torch.ones(SIZE), "out": torch.zeros(SIZE)}
        result[kernel, way] = said(kernel, tensors, n=SIZE, WAY=way)
    for way, rows, columns, pitch, shift in DESCRIBED:
        memory, out = torch.ones(7, 16), torch.zeros(7, 16)
        tensors = {"a": memory.flatten()[shift : shift + 96].view(6, 16), "out": out[:6]}
        arguments = {"rows": rows, "columns": columns, "pitch": pitch, "WAY": way}
        result[way, rows, columns, pitch, shift] = said("described", tensors, **arguments)
    return result


def undefined_numbers(dtype: torch.dtype, plausible: bool) -> list[float]:
    """Returns the values of 4 of 8 lanes that a mask leaves undefined; the others are 0, 1, 0 and 1."""
    from conformance.kernels.launch import Launch

    tensors = {"a": torch.tensor([0, 1] * 4).to(dtype), "out": torch.zeros(8, dtype=dtype)}
    with executor().watching(tensors, plausible=plausible):
        executor().run(Launch(lanes, (1,), {**tensors, "n": 4, "SIZE": 8}))
    return tensors["out"].double().tolist()[4:]


def refused(way: str) -> str:
    """Returns the reason why a launch cannot be interpreted."""
    from conformance.execution.interpreter.executor import InterpreterUnsupported
    from conformance.kernels.launch import Launch

    tensors = {"a": torch.ones(6, 16), "out": torch.zeros(6, 16)}
    try:
        executor().run(Launch(described, (1,), {**tensors, "rows": 6, "columns": 8, "pitch": 16, "WAY": way}))
    except InterpreterUnsupported as error:
        return str(error.reason)
    return ""
