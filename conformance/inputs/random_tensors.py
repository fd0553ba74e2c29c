"""Operands without a promise, for timing."""

from __future__ import annotations

import torch
from torch import Tensor

from conformance.problems import DTYPES, Problem

#: Bytes of a page of a device's memory.
PAGE = 2 << 20


def random_tensors(problem: Problem, device: torch.device, seed: int = 0) -> dict[str, Tensor]:
    """Random operands and outputs with the problem's strides. Never zeros: a device is faster on zeros. Each begins at
    a multiple of :data:`PAGE` bytes: elsewhere some kernels take longer, on an H200 a baddbmm in tf32 107 us for 99.
    """
    generator = torch.Generator(device).manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for operand in problem.tensors:
        dtype = DTYPES[operand.dtype]
        memory = _empty(max(operand.span, 1), dtype, device)
        if operand.name in problem.fixed_values:
            memory.copy_(torch.tensor(problem.fixed_values[operand.name], device=device))
        elif dtype.is_floating_point:
            memory.copy_(torch.randn(memory.shape, device=device, generator=generator))
        else:  # document numbers, row numbers and masks are small, and all of them may be 0 or 1
            memory.copy_(torch.randint(0, 2, memory.shape, device=device, generator=generator))
        tensors[operand.name] = memory.as_strided(operand.shape, operand.strides)
    return tensors


def _empty(span: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    size = span * dtype.itemsize
    memory = torch.empty(size + PAGE, dtype=torch.uint8, device=device)
    first = -memory.data_ptr() % PAGE
    return memory[first : first + size].view(dtype)
