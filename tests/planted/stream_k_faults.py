"""Faults of shared tiles: the shares of the blocks of K, the parts that are added, and what says that they are there.

A fault by which a program waits for a part that no program leaves is none of these: it would not end.
"""

from conformance.families.gemm.problem import mm
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from tests.planted.cases import PADDED, Case, fault, grouped

STREAM_K = "device/split_k.py::program_of,gemm_stream_k"
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
    fault("shares_part_added_twice", MANY, STREAM_K, "acc += total", "acc += 2 * total"),
)
