"""The grid that a shipped kernel must launch, from the problem and the config alone.

A kernel plans its own grid, and the trial compares the one that ran with it. These formulas are a second opinion about
the plan: a program too many or too few shows here even where it changes no number.
"""

from __future__ import annotations

import math

from conformance.families.family import family_of
from conformance.kernels.kernel import Kernel, Plan


def expected_grid(kernel: Kernel, plan: Plan, reserve: int) -> tuple[int, ...] | None:
    """Returns the programs in each dimension; None for a family or a choice of splits that has no formula.

    A persistent kernel has one program for each multiprocessor that is not held back by ``reserve``, one at least, and
    never more than tiles; one whose programs share tiles has never more than blocks of K."""
    family, config = family_of(plan.problem), plan.config
    tiles = family.tiles(plan.problem, config) if family.tiles is not None else None
    if tiles is None:
        return None
    free = max((plan.variant.sms or plan.target.limits.multiprocessors or 1) - reserve, 1)
    if kernel.shares_k:
        return (min(free, math.prod(tiles[:2]) * max(-(-plan.problem.K // config.block_k), 1)),)
    if kernel.persistent:
        return (min(free, math.prod(tiles)),)
    return None if family.grid is None else family.grid(kernel, plan, tiles, free)
