"""Faults of the grouped kernel: which group a tile belongs to, where it begins and ends, and its precision."""

from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from conformance.problems import GroupedGemm
from tests.planted.cases import Case, Edit, Fault, grouped

SOURCE, HOST = "device/grouped_mm.py", "grouped_mm.py"

SMALL = Config(32, 32, 16, 2, 4)
TWO_SMS = Variant(sms=2)
ROWS = Case("grouped_mm", GroupedGemm("2d-3d", (40, 0, 25), None, 56, 40, "fp16"), SMALL, TWO_SMS)
COLUMNS = Case("grouped_mm", GroupedGemm("3d-2d", (25, 0, 40), 40, None, 40, "bf16"), SMALL, TWO_SMS)
DEPTH = Case("grouped_mm", GroupedGemm("2d-2d", (40, 0, 25), 40, 56, None, "fp16"), SMALL, TWO_SMS)
BATCH = Case("grouped_mm", GroupedGemm("3d-3d", (40, 40), 40, 56, 40, "bf16"), SMALL, TWO_SMS)
KNOWN_K = Case("grouped_mm", GroupedGemm("2d-3d", (40, 0, 25), None, 56, 40), SMALL, Variant(static=True, sms=2))
KNOWN_BLOCKS = Case("grouped_mm", GroupedGemm("2d-3d", (40, 25), None, 56, 48), SMALL, Variant(static=True, sms=2))
TF32 = Case("grouped_mm", GroupedGemm("2d-3d", (40, 25), None, 56, 40, "fp32"), SMALL, TWO_SMS)

_DOT = "a_ptr, b_ptr, rm, rn, m, n, k,"
_STORE = "store_pointers(acc, c_ptr, rm, rn, m, n,"
_MINE = "mine = (tl.program_id(0) + programs - earlier_tiles % programs) % programs"


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
    Fault("group_offsets_as_sizes", Edit(SOURCE, "size = end - begin", "size = end"), ROWS),
    Fault("group_begin_kept", Edit(SOURCE, "            begin = end\n", ""), DEPTH),
    Fault("group_first_b_for_all", Edit(SOURCE, "b_ptr += stride_bg +", "b_ptr +="), ROWS),
    Fault("group_columns_not_advanced", Edit(SOURCE, " + steps * stride_bs", ""), COLUMNS),
    Fault("group_output_not_advanced", Edit(SOURCE, "c_ptr += stride_cg +", "c_ptr +="), BATCH),
    Fault("group_tiles_not_wrapped", Edit(SOURCE, _MINE, _MINE.replace(") % programs", ")")), ROWS),
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
)
