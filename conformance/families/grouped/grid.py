"""The tiles of grouped products, whose kernels are persistent."""

from __future__ import annotations

from typing import Any

from conformance.families.launch_tiles import Tiles


def tiles(problem: Any, config: Any) -> Tiles | None:
    """Returns the most tiles that the output may have: the host does not know the sizes of the groups. In the dimension
    that is split each group has at most one ragged tile, and no tile is empty."""
    block_m, block_n = (getattr(config, name, None) for name in ("block_m", "block_n"))
    if not block_m or not block_n:
        return None
    rows, columns = problem.extent("M") if problem.ragged != "K" else problem.M or 0, problem.N or 0
    if problem.ragged == "M":
        return min(rows // block_m + problem.groups, rows), -(-columns // block_n), 1
    if problem.ragged == "N":
        total = problem.extent("N")
        return -(-(problem.M or 0) // block_m), min(total // block_n + problem.groups, total), 1
    return -(-(problem.M or 0) // block_m) * problem.groups, -(-columns // block_n), 1
