"""The table of planted faults: small textual changes of the kernels' own source, never of their output.

Each names the kind of fault, the edits, and the case (kernel, problem, config, variant) on which the fault must show.
Rows without edits of their own arithmetic are grouped by where in a kernel they arise.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.kernels.kernel import Variant
from conformance.kernels.launch import Config
from conformance.problems import Bias, Gemm, Layout, addmm, mm, scaled_mm

TILES, POINTER, PERSISTENT, HOST = "tiles.py", "pointer.py", "persistent_tma.py", "gemm.py"


@dataclass(frozen=True)
class Edit:
    """Replace ``old``, which must occur ``count`` times in ``file``, by ``new``."""

    file: str
    old: str
    new: str
    count: int = 1


@dataclass(frozen=True)
class Case:
    """What a mutant runs on; the unchanged kernel must pass it."""

    kernel: str
    problem: Gemm
    config: Config
    variant: Variant = Variant()

    @property
    def id(self) -> str:
        return "/".join(filter(None, (self.kernel, self.problem.id, self.config.id, self.variant.id)))


@dataclass(frozen=True)
class Fault:
    """``cause``: text that the diagnosis must name ("" where the data cannot prove a cause). ``memory``: only checks
    of memory can see it. ``equivalent``: why the changed source computes the same in every case, so that it must pass.
    ``device_only``: the interpreter has not the arithmetic or the instruction that the fault is about."""

    name: str
    group: str
    edits: tuple[Edit, ...]
    case: Case
    cause: str = ""
    memory: bool = False
    equivalent: str = ""
    device_only: bool = False


SMALL = Config(32, 32, 16, 2, 4)
SMALL_FP8 = Config(32, 32, 32, 2, 4)
PADDED = Layout("row", pad=8)
TWO_SMS = Variant(sms=2)
#: Such that a bias added twice, scaled by alpha and scaled by nothing all differ.
FACTORS = {"alpha": 8.0, "beta": 0.25}

# 2 x 2 ragged tiles and a ragged third k-block, in every case
MM = Case("mm", mm(40, 56, 40), SMALL)
MM_PADDED = Case("mm", mm(40, 56, 40, layout_a=PADDED, layout_b=PADDED, layout_out=PADDED), SMALL)
MM_BF16 = Case("mm", mm(40, 56, 40, "bf16"), SMALL)
MM_TF32 = Case("mm", mm(40, 56, 40, "fp32", precision="tf32"), SMALL)
MM_IEEE = Case("mm", mm(40, 56, 40, "fp32"), SMALL)
MM_LONG = Case("mm", mm(40, 56, 264), Config(32, 32, 64, 2, 4))
MM_EMPTY_STATIC = Case("mm", mm(40, 56, 0), SMALL, Variant(static=True))
MM_STATIC = Case("mm", mm(40, 56, 40), SMALL, Variant(static=True))
ADDMM = Case("addmm", addmm(40, 56, 40, **FACTORS), SMALL)
ADDMM_BF16 = Case("addmm", addmm(40, 56, 40, "bf16", **FACTORS), SMALL)
ADDMM_MATRIX = Case("addmm", addmm(40, 56, 40, bias=Bias("mn"), **FACTORS), SMALL)
ADDMM_NO_BETA = Case("addmm", addmm(40, 56, 40, beta=0.0), SMALL)
ADDMM_NO_ALPHA = Case("addmm", addmm(40, 56, 40, alpha=0.0), SMALL)
SCALED = Case("scaled_mm", scaled_mm(40, 56, 88), SMALL_FP8)
SCALED_BIAS = Case("scaled_mm", scaled_mm(40, 56, 88, bias=Bias()), SMALL_FP8)
TMA = Case("mm_persistent_tma", mm(40, 56, 40), SMALL, TWO_SMS)
TMA_PADDED = Case("mm_persistent_tma", mm(40, 56, 40, layout_a=PADDED, layout_b=PADDED), SMALL, TWO_SMS)
TMA_HOST = Case("mm_persistent_tma", mm(40, 56, 40, layout_a=PADDED), SMALL, Variant("host", sms=2))
TMA_COLUMN = Case("mm_persistent_tma", mm(40, 56, 40, layout_a=Layout("col")), SMALL, TWO_SMS)
TMA_EMPTY = Case("mm_persistent_tma", mm(40, 56, 0), SMALL, TWO_SMS)
TMA_STORE = Case("mm_persistent_tma", mm(40, 56, 40), SMALL, Variant(tma_store=True, sms=2))
TMA_SUBTILE = Case("mm_persistent_tma", mm(40, 56, 40), SMALL, Variant(epilogue_subtile=2, sms=2))
#: Rows 32 and up begin 2**31 elements or more behind the first; the offset keeps wrapped addresses in the allocation.
FAR = Case(
    "scaled_mm",
    scaled_mm(40, 56, 88, layout_a=Layout("row", pad=2**26 - 88, offset=2**31)),
    SMALL_FP8,
)
#: Hopper's warpgroup instruction in fp8, long enough for its 14-bit sums to lose what promotion keeps.
WGMMA_FP8 = Case("scaled_mm", scaled_mm(168, 248, 1032), Config(64, 64, 128, 3, 4))

_DOT = "acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=PROMOTE, out_dtype=tl.float32)"
_ADVANCE = "\n        a_tile += BLOCK_K * stride_ak"
_ZEROS = "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)\n    for k in range(0, tl.cdiv(K, BLOCK_K)):\n        "
_STORED = "values.to(c_ptr.dtype.element_ty)"
_INSIDE = "inside = (rm < M)[:, None] & (rn < N)[None, :]\n    target"
_BIAS_INSIDE = "inside = (rm < M)[:, None] & (rn < N)[None, :]\n        addend"
_ELEMENT = "(rm == 33)[:, None] & (rn == 40)[None, :]"


def _pointer_loop(new: str) -> Edit:
    """Changes the range of the pointer kernel's K loop."""
    old = "for k in range(0, tl.cdiv(K, BLOCK_K)):\n        if EVEN_K:"
    return Edit(TILES, old, f"for k in {new}:\n        if EVEN_K:")


