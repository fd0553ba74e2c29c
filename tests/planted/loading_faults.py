"""Faults of loops, addresses, masks and stores: which elements are read, multiplied and written."""

from tests.planted import cases as on
from tests.planted.cases import HOST, HOST_PERSISTENT, PERSISTENT, POINTER, TILES, Edit, Fault, grouped

_INSIDE = "inside = (rm < M)[:, None] & (rn < N)[None, :]\n    target"


def _pointer_loop(new: str) -> Edit:
    """Changes the range of the pointer kernel's K loop."""
    old = "for k in range(0, tl.cdiv(K, BLOCK_K)):\n        if EVEN_K:"
    return Edit(TILES, old, f"for k in {new}:\n        if EVEN_K:")


def _first_k(new: str) -> Edit:
    """Changes the first k of each of the descriptor kernel's loads."""
    return Edit(TILES, "first_k = k * BLOCK_K", f"first_k = {new}")


_LOOP = "    for tile in tl.range("
_DOT_END = "A_ROW_MAJOR, B_ROW_MAJOR, PRECISION, PROMOTE,\n            )  # fmt: skip\n"
#: Each tile's sum begins with that of the tile before.
_SUM_CARRIED = (
    Edit(PERSISTENT, _LOOP, f"    carry = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)\n{_LOOP}"),
    Edit(PERSISTENT, _DOT_END, f"{_DOT_END}            acc += carry\n            carry = acc\n"),
)


def _stored(old: str, new: str) -> Edit:
    """Changes which elements are inside the result when the pointer kernel stores."""
    return Edit(TILES, _INSIDE, _INSIDE.replace(old, new))


TAIL = grouped(
    "tail",
    Fault(
        "ktail_other1",
        (
            Edit(TILES, "inside[None, :], other=0.0", "inside[None, :], other=1.0"),
            Edit(TILES, "inside[:, None], other=0.0", "inside[:, None], other=1.0"),
        ),
        on.MM,
        "filled with ones",
    ),
    Fault(
        "ktail_other1_A_only",
        Edit(TILES, "inside[None, :], other=0.0", "inside[None, :], other=1.0"),
        on.MM,
        equivalent="the masked rows of B are 0, and 1 * 0 adds nothing",
    ),
    Fault("mstore_off1", _stored("rm < M", "rm <= M"), on.MM, memory=True),
    Fault("mstore_short", _stored("rm < M", "rm < M - 1"), on.MM, "not written: 56 elements, rows 39..39"),
    Fault("nstore_short", _stored("rn < N", "rn < N - 1"), on.MM, "not written: 40 elements, rows 0..39 cols 55..55"),
    Fault("nstore_nomask", _stored("rn < N", "rn >= 0"), on.MM),
    Fault(
        "mload_nomask",
        Edit(TILES, "a_mask = (rm < M)", "a_mask = (rm >= 0)"),
        on.MM,  # rows of A past the edge only reach rows of C past the edge, which the store masks
        memory=True,
        watch_only=True,
    ),
    Fault(
        "mload_no_value",
        Edit(
            TILES,
            "mask=a_mask & inside[None, :], other=0.0)\n            b",
            "mask=a_mask & inside[None, :])\n            b",
        ),
        on.MM,
        cause="the mask of the load leaves k 40 to 47 of a without a value; the first operand is NaN in 0 * NaN",
        watch_only=True,  # compiled code gives these lanes 0
    ),
)

