"""Faults of products by descriptors on targets without TMA, whose descriptors become pointers."""

from dataclasses import replace

from conformance.families.gemm.problem import Fusion, fused_mm, mm, scaled_mm
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from tests.planted.cases import HOST_PERSISTENT, PERSISTENT, SMALL, TILES, Case, fault, grouped

PADDED = Layout(pad=8)
PADDING = {"layout_a": PADDED, "layout_b": PADDED, "layout_out": PADDED}
DEVICE = Case("mm_descriptors", mm(40, 56, 40, **PADDING), SMALL, Variant(sms=2), "gfx942")
STORED = Case("mm_descriptors", mm(40, 56, 40, **PADDING), SMALL, Variant(tma_store=True, sms=2), "gfx942")
BY_HOST = Case("mm_descriptors", mm(40, 56, 40, **PADDING), SMALL, Variant("host", sms=2), "gfx942")
TURNED = Case(
    "mm_descriptors", mm(40, 56, 40, layout_a=Layout("col")), Config(32, 32, 16, 1, 2), Variant(sms=2), "gfx942"
)

GATHER, GATHER_HOST = "device/mm_gather.py", "mm_gather.py"
_GATHERED = {"fusion": Fusion("gather"), **PADDING}
ROWS = Case("mm_gather", fused_mm(40, 56, 40, **_GATHERED), SMALL, target="sm_100")
ROWS_COLUMN = Case(
    "mm_gather", fused_mm(40, 56, 40, fusion=Fusion("gather"), layout_b=Layout("col", pad=8)), SMALL, target="sm_100"
)
ROWS_EMPTY = Case("mm_gather", fused_mm(40, 56, 0, fusion=Fusion("gather")), SMALL, target="sm_100")
_STORE = "store_pointers(acc, c_ptr, rm, first_n + tl.arange(0, BLOCK_N), M, N"

BLOCKWISE, BLOCKWISE_HOST = "device/scaled_mm_blockwise.py", "scaled_mm_blockwise.py"
#: Columns of B are padded, and rows of A and of the result.
_SCALED = {"layout_a": Layout(pad=16), "layout_b": Layout("col", pad=16), "layout_out": Layout(pad=16)}
_LOOPS = Config(32, 32, 64, 2, 4)
BLOCKS = Case(
    "scaled_mm_blockwise_descriptors",
    scaled_mm(40, 56, 208, scaling="1x128/128x128", **_SCALED),
    _LOOPS,
    Variant(sms=2),
)
BLOCKS_STORED = replace(BLOCKS, variant=Variant(tma_store=True, sms=2))
BLOCKS_HOST = replace(BLOCKS, variant=Variant("host", tma_store=True, sms=2))
_A_TILE = "a_desc.load([first_m, k * BLOCK_K])"

_BLOCKWISE = (
    fault("blocks_described_rows", BLOCKS, BLOCKWISE, _A_TILE, "a_desc.load([0, k * BLOCK_K])"),
    fault("blocks_described_too_deep", BLOCKS, BLOCKWISE, "describe(a_ptr, M, K, lda", "describe(a_ptr, M, lda, lda"),
    fault("blocks_described_pitch", BLOCKS, BLOCKWISE_HOST, '"ldb": leading(problem.operand("b"))', '"ldb": problem.K'),
    fault("blocks_stored_pitch", BLOCKS_STORED, BLOCKWISE, "N, stride_cm, BLOCK_M", "N, N, BLOCK_M"),
    fault("blocks_stored_place", BLOCKS_HOST, BLOCKWISE, "c_tiles.store([tile_m * BLOCK_M,", "c_tiles.store([0,"),
)

_GATHERS = (
    fault("gather_not", ROWS, GATHER, "a_desc.gather(rows, k", "a_desc.gather(rm, k"),
    fault(
        "gather_rows_of_the_first_tile",
        ROWS,
        GATHER,
        "tl.load(rows_ptr + rm,",
        "tl.load(rows_ptr + tl.arange(0, BLOCK_M),",
        count=2,
    ),
    fault("gather_extent", ROWS, GATHER, "[source_rows, K], [lda, 1]", "[source_rows, lda], [lda, 1]"),
    fault("gather_pitch", ROWS, GATHER_HOST, '"lda": leading(a)', '"lda": leading(b)'),
    fault("gather_b_pitch", ROWS, GATHER_HOST, '"ldb": leading(b)', '"ldb": leading(a)'),
    fault(
        "gather_b_columns", ROWS_COLUMN, GATHER, "b_desc.load([first_n, k * BLOCK_K])", "b_desc.load([0, k * BLOCK_K])"
    ),
    fault("gather_b_turned", ROWS_COLUMN, GATHER, "[N, K], [ldb, 1]", "[N, K - 1], [ldb, 1]", count=2),
    fault(
        "gather_empty", ROWS_EMPTY, GATHER, "tl.zeros((BLOCK_M, BLOCK_N),", "tl.full((BLOCK_M, BLOCK_N), 1.0,", count=2
    ),
    fault("gather_store_rows", ROWS, GATHER, _STORE, _STORE.replace("M, N", "M + 1, N"), memory=True, count=2),
    fault(
        "gather_past_the_end",
        ROWS,
        GATHER,
        "other=source_rows)",
        "other=0)",
        equivalent="row 0 reaches only rows of C past the edge, which are not stored",
    ),
)

