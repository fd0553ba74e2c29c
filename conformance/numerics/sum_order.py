"""All that fixes the bits of a sum of products: the figures of the unit, and the order in which a kernel sums."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """The rule by which a matrix unit sums floating-point products, as :mod:`conformance.numerics.tensor_core` computes
    it.

    ``truncates``: a step's sum is cut towards zero, not rounded to nearest even. ``interleaved``: two steps share the k
    of both, and the first adds those with k % 4 below 2; otherwise a step adds k that follow each other. Raises
    ValueError for figures whose sums fp64 does not hold.
    """

    products: int
    alignment_bits: int
    result_bits: int
    truncates: bool = True
    interleaved: bool = False

    def __post_init__(self) -> None:
        largest = self.alignment_bits + 2 + math.log2(self.products + 1)
        if self.products < 1 or not 1 <= self.result_bits <= 23 or self.alignment_bits < 1 or largest > 53:
            raise ValueError(f"{self}: products >= 1, result_bits 1 to 23 and sums below 2**53 are required")


@dataclass(frozen=True)
class SumOrder:
    """k from the first to the last, in steps of the unit that ``instruction`` runs on: "wgmma", "mma" or "tcgen05".

    The steps are the unit's own. The number of k that one instruction takes does not matter: it divides the kernel's
    block of k, and a step divides it. A block beyond the last k holds zeros, which are no terms. So the only facts are
    these:

    ``partial``: after so many k of each product the unit's sum is added to an fp32 sum, to nearest, and begins again at
    zero; with block scales it is first multiplied by both. None: the unit adds to one sum throughout.
    ``begins_at_addend``: the loop over K has one step, which the compiler knows. It may let the unit begin at what the
    epilogue adds first, instead of adding that afterwards. ``splits``: K is divided into so many parts of one size,
    whose fp32 sums are added in order, to nearest.

    What follows the sum is what the problem's operation says, in fp32 and in the order of its reference. A compiler may
    fuse a multiplication and an addition there, or not: both results are allowed.
    """

    instruction: str
    partial: int | None = None
    splits: int = 1
    begins_at_addend: bool = False