def _pointer_dot(new: str) -> Edit:
    return Edit(TILES, _DOT + _ADVANCE, new + _ADVANCE)


def _after_dot(new: str) -> Edit:
    """Adds a statement behind the pointer kernel's dot."""
    return _pointer_dot(f"{_DOT}\n        {new}")


def _before_dot(new: str) -> Edit:
    return _pointer_dot(f"{new}\n        {_DOT}")


def _first_k(new: str) -> Edit:
    """Changes the first k of each of the descriptor kernel's loads."""
    return Edit(TILES, "first_k = k * BLOCK_K", f"first_k = {new}")


def _stored(new: str) -> Edit:
    """Changes the conversion of the pointer store."""
    return Edit(TILES, _STORED, f"({new}).to(c_ptr.dtype.element_ty)")


def _element(new: str) -> Edit:
    """Changes one accumulator element, [33, 40]."""
    line = "store_pointers(acc, c_ptr"
    return Edit(POINTER, line, f"acc = tl.where({_ELEMENT}, {new}, acc)\n    {line}")


TAIL = (
    Fault("ktail_nomask", "tail", (Edit(TILES, "if EVEN_K:", "if True:"),), MM_PADDED),
    Fault(
        "ktail_mask_A_only", "tail",
        (Edit(TILES, "mask=b_mask & inside[:, None]", "mask=b_mask"),), MM_PADDED,
    ),
    Fault(
        "ktail_mask_B_only", "tail",
        (Edit(TILES, "mask=a_mask & inside[None, :]", "mask=a_mask"),), MM_PADDED,
    ),
    Fault(
        "ktail_other1", "tail",
        (Edit(TILES, "inside[None, :], other=0.0", "inside[None, :], other=1.0"),
         Edit(TILES, "inside[:, None], other=0.0", "inside[:, None], other=1.0")), MM,
        "filled with ones",
    ),
    Fault(
        "ktail_other1_A_only", "tail",
        (Edit(TILES, "inside[None, :], other=0.0", "inside[None, :], other=1.0"),), MM,
        equivalent="the masked rows of B are 0, and 1 * 0 adds nothing",
    ),
    Fault("kmask_off1", "tail", (Edit(TILES, "rk < K - k * BLOCK_K", "rk <= K - k * BLOCK_K"),), MM_PADDED),
    Fault(
        "kmask_short1", "tail", (Edit(TILES, "rk < K - k * BLOCK_K", "rk < K - k * BLOCK_K - 1"),), MM,
        "the last k is dropped",
    ),
    Fault("mstore_off1", "tail", (Edit(TILES, _INSIDE, _INSIDE.replace("rm < M", "rm <= M")),), MM, memory=True),
    Fault("nstore_off1", "tail", (Edit(TILES, _INSIDE, _INSIDE.replace("rn < N", "rn <= N")),), MM_PADDED, memory=True),
    Fault("nstore_off1_dense", "tail", (Edit(TILES, _INSIDE, _INSIDE.replace("rn < N", "rn <= N")),), MM),
    Fault(
        "mstore_short", "tail", (Edit(TILES, _INSIDE, _INSIDE.replace("rm < M", "rm < M - 1")),), MM,
        "not written: 56 elements, rows 39..39",
    ),
    Fault(
        "nstore_short", "tail", (Edit(TILES, _INSIDE, _INSIDE.replace("rn < N", "rn < N - 1")),), MM,
        "not written: 40 elements, rows 0..39 cols 55..55",
    ),
    Fault("nstore_nomask", "tail", (Edit(TILES, _INSIDE, _INSIDE.replace("rn < N", "rn >= 0")),), MM),
    Fault("mload_nomask", "tail", (Edit(TILES, "a_mask = (rm < M)", "a_mask = (rm >= 0)"),), MM,
          equivalent="rows of A past the edge only reach rows of C past the edge, which the store masks"),
)  # fmt: skip

