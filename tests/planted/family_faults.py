"""Faults of the products beyond mm, addmm and scaled mm: for each kernel at least a mask, an index, a precision."""

from __future__ import annotations

from dataclasses import replace

from conformance import targets
from conformance.families.gemm.problem import (
    Bias,
    Fusion,
    baddbmm,
    bmm,
    fused_mm,
    int_mm,
    mixed_mm,
    mm,
    mm_plus_mm,
    scaled_mm,
)
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from tests.planted.cases import SMALL, SMALL_FP8, Case, fault, grouped

LOOPS, BATCHED, PLUS = (
    "device/tiles.py::accumulate",
    "device/pointer.py::gemm_batched",
    "device/product_loops.py::gemm_plus_gemm",
)
INTEGER, BLOCKWISE = "device/pointer.py::gemm_integer", "device/scaled_mm_blockwise.py"
SPLIT_K, SPLIT_K_HOST = "device/split_k.py::gemm_split_k,sum_parts", "decompose_k_mm.py"
CONTIGUOUS, CONTIGUOUS_HOST = "device/pointer.py::copy_matrix", "contiguous_mm.py"
FUSED = "device/fused_mm.py"
LOOP = "device/pointer.py::gemm_persistent_pointers"
ATOMIC, ATOMIC_HOST = "device/split_k.py::zero_matrix,gemm_atomic_split_k", "mm_atomic_split_k.py"

PADDED = Layout("row", pad=8)
PADDING = {"layout_a": PADDED, "layout_b": PADDED, "layout_out": PADDED}

# Two ragged tiles and a ragged last k-block in every case: the first table has the larger ones
BMM = Case("bmm", bmm(40, 24, 24, batch=2, **PADDING), SMALL)
#: The third matrix begins 2**31 elements behind the first; the offset keeps a wrapped address in the allocation.
BMM_FAR = Case("bmm", bmm(16, 16, 16, batch=3, layout_a=Layout(batch_pad=2**30 - 256, offset=2**31)), SMALL)
BADDBMM = Case("baddbmm", baddbmm(24, 40, 24, batch=2, bias=Bias("b1n"), alpha=8.0, beta=0.25), SMALL)
PLUS_MM = Case("mm_plus_mm", mm_plus_mm(40, 24, 24, **PADDING), SMALL)
INT = Case("int_mm", int_mm(40, 56, 40, layout_a=PADDED, layout_b=PADDED), SMALL_FP8)
INT_LONG = Case("int_mm", int_mm(24, 40, 1160), Config(32, 32, 128, 2, 4))
MIXED = Case("mixed_mm", mixed_mm(40, 24, 24, layout_a=PADDED), SMALL)
MIXED_UNSIGNED = Case("mixed_mm", mixed_mm(40, 24, 24, "bf16", b_dtype="uint8"), SMALL)
BLOCKS = Case("scaled_mm_blockwise", scaled_mm(40, 24, 200, scaling="1x128/128x128"), Config(32, 32, 64, 2, 4))
#: Two row blocks, of which only the first has 128 rows.
ROW_BLOCKS = Case("scaled_mm_blockwise", scaled_mm(136, 24, 136, scaling="128x128/1x128"), Config(64, 32, 128, 2, 4))
SPLIT = Case("decompose_k_mm", mm(40, 24, 72, layout_a=PADDED, layout_out=PADDED), SMALL, Variant(splits=3))
#: Two programs with two tiles each.
LOOPED = Case("mm_persistent", mm(40, 56, 40, **PADDING), SMALL, Variant(sms=2))
LOOPED_FLAT = Case("mm_persistent", mm(40, 56, 40, layout_a=Layout("col")), SMALL, Variant(flatten=True, sms=3))
ATOMIC_SPLIT = Case(
    "mm_atomic_split_k", mm(40, 24, 72, out_dtype="fp32", layout_a=PADDED, layout_out=PADDED), SMALL, Variant(splits=3)
)
_REDUCED = mm(40, 40, 72, out_dtype="fp32", layout_a=PADDED, layout_out=PADDED)
REDUCED_SPLIT = Case("mm_reduce_split_k", _REDUCED, SMALL, Variant(splits=3))
#: Whether tl.dot takes fp64.
FP64 = targets.find("sm_90").capability("fp64").available
DOUBLE = Case("mm_fp64", mm(40, 56, 40, "fp64", **PADDING), SMALL)
COPIED = Case("contiguous_mm", mm(40, 24, 24, layout_b=Layout("col", pad=8)), SMALL)


