"""Faults of the attention kernels: for each of them masks, indices, rescaling and precision."""

from __future__ import annotations

from conformance.families.attention.problem import Attention, Mask, Score
from conformance.heuristics.configs import FlexConfig, FlexDecodeConfig
from conformance.kernels.kernel import Variant
from tests.planted.cases import Case, fault, grouped

TILES, FORWARD = "device/attention_tiles.py", "device/attention_forward.py"
BACKWARD, DECODE = "device/attention_backward.py", "device/attention_decode.py"
HOST, LISTS = "attention.py", "block_mask.py"

CONFIG = FlexConfig(16, 16, 1, 4)
CAUSAL, WINDOW = Mask("causal"), Mask("sliding-window", 13)


def _forward(queries: int = 24, keys: int = 40, heads: int = 1, **fields: object) -> Case:
    return Case("attention", Attention("attention", 1, heads, queries, keys, 16, **fields), CONFIG)  # type: ignore[arg-type]


def _backward(heads: int = 1, **fields: object) -> Case:
    problem = Attention("attention_backward", 1, heads, 24, 40, 16, **fields)  # type: ignore[arg-type]
    return Case("attention_backward", problem, CONFIG)


def _decode(heads: int = 2, **fields: object) -> Case:
    problem = Attention("attention", 1, heads, 5, 100, 16, **fields)  # type: ignore[arg-type]
    return Case("attention_decode", problem, FlexDecodeConfig(16, 1, 2), Variant(splits=3))


#: Batch and heads of keys differ.
_BATCHES = Case(
    "attention_decode",
    Attention("attention", 3, 4, 2, 40, 16, kv_heads=2),
    FlexDecodeConfig(16, 1, 2),
    Variant(splits=2),
)

_SHRINK = "shrink = tl.exp2((largest - reference) * rate)"

_FORWARD = (
    fault("attention_diagonal", _forward(mask=CAUSAL), TILES, "columns <= positions", "columns < positions"),
    fault(
        "attention_window_edge",
        _forward(mask=WINDOW),
        TILES,
        "columns > positions - window",
        "columns >= positions - window",
    ),
    fault("attention_key_tail", _forward(), TILES, "seen = columns < keys", "seen = columns <= keys"),
    fault("attention_other_document", _forward(mask=Mask("document")), TILES, "document == key_", "document >= key_"),
    fault("attention_no_rescale", _forward(), TILES, "acc = acc * shrink[:, None]", "acc = acc * 1.0"),
    fault("attention_sum_no_rescale", _forward(), TILES, "total = total * shrink", "total = total"),
    fault(
        "attention_empty_row",
        _forward(30, 24, mask=CAUSAL),
        TILES,
        'tl.where(larger == float("-inf"), 0.0, larger) if MASKED else larger',
        "larger",
    ),
    fault(
        "attention_shared_head",
        _forward(heads=4, kv_heads=2),
        FORWARD,
        "key_head = query_head // GROUP",
        "key_head = query_head % GROUP",
    ),
    fault(
        "attention_position",
        _forward(score=Score("alibi")),
        FORWARD,
        "offset = keys - queries",
        "offset = keys - queries - 1",
    ),
    fault(
        "attention_list_entry", _forward(mask=CAUSAL, block=16), FORWARD, "block * BLOCK_M // LIST_BLOCK", "block // 2"
    ),
    fault("attention_list_step", _forward(mask=CAUSAL, block=32), TILES, "step % steps * BLOCK", "step % 1 * BLOCK"),
    fault("attention_list_partial", _forward(mask=CAUSAL, block=16), LISTS, "tiles.all(-1)", "tiles.any(-1)"),
    fault("attention_list_twice", _forward(mask=CAUSAL, block=16), LISTS, "_listed(some & ~every)", "_listed(some)"),
    fault(
        "attention_weights_16_bit",
        _forward(),
        TILES,
        "p = tl.exp2((scores - reference[:, None]) * rate)",
        "p = tl.exp2((scores - reference[:, None]) * rate).to(tl.float16).to(tl.float32)",
    ),
    fault("attention_log_base", _forward(), FORWARD, "+ tl.log(total)", "+ tl.log2(total)"),
    fault(
        "attention_no_maximum",
        _forward(),
        TILES,
        "larger = tl.maximum(largest, tl.max(scores, 1))",
        "larger = tl.zeros_like(largest)",
    ),
    fault(
        "attention_nan_dropped",
        _forward(mask=CAUSAL),
        TILES,
        _SHRINK,
        "p = tl.where(p == p, p, 0.0)\n    " + _SHRINK,
    ),
    fault(
        "attention_scores_16_bit",
        _forward(score=Score("alibi")),
        TILES,
        "scores = products * scale",
        "scores = (products * scale).to(tl.float16).to(tl.float32)",
    ),
    fault(
        "attention_cap_16_bit",
        _forward(score=Score("soft-cap", 15.0)),
        TILES,
        "return 1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0)",
        "return (1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0)).to(tl.float16).to(tl.float32)",
    ),
)