TILING = (
    Fault("swizzle_dup", "tiling", (Edit(TILES, "inside = tile % band_tiles", "inside = (tile | 1) % band_tiles"),), MM,
          "not written: 2 whole tiles"),
    Fault("swizzle_band", "tiling", (Edit(TILES, "rows = min(tiles_m - first_m, GROUP_M)", "rows = GROUP_M"),), MM,
          "not written"),
    Fault("tile_unwritten", "tiling",
          (Edit(POINTER, "store_pointers(acc, c_ptr, rm, rn, M,", "store_pointers(acc, c_ptr, rm, rn, M - tile_m * tile_n * M,"),),
          MM, "not written: tile (1,1)"),
    Fault("tile_wrong_columns", "tiling",
          (Edit(POINTER, "acc = dot_pointers(\n        a_ptr, b_ptr, rm, rn,",
                "acc = dot_pointers(\n        a_ptr, b_ptr, rm, rn - tile_m * tile_n * BLOCK_N,"),),
          MM, "tile (1,1) holds the product of tile (1,0)"),
    Fault("skip_last_k", "tiling", (_pointer_loop("range(0, K // BLOCK_K)"),), MM, "k-block 2 of 3 (BLOCK_K=16) is skipped"),
    Fault("skip_first_k_block", "tiling", (_first_k("(k + 1) * BLOCK_K"),), TMA, "k-block 0 of 3 (BLOCK_K=16) is skipped"),
    Fault("skip_k_one_tile", "tiling",
          (_first_k("k * BLOCK_K + tl.where((k == 1) & (first_m * first_n > 0), K, 0)"),), TMA,
          "k-block 1 of 3 (BLOCK_K=16) is skipped"),
    Fault("acc_not_reset", "tiling",
          (Edit(PERSISTENT, "    for tile in tl.range(",
                "    carry = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)\n    for tile in tl.range("),
           Edit(PERSISTENT, "A_ROW_MAJOR, B_ROW_MAJOR, PRECISION, PROMOTE,\n            )  # fmt: skip\n",
                "A_ROW_MAJOR, B_ROW_MAJOR, PRECISION, PROMOTE,\n            )  # fmt: skip\n"
                "            acc += carry\n            carry = acc\n")),
          TMA, "the accumulator was not reset"),
    Fault("acc_not_reset_one_tile", "tiling",
          (Edit(PERSISTENT, "    for tile in tl.range(",
                "    carry = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)\n    for tile in tl.range("),
           Edit(PERSISTENT, "A_ROW_MAJOR, B_ROW_MAJOR, PRECISION, PROMOTE,\n            )  # fmt: skip\n",
                "A_ROW_MAJOR, B_ROW_MAJOR, PRECISION, PROMOTE,\n            )  # fmt: skip\n"
                "            acc += carry\n            carry = acc\n")),
          Case("mm_persistent_tma", mm(24, 32, 40), SMALL, TWO_SMS),
          equivalent="the output is one tile: the carried sum is never used"),
    Fault("stale_k", "tiling", (Edit(TILES, "a_desc.load([first_m, first_k])",
                                     "a_desc.load([first_m, tl.where(k == 1, 0, first_k)])"),), TMA,
          "A of k-block 0 is used with B of k-block 1"),
    Fault("k_twice", "tiling",
          (Edit(TILES, "for k in range(0, tl.cdiv(K, BLOCK_K)):\n        first_k = k * BLOCK_K",
                "for k in range(0, tl.cdiv(K, BLOCK_K) + 1):\n        first_k = min(k, tl.cdiv(K, BLOCK_K) - 1) * BLOCK_K"),),
          TMA, "k-block 2 of 3 (BLOCK_K=16) is used twice"),
    Fault("b_prefetch_off", "tiling", (Edit(TILES, "b_desc.load([first_k, first_n])", "b_desc.load([first_k + BLOCK_K, first_n])"),),
          TMA, "B of the next k-block is used at every k-block"),
    Fault("transposed_B", "tiling",
          (Edit(TILES, "rk[:, None] * stride_bk + rn[None, :] * stride_bn", "rk[:, None] * stride_bn + rn[None, :] * stride_bk"),
           Edit(TILES, "b_tile += BLOCK_K * stride_bk", "b_tile += BLOCK_K * stride_bn")),
          Case("mm", mm(40, 56, 56), SMALL), "B is read with its strides exchanged"),
    Fault("persistent_stride", "tiling",
          (Edit(PERSISTENT, "tiles, tl.num_programs(0),", "tiles, tl.num_programs(0) + 1,"),), TMA, "not written: tile (0,1)"),
    Fault("persistent_start", "tiling",
          (Edit(PERSISTENT, "tl.range(tl.program_id(0), tiles", "tl.range(tl.program_id(0) + 1, tiles"),), TMA,
          "not written: tile (0,0)"),
    Fault("grid_too_small", "tiling", (Edit(HOST, "return (_tiles(problem, config),)", "return (_tiles(problem, config) - 1,)"),),
          MM, "not written: tile (1,1)"),
    Fault("grid_not_as_planned", "tiling",
          (Edit(HOST, "Launch(pointer.gemm_pointer, plan.grid,", "Launch(pointer.gemm_pointer, (plan.grid[0] + 1,),"),), MM,
          memory=True),
    Fault("empty_k_not_stored", "tiling",
          (Edit(PERSISTENT, "tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)",
                "tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N) if HAS_PRODUCT else 0"),), TMA_EMPTY, "not written: 4 whole tiles"),
    Fault("empty_k_not_zero", "tiling",
          (Edit(PERSISTENT, "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)", "acc = tl.full((BLOCK_M, BLOCK_N), 1.0, dtype=tl.float32)"),),
          TMA_EMPTY),
    Fault("empty_k_reads", "tiling", (_pointer_loop("range(0, tl.maximum(tl.cdiv(K, BLOCK_K), 1))"),), MM_EMPTY_STATIC),
    Fault("empty_k_reads_masked", "tiling", (_pointer_loop("range(0, tl.maximum(tl.cdiv(K, BLOCK_K), 1))"),),
          Case("mm", mm(40, 56, 0), SMALL), equivalent="every load of the extra step is masked off and adds zeros"),
)  # fmt: skip

