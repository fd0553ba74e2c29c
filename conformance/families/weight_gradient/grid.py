"""The grid of kernels that compute the gradient of a convolution's weights."""

from __future__ import annotations

import math
from typing import Any

from conformance.families.launch_tiles import Tiles, tiles_of
from conformance.families.weight_gradient.problem import WeightGradient


def tiles(problem: WeightGradient, config: Any) -> Tiles | None:
    """Returns the tiles of (output channels of a group, channels and positions of the convolution's kernel)."""
    _, channels, *kernel = problem.output.shape
    return tiles_of(problem.forward.out_channels // problem.groups, channels * math.prod(kernel), config)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns (tiles of rows, tiles of columns, groups)."""
    return (*tiles[:2], plan.problem.groups)
