"""Functions that the suite about caches compiles: several products that may share a generated template."""

from __future__ import annotations

import torch
from torch import Tensor


def two_products(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    return a @ b, c @ d


def product_and_twice(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A product, and one of twice the rows."""
    return a @ b, torch.cat((a, a)) @ b


def ten_products(*operands: Tensor) -> list[Tensor]:
    """The product of each of ten pairs."""
    return [a @ b for a, b in zip(operands[::2], operands[1::2], strict=True)]


def two_sums_of_products(*operands: Tensor) -> list[Tensor]:
    """a @ b + c @ d of each of two fours."""
    return [a @ b + c @ d for a, b, c, d in zip(*[iter(operands)] * 4, strict=True)]
