"""Faults of the grouped kernels: which group a tile belongs to, where it begins and ends, its descriptors and scales,
and its precision."""

from dataclasses import replace

from conformance.families.gemm.problem import bmm
from conformance.families.grouped.problem import GroupedGemm
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from tests.planted.cases import HOST_PERSISTENT, Case, Edit, Fault, fault, grouped

SOURCE, HOST = "device/grouped_mm.py", "grouped_mm.py"
DESCRIPTORS = "device/descriptors.py"

SMALL = Config(32, 32, 16, 2, 4)
TWO_SMS = Variant(sms=2)
ROWS = Case("grouped_mm", GroupedGemm("2d-3d", (40, 0, 25), None, 56, 40, "fp16"), SMALL, TWO_SMS)
COLUMNS = Case("grouped_mm", GroupedGemm("3d-2d", (25, 0, 40), 40, None, 40, "bf16"), SMALL, TWO_SMS)
DEPTH = Case("grouped_mm", GroupedGemm("2d-2d", (40, 0, 25), 40, 56, None, "fp16"), SMALL, TWO_SMS)
BATCH = Case("grouped_mm", GroupedGemm("3d-3d", (40, 40), 40, 56, 40, "bf16"), SMALL, TWO_SMS)
KNOWN_K = Case("grouped_mm", GroupedGemm("2d-3d", (40, 0, 25), None, 56, 40), SMALL, Variant(static=True, sms=2))
KNOWN_BLOCKS = Case("grouped_mm", GroupedGemm("2d-3d", (40, 25), None, 56, 48), SMALL, Variant(static=True, sms=2))
TF32 = Case("grouped_mm", GroupedGemm("2d-3d", (40, 25), None, 56, 40, "fp32"), SMALL, TWO_SMS)

#: By descriptors, which can begin anywhere in rows, and at multiples of 16 bytes within one.
DESCRIBED = Config(32, 32, 32, 2, 4)
HOST_DESCRIPTORS = Variant("host", sms=2)
WIDE = Layout("row", pad=8)
DESCRIBED_ROWS = Case(
    "grouped_mm_descriptors", GroupedGemm("2d-3d", (40, 0, 1, 25), None, 56, 40, "bf16"), DESCRIBED, TWO_SMS
)
DESCRIBED_DEPTH = Case(
    "grouped_mm_descriptors", GroupedGemm("2d-2d", (40, 0, 32), 40, 56, None, "fp16"), DESCRIBED, TWO_SMS
)
HOST_ROWS = replace(DESCRIBED_ROWS, variant=HOST_DESCRIPTORS)
STORED_ROWS = Case(
    "grouped_mm_descriptors",
    GroupedGemm("2d-3d", (40, 25), None, 56, 40, "bf16", layout_out=WIDE),
    DESCRIBED,
    Variant(tma_store=True, sms=2),
)
STORED_BATCH = Case(
    "grouped_mm_descriptors",
    GroupedGemm("3d-3d", (40, 40), 40, 56, 40, "bf16", layout_a=Layout("col"), layout_out=WIDE),
    DESCRIBED,
    Variant("host", tma_store=True, sms=2),
)
SCALED = Case(
    "scaled_grouped_mm",
    GroupedGemm("2d-3d", (40, 0, 25), None, 56, 64, "e4m3", layout_b=Layout("col"), scaling="row"),
    DESCRIBED,
    TWO_SMS,
)
SCALED_TENSORS = replace(SCALED, problem=replace(SCALED.problem, scaling="tensor"))

BATCHES = Case(
    "bmm_descriptors",
    bmm(40, 56, 40, "bf16", layout_a=Layout(batch_pad=8), layout_b=Layout("col", batch_pad=16)),
    DESCRIBED,
    HOST_DESCRIPTORS,
)
MADE_ANEW = replace(BATCHES, variant=TWO_SMS)

_DOT = "a_ptr, b_ptr, rm, rn, m, n, k,"
_STORE = "store_pointers(acc, c_ptr, rm, rn, m, n,"


def _stored(new: str) -> tuple[Edit, ...]:
    return (Edit(SOURCE, _STORE, _STORE.replace("acc", new)),)


