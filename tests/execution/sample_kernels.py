"""Small kernels for the tests of compilation and codegen, with the factories that the compile pool calls by name."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import ctypes
import errno
import functools
import os
import signal
import stat
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from conformance.execution.compile.compilation import Artefact, CompilePool, CompileRequest, CompileResult
from conformance.kernels.kernel import NotApplicable
from conformance.kernels.launch import Launch
from conformance.records import Reason, ReasonCode
from conformance.targets import Target


@triton.jit
def sum_by_atomics(x_ptr, total_ptr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    tl.atomic_add(total_ptr, tl.sum(tl.load(x_ptr + columns)))


@triton.jit
def widened(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(tl.float16))


@triton.jit
def pointer_mm(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr
):
    columns = tl.cdiv(N, BN)
    rm = tl.program_id(0) // columns * BM + tl.arange(0, BM)
    rn = tl.program_id(0) % columns * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        a = tl.load(a_ptr + rm[:, None] * K + (k * BK + rk)[None, :], mask=rm[:, None] < M, other=0.0)
        b = tl.load(b_ptr + (k * BK + rk)[:, None] * N + rn[None, :], mask=rn[None, :] < N, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=tl.float32)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def descriptor_mm(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STORE: tl.constexpr,
    SPECIALISE: tl.constexpr,
):
    columns = tl.cdiv(N, BN)
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BK, BN])
    if STORE:
        c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    row = tl.program_id(0) // columns * BM
    column = tl.program_id(0) % columns * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, tl.cdiv(K, BK), warp_specialize=SPECIALISE):
        acc = tl.dot(a.load([row, k * BK]), b.load([k * BK, column]), acc, out_dtype=tl.float32)
    if STORE:
        c.store([row, column], acc.to(c_ptr.dtype.element_ty))
    else:
        rm = row + tl.arange(0, BM)
        rn = column + tl.arange(0, BN)
        mask = (rm[:, None] < M) & (rn[None, :] < N)
        tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def host_descriptor_mm(a, b, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    columns = tl.cdiv(N, BN)
    row = tl.program_id(0) // columns * BM
    column = tl.program_id(0) % columns * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        acc = tl.dot(a.load([row, k * BK]), b.load([k * BK, column]), acc, out_dtype=tl.float32)
    rm = row + tl.arange(0, BM)
    rn = column + tl.arange(0, BN)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def tma_store_wgmma_tcgen05(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """A copy whose name and comments name features that it has not: cp.async.bulk.tensor, tt.descriptor_store."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < N), mask=offsets < N)


@triton.jit
def broken(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), no_such_name)  # noqa: F821


@dataclass(frozen=True)
class Sample:
    """One kernel with what decides its code; ``offset`` elements shift the first operand's base."""

    kernel: str
    dtype: torch.dtype = torch.bfloat16
    size: int = 256
    block: tuple[int, int, int] = (64, 64, 64)
    warps: int = 4
    stages: int = 2
    precision: str = "ieee"
    store: bool = False
    specialise: bool = False
    offset: int = 0
    maxnreg: int | None = None


def meta(size: int, dtype: torch.dtype, offset: int = 0) -> torch.Tensor:
    """A square row-major matrix without memory."""
    storage = torch.empty(size * size + offset, dtype=dtype, device="meta")
    return storage.as_strided((size, size), (size, 1), offset)