TILING = grouped(
    "tiling",
    Fault(
        "swizzle_dup",
        Edit(TILES, "inside = tile % band_tiles", "inside = (tile | 1) % band_tiles"),
        on.MM,
        "not written: 2 whole tiles",
    ),
    Fault(
        "swizzle_band", Edit(TILES, "rows = min(tiles_m - first_m, GROUP_M)", "rows = GROUP_M"), on.MM, "not written"
    ),
    Fault(
        "tile_unwritten",
        Edit(
            POINTER,
            "store_pointers(acc, c_ptr, rm, rn, M,",
            "store_pointers(acc, c_ptr, rm, rn, M - tile_m * tile_n * M,",
        ),
        on.MM,
        "not written: tile (1,1)",
    ),
    Fault(
        "tile_wrong_columns",
        Edit(
            POINTER,
            "acc = dot_pointers(\n        a_ptr, b_ptr, rm, rn,",
            "acc = dot_pointers(\n        a_ptr, b_ptr, rm, rn - tile_m * tile_n * BLOCK_N,",
        ),
        on.MM,
        "tile (1,1) holds the product of tile (1,0)",
    ),
    Fault("skip_last_k", _pointer_loop("range(0, K // BLOCK_K)"), on.MM, "k-block 2 of 3 (BLOCK_K=16) is skipped"),
    Fault("skip_first_k_block", _first_k("(k + 1) * BLOCK_K"), on.TMA, "k-block 0 of 3 (BLOCK_K=16) is skipped"),
    Fault(
        "skip_k_one_tile",
        _first_k("k * BLOCK_K + tl.where((k == 1) & (first_m * first_n > 0), K, 0)"),
        on.TMA,
        "k-block 1 of 3 (BLOCK_K=16) is skipped",
    ),
    Fault(
        "tma_every_tile_twice",
        Edit(PERSISTENT, "tl.program_id(0), tiles, tl.num_programs(0), flatten", "0, tiles, 1, flatten"),
        on.TMA,  # each program computes every tile
        memory=True,
        watch_only=True,
    ),
    Fault("acc_not_reset", _SUM_CARRIED, on.TMA, "the accumulator was not reset"),
    Fault(
        "acc_not_reset_one_tile",
        _SUM_CARRIED,
        on.Case("mm_persistent_tma", on.mm(24, 32, 40), on.SMALL, on.TWO_SMS),
        equivalent="the output is one tile: the carried sum is never used",
    ),
    Fault(
        "stale_k",
        Edit(TILES, "a_desc.load([first_m, first_k])", "a_desc.load([first_m, tl.where(k == 1, 0, first_k)])"),
        on.TMA,
        "A of k-block 0 is used with B of k-block 1",
    ),
    Fault(
        "k_twice",
        Edit(
            TILES,
            "for k in range(0, tl.cdiv(K, BLOCK_K)):\n        first_k = k * BLOCK_K",
            "for k in range(0, tl.cdiv(K, BLOCK_K) + 1):\n        first_k = min(k, tl.cdiv(K, BLOCK_K) - 1) * BLOCK_K",
        ),
        on.TMA,
        "k-block 2 of 3 (BLOCK_K=16) is used twice",
    ),
    Fault(
        "b_prefetch_off",
        Edit(TILES, "b_desc.load([first_k, first_n])", "b_desc.load([first_k + BLOCK_K, first_n])"),
        on.TMA,
        "B of the next k-block is used at every k-block",
    ),
    Fault(
        "transposed_B",
        (
            Edit(
                TILES,
                "rk[:, None] * stride_bk + rn[None, :] * stride_bn",
                "rk[:, None] * stride_bn + rn[None, :] * stride_bk",
            ),
            Edit(TILES, "b_tile += step * stride_bk", "b_tile += step * stride_bn"),
        ),
        on.Case("mm", on.mm(40, 56, 56), on.SMALL),
        "B is read with its strides exchanged",
    ),
    Fault(
        "persistent_stride",
        Edit(PERSISTENT, "tiles, tl.num_programs(0),", "tiles, tl.num_programs(0) + 1,"),
        on.TMA,
        "not written: tile (0,1)",
    ),
    Fault(
        "persistent_start",
        Edit(PERSISTENT, "tl.program_id(0), tiles", "tl.program_id(0) + 1, tiles"),
        on.TMA,
        "not written: tile (0,0)",
    ),
    Fault(
        "grid_too_small",
        Edit(HOST, "tiles = output_tiles(plan)", "tiles = output_tiles(plan) - 1"),
        on.MM,
        "not written: tile (1,1)",
    ),
    Fault(
        "grid_not_as_planned",
        Edit(HOST, "Launch(gemm_pointer, plan.grid,", "Launch(gemm_pointer, (plan.grid[0] + 1,),"),
        on.MM,
        memory=True,
    ),
    Fault(
        "empty_k_not_stored",
        Edit(
            PERSISTENT,
            "tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)",
            "tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N) if HAS_PRODUCT else 0",
        ),
        on.TMA_EMPTY,
        "not written: 4 whole tiles",
    ),
    Fault(
        "empty_k_not_zero",
        Edit(
            PERSISTENT,
            "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
            "acc = tl.full((BLOCK_M, BLOCK_N), 1.0, dtype=tl.float32)",
        ),
        on.TMA_EMPTY,
    ),
    Fault("empty_k_reads", _pointer_loop("range(0, tl.maximum(tl.cdiv(K, BLOCK_K), 1))"), on.MM_EMPTY_STATIC),
    Fault(
        "empty_k_reads_masked",
        _pointer_loop("range(0, tl.maximum(tl.cdiv(K, BLOCK_K), 1))"),
        on.Case("mm", on.mm(40, 56, 0), on.SMALL),
        equivalent="every load of the extra step is masked off and adds zeros",
    ),
)

