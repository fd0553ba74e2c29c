"""Faults of products of block-scaled operands: codes, scales, their blocks of k and their layouts, the dimension of the
packing, and descriptors."""

from dataclasses import replace

from conformance.families.microscaled.problem import MicroscaledGemm
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from tests.planted.cases import HOST_PERSISTENT, Case, fault, grouped

SHARED, POINTER, TMA = (
    "device/scaled_tiles.py",
    "device/microscaled_mm.py::gemm_microscaled",
    "device/microscaled_persistent_tma.py",
)
HOST, HOST_TMA = "microscaled_mm.py", "microscaled_persistent_tma.py"

SMALL = Config(32, 64, 64, 2, 4)


def _case(a: str, b: str, k: int = 176, **fields: object) -> Case:
    return Case("microscaled_mm", MicroscaledGemm(a, b, 42, 74, k, **fields), SMALL)  # type: ignore[arg-type]


MX8 = _case("mxfp8", "mxfp8")
MX4 = _case("mxfp4", "mxfp4")
MIXED = _case("mxfp4", "mxfp8e5")
#: The compiler knows K, which has a rest, or none.
KNOWN, KNOWN_BLOCKS = (replace(_case("mxfp8", "mxfp8", k), variant=Variant(static=True)) for k in (176, 192))
#: Two tiles of scales in each direction, of A's lines the second with one line, of blocks of k with one block.
SWIZZLED = Case("microscaled_mm", MicroscaledGemm("mxfp8", "mxfp4", 129, 74, 144, swizzled=True), SMALL)
SWIZZLED_NV = Case("microscaled_mm", MicroscaledGemm("nvfp4", "nvfp4", 34, 144, 176, swizzled=True), SMALL)

_A = "mask=in_a if EVEN_K else in_a & (ka[None, :] < K // A_ALONG_K)"
_IN_K = "in_k = blocks * SCALE_BLOCK < K"
_PLACE = "place = scale_ptr + line[:, None] * stride_line + blocks[None, :] * stride_block"
_DOT = "a, scale_a, A_CODES, b, scale_b, B_CODES, acc"
_OF_BLOCKS = "of_blocks = blocks // 4 * stride_block + blocks % 4"

MICROSCALED = grouped(
    "microscaled",
    fault("scaled_codes_past_k", MX8, SHARED, _A, _A.replace("< K //", "< (K + 2) //")),
    fault("scaled_codes_past_known_k", KNOWN, POINTER, "WIDE_INDEX, EVEN_K,", "WIDE_INDEX, True,"),
    fault("scaled_known_k_a_block_short", KNOWN_BLOCKS, POINTER, "tile_n, M, N, K,", "tile_n, M, N, K - BLOCK_K,"),
    fault(
        "scaled_rows_not_masked",
        KNOWN_BLOCKS,
        SHARED,
        "mask=in_a if EVEN_K",
        "mask=in_a | True if EVEN_K",
        memory=True,
        watch_only=True,
    ),
    fault("scaled_last_codes_dropped", MX4, SHARED, _A, _A.replace("K // A", "(K - 2) // A")),
    fault("scale_of_last_block_dropped", MX8, SHARED, _IN_K, "in_k = (blocks + 1) * SCALE_BLOCK < K"),
    fault("scale_of_next_row", MIXED, SHARED, _PLACE, _PLACE.replace("line[:, None]", "(line[:, None] ^ 1)")),
    fault("nibbles_exchanged", MX4, SHARED, _DOT, _DOT.replace(" b,", " (b >> 4) | (b << 4),")),
    fault(
        "scaled_sum_rounded_to_bf16",
        MX8,
        POINTER,
        "store_pointers(acc,",
        "store_pointers(acc.to(tl.bfloat16).to(tl.float32),",
    ),
    # the layout that tcgen05 reads
    fault("swizzled_read_as_lines", SWIZZLED, HOST, '"SWIZZLED": problem.swizzled', '"SWIZZLED": False'),
    fault(
        "swizzled_not_turned",
        SWIZZLED,
        SHARED,
        "mask=inside, other=0.0), 1, 0, 2)",
        "mask=inside, other=0.0), 0, 1, 2)",
    ),
    fault(
        "swizzled_block_of_a_neighbour",
        SWIZZLED_NV,
        SHARED,
        _OF_BLOCKS,
        _OF_BLOCKS.replace("blocks % 4", "(blocks ^ 1) % 4"),
    ),
)


