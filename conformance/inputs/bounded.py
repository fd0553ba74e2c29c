"""Bounded and special fills: values that exact fills cannot reach, judged by the contract's interval."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from conformance import reference
from conformance.inputs.draws import Draws, Floats
from conformance.inputs.exact import format_name, ignored
from conformance.numerics.bounds import error_bound
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import Gemm, Operand

#: Bounded fills draw scales from [2**-1, 2).
LARGEST_SCALE = 2.0


def randn(problem: Gemm, contract: Contract, seed: int, device: reference.Device) -> Fill:
    """Near-normal operands, bias and positive scales that are no powers of two."""
    draws = Draws(seed, "randn")
    a, b = draws.normal((problem.M, problem.K)), draws.normal((problem.K, problem.N))
    return _bounded("randn", problem, contract, seed, draws, a, b, device)


def hot(problem: Gemm, contract: Contract, seed: int, device: reference.Device) -> Fill:
    """Even rows of A and columns of B lognormal over many binades, odd ones positive uniform.

    Positive times positive shows biased truncation, which grows with K; lognormal shows lost small terms.
    """
    draws = Draws(seed, "hot")
    a, b = draws.lognormal((problem.M, problem.K)), draws.lognormal((problem.K, problem.N))
    a[1::2] = draws.uniform(a[1::2].shape)
    b[:, 1::2] = draws.uniform(b[:, 1::2].shape)
    return _bounded("hot", problem, contract, seed, draws, a, b, device)


def special(problem: Gemm, contract: Contract, seed: int, device: reference.Device) -> Fill:
    """NaN, infinities, -0, subnormals and the largest finite value, each in a row of A and a column of B of its own.

    Single values lie at random k, those of A's first kind at the last k. Formats without infinity hold NaN only. For
    narrow outputs one row overflows the output. At most half of the rows and of the columns are special.
    """
    draws = Draws(seed, "special")
    a, b = draws.normal((problem.M, problem.K)), draws.normal((problem.K, problem.N))
    taken: set[int] = set()
    # one after the other on (line, k) views of the operand and of its partner
    for matrix, partner, name in ((a, b.T, "a"), (b.T, a, "b")):
        kinds = _kinds(problem.operand(name), contract)
        order = draws.permutation(matrix.shape[0])[: matrix.shape[0] // 2]
        if len(order) < len(kinds):
            kinds = [kinds[i] for i in draws.permutation(len(kinds))]
        for place, (line, kind) in enumerate(zip(order, kinds, strict=False)):
            k = problem.K - 1 if place == 0 else int(draws.below(problem.K, ())[()])
            _plant(kind, matrix, partner, int(line), k, problem.operand(name).dtype, taken)
    inputs = _tensors(problem, contract, draws, a, b)
    return _finish("special", "special", problem, contract, seed, inputs, device)


def _kinds(operand: Operand, contract: Contract) -> list[str]:
    kinds = ["nan", "zero", "largest"]
    if FORMATS[operand.dtype].infinity is not None:
        kinds += ["+inf", "-inf"]
    if not contract.flushes_subnormals:
        kinds.append("subnormal")
    if operand.name == "a" and FORMATS[contract.out_dtype].largest < 2**20:
        kinds.append("overflow")
    return kinds


def _plant(kind: str, matrix: Floats, partner: Floats, line: int, k: int, dtype: str, taken: set[int]) -> None:
    form = FORMATS[dtype]
    if kind in ("nan", "+inf", "-inf"):
        matrix[line, k] = float(kind)
    elif kind == "zero":
        matrix[line] = -0.0
    elif kind == "subnormal":
        # halves of normals of one binade, so that no element is lost and none is normal
        matrix[line] = np.clip(np.abs(matrix[line]), 0.25, 1.75) * form.smallest_normal * 0.5
    elif kind == "overflow":
        matrix[line] = np.copysign(2.0 ** min(form.max_exponent - 2, 17), matrix[line])
    elif kind == "largest" and k not in taken:
        # the partner's values are kept small there, and the same k is not used twice: no sum overflows fp32
        taken.add(k)
        matrix[line, k] = form.largest
        partner[:, k] *= 2.0**-6


def _bounded(
    name: str,
    problem: Gemm,
    contract: Contract,
    seed: int,
    draws: Draws,
    a: Floats,
    b: Floats,
    device: reference.Device,
) -> Fill:
    a, b = _fitted(problem, contract, a, b, device)
    return _finish(name, "bounded", problem, contract, seed, _tensors(problem, contract, draws, a, b), device)


def _fitted(problem: Gemm, contract: Contract, a: Floats, b: Floats, device: reference.Device) -> tuple[Floats, Floats]:
    """Scale by powers of two so that results stay a factor of four inside a narrow output's range."""
    largest = FORMATS[contract.out_dtype].largest
    if largest > 2.0**100 or not problem.has_product or 0 in (problem.M, problem.N):
        return a, b
    limit = largest / 4 / (LARGEST_SCALE**2 if problem.scaling else max(1.0, abs(problem.alpha)))
    sizes = (torch.from_numpy(np.abs(array)).to(device or "cpu") for array in (a, b))
    size = float(torch.matmul(*sizes).max())
    shift = max(0, math.frexp(size / limit)[1])
    return np.ldexp(a, -(shift - shift // 2)), np.ldexp(b, -(shift // 2))


def _tensors(problem: Gemm, contract: Contract, draws: Draws, a: Floats, b: Floats) -> dict[str, Tensor]:
    inputs: dict[str, Tensor] = {}
    for operand in problem.operands:
        if operand.name in ("a", "b"):
            name = format_name(operand, contract)
            values = a if operand.name == "a" else b
            if problem.alpha == 0:
                inputs[operand.name] = ignored(operand)
                continue
            inputs[operand.name] = round_to(_clipped(values, name), name)
        elif operand.name == "bias":
            addend = torch.from_numpy(draws.normal(operand.shape))
            inputs["bias"] = round_to(addend, operand.dtype) if problem.reads_bias else ignored(operand)
        else:
            scale = np.ldexp(1.0 + draws.uniform(operand.shape), -draws.below(2, operand.shape))
            inputs[operand.name] = round_to(torch.from_numpy(np.asarray(scale)), "fp32")
    return inputs


def _clipped(values: Floats, name: str) -> Tensor:
    """Finite values past the format's range are cut to it; NaN and infinities stay."""
    largest = FORMATS[name].largest
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return torch.where(tensor.isinf(), tensor, tensor.clamp(-largest, largest))


def _finish(
    name: str,
    method: str,
    problem: Gemm,
    contract: Contract,
    seed: int,
    inputs: dict[str, Tensor],
    device: reference.Device,
) -> Fill:
    value = reference.value(problem, inputs, device=device)
    error = error_bound(problem, contract, value, reference.magnitude(problem, inputs, device=device), inputs)
    return Fill(name, seed, method, inputs, value, error, {"contract_assumed": contract.accumulator.assumed})
