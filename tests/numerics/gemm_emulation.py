"""Correct kernels in emulated arithmetic: chunked truncating accumulators, orders, split-K, fp32 epilogues."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.gemm.problem import Gemm
from conformance.inputs.fills import fills
from conformance.numerics.contract import Accumulator, Contract
from conformance.numerics.rounding import round_to
from conformance.numerics.verdict import judge

HOPPER = Accumulator(alignment_bits=25, result_bits=23, chunk=16)
HOPPER_TF32 = Accumulator(alignment_bits=25, result_bits=23, chunk=8)
FP8_PROMOTED = Accumulator(alignment_bits=13, result_bits=13, chunk=32, promote=64)


def truncate(x: Tensor, quantum: Tensor) -> Tensor:
    return torch.trunc(x / quantum) * quantum


def exponent(x: Tensor) -> Tensor:
    return torch.frexp(x)[1].double() - 1


def step(total: Tensor, terms: Tensor, unit: Accumulator) -> Tensor:
    """One tensor-core step: ``terms`` (M, N, T) and ``total`` (M, N) aligned to the largest, cut, summed, cut."""
    everything = torch.cat([terms, total[..., None]], -1)
    largest = everything.abs().amax(-1)
    aligned = torch.exp2(exponent(largest) - unit.alignment_bits)[..., None]
    result = truncate(everything, aligned).sum(-1)
    result = truncate(result, torch.exp2(exponent(result) - unit.result_bits))
    exact = everything.sum(-1)
    return torch.where(exact.isfinite(), result, exact)


def accumulate(a: Tensor, b: Tensor, unit: Accumulator, order: Tensor) -> Tensor:
    """A @ B over k in the given order (fp64 holding what the accumulator holds)."""
    a, b = a.double()[:, order], b.double()[order]
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    partial = torch.zeros_like(total)
    for start in range(0, a.shape[1], unit.chunk):
        left, right = a[:, start : start + unit.chunk], b[start : start + unit.chunk]
        if unit.kind == "fma":
            partial = round_to(partial + left @ right, "fp32").double()
            continue
        partial = step(partial, left[:, None, :] * right.T[None, :, :], unit)
        if unit.promote and (start + unit.chunk) % unit.promote == 0:
            total = round_to(total + partial, "fp32").double()
            partial = torch.zeros_like(total)
    return round_to(total + partial, "fp32").double()


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
        raw = round_to(raw + accumulate(inputs["a"], inputs["b"], unit, order), "fp32").double()
    result = epilogue(problem, inputs, raw).double()
    return round_to(result, contract.out_dtype, overflow=contract.overflow)


def caught_by(problem: Gemm, contract: Contract, kernel, seed: int = 0) -> set[str]:
    """Returns the names of the fills on which ``kernel(inputs) -> out`` fails."""
    judged = {fill.name: judge(problem, contract, fill, kernel(fill.inputs)) for fill in fills(problem, contract, seed)}
    return {name for name, verdict in judged.items() if not verdict.passed}
