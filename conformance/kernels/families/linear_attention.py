"""The family of linear attention: what its problems, examples and random problems are, whatever the kernel."""

from __future__ import annotations

from typing import Any

from conformance.families.linear_attention.problem import OPERANDS, LinearAttention
from conformance.kernels.families.draw import Draw
from conformance.kernels.families.examples import EVEN, TIMED_SEQUENCE, WHOLE_TILES
from conformance.kernels.kernel import Kernel


class LinearAttentionFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.linear_attention.problem.LinearAttention`. A
    third-party kernel needs only this base, and configs with ``block_t`` positions and ``block_v`` columns of v."""

    weight = 1
    family = "linear-attention"
    operations = frozenset({"linear_attention"})
    dtypes = OPERANDS
    more_shapes = (WHOLE_TILES,)

    def multiply_adds(self, problem: Any, config: Any) -> int:
        """See :class:`Kernel`: q times the state, scores, scores times v, and the sum of the state."""
        t, v, d = config.block_t, config.block_v, problem.head_dim
        return t * (2 * v * d + t * (v + d))  # type: ignore[no-any-return]

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> LinearAttention:
        """See :class:`Kernel`: positions stand for rows and k, columns of v for columns. A chunk is two blocks where
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

    def timed(self, dtype: str) -> LinearAttention:
        """See :class:`Kernel`: a batch of 4 with 16 heads."""
        largest = max(config.block_t for config in self.configs)  # type: ignore[attr-defined]
        return LinearAttention(4, 16, TIMED_SEQUENCE, 64, 128, largest, dtype)

    def draw_problem(self, draw: Draw) -> LinearAttention:
        """See :class:`Kernel`: any lengths, dims and orders."""
        pick = draw.pick
        return LinearAttention(
            pick((1, 2, 3)),
            pick((1, 2, 5)),
            pick((0, 1, 3, 17, 33, 64, 65, 130) + ((300, 520) if draw.large else ())),
            pick((16, 24, 40, 64) + ((80, 128) if draw.large else ())),
            pick((1, 8, 16, 40, 72)),
            max(config.block_t for config in self.configs) * pick((1, 1, 2)),  # type: ignore[attr-defined]
            pick(self.dtypes),
            order=pick(("bhsd", "bshd", "bhds")),
            pad=pick((0, 3, 8)),
        )
