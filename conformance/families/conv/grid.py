"""The grid of convolution kernels."""

from __future__ import annotations

import math
from typing import Any

from conformance.families.conv.problem import Conv
from conformance.families.launch_tiles import Tiles, tiles_of
from conformance.heuristics.configs import DepthwiseConfig


def tiles(problem: Conv, config: Any) -> Tiles | None:
    """Returns the tiles of (output positions of all images, output channels of a group); a config for depthwise
    convolutions has one channel in each group, and its tiles hold channels of many groups."""
    positions = problem.batch * math.prod(problem.out_size)
    groups = 1 if isinstance(config, DepthwiseConfig) else problem.groups
    return tiles_of(positions, problem.out_channels // groups, config)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns (tiles of positions, tiles of channels, groups), as the kind of the kernel arranges them. A kernel with
    phases has tiles for each remainder of an output position by the stride."""
    problem, (rows, columns, _) = plan.problem, tiles
    if kernel.depthwise:
        return rows, columns
    if kernel.phases:
        positions = [-(-size // step) for size, step in zip(problem.out_size, problem.stride, strict=True)]
        of_phase = -(-problem.batch * math.prod(positions) // plan.config.block_m)
        return (math.prod(problem.stride) * of_phase, columns, problem.groups)
    return (rows * columns,) if kernel.pointwise else (rows, columns, problem.groups)