_BACKWARD = (
    fault("backward_mask", _backward(mask=CAUSAL), BACKWARD, "grad = tl.where(seen, grad, 0.0)", "grad = grad"),
    fault("backward_sharer", _backward(2, kv_heads=1), BACKWARD, "range(batches * GROUP)", "range(batches)"),
    fault("backward_delta_row", _backward(), BACKWARD, "delta_base + rows, delta", "delta_base + (rows ^ 1), delta"),
    fault("backward_key_scale", _backward(), BACKWARD, "store_rows(grad_k * scale,", "store_rows(grad_k,"),
    fault("backward_query_scale", _backward(), BACKWARD, "store_rows(grad_q * scale,", "store_rows(grad_q,"),
    fault(
        "backward_exponents_apart",
        _backward(),
        BACKWARD,
        "p = tl.exp2((scores - lse) * LOG2E)",
        "p = tl.exp2(scores * LOG2E) * tl.exp2(-lse * LOG2E)",
    ),
    fault(
        "backward_nan_dropped",
        _backward(mask=CAUSAL),
        BACKWARD,
        "grad = p * (grad_p - delta)",
        "grad = p * (grad_p - delta)\n    grad = tl.where(grad == grad, grad, 0.0)",
    ),
    fault("backward_cap", _backward(score=Score("soft-cap", 2.0)), BACKWARD, "1.0 - capped * capped", "1.0 - capped"),
    fault(
        "backward_lists",
        _backward(mask=CAUSAL, block=16),
        LISTS,
        "some.transpose(1, 2), every.transpose(1, 2)",
        "some.mT.flip(1), every.mT.flip(1)",
    ),
)

_DECODE = (
    fault("decode_last_split", _decode(), TILES, "tl.cdiv(end - first, PARTS)", "(end - first) // PARTS"),
    fault(
        "decode_merge_weight",
        _decode(),
        DECODE,
        "weight = tl.exp2((part_largest - reference) * rate)",
        "weight = tl.where(exists, 1.0, 0.0)",
    ),
    fault("decode_row", _decode(kv_heads=1), DECODE, "query = rows % queries", "query = (rows + 1) % queries"),
    fault("decode_diagonal", _decode(mask=CAUSAL), TILES, "columns <= positions", "columns < positions"),
    fault(
        "decode_batch_for_head",
        _BATCHES,
        DECODE,
        "batch, key_head = pair // key_heads, pair % key_heads\n    offset",
        "batch, key_head = pair % 3, pair // 3\n    offset",
    ),
    fault("decode_16_bit", _decode(), HOST, "rows, columns), torch.float32", "rows, columns), torch.bfloat16"),
)

FAULTS = (*grouped("attention", *_FORWARD), *grouped("attention backward and decode", *_BACKWARD, *_DECODE))
