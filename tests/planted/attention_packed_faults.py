"""Faults of attention of packed sequences: where each begins and ends, and which of its keys a query sees."""

from __future__ import annotations

from conformance.families.attention.problem import Attention, Mask
from conformance.heuristics.configs import FlexConfig
from tests.planted.cases import Case, fault, grouped

FORWARD, HOST = "device/attention_forward.py", "attention_packed.py"


def _case(mask: str = "packed", **fields: object) -> Case:
    """Five sequences, of which some have no query or no key; all tensors padded, so that their pitches differ."""
    sizes = {"heads": 4, "queries": 75, "keys": 71, "head_dim": 16}
    padded = {"kv_heads": 2, "value_dim": 24, "pad": 8, "padded": "qkvo", **fields}
    problem = Attention("attention", 1, mask=Mask(mask, 5), **sizes, **padded)  # type: ignore[arg-type]
    return Case("attention_packed", problem, FlexConfig(32, 16, 2, 4))


_PLAIN, _CAUSAL, _BETWEEN = _case(), _case("packed-causal"), _case(order="bshd")

ATTENTION_PACKED = grouped(
    "attention of packed sequences",
    fault("packed_value_start", _BETWEEN, FORWARD, "head(v_ptr, of_keys,", "head(v_ptr, of_keys + 1,"),
    fault(
        "packed_lse_head",
        _PLAIN,
        FORWARD,
        "lse_base = lse_ptr + matrix.to(tl.int64) * queries",
        "lse_base = lse_ptr + key_head.to(tl.int64) * queries",
    ),
    fault("packed_last_key", _PLAIN, FORWARD, "batch + 1) - of_keys", "batch + 1) - of_keys - 1"),
    fault("packed_next_key", _PLAIN, FORWARD, "batch + 1) - of_keys", "batch + 1) - of_keys + 1"),
    fault("packed_position", _CAUSAL, FORWARD, "offset = keys - queries", "offset = keys - queries + 1"),
    fault("packed_mask", _CAUSAL, HOST, '"causal" if problem', '"full" if problem'),
    fault("packed_pitch", _PLAIN, HOST, '"stride_kb": "stride_kn"', '"stride_kb": "stride_vn"'),
    fault(
        "packed_sequences", _PLAIN, HOST, "problem.mask.size, problem.heads)", "problem.mask.size - 1, problem.heads)"
    ),
)