ADDRESSING = (
    Fault("assume_contig", "addressing", (Edit(TILES, "a_ptr + rm[:, None] * stride_am", "a_ptr + rm[:, None] * K"),),
          MM_PADDED, "A is read as if it were contiguous"),
    Fault("descriptor_pitch", "addressing", (Edit(PERSISTENT, "(a_ptr, [M, K], [lda, 1]", "(a_ptr, [M, K], [K, 1]"),),
          TMA_PADDED, "A is read as if it were contiguous"),
    Fault("host_descriptor_pitch", "addressing",
          (Edit(HOST, "list(shape), [_leading(operand), 1]", "list(shape), [shape[1], 1]"),), TMA_HOST,
          "A is read as if it were contiguous"),
    Fault("descriptor_extent", "addressing", (Edit(PERSISTENT, "(a_ptr, [M, K], [lda, 1]", "(a_ptr, [M, lda], [lda, 1]"),),
          TMA_PADDED),
    Fault("descriptor_order", "addressing",
          (Edit(HOST, '"A_ROW_MAJOR": _row_major(a)', '"A_ROW_MAJOR": True'),), TMA_COLUMN,
          "A is read with its strides exchanged"),
    Fault("ptr_overflow", "addressing",
          (Edit(TILES, "rk = tl.arange(0, BLOCK_K)\n    if WIDE_INDEX:", "rk = tl.arange(0, BLOCK_K)\n    if False:"),), FAR),
    Fault("wide_index_never", "addressing",
          (Edit(HOST, "any(operand.span >= 2**31 for operand in (*problem.operands, problem.output))", "False"),), FAR),
    Fault("row_swap", "addressing",
          (Edit(TILES, "a_ptr + rm[:, None] * stride_am", "a_ptr + (rm ^ 8)[:, None] * stride_am"),), Case("mm", mm(48, 56, 40), SMALL),
          "row i holds the products of row i ^ 8"),
    Fault("column_swap", "addressing",
          (Edit(TILES, "+ rn[None, :] * stride_bn", "+ (rn ^ 1)[None, :] * stride_bn"),), MM,
          "column i holds the products of column i ^ 1"),
    Fault("k_pair_swap", "addressing",
          (Edit(TILES, "rk[None, :] * stride_ak", "(rk ^ 1)[None, :] * stride_ak"),), MM, "neighbouring k of A are exchanged"),
    Fault("a_off_by_one", "addressing",
          (Edit(TILES, "a_tile = a_ptr + rm[:, None]", "a_tile = a_ptr + 1 + rm[:, None]"),), MM,
          "A is read one column after the right one"),
    Fault("advance_by_one_less", "addressing", (Edit(TILES, "a_tile += BLOCK_K * stride_ak", "a_tile += (BLOCK_K - 1) * stride_ak"),), MM),
    Fault("even_k_always", "addressing", (Edit(HOST, "plan.variant.static and problem.K % config.block_k == 0", "plan.variant.static"),),
          MM_STATIC),
    Fault("store_position", "addressing", (Edit(PERSISTENT, "c_desc.store([first_m, first_n]", "c_desc.store([first_n, first_m]"),),
          TMA_STORE),
    Fault("store_extent", "addressing", (Edit(PERSISTENT, "(c_ptr, [M, N], [stride_cm, 1]", "(c_ptr, [M + 1, N], [stride_cm, 1]"),),
          TMA_STORE, memory=True),
    Fault("input_overwritten", "addressing",
          (Edit(POINTER, "    store_pointers(acc", "    tl.store(a_ptr + stride_am * (M - 1), 0.0)\n    store_pointers(acc"),), MM),
    Fault("subtile_swapped", "addressing",
          (Edit(TILES, "return tl.split(halves)", "left, right = tl.split(halves)\n    return right, left"),), TMA_SUBTILE,
          "column i holds the products of column i ^ 16"),
    Fault("subtile_offset", "addressing", (Edit(PERSISTENT, "first_n + part * COLUMNS", "first_n + part * BLOCK_N"),), TMA_SUBTILE,
          "not written"),
)  # fmt: skip