def _tma(a: str, b: str, config: Config = SMALL, *, variant: Variant = Variant(sms=2), **fields: object) -> Case:
    """Several tiles for each program, and K that ends within a block of scales; rows as descriptors can have them."""
    fields = {"layout_a": Layout("row", pad=16), "layout_b": Layout("col", pad=16), **fields}
    problem = MicroscaledGemm(a, b, 48, 144, 160, **fields)  # type: ignore[arg-type]
    return Case("microscaled_mm_persistent_tma", problem, config, variant)


TMA8 = _tma("mxfp8", "mxfp8")
TMA4 = _tma("mxfp4", "mxfp4")
TURNED = _tma("mxfp8", "mxfp4", layout_a=Layout("col"), layout_b=Layout("row"))
HOST_MADE = _tma("mxfp8", "mxfp4", variant=Variant("host", sms=2))
TMA_SWIZZLED = _tma("mxfp8", "mxfp8", swizzled=True)
TMA_EMPTY = Case("microscaled_mm_persistent_tma", MicroscaledGemm("mxfp8", "mxfp8", 48, 80, 0), SMALL, Variant(sms=2))
SPECIALISED = Case(
    "microscaled_mm_blackwell_ws",
    MicroscaledGemm("mxfp8", "mxfp8", 136, 288, 160),
    Config(128, 64, 128, 2, 4, group_m=2),
    Variant(sms=2),
    "sm_100",
)

#: Two tiles of scales along the lines, and three along k, the last of which is not full.
SCALES = Case(
    "microscaled_mm_scales_persistent_tma",
    MicroscaledGemm("mxfp8", "mxfp8", 144, 160, 288, swizzled=True, layout_scale=Layout(pad=1)),
    Config(128, 128, 128, 2, 4),
    Variant(sms=2),
)
SCALES_HOST = replace(SCALES, variant=Variant("host", sms=2))

_TILE = "tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN"

MICROSCALED_TMA = grouped(
    "microscaled_tma",
    fault(
        "tma_scaled_every_second_round", TMA8, TMA, _TILE, _TILE.replace("tl.num_programs(0)", "2 * tl.num_programs(0)")
    ),
    fault("tma_scaled_a_of_next_tile", TURNED, TMA, "first_row + first_a, ka,", "BLOCK_M + first_a, ka,"),
    fault("tma_scaled_b_of_first_columns", TMA4, TMA, "matrix, kb, first_b,", "matrix, kb, 0,"),
    fault("tma_scaled_pitch_of_extent", TMA8, HOST_TMA, '"lda": leading(a)', '"lda": a.shape[1]'),
    fault(
        "tma_scaled_host_pitch",
        HOST_MADE,
        HOST_PERSISTENT,
        "leading(operand), sides[0][1]",
        "sides[1][0], sides[0][1]",
    ),
    fault(
        "tma_swizzled_strides",
        TMA_SWIZZLED,
        HOST,
        "strides[:-3] if problem.swizzled",
        "strides[1:-2] if problem.swizzled",
    ),
    fault("tma_scales_of_first_lines", SCALES, SHARED, "load([first_line // 128,", "load([0,"),
    fault(
        "tma_scales_of_first_blocks",
        SCALES,
        SHARED,
        "load([first_line // 128, first_k // (4 * SCALE_BLOCK), 0, 0",
        "load([first_line // 128, 0, 0, 0",
    ),
    fault(
        "tma_scales_exchanged_strides",
        SCALES,
        SHARED,
        "[stride_line, stride_block, 256",
        "[stride_block, stride_line, 256",
    ),
    fault(
        "tma_scales_host_strides",
        SCALES_HOST,
        HOST_TMA,
        "[*operand.strides[:-3], half, 1]",
        "[*operand.strides[1::-1], half, 1]",
    ),
    fault(
        "tma_scaled_zeros_of_no_k",
        TMA_EMPTY,
        TMA,
        "        else:\n            acc = tl.zeros((BLOCK_M",
        "        else:\n            acc = 1 + tl.zeros((BLOCK_M",
    ),
)
