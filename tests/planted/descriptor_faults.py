"""Faults of products by descriptors on targets without TMA, whose descriptors become pointers."""

from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from conformance.problems import Layout, mm
from tests.planted.cases import HOST_PERSISTENT, PERSISTENT, SMALL, TILES, Case, fault, grouped

PADDED = Layout(pad=8)
PADDING = {"layout_a": PADDED, "layout_b": PADDED, "layout_out": PADDED}
DEVICE = Case("mm_descriptors", mm(40, 56, 40, **PADDING), SMALL, Variant(sms=2), "gfx942")
STORED = Case("mm_descriptors", mm(40, 56, 40, **PADDING), SMALL, Variant(tma_store=True, sms=2), "gfx942")
BY_HOST = Case("mm_descriptors", mm(40, 56, 40, **PADDING), SMALL, Variant("host", sms=2), "gfx942")
TURNED = Case(
    "mm_descriptors", mm(40, 56, 40, layout_a=Layout("col")), Config(32, 32, 16, 1, 2), Variant(sms=2), "gfx942"
)

DESCRIPTORS = grouped(
    "descriptors",
    fault("descriptors_pitch", DEVICE, PERSISTENT, "(b_ptr, [K, N], [ldb, 1]", "(b_ptr, [K, N], [N, 1]"),
    fault("descriptors_extent", DEVICE, PERSISTENT, "(a_ptr, [M, K], [lda, 1]", "(a_ptr, [M, lda], [lda, 1]"),
    fault("descriptors_k", DEVICE, TILES, "b_desc.load([first_k, first_n])", "b_desc.load([0, first_n])"),
    fault(
        "descriptors_last_block",
        DEVICE,
        TILES,
        "cdiv(K, BLOCK_K)):\n        first_k",
        "cdiv(K, BLOCK_K) - 1):\n        first_k",
    ),
    fault(
        "descriptors_store_place", STORED, PERSISTENT, "c_desc.store([first_m, first_n]", "c_desc.store([first_m, 0]"
    ),
    fault("descriptors_store_rows", STORED, PERSISTENT, "(c_ptr, [M, N], [stride_cm", "(c_ptr, [M - 1, N], [stride_cm"),
    fault("descriptors_host_pitch", BY_HOST, HOST_PERSISTENT, "[leading(operand), 1]", "[operand.shape[1], 1]"),
    fault("descriptors_order", TURNED, HOST_PERSISTENT, '"A_ROW_MAJOR": row_major(a)', '"A_ROW_MAJOR": True'),
)
