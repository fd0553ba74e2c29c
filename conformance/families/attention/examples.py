"""Examples, timed problems and random problems of attention."""

from __future__ import annotations

from typing import Any

from conformance.families.attention.problem import Attention, Mask, Score
from conformance.families.draw import Draw
from conformance.families.examples import EVEN, TIMED_SEQUENCE, WHOLE_TILES, dtype_fields
from conformance.families.family import LEAST


def example(kernel: Any, dtype: str, config: Any, shape: str) -> Attention:
    """Returns attention whose queries stand for rows, and its keys for columns and k. Two of the classes have a causal
    mask. The last query stands at the last key. Where neither is whole, there are more keys than queries."""
    columns = max(config.tile)
    rows = LEAST if kernel.few_queries else columns
    queries, keys = {
        "smaller-than-a-tile": (rows // 2 - 3, columns // 2 - 1),
        "ragged": (rows + 8, columns + 13),
        "several-tiles": (2 * rows + 8, 2 * columns + 13),
        "many-k-blocks": (rows - 8, (config.num_stages + 1) * columns + 8),
        WHOLE_TILES: (2 * columns, 2 * columns),
        EVEN: (2 * columns, (config.num_stages + 1) * columns),
    }[shape]
    if kernel.few_queries:
        queries = min(queries, 8)
    mask = Mask("causal") if shape in ("ragged", "many-k-blocks") else Mask()
    shared = 2 if shape == WHOLE_TILES else 1  # the plainest problem of all has no heads to share
    return Attention(kernel.operation, 1, 2, queries, keys, 64, kv_heads=shared, mask=mask, **dtype_fields(dtype))


def timed(kernel: Any, dtype: str) -> Attention:
    """Returns a batch of 4 with 16 heads."""
    queries = 1 if kernel.few_queries else TIMED_SEQUENCE
    mask = Mask("causal")
    return Attention(kernel.operation, 4, 16, queries, TIMED_SEQUENCE, 64, mask=mask, **dtype_fields(dtype))


def draw_problem(kernel: Any, draw: Draw) -> Attention:
    """Returns attention of any lengths, masks, scores, orders and sharing of keys."""
    pick = draw.pick
    dtype = pick(kernel.dtypes)
    kv_heads, share = pick((1, 2)), pick((1, 1, 2, 3))
    lengths: tuple[int, ...] = (1, 2, 5, 16, 31) if kernel.few_queries else (1, 3, 17, 33, 64, 65, 130)
    if draw.large and not kernel.few_queries:
        lengths += (300, 520)
    keys = (1, 3, 17, 33, 64, 65, 130) + ((300, 520, 1030) if draw.large else ())
    batch = pick((1, 2, 3))
    mask = pick((Mask(), Mask("causal"), Mask("sliding-window", pick((1, 7, 40))), Mask("document")))
    fields: dict[str, Any] = {"precision": pick(("ieee", "tf32"))} if dtype == "fp32" else {}
    return Attention(
        kernel.operation,
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