_SCALE_A = "tl.load(scale_a_ptr + rm * stride_scale_a, mask=rm < M"
_SCALE_B = "tl.load(scale_b_ptr + rn * stride_scale_b, mask=rn < N"

EPILOGUE = (
    Fault("scale_swap", "epilogue",
          (Edit(TILES, "scale_a_ptr + rm * stride_scale_a", "scale_b_ptr + rm * stride_scale_b"),
           Edit(TILES, "scale_b_ptr + rn * stride_scale_b", "scale_a_ptr + rn * stride_scale_a")), SCALED, "scale_a and scale_b are exchanged"),
    Fault("scale_bcast0", "epilogue", (Edit(TILES, _SCALE_A, _SCALE_A.replace("rm * stride", "rm * 0 * stride")),), SCALED,
          "scale_a: the first one is used for all"),
    Fault("scale_miss_last", "epilogue", (Edit(TILES, _SCALE_A, _SCALE_A.replace("rm < M", "rm < M - 1")),), SCALED,
          "the last scale_a is read as 0"),
    Fault("scale_local_idx", "epilogue", (Edit(TILES, _SCALE_B, _SCALE_B.replace("rn *", "(rn % acc.shape[1]) *")),), SCALED,
          "scale_b is indexed within the tile"),
    Fault("scale_absent", "epilogue", (Edit(TILES, "acc * scale_a[:, None] * scale_b[None, :]", "acc * scale_a[:, None]"),), SCALED,
          "scale_b is not applied"),
    Fault("scale_bf16", "epilogue", (Edit(TILES, "acc * scale_a[:, None]", "acc * scale_a.to(tl.bfloat16).to(tl.float32)[:, None]"),), SCALED),
    Fault("bias_scaled", "epilogue", (Edit(TILES, "addend = addend * beta", "addend = addend * beta * alpha"),), ADDMM,
          "the bias is scaled by alpha too"),
    Fault("bias_row_scaled", "epilogue",
          (Edit(TILES, "        acc = acc + addend", "        if SCALED:\n            addend = addend * scale_a[:, None] * scale_b[None, :]\n        acc = acc + addend"),),
          SCALED_BIAS, "the bias is scaled by scale_a and scale_b"),
    Fault("bias_twice", "epilogue", (Edit(TILES, "acc = acc + addend", "acc = acc + addend + addend"),), ADDMM, "the bias is added twice"),
    Fault("bias_absent", "epilogue", (Edit(TILES, "acc = acc + addend", "acc = acc"),), ADDMM, "the bias is absent"),
    Fault("bias_rowidx", "epilogue",
          (Edit(TILES, "rm[:, None] * stride_bias_m + rn[None, :] * stride_bias_n", "rm[:, None] * stride_bias_n + rn[None, :] * stride_bias_m"),),
          ADDMM, "the bias is read along the other dimension"),
    Fault("bias_transposed", "epilogue",
          (Edit(TILES, "rm[:, None] * stride_bias_m + rn[None, :] * stride_bias_n", "rm[:, None] * stride_bias_n + rn[None, :] * stride_bias_m"),),
          ADDMM_MATRIX, "the bias is read transposed"),
    Fault("bias_local_idx", "epilogue", (Edit(TILES, "rn[None, :] * stride_bias_n", "(rn % acc.shape[1])[None, :] * stride_bias_n"),),
          ADDMM, "the bias is indexed within the tile (columns)"),
    Fault("bias_miss_last", "epilogue", (Edit(TILES, _BIAS_INSIDE, _BIAS_INSIDE.replace("rn < N", "rn < N - 1")),), ADDMM,
          "the last element of the bias is read as 0"),
    Fault("alpha_absent", "epilogue", (Edit(TILES, "acc = acc * alpha", "acc = acc * 1.0"),), ADDMM, "alpha is not applied"),
    Fault("beta_absent", "epilogue", (Edit(TILES, "addend = addend * beta", "addend = addend * 1.0"),), ADDMM, "beta is not applied"),
    Fault("alpha_beta_exchanged", "epilogue",
          (Edit(TILES, "acc = acc * alpha", "acc = acc * beta"), Edit(TILES, "addend = addend * beta", "addend = addend * alpha")), ADDMM,
          "alpha and beta are exchanged"),
    Fault("beta_zero_reads_bias", "epilogue", (Edit(HOST, 'if problem.reads_bias else None', 'if problem.bias is not None else None'),),
          ADDMM_NO_BETA, "although beta is 0"),
    Fault("alpha_zero_reads_product", "epilogue", (Edit(HOST, "problem.K if problem.has_product else 0", "problem.K"),),
          ADDMM_NO_ALPHA, "although alpha is 0"),
)  # fmt: skip