def _fused(prologue: str | None, *epilogue: str, dtype: str = "fp16", stored: str | None = None) -> Case:
    fusion = Fusion(prologue, stored, epilogue)
    bias = Bias() if "bias" in epilogue else None
    return Case("fused_mm", fused_mm(40, 24, 24, dtype, fusion=fusion, bias=bias, layout_a=PADDED), SMALL)


_BATCHED = (
    fault("bmm_ktail", BMM, BATCHED, "BLOCK_K, EVEN_K,", "BLOCK_K, True,"),
    fault("bmm_first_matrix", BMM, BATCHED, "a_ptr + z * stride_az", "a_ptr"),
    fault("bmm_last_matrix", BMM, BATCHED, "tiles = tl.cdiv(M, BLOCK_M) *", "tiles = (tl.cdiv(M, BLOCK_M) + 1) *"),
    fault("bmm_offset32", BMM_FAR, BATCHED, "(tl.program_id(0) // tiles).to(tl.int64)", "tl.program_id(0) // tiles"),
    fault(
        "bmm_rounded",
        BMM,
        BATCHED,
        "acc = epilogue(\n        acc,",
        "acc = epilogue(\n        acc.to(tl.bfloat16).to(tl.float32),",
    ),
    fault("baddbmm_bias", BADDBMM, BATCHED, "bias_ptr += z * stride_bias_z", "bias_ptr += 0"),
)

_SECOND = "acc, c_ptr, d_ptr, rm, rn, M, N, K,"
_PLUS = (
    fault("plus_tail_short", PLUS_MM, LOOPS, "inside = rk < K", "inside = rk < K - 1"),
    fault(
        "plus_first_operand",
        PLUS_MM,
        PLUS,
        f"{_SECOND} stride_cm, stride_ck",
        f"{_SECOND} stride_cm, stride_ck".replace("c_ptr", "a_ptr").replace("stride_c", "stride_a"),
    ),
    fault("plus_short_k", PLUS_MM, PLUS, _SECOND, _SECOND.replace("K,", "K - 1,")),
    fault("plus_dropped", PLUS_MM, PLUS, _SECOND, _SECOND.replace("acc,", "tl.zeros_like(acc),")),
    fault("plus_rounded", PLUS_MM, PLUS, _SECOND, _SECOND.replace("acc,", "acc.to(tl.bfloat16).to(tl.float32),")),
)

_INTEGER = (
    fault("int_ktail", INT, LOOPS, "if EVEN_K:", "if True:"),
    fault("int_block_k", INT, LOOPS, "rk = k * BLOCK_K +", "rk = k * (BLOCK_K - 1) +"),
    fault("int_as_fp32", INT_LONG, INTEGER, "store_pointers(acc,", "store_pointers(acc.to(tl.float32),"),
    fault("int_as_int16", INT_LONG, INTEGER, "store_pointers(acc,", "store_pointers(acc.to(tl.int16),"),
    fault("mixed_rounded", MIXED, LOOPS, "b.to(a.dtype)", "b.to(tl.float32).to(tl.float8e4nv).to(a.dtype)"),
    fault("mixed_signed", MIXED_UNSIGNED, LOOPS, "b.to(a.dtype)", "b.to(tl.int8, bitcast=True).to(a.dtype)"),
    fault("mixed_column", MIXED, LOOPS, "rn[None, :] * stride_bn", "(rn[None, :] ^ 1) * stride_bn"),
)

_BLOCKWISE = (
    fault("blocks_first_scale", BLOCKS, BLOCKWISE, "block = k * BLOCK_K // SCALE_K", "block = 0"),
    fault("blocks_scale_index", BLOCKS, BLOCKWISE, "block = k * BLOCK_K // SCALE_K", "block = k"),
    fault("blocks_row_scale", ROW_BLOCKS, BLOCKWISE, "(rm // SCALE_M)", "(rm // BLOCK_M)"),
    fault("blocks_scaled_twice", BLOCKS, BLOCKWISE, "* scale_b[None, :]", "* scale_b[None, :] * scale_b[None, :]"),
    fault(
        "blocks_sum_scaled",
        BLOCKS,
        BLOCKWISE,
        "acc += tl.dot(a, b)",
        "acc = tl.dot(a, b, acc)",
    ),
    fault(
        "blocks_rounded",
        BLOCKS,
        BLOCKWISE,
        "tl.dot(a, b)",
        "tl.dot(a, b).to(tl.float16).to(tl.float32)",
    ),
)

