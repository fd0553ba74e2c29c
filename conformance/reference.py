"""What an operation means: the fp64 value of a problem and the magnitude ``|A| @ |B|`` that error bounds need.

Nothing here knows how a kernel computes. Products of integers whose sums stay below 2**53 are exact in fp64, so for
exact fills the value is the exact result; :func:`freivalds` checks that claim in int64 arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from conformance.problems import Gemm

Device = torch.device | str | None


def product(problem: Gemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """``A @ B`` in fp64, shape (M, N); zeros where the problem ignores the product (K == 0 or alpha == 0)."""
    a, b = _operands(problem, inputs, device)
    if not problem.has_product:
        return torch.zeros(problem.M, problem.N, dtype=torch.float64, device=a.device)
    return a.double() @ b.double()


def magnitude(problem: Gemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """``|A| @ |B|`` in fp64, shape (M, N), without the epilogue; zeros where the problem ignores the product."""
    a, b = _operands(problem, inputs, device)
    if not problem.has_product:
        return torch.zeros(problem.M, problem.N, dtype=torch.float64, device=a.device)
    return a.double().abs() @ b.double().abs()


def epilogue(problem: Gemm, inputs: Mapping[str, Tensor], raw: Tensor) -> Tensor:
    """The problem's epilogue in fp64 applied to the raw product of shape (M, N)."""
    result = raw
    if problem.scaling is not None:
        result = result * inputs["scale_a"].to(raw.device).double() * inputs["scale_b"].to(raw.device).double()
    elif problem.has_product and problem.alpha != 1.0:
        result = result * problem.alpha
    if problem.reads_bias:
        result = result + problem.beta * inputs["bias"].to(raw.device).double()
    return result


def value(problem: Gemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The result in fp64, shape (M, N), before it is rounded to the output dtype.

    ``inputs`` maps operand names to tensors of the operands' shapes. A bias that beta == 0 ignores and a product that
    alpha == 0 ignores contribute nothing, NaN included (as in ``torch.addmm``). ``device`` is where it is computed and
    where the result lives (None: where A lives). Raises KeyError for a missing operand, ValueError for a wrong shape.
    """
    return epilogue(problem, inputs, product(problem, inputs, device=device))


def freivalds(a_int: Tensor, b_int: Tensor, c_int: Tensor, seed: int, rounds: int = 2) -> bool:
    """Whether ``C x == A (B x)`` in int64 for ``rounds`` random integer vectors x (Freivalds 1979).

    Arithmetic wraps modulo 2**64 on both sides alike. A wrong C passes one round with probability at most 2**-16.
    """
    for array in (a_int, b_int, c_int):
        if array.dtype != torch.int64:
            raise TypeError(f"freivalds got a tensor of {array.dtype}: it needs int64, so that no sum is rounded")
    draws = np.random.PCG64(seed).random_raw(rounds * b_int.shape[1]) >> np.uint64(48)
    vectors = torch.from_numpy(draws.astype(np.int64)).reshape(rounds, b_int.shape[1]).to(a_int.device)
    # elementwise products and sums: integer matrix products do not exist on every device
    return all(torch.equal((c_int * x).sum(1), (a_int * (b_int * x).sum(1)).sum(1)) for x in vectors)


def _operands(problem: Gemm, inputs: Mapping[str, Tensor], device: Device) -> tuple[Tensor, Tensor]:
    for operand in problem.operands:
        if operand.name not in inputs:
            raise KeyError(f"{problem.id} needs the input {operand.name!r}: given are {sorted(inputs)}")
        if tuple(inputs[operand.name].shape) != operand.shape:
            given = tuple(inputs[operand.name].shape)
            raise ValueError(f"{problem.id}: input {operand.name!r} has shape {given}, it must have {operand.shape}")
    a = inputs["a"]
    target = a.device if device is None else torch.device(device)
    return a.to(target), inputs["b"].to(target)