GROUPED = grouped(
    "grouped",
    Fault(
        "group_reads_next_rows",
        (
            Edit(SOURCE, _STORE, _STORE.replace("m, n", "m + 1, n")),
            Edit(SOURCE, _DOT, _DOT.replace("m, n", "m + 1, n")),
        ),
        ROWS,
    ),
    Fault("group_k_past_its_end", Edit(SOURCE, _DOT, _DOT.replace(" k,", " k + 1,")), DEPTH),
    Fault("group_even_k", Edit(SOURCE, "BLOCK_K, EVEN_K, WIDE", "BLOCK_K, True, WIDE"), KNOWN_K),
    Fault("group_known_k_short", Edit(SOURCE, _DOT, _DOT.replace(" k,", " k - BLOCK_K,")), KNOWN_BLOCKS),
    Fault("group_k_one_short", Edit(SOURCE, _DOT, _DOT.replace(" k,", " k - 1,")), BATCH),
    Fault("group_columns_not_masked", Edit(SOURCE, _STORE, _STORE.replace("n,", "n + BLOCK_N,")), COLUMNS),
    Fault("group_begin_kept", Edit(SOURCE, "            begin = end\n", ""), DEPTH),
    Fault("group_first_b_for_all", Edit(SOURCE, "b_ptr += stride_bg + steps", "b_ptr += steps"), ROWS),
    Fault("group_columns_not_advanced", Edit(SOURCE, " + steps * stride_bs", ""), COLUMNS),
    Fault(
        "group_tiles_counted_once",
        Edit(SOURCE, "earlier_tiles += tiles", "earlier_tiles = tiles"),
        ROWS,
        equivalent="wherever a program begins in a group, the programs share its tiles without gap or overlap",
    ),
    Fault("group_empty_is_skipped", Edit(SOURCE, "tiles = tl.cdiv(m,", "tiles = (k > 0) * tl.cdiv(m,"), DEPTH),
    Fault("group_sum_rounded_to_bf16", _stored("acc.to(tl.bfloat16).to(tl.float32)"), ROWS),
    Fault("group_sum_through_fp16", _stored("acc.to(tl.float16).to(tl.float32)"), COLUMNS),
    Fault(
        "group_operands_as_tf32",
        Edit(HOST, '"PRECISION": dot_precision(problem)', '"PRECISION": "tf32"'),
        TF32,
        device_only=True,
    ),
    fault(
        "group_descriptor_of_next_k", DESCRIBED_DEPTH, SOURCE, "in_m + m, in_k + k, lda", "in_m + m, in_k + 2 * k, lda"
    ),
    fault(
        "group_stored_past_its_rows", STORED_ROWS, SOURCE, "describe(c_ptr, m, n,", "describe(c_ptr, m + BLOCK_M, n,"
    ),
    fault("group_stored_to_the_first", STORED_BATCH, SOURCE, "store([group, tile_m", "store([0, tile_m"),
    fault("group_matrix_not_transposed", STORED_BATCH, DESCRIPTORS, "[matrix, column, row]", "[matrix, row, column]"),
    fault("group_first_matrix_for_all", HOST_ROWS, DESCRIPTORS, "desc.load([matrix, row", "desc.load([0, row"),
    fault("group_scales_by_rows", SCALED_TENSORS, HOST, 'f"stride_{name}": by_line', 'f"stride_{name}": 1'),
    fault(
        "group_without_scales", SCALED, SOURCE, "SCALED, False, False, WIDE_INDEX", "False, False, False, WIDE_INDEX"
    ),
    fault("batches_one_left_out", BATCHES, HOST, '"groups": problem.batch', '"groups": problem.batch - 1'),
    fault(
        "batches_without_gaps",
        BATCHES,
        HOST_PERSISTENT,
        "return operand.strides[0] if",
        "return operand.shape[1] * operand.shape[2] if",
    ),
    fault("batches_of_one_matrix", MADE_ANEW, SOURCE, "a_ptr += stride_ag + steps * stride_as", "a_ptr += steps"),
    fault("batches_described_too_deep", MADE_ANEW, SOURCE, "in_k + k, lda", "in_k + k + 8, lda"),
)
