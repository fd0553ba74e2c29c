"""Faults of gated linear attention, and of its transposed form: mask, decays, states, roundings and addresses."""

from conformance.families.linear_attention.problem import LinearAttention
from conformance.heuristics.configs import LinearAttentionConfig
from conformance.kernels.kernel import Variant
from tests.planted.cases import Case, fault, grouped

SOURCE, HOST = "device/linear_attention.py::linear_attention,store_values", "linear_attention.py"
OTHER = "device/linear_attention.py::linear_attention_transposed"
CONFIG = LinearAttentionConfig(16, 16, 2, 2)

#: Three chunks of two blocks, the last one of a block and a few positions; two ragged tiles of columns.
CHUNKS = Case("gated_linear_attention", LinearAttention(1, 3, 85, 24, 19, 32, pad=3), CONFIG)
#: Fewer batches than heads.
BATCHES = Case("gated_linear_attention", LinearAttention(2, 3, 21, 24, 19, 32, pad=3), CONFIG)
FP16 = Case("gated_linear_attention", LinearAttention(1, 2, 53, 40, 24, 16, "fp16", order="bshd"), CONFIG)
EMPTY = Case("gated_linear_attention", LinearAttention(2, 2, 0, 24, 24, 16), CONFIG)

#: The compiler knows the length, whose last block has a rest, or none.
KNOWN, KNOWN_BLOCKS, OVER_KNOWN = (
    Case(name, LinearAttention(1, 2, length, 24, 19, 32, pad=3), CONFIG, Variant(static=True))
    for name, length in (
        ("gated_linear_attention", 85),
        ("gated_linear_attention", 80),
        ("linear_attention_transposed", 80),
    )
)

#: The same sizes, and more dims than columns of v.
OVER = Case("linear_attention_transposed", LinearAttention(1, 3, 85, 24, 19, 32, pad=3), CONFIG)
OVER_FP16 = Case("linear_attention_transposed", LinearAttention(1, 2, 53, 40, 24, 16, "fp16", order="bshd"), CONFIG)

_MASK = "rows[:, None] >= rows[None, :]"
_DECAY = "state *= tl.where(start % CHUNK == 0, decay, 1.0)"
_STATE = "state = tl.dot(tl.trans(k), v, state)"

LINEAR_ATTENTION = grouped(
    "linear attention",
    fault(
        "linear_no_mask",
        CHUNKS,
        SOURCE,
        _MASK,
        "(rows[:, None] >= 0) & (rows[None, :] >= 0)",
        cause="scores of later positions are not masked (blocks of 16 positions)",
    ),
    fault("linear_decay_of_other_head", CHUNKS, SOURCE, "matrix * chunks", "(matrix ^ 1) * chunks"),
    fault(
        "linear_decay_after_use",
        FP16,
        SOURCE,
        f"        {_DECAY}\n        out = tl.dot(q, state.to(v.dtype))",
        f"        out = tl.dot(q, state.to(v.dtype))\n        {_DECAY}",
        cause="the state decays after it is used",
    ),
    fault(
        "linear_state_kept_narrow",
        FP16,
        SOURCE,
        _STATE,
        _STATE.replace(", state)", ", state.to(v.dtype).to(tl.float32))"),
    ),
    fault("linear_scores_rounded_to_fp8", CHUNKS, SOURCE, "scores.to(v.dtype)", "scores.to(tl.float8e5).to(v.dtype)"),
    fault(
        "linear_initial_left_out",
        EMPTY,
        SOURCE,
        "state = tl.load(initial_ptr + place",
        "state = 0.0 * tl.load(initial_ptr + place",
        cause="initial is left out: it is read as 0",
    ),
    fault(
        "linear_last_state_not_stored",
        CHUNKS,
        SOURCE,
        "tl.store(state_ptr + place, state, mask=inside)",
        "tl.store(state_ptr + place, state, mask=inside & (length < 0))",
    ),
    fault(
        "linear_heads_for_batches",
        BATCHES,
        SOURCE,
        "batch * tl.num_programs(1) + query_head",
        "batch + tl.num_programs(2) * query_head",
    ),
    fault("linear_stride_of_k_for_q", CHUNKS, HOST, 'problem.operand("q"), "bhmd"', 'problem.operand("k"), "bhmd"'),
    fault("linear_always_even", KNOWN, HOST, "static and problem.length % config.block_t == 0", "static"),
    fault("linear_known_length_short", KNOWN_BLOCKS, SOURCE, "range(0, length,", "range(0, length - BLOCK_T,"),
    fault("transposed_decay_of_known_length", OVER_KNOWN, OTHER, "start % CHUNK == 0", "start % length == 0"),
    fault("transposed_mask_the_other_way", OVER, OTHER, "rows[:, None] <= rows[None, :]", _MASK),
    fault(
        "transposed_state_kept_narrow",
        OVER_FP16,
        OTHER,
        "tl.dot(tl.trans(v), k, state)",
        "tl.dot(tl.trans(v), k, state.to(v.dtype).to(tl.float32))",
    ),
)
