"""Sets of indices along the axes of a tensor: which elements of an operand an output depends on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

#: For each dimension of a tensor a bool vector: True at the indices that are in the set.
Indices = Sequence[Tensor]
#: For each operand, the indices that are needed of it.
Needed = dict[str, tuple[Tensor, ...]]


def every(extent: int) -> Tensor:
    """Returns the set of all ``extent`` indices."""
    return torch.ones(extent, dtype=torch.bool)


def chosen(extent: int, numbers: Tensor) -> Tensor:
    """Returns the set, of ``extent`` indices, of those in ``numbers`` (int64).

    >>> chosen(4, torch.tensor([1, 3, 3])).tolist()
    [False, True, False, True]
    """
    result = torch.zeros(extent, dtype=torch.bool)
    result[numbers] = True
    return result


def divided(index: Tensor, by: int, extent: int) -> Tensor:
    """Returns the set, of ``extent`` indices, of those in ``index`` divided by ``by`` and rounded down.

    >>> divided(torch.tensor([False, False, True, True, True, False]), 2, 3).tolist()
    [False, True, True]
    """
    return chosen(extent, index.nonzero()[:, 0] // by)


def merged(parts: Iterable[Needed]) -> Needed:
    """Returns the union of ``parts``, operand by operand."""
    result: Needed = {}
    for part in parts:
        for name, indices in part.items():
            before = result.get(name, indices)
            result[name] = tuple(first | second for first, second in zip(before, indices, strict=True))
    return result
