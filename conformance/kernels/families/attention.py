"""The family of attention: what its problems, examples and random problems are, whatever the kernel."""

from __future__ import annotations

import itertools
import math
from typing import Any, ClassVar

from conformance.families.attention.problem import Attention, Mask, Score
from conformance.heuristics.configs import AnyConfig
from conformance.heuristics.device_class import HEAD_DIMS
from conformance.heuristics.lookup import flex_default
from conformance.kernels.families.draw import Draw
from conformance.kernels.families.examples import EVEN, FLOATS, TIMED_SEQUENCE, WHOLE_TILES, dtype_fields
from conformance.kernels.kernel import Kernel

#: Smallest extent of a tile that every matrix unit takes.
LEAST_TILE = 16


class AttentionFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.attention.problem.Attention`. A third-party kernel
    needs only this
    base."""

    weight = 1
    family = "attention"
    more_shapes = (WHOLE_TILES,)
    dtypes = FLOATS
    operation: ClassVar[str]
    #: whether one program holds all queries and the keys are split among programs instead
    few_queries: bool = False
    #: products of tiles in the code of the main launch: scores and values, in blocks with a mask and without
    products: ClassVar[int] = 4

    def multiply_adds(self, problem: Any, config: Any) -> int:
        """See :class:`Kernel`. A program with few queries holds at least the smallest tile of them."""
        rows = LEAST_TILE if self.few_queries else 1
        return self.products * rows * math.prod(config.tile[:2]) * problem.head_dim  # type: ignore[no-any-return]

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Attention:
        """See :class:`Kernel`: queries stand for rows, keys for columns and k; a causal mask in two of the classes. The
        last query stands at the last key, and where neither is whole there are more keys than queries."""
        columns = max(config.tile)
        rows = LEAST_TILE if self.few_queries else columns
        queries, keys = {
            "smaller-than-a-tile": (rows // 2 - 3, columns // 2 - 1),
            "ragged": (rows + 8, columns + 13),
            "several-tiles": (2 * rows + 8, 2 * columns + 13),
            "many-k-blocks": (rows - 8, (config.num_stages + 1) * columns + 8),
            WHOLE_TILES: (2 * columns, 2 * columns),
            EVEN: (2 * columns, (config.num_stages + 1) * columns),
        }[shape]
        if self.few_queries:
            queries = min(queries, 8)
        mask = Mask("causal") if shape in ("ragged", "many-k-blocks") else Mask()
        shared = 2 if shape == WHOLE_TILES else 1  # the plainest problem of all has no heads to share
        return Attention(self.operation, 1, 2, queries, keys, 64, kv_heads=shared, mask=mask, **dtype_fields(dtype))

    def timed(self, dtype: str) -> Attention:
        """See :class:`Kernel`: a batch of 4 with 16 heads."""
        queries = 1 if self.few_queries else TIMED_SEQUENCE
        mask = Mask("causal")
        return Attention(self.operation, 4, 16, queries, TIMED_SEQUENCE, 64, mask=mask, **dtype_fields(dtype))

    def default_configs(self, target: Any) -> tuple[AnyConfig, ...]:
        """See :class:`Kernel`: one for each dtype and head dim, if there is a table."""
        if self.table is None:
            return ()
        sizes = itertools.product(self.dtypes, HEAD_DIMS)
        return tuple(flex_default(target, self.table, head_dim, dtype) for dtype, head_dim in sizes)

    def draw_problem(self, draw: Draw) -> Attention:
        """See :class:`Kernel`: any lengths, masks, scores, orders and sharing of keys."""
        pick = draw.pick
        dtype = pick(self.dtypes)
        kv_heads, share = pick((1, 2)), pick((1, 1, 2, 3))
        lengths: tuple[int, ...] = (1, 2, 5, 16, 31) if self.few_queries else (1, 3, 17, 33, 64, 65, 130)
        if draw.large and not self.few_queries:
            lengths += (300, 520)
        keys = (1, 3, 17, 33, 64, 65, 130) + ((300, 520, 1030) if draw.large else ())
        batch = pick((1, 2, 3))
        mask = pick((Mask(), Mask("causal"), Mask("sliding-window", pick((1, 7, 40))), Mask("document")))
        fields: dict[str, Any] = {"precision": pick(("ieee", "tf32"))} if dtype == "fp32" else {}
        return Attention(
            self.operation,
            batch,
            kv_heads * share,
            pick(lengths),
            pick(keys),
            pick((16, 40, 64) + ((80, 128) if draw.large else ())),
            dtype,
            kv_heads=kv_heads,
            kv_batch=pick((None, 1)),
            mask=mask,
            score=pick((Score(), Score(), Score("soft-cap", 20.0), Score("alibi"))),
            order=pick(("bhsd", "bshd")),
            pad=pick((0, 8)),
            **fields,
        )
