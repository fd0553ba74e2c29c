"""Products of what pointwise functions make of their operands. The constants are such that results stay exact."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear, pad


def _like(x: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` as ``dtype``; fp64 stays, so that the same function is its own reference."""
    return x if x.dtype == torch.float64 else x.to(dtype)


def upcast(x: Tensor, y: Tensor) -> Tensor:
    return _like(x, torch.float32) @ y


def downcast(x: Tensor, y: Tensor) -> Tensor:
    return _like(x, torch.float16) @ y


def gather(x: Tensor, index: Tensor, y: Tensor) -> Tensor:
    """Rows of ``x`` by ``index``, as the 64-bit numbers that one indexes with."""
    return x[index.long()] @ y


def low_precision(x: Tensor, y: Tensor, *, added: int) -> Tensor:
    """``added`` of 0 leaves a change of dtype alone."""
    wide = _like(x, torch.bfloat16)
    return (wide + added if added else wide) @ y


def multiple_fusions(x: Tensor, y: Tensor) -> Tensor:
    return ((x - 1.5) @ (y + 1.5)) * 1.5


def two_products(x: Tensor, y: Tensor) -> Tensor:
    return (x @ x.T) * (y @ y.T)


def product_relu(x: Tensor) -> Tensor:
    return torch.relu(x @ x)


def upcast_relu(x: Tensor) -> Tensor:
    y = _like(x, torch.float32)
    return torch.relu(y @ y)


def multiple_inputs(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return _like(x + y, torch.float32) @ z


def storage_offset(x: Tensor) -> Tensor:
    """Both operands lie in one tensor, the second one behind the first."""
    half = x.shape[0] // 2
    return (x[:half] + 2) @ (x[half:] - 2)


def multiple_nodes(x: Tensor, y: Tensor) -> Tensor:
    return ((x * 2 - 1) / 2) @ (y * 4) * 3


def broadcast_x(x: Tensor, y: Tensor) -> Tensor:
    """One element, as a row of as many as ``y`` has rows."""
    return (x.expand([1, y.shape[0]]) + 1) @ y


def product(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


def positive(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x) @ y


def increased(x: Tensor, y: Tensor) -> Tensor:
    return (x + 1) @ y


def absolute(x: Tensor, y: Tensor) -> Tensor:
    """The absolute value, by a function whose value at zero Inductor does not work out."""
    return torch.hypot(x, x - x) @ y


def read_into_both(x: Tensor) -> Tensor:
    y = (x + 1) * 2
    return y @ (y - 2)


def mismatched_group(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """``x`` is one row, ``y`` has many."""
    return ((x + 2) * 2 * y) @ z


def padded(x: Tensor, y: Tensor) -> Tensor:
    """The product of operands whose sizes are padded to multiples of eight, without the padding."""
    rows, inner, columns = x.shape[0], x.shape[1], y.shape[1]
    more = [-extent % 8 for extent in (rows, inner, columns)]
    full = pad(x, (0, more[1], 0, more[0])) @ pad(y, (0, more[2], 0, more[1]))
    return full[:rows, :columns]


def linear_relu_times(x: Tensor, weight: Tensor, bias: Tensor, factor: Tensor) -> Tensor:
    return torch.relu(linear(x.T, weight.T, bias)) * factor
