"""Faults of the kernels with accumulators of another kind: chained, in fp16, two at a time, of A alone."""

from __future__ import annotations

from conformance.families.gemm.problem import dual_mm, mm, mm_plus_mm, mm_with_sums
from conformance.heuristics.configs import ChainedConfig
from conformance.problems import Layout
from tests.planted.cases import SMALL, Case, fault, grouped

CHAINS, LOADS, NARROW = (
    "device/product_loops.py::gemm_chained,gemm_plus_gemm_one_loop",
    "device/tiles.py::load_rows,load_columns",
    "device/product_loops.py::gemm_fp16_acc",
)
DUALS, SUMS = "device/product_loops.py::gemm_dual", "device/product_loops.py::gemm_with_sums"

PADDED = Layout("row", pad=8)
PADDING = {"layout_a": PADDED, "layout_b": PADDED, "layout_out": PADDED}

#: Three turns, of which the last has a ragged second k-block.
CHAINED = Case("mm_chained", mm(40, 24, 88, "bf16", **PADDING), ChainedConfig(32, 32, 16, 2, 4))
#: The last turn has two k-blocks of three.
CHAINED_3 = Case("mm_chained", mm(40, 24, 80, "bf16", **PADDING), ChainedConfig(32, 32, 16, 2, 4, chain=3))
ONE_LOOP = Case("mm_plus_mm_one_loop", mm_plus_mm(40, 24, 40, "bf16", **PADDING), SMALL)
DUAL = Case("dual_mm", dual_mm(40, 24, 40, **PADDING), SMALL)
WITH_SUMS = Case("mm_with_sums", mm_with_sums(40, 72, 40, **PADDING), SMALL)
FP16 = Case("mm_fp16_acc", mm(40, 24, 40, **PADDING), SMALL)

_LINK = "            acc = tl.dot(a, b, acc, input_precision=PRECISION)"
_SECOND = "tl.dot(c, d, acc, input_precision=PRECISION)"
_FP16 = "tl.dot(a, b, acc, out_dtype=tl.float16)"

_CHAINED = (
    fault("chained_ktail", CHAINED, LOADS, "if not EVEN_K:", "if False:", count=2),
    fault("chained_turns", CHAINED_3, CHAINS, "tl.cdiv(K, CHAIN * BLOCK_K)", "K // (CHAIN * BLOCK_K)"),
    fault(
        "chained_first_link_lost",
        CHAINED,
        CHAINS,
        _LINK,
        "            acc = tl.dot(a, b, before if link else acc, input_precision=PRECISION)\n"
        "            if link == 0:\n"
        "                before = acc - tl.dot(a, b, input_precision=PRECISION)",
    ),
    fault("one_loop_ktail", ONE_LOOP, LOADS, "if not EVEN_K:", "if False:", count=2),
    fault("one_loop_dropped", ONE_LOOP, CHAINS, _SECOND, "tl.dot(c, d, tl.zeros_like(acc), input_precision=PRECISION)"),
)

_NARROW = (
    fault("fp16_acc_ktail", FP16, LOADS, "if not EVEN_K:", "if False:", count=2),
    fault("fp16_acc_block_k", FP16, NARROW, "first_k = k * BLOCK_K", "first_k = k * (BLOCK_K - 1)"),
    fault("fp16_acc_rounded", FP16, NARROW, _FP16, f"{_FP16}.to(tl.bfloat16).to(tl.float16)"),
)

_GATED = "gate / (1.0 + tl.exp(-gate)) * factor"
_DUAL = (
    fault("dual_ktail", DUAL, LOADS, "if not EVEN_K:", "if False:", count=2),
    fault(
        "dual_exchanged", DUAL, DUALS, _GATED, "factor / (1.0 + tl.exp(-factor)) * gate", cause="B and D are exchanged"
    ),
    fault("dual_d_is_b", DUAL, DUALS, "tl.dot(a, d, factor", "tl.dot(a, b, factor", cause="D is read as B"),
    fault("dual_sigmoid", DUAL, DUALS, "gate / (1.0", "1.0 / (1.0", cause="sigmoid instead of silu"),
    fault("dual_sign", DUAL, DUALS, "tl.exp(-gate)", "tl.exp(gate)", cause="x / (1 + exp(x)) instead of silu"),
    fault("dual_one_accumulator", DUAL, DUALS, "tl.dot(a, d, factor", "tl.dot(a, d, gate"),
    fault("dual_pitch", DUAL, DUALS, "K, stride_dk, stride_dn", "K, stride_bk, stride_bn", cause="d is read"),
)

_SUMS = (
    fault("sums_ktail", WITH_SUMS, LOADS, "if not EVEN_K:", "if False:", count=2),
    fault(
        "sums_rounded",
        WITH_SUMS,
        SUMS,
        "sums_ptr + rm, sums,",
        "sums_ptr + rm, sums.to(tl.bfloat16).to(tl.float32),",
        cause="the row sums are rounded to bf16",
    ),
    fault(
        "sums_other_row",
        WITH_SUMS,
        SUMS,
        "sums_ptr + rm, sums,",
        "sums_ptr + (rm ^ 1), sums,",
        cause="the row sums are those of another row: neighbours are exchanged",
    ),
    fault(
        "sums_stored_by_each",
        WITH_SUMS,
        SUMS,
        "& (tile_n == 0)",
        "& (tile_n >= 0)",
        memory=True,
        watch_only=True,
    ),
    fault("sums_of_product", WITH_SUMS, SUMS, "sums_ptr + rm, sums,", "sums_ptr + rm, tl.sum(acc, 1),"),
    fault(
        "sums_product_short",
        WITH_SUMS,
        SUMS,
        "acc = tl.dot(a, b, acc,",
        "acc = tl.dot(a, b, acc if k else 0 * acc + 1,",
    ),
)

ACCUMULATORS = grouped("accumulators", *_CHAINED, *_NARROW, *_DUAL, *_SUMS)
