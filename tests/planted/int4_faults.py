"""Faults of products with four-bit weights: codes, signs, packing, groups, zero points, and where K ends."""

from conformance.families.int4.problem import Int4Gemm
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from tests.planted.cases import Case, fault, grouped

INT4, HOST = "device/int4_mm.py", "int4_mm.py"
SMALL = Config(32, 32, 32, 2, 4)


def _case(signed: bool, **fields: object) -> Case:
    fields = {"group": 32, "zero": "packed", **fields}
    return Case("int4_mm", Int4Gemm("fp16", 42, 74, 90, signed, **fields), SMALL)  # type: ignore[arg-type]


SIGNED_K, UNSIGNED_K = _case(True), _case(False)
SIGNED_N, UNSIGNED_N = _case(True, packed="n"), _case(False, packed="n", zero="float")
#: Each k loads its own scale; each block has one.
SHORT_GROUPS, LONG_GROUPS = _case(False, group=16), _case(True, group=64, zero="float")
ONE_GROUP = _case(False, group=0)
#: The compiler knows K, which has a rest, or none.
KNOWN, KNOWN_BLOCKS, KNOWN_PAIRS = (
    Case("int4_mm", Int4Gemm("fp16", 42, 74, k, True, packed, 32), SMALL, Variant(static=True))
    for k, packed in ((90, "k"), (96, "k"), (96, "n"))
)
BF16 = Case("int4_mm", Int4Gemm("bf16", 42, 74, 90, True, "k", 32), SMALL)

_SIGNED = "codes = (byte << (28 - shift)) >> 28"
_PAIR = "tl.interleave((byte << 28) >> 28, byte >> 4)"

FOUR_BITS = grouped(
    "int4",
    fault("int4_sign_lost", SIGNED_K, INT4, _SIGNED, "codes = (byte >> shift) & 15"),
    fault("int4_halves_exchanged", UNSIGNED_K, INT4, "codes = (byte >> shift)", "codes = (byte >> (4 - shift))"),
    fault("int4_columns_exchanged", SIGNED_N, INT4, _PAIR, "tl.interleave(byte >> 4, (byte << 28) >> 28)"),
    fault("int4_three_bits", UNSIGNED_N, INT4, "tl.interleave(byte & 15,", "tl.interleave(byte & 7,"),
    fault("int4_byte_of_next_pair", UNSIGNED_K, INT4, "(rk // 2)[:, None]", "((rk + 1) // 2)[:, None]"),
    fault("int4_zero_plus_one", UNSIGNED_K, INT4, "((pair >> shift_n) & 15)", "(((pair >> shift_n) & 15) + 1)"),
    fault("int4_scale_of_block", SHORT_GROUPS, INT4, "group = ks // GROUP", "group = (k * BLOCK_K + ks * 0) // GROUP"),
    fault(
        "int4_group_per_block",
        LONG_GROUPS,
        INT4,
        "group = ks // GROUP if GROUP else",
        "group = ks // BLOCK_K if GROUP else",
    ),
    fault("int4_one_group_lost", ONE_GROUP, INT4, "ks * 0", "ks // BLOCK_K"),
    fault(
        "int4_scale_of_next_column", BF16, INT4, "rn[None, :] * stride_scale_n", "(rn[None, :] ^ 1) * stride_scale_n"
    ),
    fault(
        "int4_weights_rounded_first",
        BF16,
        INT4,
        "weights * scale, 0.0",
        "(weights * scale).to(tl.float8e5).to(tl.float32), 0.0",
    ),
    fault("int4_always_even", KNOWN, HOST, "static and problem.K % config.block_k == 0", "static"),
    fault(
        "int4_known_scales_dropped",
        KNOWN_BLOCKS,
        INT4,
        "with_scale = in_n if",
        "with_scale = in_n & (rn > 0)[None, :] if",
    ),
    fault(
        "int4_known_codes_past_n",
        KNOWN_PAIRS,
        INT4,
        "mask=in_half if",
        "mask=in_half | True if",
        memory=True,
        watch_only=True,
    ),
    fault("int4_infinite_tail", LONG_GROUPS, INT4, "tl.where(in_k[:, None], weights * scale, 0.0)", "weights * scale"),
)
