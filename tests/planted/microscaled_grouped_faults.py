"""Faults of grouped products of block-scaled operands: which group a tile, a matrix or a scale belongs to."""

from dataclasses import replace

from conformance.families.microscaled_grouped.problem import MicroscaledGroupedGemm
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from tests.planted.cases import Case, fault, grouped

SOURCE, HOST = "device/microscaled_mm_grouped.py", "microscaled_mm_grouped.py"

#: Groups of two tiles, of none, of a part of one and of two again; ragged columns, and a block of scales of two k.
ROWS = Case(
    "microscaled_mm_grouped",
    MicroscaledGroupedGemm("mxfp8", "mxfp4", (42, 0, 9, 33), 74, 98),
    Config(32, 64, 64, 2, 4),
    Variant(sms=2),
)

#: The same by descriptors: groups of one row, and rows of A and columns of B with gaps.
DESCRIBED = Case(
    "microscaled_mm_grouped_persistent_tma",
    MicroscaledGroupedGemm(
        "mxfp8", "mxfp8", (42, 0, 1, 33), 74, 96, layout_a=Layout(pad=32), layout_b=Layout("col", batch_pad=64)
    ),
    Config(32, 64, 64, 2, 4),
    Variant(sms=2),
)
BY_HOST = replace(DESCRIBED, variant=Variant("host", sms=2))

_DOT = "tile_m, tile_n, rows, N, K,"

MICROSCALED_GROUPED = grouped(
    "microscaled_grouped",
    fault("scaled_group_last_row_left_out", ROWS, SOURCE, _DOT, _DOT.replace("rows", "rows - 1"), count=2),
    fault("scaled_group_described_from_the_first", DESCRIBED, SOURCE, "b_tiles, group, begin,", "b_tiles, group, 0,"),
    fault(
        "scaled_group_described_too_deep",
        DESCRIBED,
        SOURCE,
        "a_ptr, M // A_ALONG_M, K //",
        "a_ptr, M // A_ALONG_M, lda //",
    ),
    fault("scaled_group_matrix_of_first", BY_HOST, SOURCE, "b_tiles, group, begin,", "b_tiles, 0, begin,"),
    fault("scaled_group_order_of_b", BY_HOST, HOST, "(row_major(a), row_major(b),", "(row_major(a), row_major(a),"),
    fault("scaled_group_pitch", DESCRIBED, HOST, '"ldb": leading(b)', '"ldb": leading(a)'),
    fault(
        "scaled_group_tiles_counted_once",
        ROWS,
        SOURCE,
        "earlier_tiles += tiles",
        "earlier_tiles = tiles",
        equivalent="wherever a program begins in a group, the programs share its tiles without gap or overlap",
    ),
)
