"""Random draws with the same bits on every machine: a counter-based generator's raw words and exact arithmetic.

NumPy promises the raw stream of Philox across releases, not that of its distributions, and libm differs between
machines; so integers, near-normal and log-spread values are made here from raw words by exact operations.

Operands without a promise, for timing, are drawn here too.
"""

from __future__ import annotations

import math
import zlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conformance.problems import DTYPES, Problem

Shape = tuple[int, ...]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Draws:
    """A stream of draws named by ``seed`` and ``label``; streams of different names are independent."""

    def __init__(self, seed: int, label: str) -> None:
        if seed < 0:
            raise ValueError(f"seed is {seed}: it must be >= 0")
        self._source = np.random.Philox(key=np.array([seed, zlib.crc32(label.encode())], dtype=np.uint64))

    def words(self, shape: Shape) -> NDArray[np.uint64]:
        """Raw 64-bit words."""
        raw: NDArray[np.uint64] = np.asarray(self._source.random_raw(math.prod(shape)), dtype=np.uint64)
        return raw.reshape(shape)

    def below(self, limit: int, shape: Shape) -> Integers:
        """Integers in [0, limit), limit at most 2**53; of a limit past 2**31 up to a multiple of 2**22."""
        if limit > 2**31:
            return (self.below(limit >> 22, shape) << 22) + self.below(2**22, shape)
        scaled = (self.words(shape) >> np.uint64(32)) * np.uint64(limit)
        integers: Integers = (scaled >> np.uint64(32)).astype(np.int64)
        return integers

    def signs(self, shape: Shape) -> Integers:
        """-1 or 1."""
        signs: Integers = 1 - 2 * (self.words(shape) >> np.uint64(63)).astype(np.int64)
        return signs

    def chance(self, probability: float, shape: Shape) -> NDArray[np.bool_]:
        """True with the given probability."""
        threshold = np.uint64(min(max(probability, 0.0), 1.0) * 2**32)
        hits: NDArray[np.bool_] = (self.words(shape) >> np.uint64(32)) < threshold
        return hits

    def nonzero(self, largest: int, shape: Shape) -> Integers:
        """Integers in [-largest, largest] without 0."""
        words = self.words(shape)
        size: Integers = (((words >> np.uint64(32)) * np.uint64(largest)) >> np.uint64(32)).astype(np.int64) + 1
        return np.where(words & np.uint64(1), -size, size)

    def uniform(self, shape: Shape) -> Floats:
        """Multiples of 2**-52 in (0, 1]."""
        values: Floats = ((self.words(shape) >> np.uint64(12)) + np.uint64(1)).astype(np.float64) * 2.0**-52
        return values

    def normal(self, shape: Shape) -> Floats:
        """Near-normal of variance 1 and mean 0: eight 16-bit uniforms summed (at most 4.9 deviations out)."""
        halves = np.zeros(shape, dtype=np.uint64)  # two sums side by side, each of a word's every other uniform
        for _ in range(2):
            words = self.words(shape)
            halves += words & np.uint64(0x0000FFFF0000FFFF)
            halves += (words >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
        total: Floats = ((halves & np.uint64(0xFFFFFFFF)) + (halves >> np.uint64(32))).astype(np.float64)
        # variance of one: (2**32 - 1) / 12; 0.8164965 ~ sqrt(8 / 12)
        return (total - 4 * 65535.0) * (2.0**-16 / 0.8164965)

    def lognormal(self, shape: Shape) -> Floats:
        """Signed values with near-normal binary exponent (deviation 2 binades) and uniform significand."""
        exponent = np.rint(2 * self.normal(shape)).astype(np.int64)
        return np.ldexp(self.uniform(shape) + 1.0, exponent) * self.signs(shape)

    def permutation(self, count: int) -> Integers:
        """Returns a random order of range(count)."""
        return np.argsort(self.words((count,)), kind="stable")


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