DATA = (
    Fault("elem_1ulp", "data", (_element("acc * (1 + 2.0**-10)"),), MM),
    Fault("elem_8ulp", "data", (_element("acc * (1 + 2.0**-7)"),), MM),
    Fault("elem_1pct", "data", (_element("acc * 1.01"),), MM),
    Fault("elem_sign", "data", (_element("-acc"),), MM),
    Fault("bitflip_lsb", "data",
          (_before_dot("a = tl.where((rm == 33)[:, None] & (rk + k * BLOCK_K == 17)[None, :], (a.to(tl.int16, bitcast=True) ^ 1).to(tl.float16, bitcast=True), a)"),),
          MM, "A[33,17] is"),
    Fault("bitflip_any", "data",
          (_before_dot("b = tl.where((rk + k * BLOCK_K == 17)[:, None] & (rn == 40)[None, :], (b.to(tl.int16, bitcast=True) ^ 512).to(tl.float16, bitcast=True), b)"),),
          MM, "B[17,40] is"),
    Fault("neg_kblock", "data", (_before_dot("a = tl.where(k == 1, -a, a)"),), MM, "k-block 1 of 3 (BLOCK_K=16) is negated"),
)  # fmt: skip


def _cut(name: str, mask: int) -> str:
    """``name`` in fp32 with the low bits outside ``mask`` cleared: rounded towards zero."""
    return f"({name}.to(tl.int32, bitcast=True) & {mask}).to(tl.float32, bitcast=True)"