def launch(sample: Sample, target: Target) -> Launch:
    """The launch of ``sample``: square operands of ``size``, an fp16 or bf16 result for 8-bit operands."""
    size, (bm, bn, bk) = sample.size, sample.block
    a, b = meta(size, sample.dtype, sample.offset), meta(size, sample.dtype)
    c = meta(size, torch.bfloat16 if sample.dtype.itemsize == 1 else sample.dtype)
    arguments: dict[str, Any] = {"a_ptr": a, "b_ptr": b, "c_ptr": c, "M": size, "N": size, "K": size}
    blocks = {"BM": bm, "BN": bn, "BK": bk}
    options = {"num_warps": sample.warps, "num_stages": sample.stages}
    if sample.maxnreg is not None:
        options["maxnreg"] = sample.maxnreg
    grid = (-(-size // bm) * -(-size // bn),)
    if sample.kernel == "pointer":
        return Launch(pointer_mm, grid, {**arguments, **blocks, "PRECISION": sample.precision}, options)
    if sample.kernel == "descriptor":
        flags = {"STORE": sample.store, "SPECIALISE": sample.specialise}
        return Launch(descriptor_mm, grid, {**arguments, **blocks, **flags}, options)
    if sample.kernel == "host":
        from triton.tools.tensor_descriptor import TensorDescriptor

        described = {
            "a": TensorDescriptor.from_tensor(a, [bm, bk]),
            "b": TensorDescriptor.from_tensor(b, [bk, bn]),
            "c_ptr": c,
            "N": size,
            "K": size,
        }
        return Launch(host_descriptor_mm, grid, {**described, **blocks}, options)
    if sample.kernel == "widened":
        return Launch(widened, (1,), {"x_ptr": a, "y_ptr": meta(size, torch.float16), "BLOCK": 256}, options)
    if sample.kernel == "copy":
        return Launch(tma_store_wgmma_tcgen05, (1,), {"x_ptr": a, "y_ptr": c, "N": size, "BLOCK": 128}, options)
    return Launch(broken, (1,), {"x_ptr": a, "BLOCK": 128}, options)


# What can go wrong in a compile process. The payload says what to do before the launch is built.


def die(signal_number: int, target: Target) -> Launch:
    """A compiler that aborts."""
    print("LLVM ERROR: planted", file=os.fdopen(os.dup(2), "w"), flush=True)
    os.kill(os.getpid(), signal_number)
    time.sleep(60)
    raise AssertionError("survived its signal")


def leave(how: str, target: Target) -> Launch:
    """Ends the process, or says more than anyone wants to hear."""
    if how == "exit":
        os._exit(0)
    if how == "SystemExit":
        raise SystemExit(0)
    if how == "KeyboardInterrupt":
        raise KeyboardInterrupt
    if how == "a long message":
        raise RuntimeError("planted " * (50_000_000 // 8))
    if how == "a lone surrogate":
        raise RuntimeError("planted \udc80")
    if how == "no memory":
        raise MemoryError("planted")
    if how == "no memory for a process":
        raise OSError(errno.ENOMEM, "planted")
    if how == "no memory, said by the code generator":
        try:
            raise MemoryError
        except MemoryError:
            raise RuntimeError("planted") from None
    if how == "no memory for the assembler":
        raise RuntimeError("ptxas fatal   : Memory allocation failure, planted")
    if how == "no memory for LLVM":
        print("LLVM ERROR: out of memory, planted", file=os.fdopen(os.dup(2), "w"), flush=True)
        os.abort()
    if how == "the lock":
        ctypes.PyDLL(None).sleep(60)
    os.write(1, b"\xff\0garbage" * 1_000_000)  # "output"
    os.write(2, b"\xff\0garbage" * 1_000_000)
    return launch(Sample("copy"), target)


def garble(garbage: bytes, target: Target) -> Launch:
    """Writes ``garbage`` wherever something listens, and goes on for long."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, garbage)
    time.sleep(60)
    return launch(Sample("copy"), target)


def hang(marker: str, target: Target) -> Launch:
    """A compiler that hangs in a process of its own, as ptxas can; writes that process's id to ``marker``."""
    import subprocess

    child = subprocess.Popen(["sleep", "600"])
    Path(marker).write_text(str(child.pid))
    child.wait()
    raise AssertionError("woke up")


def hungry(size: int, target: Target) -> Launch:
    """A compiler that takes ``size`` bytes of memory and then hangs."""
    block = b"x" * size
    while block:
        time.sleep(1)
    raise AssertionError("it goes on for ever")


def stubborn(seconds: float, target: Target) -> Launch:
    """Ignores what can be ignored and takes ``seconds``."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(seconds)
    return launch(Sample("copy"), target)


def paused(parent: int, target: Target) -> Launch:
    """Stops this process and its parent for longer than the deadline of the tests."""
    processes = f"{os.getpid()} {parent}"
    words = f"kill -STOP {processes}; sleep 7; kill -CONT {processes}"
    subprocess.Popen(["sh", "-c", words], start_new_session=True).wait()
    return launch(Sample("copy"), target)


def environment(names: tuple[str, ...], target: Target) -> Launch:
    """Fails with the process's environment in its message."""
    import triton.knobs

    seen = {name: os.environ.get(name) for name in names}
    raise RuntimeError(f"{seen} interpret={triton.knobs.runtime.interpret} cuda={torch.cuda.is_initialized()}")


# Tasks, which return something else than a launch


def described(payload: object, target: Target) -> tuple[str, object]:
    return target.id, payload


def refused(subject: str, target: Target) -> None:
    raise NotApplicable("sample", Reason(ReasonCode.CAPABILITY, subject, "it is not there"))


def unpicklable(payload: None, target: Target) -> object:
    return lambda: payload


# For the tests themselves


@functools.cache
def pool() -> CompilePool:
    """The compile pool that the tests of this process share."""
    shared = CompilePool(2, deadline=300)
    atexit.register(shared.close)
    return shared


def submit(sample: Sample, target: Target) -> concurrent.futures.Future[CompileResult]:
    """Starts to compile ``sample``; the same sample and target are compiled once in a process."""
    return pool().submit(CompileRequest(f"{__name__}:launch", sample, target))


def compiled(sample: Sample, target: Target) -> Artefact:
    """The artefact of ``sample``; fails the test that asks if it does not compile."""
    result = submit(sample, target).result()
    assert result.artefact is not None, f"{sample} on {target.id}: {result.status.value}: {result.error}"
    return result.artefact
