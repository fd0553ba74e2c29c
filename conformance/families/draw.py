"""A stream of random choices, from which a kernel draws the problems and variants that it is tried with."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from conformance.problems import Layout

#: Sizes around the multiples of 8, 16 and 32, primes among them; larger ones are for a device.
SIZES = (1, 2, 3, 7, 8, 13, 16, 17, 24, 31, 32, 33, 40, 47, 48, 56, 61, 64, 65, 72, 80, 88, 97)
LARGE_SIZES = (*SIZES, 127, 128, 129, 168, 248, 257, 300, 384, 520)
K_SIZES = (0, 1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 40, 64, 88, 96, 127, 128, 131, 160)
LARGE_K = (*K_SIZES, 256, 520, 1031, 2048)


class Draw:
    """The stream that ``name`` and ``seed`` stand for: the same ones give the same choices.

    ``large`` draws sizes for a device, ``descriptors`` mostly layouts that a tensor descriptor can describe.
    """

    def __init__(self, name: str, seed: int, *, large: bool, descriptors: bool = False) -> None:
        self.large = large
        self._descriptors = descriptors
        self.source = random.Random(f"{name} {seed}")
        #: one element of a sequence
        self.pick: Callable[[Any], Any] = self.source.choice

    def chance(self, share: float) -> bool:
        """True in this share of all draws, 0 to 1."""
        return self.source.random() < share

    def size(self) -> int:
        """Rows or columns of a matrix."""
        return int(self.pick(LARGE_SIZES if self.large else SIZES))

    def k(self) -> int:
        """Elements that are multiplied and summed; may be 0."""
        return int(self.pick(LARGE_K if self.large else K_SIZES))

    def layout(self, order: str | None = None, batched: bool = False) -> Layout:
        """A layout of a matrix, of the given order if one is given; of a batch of matrices if ``batched``."""
        plain = self._descriptors or self.chance(0.6)
        pad = self.pick((0, 0, 8, 16)) if plain else self.pick((0, 1, 3, 8))
        step = 1 if plain or order else self.pick((1, 2))
        offset = self.pick((0, 0, 16)) if plain else self.pick((0, 1, 5))
        more = {"batch": self.pick(("outer", "outer", "inner", "zero")), "batch_pad": self.pick((0, 5))}
        return Layout(order or self.pick(("row", "col")), pad, step, offset, **(more if batched else {}))
