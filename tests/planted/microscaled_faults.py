"""Faults of products of block-scaled operands: codes, scales, their blocks of k, and the dimension of the packing."""

from conformance.heuristics.configs import Config
from conformance.problems.microscaled import MicroscaledGemm
from tests.planted.cases import Case, Edit, Fault, grouped

SOURCE, HOST = "device/microscaled_mm.py", "microscaled_mm.py"

SMALL = Config(32, 64, 64, 2, 4)


def _case(a: str, b: str, k: int = 176, **fields: object) -> Case:
    return Case("microscaled_mm", MicroscaledGemm(a, b, 42, 74, k, **fields), SMALL)  # type: ignore[arg-type]


MX8 = _case("mxfp8", "mxfp8")
MX4 = _case("mxfp4", "mxfp4")
MIXED = _case("mxfp4", "mxfp8e5")
# columns of B lie a multiple of 16 bytes apart: Triton 3.6 gives wrong results on Hopper for any others
WEIGHTS = _case("bf16", "mxfp4", 160)
BATCH = _case("mxfp8", "mxfp4", batch=3)

_A = "mask=in_a & (ka[None, :] < K // A_ALONG_K), other=0.0"
_B = "mask=in_b & (kb[:, None] < K // B_ALONG_K), other=0.0"
_SCALE_A = "inside = (rm < M)[:, None] & (blocks * SCALE_BLOCK_A < K)[None, :]"
_DOT = "a, scale_a, A_CODES, b, scale_b, B_CODES, acc"

MICROSCALED = grouped(
    "microscaled",
    Fault("scaled_codes_past_k", Edit(SOURCE, _A, _A.replace("< K //", "< (K + 2) //")), MX8),
    Fault("scaled_b_codes_past_k", Edit(SOURCE, _B, "mask=in_b, other=0.0"), MX4),
    Fault("scaled_last_codes_dropped", Edit(SOURCE, _A, _A.replace("K // A", "(K - 2) // A")), MX4),
    Fault("scale_of_last_block_dropped", Edit(SOURCE, _SCALE_A, _SCALE_A.replace("blocks *", "(blocks + 1) *")), MX8),
    Fault(
        "scale_of_next_block",
        Edit(SOURCE, "+ blocks[None, :] * stride_scale_ak", "+ (blocks[None, :] ^ 1) * stride_scale_ak"),
        MX8,
    ),
    Fault("scale_b_of_first_block", Edit(SOURCE, "blocks = k * (BLOCK_K // SCALE_BLOCK_B) +", "blocks ="), WEIGHTS),
    Fault(
        "scale_of_next_row",
        Edit(SOURCE, "+ rm[:, None] * stride_scale_am", "+ (rm[:, None] ^ 1) * stride_scale_am"),
        MIXED,
    ),
    Fault("scale_b_of_all_columns_one", Edit(SOURCE, "+ rn[:, None] * stride_scale_bn", "+ rn[:, None] * 0"), WEIGHTS),
    Fault("scale_a_left_out", Edit(SOURCE, _DOT, _DOT.replace("a, scale_a", "a, None")), MX8),
    Fault("nibbles_exchanged", Edit(SOURCE, _DOT, _DOT.replace(" b,", " (b >> 4) | (b << 4),")), MX4),
    Fault("accumulator_begins_anew", Edit(SOURCE, _DOT, _DOT.replace(", acc", ", acc * 0")), MX8),
    Fault("scaled_matrix_of_batch", Edit(SOURCE, "scale_b_ptr + matrix * stride_scale_bz", "scale_b_ptr"), BATCH),
    Fault("scaled_b_of_first_matrix", Edit(SOURCE, "b_ptr + matrix * stride_bz", "b_ptr"), BATCH),
    Fault(
        "scaled_sum_rounded_to_bf16",
        Edit(SOURCE, "store_pointers(acc,", "store_pointers(acc.to(tl.bfloat16).to(tl.float32),"),
        MX8,
    ),
    Fault("e8m0_read_as_number", Edit(SOURCE, "scale_b = tl.load(place", "scale_b = 1 + tl.load(place"), MX8),
)
