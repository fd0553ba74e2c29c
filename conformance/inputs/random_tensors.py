"""Operands without a promise, for timing."""

from __future__ import annotations

import torch
from torch import Tensor

from conformance.problems import DTYPES, GroupedGemm, Problem


def random_tensors(problem: Problem, device: torch.device, seed: int = 0) -> dict[str, Tensor]:
    """Random operands and outputs with the problem's strides. Never zeros: a device is faster on zeros."""
    generator = torch.Generator(device).manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for operand in problem.tensors:
        dtype = DTYPES[operand.dtype]
        memory = torch.empty(max(operand.span, 1), dtype=dtype, device=device)
        if operand.name == "offsets" and isinstance(problem, GroupedGemm):
            memory.copy_(torch.tensor(problem.ends, device=device))
        elif dtype.is_floating_point:
            memory.copy_(torch.randn(memory.shape, device=device, generator=generator))
        else:  # document numbers, row numbers and masks are small, and all of them may be 0 or 1
            memory.copy_(torch.randint(0, 2, memory.shape, device=device, generator=generator))
        tensors[operand.name] = memory.as_strided(operand.shape, operand.strides)
    return tensors
