"""Functions that are compiled: products and convolutions among other operations. All are exact for small integers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def cat_addmm(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Two products with an addend, side by side; every matrix has another place in each."""
    return torch.cat([torch.addmm(a, b, c), torch.addmm(b, c, a)], 1)


def cat_mm(x: Tensor, y: Tensor) -> Tensor:
    """A product, and below it what one pointwise operation makes of another matrix."""
    return torch.cat([torch.mm(x, x), torch.neg(y)])


def cat_mm_and_sum(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The same, and a second result that reads the product too."""
    product = torch.mm(x, x)
    return torch.cat([product, torch.neg(y)]), product + 1


def cat_mm_twice(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The same in both orders: the product lies in two results, in another place of each."""
    product, negative = torch.mm(x, x), torch.neg(y)
    return torch.cat([product, negative]), torch.cat([negative, product])


def cat_of_shared(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two pointwise results, one below the other, and a second result that reads the first of them too. No product."""
    negative = torch.neg(x)
    return torch.cat([negative, torch.neg(y)]), negative + 1


def conv_cat(x: Tensor, w: Tensor) -> Tensor:
    """A convolution, and behind it the same plus one."""
    y = torch.nn.functional.conv2d(x, w, padding=1)
    return torch.cat((y, y + 1))


def conv1x1_of_counts(x: Tensor, w: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """A 1x1 convolution of a part of an image. Two vectors give its height and width: their numbers of non-zero
    elements."""
    height, width = rows.nonzero().shape[0], columns.nonzero().shape[0]
    return torch.nn.functional.conv2d(x[:, :, :height, :width], w)


def mm_after_diagonal_write(x: Tensor, y: Tensor, z: Tensor, other: Tensor) -> Tensor:
    """A product of a matrix whose diagonal was overwritten in place. Returns the product's diagonal after 1 was added
    to it in place."""
    scaled = x * y
    torch.diagonal(scaled).copy_(other)
    return torch.diagonal(torch.mm(scaled, z)).add_(1)


def dropout_of_mm(a: Tensor, b: Tensor, *, p: float) -> Tensor:
    """A product in which elements become 0 with probability ``p``."""
    return torch.nn.functional.dropout(torch.mm(a, b), p)


def linear_loss(classes: Tensor, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    """The mean cross entropy of a linear layer's outputs."""
    return torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, w, bias), classes)


def many_of_one(x: Tensor, number: Tensor) -> tuple[Tensor, ...]:
    """More results of one matrix than may be fused at once. One of them uses a number that the host must read."""
    whole = number.item()
    return x + x, x * whole, x * x, x @ x, x**2


def __getattr__(name: str) -> Any:
    """Decorates the last graph when it is asked for: the decorator imports torch's compiler, which takes seconds."""
    if name == "many_of_one_in_a_graph":
        return torch._dynamo.disable(_many_of_one_in_a_graph, recursive=False)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _many_of_one_in_a_graph(x: Tensor, number: Tensor) -> tuple[Tensor, ...]:
    """The same in one graph, which includes reading the number, as in an export. This function runs uncompiled, the
    function that it calls is compiled."""
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        return many_of_one(x, number)
