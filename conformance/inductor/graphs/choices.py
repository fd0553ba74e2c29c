"""Functions that the suite about Inductor's choices compiles: ``a`` is M x K and ``b`` K x N unless they say more."""

from __future__ import annotations

import torch
from torch import Tensor


def sin_mm(a: Tensor, b: Tensor) -> Tensor:
    """A product of a computed operand; exact where that is empty."""
    return torch.sin(a) @ b


def relu_mm(a: Tensor, b: Tensor) -> Tensor:
    return torch.relu(a @ b)


def relu_transposed_mm(a: Tensor, b: Tensor) -> Tensor:
    """Of ``a`` as K x M."""
    return torch.relu(a.transpose(0, 1) @ b)


def transposed_mm(a: Tensor, b: Tensor) -> Tensor:
    """Of ``a`` as K x M."""
    return a.transpose(0, 1) @ b


def stacked_mm(a: Tensor, b: Tensor) -> Tensor:
    """Twice the rows of ``a``: with a dynamic number of them, M is an expression."""
    return torch.cat((a, a)) @ b


def stacked_columns(a: Tensor, b: Tensor) -> Tensor:
    """32 times the rows of ``a``."""
    return torch.cat([a] * 32) @ b


def wide_bmm(a: Tensor, b: Tensor) -> Tensor:
    """The output is fp32; fp64 stays, so that the same function is its own reference."""
    return torch.bmm(a, b) if a.dtype == torch.float64 else torch.bmm(a, b, out_dtype=torch.float32)


def matrix_addmm(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The bias is a matrix."""
    return torch.addmm(bias, a, b)
