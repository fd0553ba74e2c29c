"""Correct kernels in emulated arithmetic: chunked truncating accumulators, orders, split-K, fp32 epilogues."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.gemm.problem import BLOCK_SCALINGS, Gemm
from conformance.inputs.fills import fills
from conformance.numerics.contract import Accumulator, Contract
from conformance.numerics.rounding import round_to
from conformance.numerics.verdict import judge

HOPPER = Accumulator(alignment_bits=25, result_bits=23, chunk=16)
HOPPER_TF32 = Accumulator(alignment_bits=25, result_bits=23, chunk=8)
FP8_PROMOTED = Accumulator(alignment_bits=13, result_bits=13, chunk=32, promote=64)


def fp32(values: Tensor) -> Tensor:
    return values.float().double()


@dataclass
class Unit:
    """An accumulator of a contract, or a better one. A step has ``chunk`` products, aligned with ``alignment`` bits or
    exactly (None). Results have ``result`` bits, truncated or rounded."""

    chunk: int
    alignment: int | None
    result: int
    truncates: bool
    promote: int | None

    def sum(self, a, b):
        """The sum of a (M, k) times b (k, N) over k in its order."""
        total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
        length = self.promote or max(1, a.shape[1])
        for start in range(0, a.shape[1], length):
            part = torch.zeros_like(total)
            for first in range(start, min(start + length, a.shape[1]), self.chunk):
                last = min(first + self.chunk, start + length, a.shape[1])
                part = self._step(part, a[:, first:last, None] * b[None, first:last])
            total = fp32(total + part) if self.promote else part
        return fp32(total)

    def _step(self, total, terms):
        everything = torch.cat([terms, total[:, None]], 1)
        cut = everything
        if self.alignment is not None:
            unit = self._unit(everything.abs().amax(1), self.alignment)[:, None]
            cut = torch.trunc(everything / unit) * unit
        result = cut.sum(1)
        unit = self._unit(result.abs(), self.result)
        kept = (torch.trunc(result / unit) if self.truncates else torch.round(result / unit)) * unit
        exact = everything.sum(1)
        return torch.where(exact.isfinite(), kept, exact)

    @staticmethod
    def _unit(size, bits):
        # fp32's subnormals have a unit of their own
        exponent = torch.frexp(size)[1].clamp(min=-125) - 1
        return torch.where(size > 0, torch.ldexp(torch.ones_like(size), exponent - bits), 1.0)


def accumulate(a: Tensor, b: Tensor, unit: Accumulator, order: Tensor) -> Tensor:
    """A @ B over k in the given order (fp64 holding what the accumulator holds)."""
    a, b = a.double()[:, order], b.double()[order]
    if unit.kind == "fma":
        total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
        for left, right in zip(a.T, b, strict=True):
            total = fp32(total + left[:, None] * right)
        return total
    return Unit(unit.chunk, unit.alignment_bits, unit.result_bits, True, unit.promote).sum(a, b)


class EmulatedProduct:
    """A correct kernel of any operation, in fp64 with one rounding to fp32 per operation. A fault overrides one of its
    parts. ``association`` says in which order scales are multiplied, ``contracted`` that one product is not rounded
    before it is added."""

    association, contracted = 0, False

    def __init__(self, problem: Gemm, contract: Contract):
        self.problem, self.contract = problem, contract

    def __call__(self, inputs):
        result = self.epilogue(inputs, self.product(inputs)).double()
        return round_to(result, self.contract.out_dtype, overflow=self.contract.overflow)

    def dot(self, a, b):
        total = a.double() @ b.double()
        return total if self.contract.accumulator.kind == "int" else fp32(total)

    def product(self, inputs):
        problem = self.problem
        raw = torch.zeros(problem.output.shape, dtype=torch.float64)
        if not problem.has_product:
            return raw
        if problem.op == "mm_plus_mm":
            return self.dot(torch.cat([inputs["a"], inputs["c"]], 1), torch.cat([inputs["b"], inputs["d"]], 0))
        if problem.batch is not None:
            for matrix, (a, b) in enumerate(zip(inputs["a"], inputs["b"], strict=True)):
                raw[matrix] = self.dot(a, b)
            return raw
        if problem.scaling in BLOCK_SCALINGS:
            return self.scaled(inputs)
        return self.dot(self.prologue(inputs), inputs["b"])

    def scaled(self, inputs):
        total = torch.zeros(self.problem.output.shape, dtype=torch.float64)
        for index, start in enumerate(range(0, self.problem.K, 128)):
            part = self.dot(inputs["a"][:, start : start + 128], inputs["b"][start : start + 128])
            total = fp32(total + self.with_scales(part, *self.scales(inputs, index)))
        return total

    def scales(self, inputs, index):
        kind_a, kind_b = self.problem.scaling.split("/")
        rows = torch.arange(self.problem.M) // (128 if kind_a == "128x128" else 1)
        columns = torch.arange(self.problem.N) // (128 if kind_b == "128x128" else 1)
        return inputs["scale_a"][rows, index, None], inputs["scale_b"][index, columns]

    def with_scales(self, values, scale_a, scale_b):
        one, other = scale_a.double(), scale_b.double()
        if self.association == 0:
            return fp32(fp32(values * one) * other)
        return fp32(fp32(values * other) * one) if self.association == 1 else fp32(values * fp32(one * other))

    def prologue(self, inputs):
        problem, a = self.problem, inputs["a"]
        kind = problem.fusion.prologue if problem.fusion is not None else None
        if kind == "gather":
            return a[inputs["rows"].long()]
        if kind == "scale":
            return round_to(fp32(a.double() * inputs["row_scale"].double()[:, None]), problem.dtype)
        return round_to(a.double(), problem.dtype) if kind == "cast" else a

    def epilogue(self, inputs, raw):
        problem = self.problem
        if problem.op == "int_mm":
            return raw
        if problem.fusion is not None:
            for step in self.steps():
                raw = getattr(self, step)(inputs, raw)
            return raw
        if problem.scaling in ("tensor", "row"):
            raw = self.with_scales(raw, inputs["scale_a"], inputs["scale_b"])
        alpha, beta = (float(torch.tensor(factor, dtype=torch.float32)) for factor in (problem.alpha, problem.beta))
        product = raw.double() * alpha if problem.has_product else raw
        if not problem.reads_bias:
            return fp32(product)
        bias = inputs["bias"].double() * beta
        if self.contracted:
            return fp32(product + fp32(bias)) if self.association % 2 else fp32(fp32(product) + bias)
        return fp32(fp32(product) + fp32(bias))

    def steps(self):
        return self.problem.fusion.epilogue

    def bias(self, inputs, value):
        return fp32(value + inputs["bias"].double())

    def residual(self, inputs, value):
        return fp32(value + inputs["residual"].double())

    def relu(self, inputs, value):
        return torch.where(value < 0, 0.0, value)

    def gelu(self, inputs, value):
        x = value.float()
        return (0.5 * x * (1.0 + torch.erf(x * 0.7071067811865476))).double()

    def dropout(self, inputs, value):
        return torch.where(inputs["mask"] != 0, value * 2, 0.0)


def epilogue(problem: Gemm, inputs: Mapping[str, Tensor], raw: Tensor) -> Tensor:
    """The epilogue in fp32, one rounding per operation."""
    result = raw.float()
    if problem.scaling is not None:
        result = result * inputs["scale_a"] * inputs["scale_b"]
    elif problem.op == "addmm":
        result = result * problem.alpha
    if problem.reads_bias:
        result = result + inputs["bias"].float() * problem.beta
    return result


def correct(problem: Gemm, contract: Contract, inputs: Mapping[str, Tensor], variant: int) -> Tensor:
    """A correct kernel; ``variant`` picks k order (ascending, descending, shuffled by chunk) and one or two splits."""
    unit = contract.accumulator
    chunks = list(torch.arange(problem.K).split(unit.promote or unit.chunk))
    if variant % 3 == 1:
        chunks.reverse()
    elif variant % 3 == 2 and not unit.promote:
        chunks = list(torch.randperm(problem.K, generator=torch.Generator().manual_seed(variant)).split(unit.chunk))
    splits = min(1 + variant % 2, len(chunks)) if unit.promote is None else 1
    raw = torch.zeros(problem.M, problem.N, dtype=torch.float64)
    for part in range(splits):
        order = torch.cat(chunks[part::splits])
        raw = fp32(raw + accumulate(inputs["a"], inputs["b"], unit, order))
    result = epilogue(problem, inputs, raw).double()
    return round_to(result, contract.out_dtype, overflow=contract.overflow)


#: The fills of a problem, kept for the kernels that are tried next. No kernel changes them.
kept_fills = functools.lru_cache(maxsize=32)(fills)


def caught_by(problem: Gemm, contract: Contract, kernel, seed: int = 0) -> set[str]:
    """Returns the names of the fills on which ``kernel(inputs) -> out`` fails."""
    every_fill = kept_fills(problem, contract, seed)
    judged = {fill.name: judge(problem, contract, fill, kernel(fill.inputs)) for fill in every_fill}
    return {name for name, verdict in judged.items() if not verdict.passed}