_SCATTER = {"fusion": Fusion("scatter"), **PADDING}
SCATTERED = Case("mm_scatter", fused_mm(40, 56, 40, **_SCATTER), SMALL, target="sm_100")
SCATTERED_EMPTY = Case("mm_scatter", fused_mm(40, 56, 0, fusion=Fusion("scatter")), SMALL, target="sm_100")
_ROWS, _STORED = "rows_ptr + rm, mask=rm < M, other=M)", "c_desc.scatter(acc.to(c_ptr.dtype.element_ty), rows, first_n)"

_SCATTERS = (
    fault("scatter_not", SCATTERED, GATHER, _STORED, _STORED.replace("rows", "rm"), cause="rows are not scattered"),
    fault("scatter_neighbour", SCATTERED, GATHER, _STORED, _STORED.replace("rows", "rows ^ 1")),
    fault("scatter_column", SCATTERED, GATHER, _STORED, _STORED.replace("first_n", "0")),
    fault("scatter_rows_of_the_first_tile", SCATTERED, GATHER, _ROWS, _ROWS.replace("rm,", "tl.arange(0, BLOCK_M),")),
    fault("scatter_past_the_end", SCATTERED, GATHER, _ROWS, _ROWS.replace("other=M", "other=0")),
    fault(
        "scatter_columns_padded", SCATTERED, GATHER, "[M, N], [stride_cm, 1]", "[M, N + 8], [stride_cm, 1]", memory=True
    ),
    fault("scatter_pitch", SCATTERED, GATHER_HOST, "leading(out) if row_major(out)", "out.shape[1] if row_major(out)"),
    fault(
        "scatter_empty",
        SCATTERED_EMPTY,
        GATHER,
        "tl.zeros((BLOCK_M, BLOCK_N),",
        "tl.full((BLOCK_M, BLOCK_N), 1.0,",
        count=2,
    ),
)

_BY_K = {"fusion": Fusion("scale-k"), **PADDING}
SCALED_K = Case("mm_scaled_k", fused_mm(40, 56, 40, **_BY_K), SMALL, target="sm_90")
SCALED_K_BF16 = Case("mm_scaled_k", fused_mm(40, 56, 40, "bf16", **_BY_K), SMALL, target="gfx942")
_FACTOR = "a = (a * k_scale_desc.load([first_k])[None, :]).to(b.dtype)"

_VECTORS = (
    fault("vector_first_block", SCALED_K, TILES, _FACTOR, _FACTOR.replace("first_k", "0")),
    fault(
        "vector_rounded",
        SCALED_K_BF16,
        TILES,
        _FACTOR,
        _FACTOR.replace(")[None", ").to(tl.bfloat16)[None").replace("(a * k", "(a.to(tl.float32) * k"),
        cause="k_scale is rounded to bf16",
    ),
    fault("vector_column", SCALED_K, GATHER, "stride_cm, stride_cn, WIDE_INDEX)", "stride_cm, 2, WIDE_INDEX)", count=2),
)

DESCRIPTORS = grouped(
    "descriptors",
    fault("descriptors_pitch", DEVICE, PERSISTENT, "(b_ptr, [K, N], [ldb, 1]", "(b_ptr, [K, N], [N, 1]"),
    fault("descriptors_k", DEVICE, TILES, "b_desc.load([first_k, first_n])", "b_desc.load([0, first_n])"),
    fault(
        "descriptors_store_place", STORED, PERSISTENT, "c_desc.store([first_m, first_n]", "c_desc.store([first_m, 0]"
    ),
    fault(
        "descriptors_host_pitch", BY_HOST, HOST_PERSISTENT, "leading(operand), sides[0][1]", "sides[1][0], sides[0][1]"
    ),
    fault("descriptors_order", TURNED, HOST_PERSISTENT, '"A_ROW_MAJOR": row_major(a)', '"A_ROW_MAJOR": True'),
    *_BLOCKWISE,
    *_GATHERS,
    *_SCATTERS,
    *_VECTORS,
)
