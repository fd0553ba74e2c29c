"""Faults of shared tiles: the shares of the blocks of K, the parts that are added, and what says that they are there.

A fault by which a program waits for a part that nobody leaves is none of these: it would not end.
"""

from conformance.families.gemm.problem import mm
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from tests.planted.cases import PADDED, Case, fault, grouped

STREAM_K = "device/mm_stream_k.py"
SMALL = Config(32, 16, 32, 2, 4, group_m=2)
#: 2 x 3 tiles of five blocks of K, the last of each ragged: four programs have seven or eight, and eleven two or three.
FEW = Case("mm_stream_k", mm(40, 40, 140), SMALL, Variant(sms=4))
MANY = Case("mm_stream_k", mm(40, 40, 140, layout_a=PADDED, layout_out=PADDED), SMALL, Variant(sms=11))

_FIRST = "first = tl.maximum(begin - tile * depth, 0)"
_K = "k = tl.minimum(K, last * BLOCK_K) - first * BLOCK_K"

SHARED_TILES = grouped(
    "stream-k",
    fault(
        "shares_begin_with_tile",
        MANY,
        STREAM_K,
        _FIRST,
        "first = tl.maximum(begin - tile * depth, 0) * 0",
        equivalent="the program that ends a tile multiplies all of it, and adds no part",
    ),
    fault("shares_to_the_end_of_k", FEW, STREAM_K, _K, "k = K - first * BLOCK_K"),
    fault("shares_k_of_last", MANY, STREAM_K, _K, "k = (last - first) * BLOCK_K"),
    fault("shares_first_k_of_b", MANY, STREAM_K, "b_ptr + first_k * stride_bk", "b_ptr"),
    fault("shares_first_k_of_a", FEW, STREAM_K, "a_ptr + first_k * stride_ak", "a_ptr"),
    fault("shares_parts_dropped", FEW, STREAM_K, "acc += total", "acc += 0 * total"),
    fault("shares_part_added_twice", MANY, STREAM_K, "acc += total", "acc += 2 * total"),
    fault("shares_only_last_part", MANY, STREAM_K, "total += tl.load(part)", "total = tl.load(part)"),
    fault("shares_own_part_lost", FEW, STREAM_K, "acc += total", "acc = total"),
    fault("shares_first_part_again", MANY, STREAM_K, "part += BLOCK_M * BLOCK_N", "part += 0"),
    fault("shares_part_of_next_program", FEW, STREAM_K, "parts_ptr + program.to", "parts_ptr + (program ^ 1).to"),
    fault(
        "shares_middle_parts_missed",
        MANY,
        STREAM_K,
        "others = program_of(tile * depth, share, longer)",
        "others = program - 1",
    ),
    fault("shares_every_part_stored", FEW, STREAM_K, "if last < depth:", "if last < depth + 1:"),
    fault("shares_parts_in_bf16", FEW, STREAM_K, "+ place, acc)", "+ place, acc.to(tl.bfloat16).to(tl.float32))"),
    fault(
        "shares_part_of_other_shape",
        MANY,
        STREAM_K,
        "[:, None] * BLOCK_N + tl",
        "[:, None] * BLOCK_M + tl",
    ),
)