PRECISION = (
    Fault("fp16_acc", "precision",
          (Edit(TILES, _ZEROS + "if EVEN_K:", (_ZEROS + "if EVEN_K:").replace("float32", "float16")),
           _pointer_dot(_DOT.replace("float32", "float16"))), MM_LONG),
    Fault("fp16_acc_between", "precision", (_after_dot("acc = acc.to(tl.float16).to(tl.float32)"),), MM_LONG,
          "rounded to fp16 after every k-block"),
    Fault("bf16_acc", "precision", (_after_dot("acc = acc.to(tl.bfloat16).to(tl.float32)"),), MM_BF16,
          "rounded to bf16 after every k-block"),
    Fault("lowacc13", "precision", (_after_dot(f"acc = {_cut('acc', -1024)}"),), MM_LONG,
          "cut to 13 fraction bits"),
    Fault("bf16_for_tf32", "precision", (_pointer_dot(_DOT.replace("a, b,", "a.to(tl.bfloat16), b.to(tl.bfloat16),")),), MM_TF32,
          "rounded to bf16"),
    Fault("tf32_for_ieee", "precision", (_before_dot(f"a = {_cut('a', -8192)}\n        b = {_cut('b', -8192)}"),), MM_IEEE, "cut to tf32"),
    Fault("tf32_instruction_for_ieee", "precision", (_pointer_dot(_DOT.replace("=PRECISION", '="tf32"')),), MM_IEEE, device_only=True),
    Fault("out_rz", "precision", (_stored(_cut("values", -65536)),), MM_BF16, "rounded towards zero"),
    Fault("double_round", "precision",
          (Edit(TILES, f"tl.store(target, {_STORED}",
                "code = values.to(tl.int32, bitcast=True)\n    code = (code + 2047 + ((code >> 12) & 1)) & -4096\n"
                "    values = code.to(tl.float32, bitcast=True)\n    tl.store(target, " + _STORED),), MM_BF16),
    Fault("out_through_fp16", "precision", (_stored("values.to(tl.float16).to(tl.float32)"),), MM_BF16, "passes through fp16"),
    Fault("splitk_lowp", "precision",
          (_after_dot("acc = tl.where(k == 1, acc.to(tl.bfloat16).to(tl.float32), acc)"),), MM_BF16,
          "the sum of k-blocks 0..1 is rounded to bf16"),
    Fault("product_rounded_before_bias", "precision",
          (Edit(TILES, "acc = acc + addend", "acc = acc.to(tl.bfloat16).to(tl.float32) + addend"),), ADDMM_BF16),
    Fault("fast_accum_fp8", "precision", (Edit(TILES, "max_num_imprecise_acc=PROMOTE", "max_num_imprecise_acc=None", 2),), WGMMA_FP8,
          device_only=True),
    Fault("promotion_too_late", "precision",
          (Edit(TILES, "max_num_imprecise_acc=PROMOTE", "max_num_imprecise_acc=PROMOTE * 4", 2),), WGMMA_FP8, device_only=True),
)  # fmt: skip

FAULTS: tuple[Fault, ...] = (*TAIL, *TILING, *ADDRESSING, *EPILOGUE, *DATA, *PRECISION)
GROUPS = tuple(dict.fromkeys(fault.group for fault in FAULTS))
