"""Graphs of several steps. All operands of several products are square."""

from __future__ import annotations

import torch
import torch.fx.traceback
from torch import Tensor


def in_a_row(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """Each product takes the one before."""
    return ((a @ b) @ c) @ d


def side_by_side(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """No product takes another."""
    return a @ b, a @ c, a @ d


def with_steps(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """A product and what is computed of another one are used twice."""
    first = a @ b
    second = torch.relu(first @ c)
    return first + second, second @ d


def on_two_streams(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Two products that may run at the same time: each is marked as Dynamo marks what a user puts on a stream."""
    with torch.fx.traceback.annotate({"stream": 1}):
        first = a @ b
    with torch.fx.traceback.annotate({"stream": 2}):
        second = c @ d
    return first, second


def sum_mm(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """A product of what is computed of two operands."""
    return (a + c) @ b


def sum_mm_relu(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The same with an epilogue."""
    return torch.relu((a + c) @ b)