_SPLIT = (
    fault("split_ktail", SPLIT, SPLIT_K, "BLOCK_K, EVEN_K,", "BLOCK_K, True,"),
    fault("split_first_part", SPLIT, SPLIT_K, "first_k = part * K", "first_k = part % 2 * K"),
    fault("split_last_part", SPLIT, SPLIT_K, "in range(splits):", "in range(splits - 1):"),
    fault("split_overlap", SPLIT, SPLIT_K, "part * stride_cs", "part * (stride_cs - N)"),
    fault("split_parts_rounded", SPLIT, SPLIT_K_HOST, "torch.float32", "torch.bfloat16"),
    fault(
        "split_sum_rounded",
        SPLIT,
        SPLIT_K,
        "acc += tl.load(tile, mask=inside)",
        "acc = (acc + tl.load(tile, mask=inside)).to(tl.bfloat16).to(tl.float32)",
    ),
)

_RANGE = "tl.program_id(0), tiles, tl.num_programs(0)"
_PERSISTENT = (
    fault("loop_ktail", LOOPED, LOOP, "BLOCK_K, EVEN_K,", "BLOCK_K, True,"),
    fault("loop_step", LOOPED_FLAT, LOOP, _RANGE, "tl.program_id(0), tiles, tl.num_programs(0) + 1"),
    fault("loop_first_tile_only", LOOPED, LOOP, _RANGE, "tl.program_id(0), tl.num_programs(0), tl.num_programs(0)"),
    fault("loop_last_tile", LOOPED_FLAT, LOOP, "tl.cdiv(N, BLOCK_N)\n", "tl.cdiv(N, BLOCK_N) - 1\n"),
    fault("loop_all_tiles_in_each", LOOPED, LOOP, _RANGE, "0, tiles, 1", memory=True, watch_only=True),
)

_OPERANDS = "tl.dot(a, converted, acc, input_precision=PRECISION, out_dtype=acc.dtype)"
_DOUBLE = tuple(
    replace(each, defect=not FP64)
    for each in (
        fault(
            "double_summed_in_fp32",
            DOUBLE,
            LOOPS,
            _OPERANDS,
            _OPERANDS.replace("acc,", "acc.to(tl.float32).to(tl.float64),", 1),
        ),
        fault("double_b_as_fp32", DOUBLE, LOOPS, "b.to(a.dtype)", "b.to(tl.float32).to(a.dtype)"),
        fault(
            "double_a_as_fp32",
            DOUBLE,
            LOOPS,
            _OPERANDS,
            _OPERANDS.replace("dot(a,", "dot(a.to(tl.float32).to(tl.float64),"),
        ),
    )
)

_ADDED = "acc, mask=inside, sem"
_ATOMIC = (
    fault(
        "atomic_overlap",
        ATOMIC_SPLIT,
        ATOMIC,
        "first_k = part * K",
        "first_k = part * (K - 5)",
        cause="k 19..23, 38..42 are counted twice and k 62..71 are not counted",
    ),
    fault("atomic_ktail", ATOMIC_SPLIT, ATOMIC, "BLOCK_K, EVEN_K,", "BLOCK_K, True,"),
    fault("atomic_not_zeroed", ATOMIC_SPLIT, ATOMIC_HOST, "before=(before,)", "before=()"),
    fault(
        "atomic_first_part",
        ATOMIC_SPLIT,
        ATOMIC,
        "first_k = part * K",
        "first_k = part % 2 * K",
        cause="part i is part i % 2",
    ),
    fault(
        "atomic_rounded",
        ATOMIC_SPLIT,
        ATOMIC,
        _ADDED,
        _ADDED.replace("acc", "acc.to(tl.float16).to(tl.float32)"),
        cause="every part of K is rounded to fp16 before the parts are summed",
    ),
)

_TILE = "c_desc.atomic_add([tile_m * BLOCK_M, tile_n * BLOCK_N], acc)"
_C_SIZES = "[M, N], [stride_cm, 1], [BLOCK_M, BLOCK_N]"
_REDUCE = (
    fault("reduce_stored", REDUCED_SPLIT, ATOMIC, _TILE, _TILE.replace("atomic_add", "store")),
    fault(
        "reduce_rounded",
        REDUCED_SPLIT,
        ATOMIC,
        _TILE,
        _TILE.replace("acc)", "acc.to(tl.float16).to(tl.float32))"),
        cause="every part of K is rounded to fp16 before the parts are summed",
    ),
    fault("reduce_columns_padded", REDUCED_SPLIT, ATOMIC, _C_SIZES, _C_SIZES.replace("N]", "N + 4]", 1), memory=True),
    fault("reduce_pitch", REDUCED_SPLIT, ATOMIC_HOST, "leading(plan.problem.output)", "plan.problem.N"),
    fault("reduce_not_zeroed", REDUCED_SPLIT, ATOMIC_HOST, "before=(before,)", "before=()"),
)

