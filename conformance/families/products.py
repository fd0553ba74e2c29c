"""The matrix products of which a problem consists: a matrix of a batch, a group, a convolution's group of channels.

Each is a problem of two dimensions with inputs in fp64 and the part of the output that it makes. So one search serves
all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.numerics.fill import Fill


@dataclass(frozen=True, eq=False)
class Product:
    """One product of a problem.

    ``name`` says which ("" for the only one). ``problem`` has two dimensions; ``fill`` holds its inputs, in fp64 or as
    the kernel got them. ``output`` and ``bad`` (rows, columns) are what it made and where that is wrong. ``segments``
    are ranges of k, each of which is looped over by itself and begins with a k-block of its own; ``segment`` is what
    one is called. ``plain``: the operands are A and B themselves, as they lie in memory.
    """

    name: str
    problem: Any
    fill: Fill
    output: Tensor
    bad: Tensor
    segments: tuple[tuple[int, int], ...]
    segment: str = "part of K"
    plain: bool = False


def with_inputs(fill: Fill, inputs: Mapping[str, Tensor]) -> Fill:
    """Returns ``fill`` with other ``inputs`` and nothing kept."""
    return dataclasses.replace(fill, inputs=dict(inputs), cache={})


def padded(
    a: Tensor, b: Tensor, lengths: Sequence[int], block_k: int
) -> tuple[Tensor, Tensor, tuple[tuple[int, int], ...]]:
    """Returns A and B with zeros after each segment of k, so that the next begins with a k-block, and the segments."""
    columns, rows, segments, first = [], [], [], 0
    for left, right, length in zip(a.split(list(lengths), 1), b.split(list(lengths), 0), lengths, strict=True):
        behind = -length % block_k
        columns.append(torch.nn.functional.pad(left, (0, behind)))
        rows.append(torch.nn.functional.pad(right, (0, 0, 0, behind)))
        segments.append((first, first + length))
        first += length + behind
    return torch.cat(columns, 1), torch.cat(rows, 0), tuple(segments)
