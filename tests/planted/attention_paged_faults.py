"""Faults of attention of keys in pages: which page, which row of it, where the last one ends."""

from __future__ import annotations

from conformance.families.attention.problem import Attention, Mask
from conformance.heuristics.configs import FlexConfig
from tests.planted.cases import Case, fault, grouped

TILES, FORWARD, HOST = "device/attention_tiles.py", "device/attention_forward.py", "attention_packed.py"


def _case(page: int = 8, mask: str = "packed", sequences: int = 5, **fields: object) -> Case:
    """Sequences, of five of which some have no query or no key; all tensors padded, so that their pitches differ."""
    sizes = {"heads": 4, "queries": 75, "keys": 71, "head_dim": 16, "page": page}
    padded = {"kv_heads": 2, "value_dim": 24, "pad": 8, "padded": "qkvo", **fields}
    problem = Attention("attention", 1, mask=Mask(mask, sequences), **sizes, **padded)  # type: ignore[arg-type]
    return Case("attention_paged", problem, FlexConfig(32, 16, 2, 4))


_PLAIN, _CAUSAL, _LARGE = _case(), _case(mask="packed-causal"), _case(24)
#: Page 4 lies past 2**31 elements, and there are more behind it.
_FAR = _case(batch_pad=2**29)
#: A block of keys ends behind the table.
_ONE = _case(1, sequences=1)

ATTENTION_PAGED = grouped(
    "attention of keys in pages",
    fault("paged_next_page", _PLAIN, TILES, "page_base + columns // PAGE,", "page_base + columns // PAGE + 1,"),
    fault("paged_narrow_offset", _FAR, TILES, "page.to(tl.int64) * stride_page", "page * stride_page"),
    fault(
        "paged_table_unmasked",
        _ONE,
        TILES,
        "page_base + columns // PAGE, mask=columns < limit, other=0",
        "page_base + columns // PAGE",
        watch_only=True,
    ),
    fault("paged_row", _PLAIN, TILES, "(columns // PAGE * PAGE).to", "(columns // PAGE * PAGE + 1).to"),
    fault("paged_row_of_large_page", _LARGE, TILES, "(columns // PAGE * PAGE).to", "(columns // 8 * 8).to"),
    fault(
        "paged_length_of_next",
        _CAUSAL,
        FORWARD,
        "tl.load(key_lengths_ptr + batch)",
        "tl.load(key_lengths_ptr + (batch + 1) % tl.num_programs(1))",
    ),
    fault("paged_key_batch", _PLAIN, HOST, '"stride_kb": 0,', '"stride_kb": 8,'),
    fault("paged_table_pitch", _PLAIN, HOST, "table.strides[0]", "table.shape[0]"),
)