_CONTIGUOUS = (
    fault(
        "copy_transposed",
        COPIED,
        CONTIGUOUS,
        "rm[:, None] * stride_m + rn[None, :] * stride_n",
        "rm[:, None] * stride_n + rn[None, :] * stride_m",
    ),
    fault("copy_pitch", COPIED, CONTIGUOUS_HOST, '"stride_copy": columns', '"stride_copy": columns - 1'),
    fault("copy_rounded", COPIED, CONTIGUOUS, "rn[None, :], values, mask", "rn[None, :], values.to(tl.bfloat16), mask"),
)

_STEPS = "tl.static_range(len(EPILOGUE))"
_FUSED = (
    fault("fused_ktail", _fused(None), FUSED, "if not EVEN_K:", "if False:"),
    fault(
        "fused_bias_column",
        _fused(None, "bias", "relu"),
        FUSED,
        "rn[None, :] * stride_bias_n",
        "rn[None, :] * stride_bias_n // 2",
    ),
    fault("fused_last_step", _fused(None, "bias", "relu"), FUSED, _STEPS, "tl.static_range(len(EPILOGUE) - 1)"),
    fault(
        "fused_order",
        _fused(None, "bias", "relu"),
        FUSED,
        "EPILOGUE[step]",
        "EPILOGUE[len(EPILOGUE) - 1 - step]",
        count=5,
    ),
    fault(
        "fused_rounded",
        _fused(None, "residual", "bias"),
        FUSED,
        "inside = (rm < M)",
        "acc = acc.to(tl.bfloat16).to(tl.float32)\n    inside = (rm < M)",
    ),
    fault("fused_dropout_kept", _fused(None, "dropout"), FUSED, "kept != 0", "kept == 0"),
    fault("fused_dropout_scale", _fused(None, "dropout"), FUSED, "acc * 2.0", "acc"),
    fault(
        "fused_relu_nan", _fused(None, "relu"), FUSED, "tl.where(acc < 0.0, 0.0, acc)", "tl.where(acc > 0.0, acc, 0.0)"
    ),
    fault(
        "fused_gelu_sigmoid",
        _fused(None, "gelu"),
        FUSED,
        "0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))",
        "acc * tl.sigmoid(1.702 * acc)",
    ),
    fault(
        "fused_gather_row",
        _fused("gather"),
        FUSED,
        "a_row = tl.load(rows_ptr + rm",
        "a_row = tl.load(rows_ptr + (rm ^ 1)",
    ),
    fault("fused_gather_none", _fused("gather"), FUSED, 'if PROLOGUE == "gather":', "if False:"),
    fault(
        "fused_scatter_row",
        _fused("scatter", "residual"),
        FUSED,
        "rm = tl.load(rows_ptr + rm, mask=rm < M, other=M).to(rm.dtype)",
        "rm = tl.load(rows_ptr + rm, mask=rm < M, other=M).to(rm.dtype) ^ 1",
    ),
    fault("fused_k_scale_first", _fused("scale-k"), FUSED, "k_scale_ptr + rk,", "k_scale_ptr + rk % BLOCK_K,"),
    fault(
        "fused_scale_rounded",
        _fused("scale"),
        FUSED,
        "a * row_scale[:, None]",
        "a * row_scale.to(tl.bfloat16).to(tl.float32)[:, None]",
    ),
    fault("fused_cast_narrow", _fused("cast", stored="fp32"), FUSED, "a.to(b.dtype)", "a.to(tl.bfloat16).to(b.dtype)"),
)

FAMILY = (
    *grouped("batches and sums", *_BATCHED, *_PLUS, *_INTEGER),
    *grouped("scales, splits and fusions", *_BLOCKWISE, *_SPLIT, *_CONTIGUOUS, *_FUSED),
    *grouped("loops and shared sums", *_PERSISTENT, *_ATOMIC, *_REDUCE, *_DOUBLE),
)
