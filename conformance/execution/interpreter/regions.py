"""The places in memory of the elements of a tensor."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor


class TensorRegion:
    """The elements of one tensor."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name = name
        self.size = tensor.element_size()
        self.shape, self.strides = tuple(tensor.shape), tuple(tensor.stride())
        self.first = tensor.data_ptr()
        steps = sorted(
            (
                (stride * self.size, extent)
                for stride, extent in zip(tensor.stride(), tensor.shape, strict=True)
                if stride and extent > 1
            ),
            reverse=True,
        )
        self.end = self.first + self.size + sum(step * (extent - 1) for step, extent in steps)
        self.steps = steps
        self.count = math.prod(extent for _, extent in steps)  # of elements
        self.dense = self.end - self.first == self.size * self.count

    def holds(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Returns a mask (bool) of the accesses to ``size`` bytes at ``addresses`` that lie in elements."""
        inside: np.ndarray = (addresses >= self.first) & (addresses + size <= self.end)
        if self.dense or not inside.any():
            return inside
        inside &= self._is_element(addresses) & self._is_element(addresses + size - 1)
        return inside

    def _is_element(self, addresses: np.ndarray) -> np.ndarray:
        """Returns a mask of the ``addresses`` that are a byte of an element: elements do not overlap, so the largest
        step comes first."""
        rest: np.ndarray = addresses - self.first
        inside: np.ndarray = np.ones(addresses.shape, dtype=bool)
        for step, extent in self.steps:
            index = rest // step
            inside &= (index >= 0) & (index < extent)
            rest = rest - index * step
        inside &= rest < self.size
        return inside

    def indices(self, addresses: np.ndarray) -> np.ndarray:
        """The number of the element at each of ``addresses``, which are elements."""
        rest: np.ndarray = addresses - self.first
        number: np.ndarray = np.zeros(addresses.shape, dtype=np.int64)
        for step, extent in self.steps:
            number = number * extent + rest // step
            rest = rest % step
        return number

    def distance(self, address: int) -> int:
        """Bytes from the nearest end of the memory between the first and the last element; 0 within it."""
        return max(self.first - address, address - (self.end - 1), 0)

    def place(self, address: int) -> str:
        """Returns a text of where ``address`` lies relative to this tensor."""
        if address < self.first:
            return f"{-((address - self.first) // self.size)} before the first element of {self.name!r}"
        if address >= self.end:
            return f"{(address - self.end) // self.size + 1} behind the last element of {self.name!r}"
        return f"{(address - self.first) // self.size} behind the first element of {self.name!r}, between its elements"

    def coordinates(self, addresses: np.ndarray) -> list[np.ndarray | None]:
        """The index along each dimension of the element at each of ``addresses``, which are elements; None along a
        dimension whose elements lie all in one place."""
        rest: np.ndarray = addresses - self.first
        places: list[np.ndarray | None] = [None] * len(self.shape)
        for dim in sorted(range(len(self.shape)), key=lambda dim: -self.strides[dim]):
            if self.strides[dim] and self.shape[dim] > 1:
                places[dim], rest = np.divmod(rest, self.strides[dim] * self.size)
        return places
