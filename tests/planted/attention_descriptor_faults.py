"""Faults of attention by descriptors: what a descriptor lies over, where a tile of it begins, and what is stored."""

from __future__ import annotations

from conformance.families.attention.problem import Attention
from conformance.heuristics.configs import SpecialisedFlexConfig
from conformance.kernels.kernel import Variant
from tests.planted.cases import Case, fault, grouped

TILES, FORWARD = "device/attention_tiles.py", "device/attention_forward.py"
HOST = "attention_descriptors.py"


def _case(heads: int = 2, *, store: bool = False, merged: bool = True, **fields: object) -> Case:
    """Two ragged blocks of queries and three of keys; all tensors padded, so that their pitches differ."""
    padded = {"pad": 8, "padded": "qkvo", "value_dim": 24, **fields}
    problem = Attention("attention", 2, heads, 70, 75, 16, **padded)  # type: ignore[arg-type]
    config = SpecialisedFlexConfig(64, 32, 2, 4, merged=merged)
    return Case("attention_descriptors", problem, config, Variant(tma_store=store), "sm_100")


_PLAIN, _STORED = _case(), _case(store=True)
_SHARED = _case(4, kv_heads=2, order="bshd")

ATTENTION_DESCRIPTORS = grouped(
    "attention by descriptors",
    fault("described_query_block", _PLAIN, FORWARD, "q_desc.load([block * BLOCK_M, 0])", "q_desc.load([0, 0])"),
    fault("described_query_pitch", _PLAIN, FORWARD, "[stride_qm, 1]", "[HEAD_DIM, 1]"),
    fault("described_key_pitch", _PLAIN, HOST, '("k", "k", "n")', '("q", "k", "n")'),
    fault("described_head_of_keys", _SHARED, FORWARD, "key_head = query_head // GROUP", "key_head = query_head * 0"),
    fault("described_store_block", _STORED, FORWARD, "out_desc.store([block * BLOCK_M, 0]", "out_desc.store([0, 0]"),
    fault(
        "described_store_rounded",
        _STORED,
        FORWARD,
        "acc.to(out_ptr.dtype.element_ty))",
        "acc.to(tl.float8e5).to(out_ptr.dtype.element_ty))",
    ),
)
