"""Examples, timed problems and random problems of linear attention."""

from __future__ import annotations

from typing import Any

from conformance.families.draw import Draw
from conformance.families.examples import EVEN, TIMED_SEQUENCE, WHOLE_TILES
from conformance.families.linear_attention.problem import LinearAttention


def example(kernel: Any, dtype: str, config: Any, shape: str) -> LinearAttention:
    """Returns a problem whose positions stand for rows and k, and columns of v for columns. A chunk is two blocks where
    there are three of them or more."""
    t, v = config.block_t, config.block_v
    length, columns, chunk = {
        "smaller-than-a-tile": (t // 2 - 1, v // 2 + 8, t),
        "ragged": (2 * t + 5, v + 8, t),
        "several-tiles": (t + 8, 2 * v + 8, t),
        "many-k-blocks": ((config.num_stages + 2) * t + 8, max(v - 8, 8), 2 * t),
        WHOLE_TILES: (2 * t, 2 * v, t),
        EVEN: ((config.num_stages + 1 | 1) * t, v, t),
    }[shape]
    return LinearAttention(1, 2, length, 64, columns, chunk, dtype)


def timed(kernel: Any, dtype: str) -> LinearAttention:
    """Returns a batch of 4 with 16 heads."""
    largest = max(config.block_t for config in kernel.configs)
    return LinearAttention(4, 16, TIMED_SEQUENCE, 64, 128, largest, dtype)


def draw_problem(kernel: Any, draw: Draw) -> LinearAttention:
    """Returns linear attention of any lengths, dims and orders."""
    pick = draw.pick
    return LinearAttention(
        pick((1, 2, 3)),
        pick((1, 2, 5)),
        pick((0, 1, 3, 17, 33, 64, 65, 130) + ((300, 520) if draw.large else ())),
        pick((16, 24, 40, 64) + ((80, 128) if draw.large else ())),
        pick((1, 8, 16, 40, 72)),
        max(config.block_t for config in kernel.configs) * pick((1, 1, 2)),
        pick(kernel.dtypes),
        order=pick(("bhsd", "bshd", "bhds")),
        pad=pick((0, 3, 8)),
    )
