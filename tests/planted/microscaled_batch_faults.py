"""Faults of batches of products of block-scaled operands: whose codes and scales a tile has, and how matrices
lie."""

from dataclasses import replace

from conformance.families.microscaled.problem import MicroscaledGemm
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from tests.planted.cases import HOST_PERSISTENT, Case, fault, grouped

SOURCE, HOST, TILES = (
    "device/microscaled_mm_batch.py",
    "microscaled_mm_batch.py",
    "device/microscaled_persistent_tma.py",
)
SHARED = "device/scaled_tiles.py"

#: Two tiles of rows and of columns in each of three matrices, all of which have gaps; k ends within a block of scales.
DEVICE = Case(
    "microscaled_mm_batch_descriptors",
    MicroscaledGemm(
        *("mxfp8", "mxfp8", 48, 80, 144),
        batch=3,
        layout_a=Layout(pad=16, batch_pad=64),
        layout_b=Layout("col", pad=16, batch_pad=32),
        layout_out=Layout(pad=4, batch_pad=12),
        layout_scale=Layout(batch_pad=3),
    ),
    Config(32, 64, 64, 1, 4),
    Variant(sms=2),
)
BY_HOST = replace(DEVICE, variant=Variant("host", sms=2))
STORED = replace(DEVICE, variant=Variant(tma_store=True, sms=2))
STORED_BY_HOST = replace(DEVICE, variant=Variant("host", tma_store=True, sms=2))
#: The same with orders exchanged, of four-bit codes.
TURNED = replace(
    DEVICE,
    problem=replace(
        DEVICE.problem,
        a_format="mxfp4",
        b_format="mxfp4",
        layout_a=Layout("col", batch_pad=64),
        layout_b=Layout("row", batch_pad=32),
    ),
)
#: Two tiles of scales along the lines, and three along k, the last of which is not full.
SCALES = Case(
    "microscaled_mm_batch_scales_descriptors",
    MicroscaledGemm(
        *("mxfp8", "mxfp8", 144, 160, 288), batch=2, swizzled=True, layout_scale=Layout(pad=1, batch_pad=2)
    ),
    Config(128, 128, 128, 2, 4),
    Variant(sms=2),
)
SCALES_BY_HOST = replace(SCALES, variant=Variant("host", sms=2))
#: Scales in the same tiles by pointers.
SWIZZLED = replace(DEVICE, problem=replace(DEVICE.problem, swizzled=True, layout_scale=Layout(batch_pad=1)))
EMPTY = replace(DEVICE, problem=replace(DEVICE.problem, K=0, layout_a=Layout(), layout_b=Layout("col")))

_LOAD_A = "a_desc, matrix, first_row + first_a,"
_SCALES = "load([matrix, first_line // 128, first_k // (4 * SCALE_BLOCK)"
_STORE = "result.store([matrix, tile_m"
_APART = "operand.strides[0] if operand.shape[0] > 1"

MICROSCALED_BATCH = grouped(
    "microscaled_batch",
    fault("scaled_batch_a_of_first_matrix", BY_HOST, TILES, _LOAD_A, _LOAD_A.replace("matrix", "0")),
    fault("scaled_batch_a_of_next_matrix", DEVICE, TILES, _LOAD_A, _LOAD_A.replace("matrix", "matrix ^ 1")),
    fault(
        "scaled_batch_swizzled_scales_without_gaps",
        SWIZZLED,
        SOURCE,
        "scales_b + number * stride_scale_bz",
        "scales_b + number * stride_scale_bn",
    ),
    fault("scaled_batch_matrices_in_turn", DEVICE, SOURCE, "matrix = tile // tiles", "matrix = tile % 2"),
    fault("scaled_batch_described_in_first", STORED_BY_HOST, SOURCE, _STORE, _STORE.replace("matrix", "0")),
    fault("scaled_batch_stored_pitch", STORED, SOURCE, "stride_cz, ldc,", "stride_cz, N,"),
    fault(
        "scaled_batch_stored_apart", STORED, HOST, '"stride_cz": matrices_apart(out)', '"stride_cz": out.shape[1] * 80'
    ),
    fault("scaled_batch_pitch_exchanged", TURNED, HOST, '"ldb": leading(b)', '"ldb": leading(a)'),
    fault("scaled_batch_order_of_b", TURNED, HOST, '"B_ROW_MAJOR": row_major(b)', '"B_ROW_MAJOR": row_major(a)'),
    fault(
        "scaled_batch_host_without_gaps",
        BY_HOST,
        HOST_PERSISTENT,
        _APART,
        "operand.shape[1] * operand.strides[1] if operand.shape[0] > 1",
    ),
    fault("scaled_batch_scales_of_first_matrix", SCALES, SHARED, _SCALES, _SCALES.replace("matrix", "0")),
    fault(
        "scaled_batch_scales_of_first_blocks",
        SCALES_BY_HOST,
        SHARED,
        _SCALES,
        _SCALES.replace("first_k // (4 * SCALE_BLOCK)", "0"),
    ),
    fault(
        "scaled_batch_scales_without_gaps",
        SCALES,
        SHARED,
        "[stride_matrix, stride_line, stride_block",
        "[tl.cdiv(lines, 128) * stride_line, stride_line, stride_block",
    ),
    fault(
        "scaled_batch_zeros_of_no_k",
        EMPTY,
        SOURCE,
        "            acc = tl.zeros((BLOCK_M",
        "            acc = 1 + tl.zeros((BLOCK_M",
    ),
    fault(
        "scaled_batch_tiles_in_other_order",
        DEVICE,
        SOURCE,
        "matrix = tile // tiles",
        "matrix = batch - 1 - tile // tiles",
        equivalent="each tile of each matrix is still computed once",
    ),
)
