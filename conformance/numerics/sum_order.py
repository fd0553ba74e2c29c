"""The order in which a kernel sums the products of an element: what it must state for its exact bits to be known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SumOrder:
    """k from the first to the last, in steps of the unit that ``instruction`` runs on: "wgmma", "mma" or "tcgen05".

    The steps are the unit's own: how many k one instruction takes makes no difference, because it divides the block of
    k that a kernel loads and a step divides it. A block beyond the last k holds zeros, which are no terms. So the only
    facts are these:

    ``partial``: after so many k of each product the unit's sum is added to an fp32 sum, to nearest, and begins anew;
    with block scales it is first multiplied by both. None: the unit adds to one sum throughout.
    ``splits``: K is divided into so many parts of one size, whose fp32 sums are added in order, to nearest.

    What follows the sum is what the problem's operation says, in fp32 and in the order of its reference. A compiler may
    fuse a multiplication and an addition there, or not: both results are allowed.
    """

    instruction: str
    partial: int | None = None
    splits: int = 1