ADDRESSING = grouped(
    "addressing",
    Fault(
        "assume_contig",
        Edit(TILES, "a_ptr + rm[:, None] * stride_am", "a_ptr + rm[:, None] * K"),
        on.MM_PADDED,
        "A is read as if it were contiguous",
    ),
    Fault(
        "descriptor_pitch",
        Edit(PERSISTENT, "(a_ptr, [M, K], [lda, 1]", "(a_ptr, [M, K], [K, 1]"),
        on.TMA_PADDED,
        "A is read as if it were contiguous",
    ),
    Fault(
        "host_descriptor_pitch",
        Edit(HOST_PERSISTENT, "leading(operand), sides[0][1]", "sides[1][0], sides[0][1]"),
        on.TMA_HOST,
        "A is read as if it were contiguous",
    ),
    Fault(
        "descriptor_extent", Edit(PERSISTENT, "(a_ptr, [M, K], [lda, 1]", "(a_ptr, [M, lda], [lda, 1]"), on.TMA_PADDED
    ),
    Fault(
        "descriptor_order",
        Edit(HOST_PERSISTENT, '"A_ROW_MAJOR": row_major(a)', '"A_ROW_MAJOR": True'),
        on.TMA_COLUMN,
        "A is read with its strides exchanged",
    ),
    Fault("narrow_step", Edit(TILES, "tl.int64 if WIDE_INDEX else tl.int32", "tl.int32"), on.FAR_BLOCKS),
    Fault("wide_index_never", Edit(HOST, "spans_wide(problem),", "False,"), on.FAR),
    Fault(
        "row_swap",
        Edit(TILES, "a_ptr + rm[:, None] * stride_am", "a_ptr + (rm ^ 8)[:, None] * stride_am"),
        on.Case("mm", on.mm(48, 56, 40), on.SMALL),
        "row i holds the products of row i ^ 8",
    ),
    Fault(
        "column_swap",
        Edit(TILES, "+ rn[None, :] * stride_bn", "+ (rn ^ 1)[None, :] * stride_bn"),
        on.MM,
        "column i holds the products of column i ^ 1",
    ),
    Fault(
        "k_pair_swap",
        Edit(TILES, "rk[None, :] * stride_ak", "(rk ^ 1)[None, :] * stride_ak"),
        on.MM,
        "neighbouring k of one operand are exchanged",
    ),
    Fault(
        "a_off_by_one",
        Edit(TILES, "a_tile = a_ptr + rm[:, None]", "a_tile = a_ptr + 1 + rm[:, None]"),
        on.MM,
        "A is read one column after the right one",
    ),
    Fault("advance_by_one_less", Edit(TILES, "a_tile += step * stride_ak", "a_tile += (step - 1) * stride_ak"), on.MM),
    Fault(
        "even_k_always",
        Edit(HOST, "plan.variant.static and self._depth(plan) % plan.config.block_k == 0", "plan.variant.static"),
        on.MM_STATIC,
    ),
    Fault(
        "store_position",
        Edit(PERSISTENT, "c_desc.store([first_m, first_n]", "c_desc.store([first_n, first_m]"),
        on.TMA_STORE,
    ),
    Fault(
        "input_overwritten",
        Edit(
            POINTER, "    store_pointers(acc", "    tl.store(a_ptr + stride_am * (M - 1), 0.0)\n    store_pointers(acc"
        ),
        on.MM,
    ),
    Fault(
        "subtile_swapped",
        Edit(TILES, "return tl.split(halves)", "left, right = tl.split(halves)\n    return right, left"),
        on.TMA_SUBTILE,
        "column i holds the products of column i ^ 16",
    ),
    Fault(
        "subtile_offset",
        Edit(PERSISTENT, "tile_n * BLOCK_N + part * COLUMNS", "first_n + part * BLOCK_N"),
        on.TMA_SUBTILE,
        "not written",
    ),
)
