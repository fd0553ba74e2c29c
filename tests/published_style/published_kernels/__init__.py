"""Right kernels that are written as published ones are: what they do must not fail a case."""

from __future__ import annotations

import triton
import triton.language as tl

from conformance.heuristics.configs import Config
from conformance.kernels.families.gemm import GemmFamily
from conformance.kernels.kernel import Features, Variant, check_tensors
from conformance.kernels.launch import Launch
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.records import Reason, ReasonCode


@triton.jit
def tensor_numbers(
    a, b, c, M, N, K, am: tl.int64, ak, bk, bn, cm, cn, alpha,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Converts what is a tensor for the compiler: a loop's index, a float, a number of a tuple, a minimum."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    first, scale = 0, 1.0
    for k in range(first.to(tl.int32), tl.cdiv(K, BK)):
        rk = k.to(tl.int64) * BK + tl.arange(0, BK)
        left = min(K - k * BK, BK).to(tl.int64)
        x = tl.load(a + rm[:, None] * am + rk[None, :] * ak, (rm < M)[:, None] & (rk - k * BK < left)[None, :], other=0)
        y = tl.load(b + rk[:, None] * bk + rn[None, :] * bn, (rk < K)[:, None] & (rn < N)[None, :], other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    acc *= alpha.to(tl.float32) * scale.to(tl.float32)
    tl.store(c + rm[:, None] * cm + rn[None, :] * cn, acc.to(c.dtype.element_ty), (rm < M)[:, None] & (rn < N)[None, :])


@triton.jit
def named_in_place(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn, alpha,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """``(start := 0).to(tl.int64)`` compiles, and the interpreter has no such number: it raises AttributeError."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range((start := 0).to(tl.int64), K, BK):
        rk = start + k + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * am + rk[None, :] * ak, (rm < M)[:, None] & (rk < K)[None, :], other=0.0)
        y = tl.load(b + rk[:, None] * bk + rn[None, :] * bn, (rk < K)[:, None] & (rn < N)[None, :], other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.store(c + rm[:, None] * cm + rn[None, :] * cn, acc.to(c.dtype.element_ty), (rm < M)[:, None] & (rn < N)[None, :])


@triton.jit
def named_without_value(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn, alpha, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Both: the interpreter cannot run it, and its masks leave lanes without a value."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range((start := 0).to(tl.int64), K, BK):
        rk = start + k + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * am + rk[None, :] * ak, (rm < M)[:, None] & (rk < K)[None, :])
        y = tl.load(b + rk[:, None] * bk + rn[None, :] * bn, (rk < K)[:, None] & (rn < N)[None, :])
        acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.store(c + rm[:, None] * cm + rn[None, :] * cn, acc.to(c.dtype.element_ty), (rm < M)[:, None] & (rn < N)[None, :])


@triton.jit
def broken(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn, alpha, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Neither runs in the interpreter nor compiles."""
    tl.store(c, missing_name)  # noqa: F821


@triton.jit
def no_value(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn, alpha,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SKIPPED: tl.constexpr,
):  # fmt: skip
    """Loads under masks without a value for what these leave out; leaves out the first SKIPPED blocks of k."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(SKIPPED, tl.cdiv(K, BK)):
        rk = k * BK + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * am + rk[None, :] * ak, mask=(rm < M)[:, None] & (rk < K)[None, :])
        y = tl.load(b + rk[:, None] * bk + rn[None, :] * bn, mask=(rk < K)[:, None] & (rn < N)[None, :])
        acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.store(c + rm[:, None] * cm + rn[None, :] * cn, acc.to(c.dtype.element_ty), (rm < M)[:, None] & (rn < N)[None, :])


class Published(GemmFamily):
    operations = frozenset({"mm"})
    dtypes = ("fp16",)
    configs = (Config(32, 32, 32, 2, 4),)
    weight = 1

    def __init__(self, name, function, lanes="warn", **more):
        self.name, self.function, self.lanes, self.more = name, function, lanes, more

    def refusal(self, plan):
        problem = plan.problem
        if problem.op != "mm":
            return Reason(ReasonCode.OPERATION, problem.op, f"{self.name} computes mm")
        if {problem.dtype, problem.second_dtype, problem.output_dtype} != {"fp16"}:
            return Reason(ReasonCode.DTYPE, "a", f"{self.name} takes fp16")
        if plan.variant != Variant():
            return Reason(ReasonCode.CONFIG, "variant", f"{self.name} works in one way")
        return None

    def grid(self, plan):
        return (triton.cdiv(plan.problem.M, plan.config.block_m), triton.cdiv(plan.problem.N, plan.config.block_n))

    def launch(self, plan, tensors):
        check_tensors(self.name, plan.problem, tensors)
        pairs = (("a", "a", "mk"), ("b", "b", "kn"), ("c", "out", "mn"))
        strides = {
            f"{x}{dim}": stride
            for x, name, dims in pairs
            for dim, stride in zip(dims, plan.problem.operand(name).strides[-2:], strict=True)
        }
        config, problem = plan.config, plan.problem
        tile = {"BM": config.block_m, "BN": config.block_n, "BK": config.block_k}
        sizes = {"M": problem.M, "N": problem.N, "K": problem.K, "alpha": problem.alpha}
        arguments = {"a": tensors["a"], "b": tensors["b"], "c": tensors["out"], **strides, **sizes, **tile, **self.more}
        return Launch(self.function, plan.grid, arguments, config.options)

    def contract(self, plan, executor):
        unit = FMA if executor == "interpreter" else Accumulator(alignment_bits=24, assumed=True)
        return Contract(plan.problem.output_dtype, unit, undefined_lanes=self.lanes)

    def features(self, plan):
        return Features()


def kernels():
    functions = {"published_numbers": tensor_numbers, "published_named": named_in_place, "published_broken": broken}
    functions["published_unseen"] = named_without_value
    loads = [Published(f"published_{lanes}", no_value, lanes, SKIPPED=0) for lanes in ("warn", "error", "off", "zero")]
    short = Published("published_short", no_value, SKIPPED=1)
    return [*(Published(name, function) for name, function in functions.items()), *loads, short]
