"""Kernels as libraries have them: with a tuner, an entry and a module of their own, made by a function."""

import functools
import multiprocessing

import library_functions as functions
import torch
import triton

CONFORMANCE = {"operation": "mm", "call": "mm(a, b)", "dtypes": ["fp32"], "shapes": ["smaller-than-a-tile"]}


class Tuner(triton.runtime.Autotuner):
    def run(self, *args, **kwargs):
        raise RuntimeError("this tuner needs a device")


class Entry:
    def __init__(self, tuner):
        assert isinstance(tuner.fn, triton.runtime.JITFunction)
        self.tuner, self.lock, self.kept = tuner, multiprocessing.Lock(), None

    def run(self, grid, *arguments):
        with self.lock:
            if self.kept is None:
                self.kept = self.tuner[grid](*arguments)
                return
        block = self.tuner.best_config.kwargs["BLOCK"]
        self.kept[grid({"BLOCK": block})](*arguments)


@functools.cache
def made():
    import triton.language as tl

    @triton.jit(launch_metadata=lambda grid, kernel, arguments: {"name": kernel.name})
    def product(a, b, c, M, N, K, am, bk, cm, BLOCK: tl.constexpr):
        rows = functions.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        columns = functions.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK, BLOCK), functions.SUM)
        for k in range(K):
            x = tl.load(a + rows * am + k, mask=rows < M, other=0.0)
            y = tl.load(b + k * bk + columns, mask=columns < N, other=0.0)
            total += x[:, None] * y[None, :]
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        tl.store(c + rows[:, None] * cm + columns[None, :], total.to(c.type.element_ty), mask=inside)

    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]
    return Entry(Tuner(product, product.arg_names, configs, ["M"], None, None))


def mm(a, b):
    a, b = a.T.contiguous().T.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    sizes = (M, N, K, a.stride(0), b.stride(0), c.stride(0))
    made().run(lambda meta: (triton.cdiv(M, meta["BLOCK"]), triton.cdiv(N, meta["BLOCK"]), 1), a, b, c, *sizes)
    return c
