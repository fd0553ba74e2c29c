"""Faults of the warp-specialised kernels: the epilogue's own tile counter, its subtiles, masks and precision."""

from conformance.families.gemm.problem import addmm, mm, scaled_mm
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from tests.planted.cases import PERSISTENT, Case, Edit, Fault, grouped

#: The kernels need BLOCK_M >= 64 and a target like sm_100. 2 x 2 ragged tiles for two programs, a ragged third k-block.
CONFIG = Config(64, 32, 16, 2, 4)
FLAT = Variant(flatten=True, sms=2)
POINTER = Case("mm_blackwell_ws", mm(72, 56, 40), CONFIG, Variant(sms=2), "sm_100")
PADDED = Case("mm_blackwell_ws", mm(72, 56, 40, layout_out=Layout(pad=8)), CONFIG, Variant(sms=2), "sm_100")
SUBTILE = Case("mm_blackwell_ws", mm(72, 56, 40), CONFIG, Variant(tma_store=True, epilogue_subtile=2, sms=2), "sm_100")
COLUMN = Case("mm_blackwell_ws", mm(72, 56, 40, layout_a=Layout("col")), CONFIG, Variant(sms=2), "sm_100")
ADDMM = Case("addmm_blackwell_ws", addmm(72, 56, 40, "bf16", alpha=8.0, beta=0.25), CONFIG, Variant(sms=2), "sm_100")
TF32 = Case("mm_blackwell_ws", mm(72, 56, 40, "fp32", precision="tf32", layout_a=Layout("col")), CONFIG, FLAT, "sm_100")
FP32 = Case("mm_blackwell_ws", mm(72, 56, 40, "fp32"), CONFIG, FLAT, "sm_100")
SCALED = Case("scaled_mm_blackwell_ws", scaled_mm(72, 48, 80), Config(64, 32, 32, 2, 4), Variant(sms=2), "sm_100")

_STORED_TILE = "swizzle(stored_tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)"
_STORE = "store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm"
_EPILOGUE = "        acc, rm, rn, M, N, scale_a_ptr"

BLACKWELL = grouped(
    "blackwell",
    # the form of the loop that is not usual, and no other
    Fault(
        "ws_nested_other_swizzle",
        Edit(PERSISTENT, _STORED_TILE, _STORED_TILE.replace("GROUP_M", "GROUP_M if FLATTEN else 1")),
        POINTER,
    ),
    # operands of 4 bytes, one of them turned in the loop
    Fault("ws_tf32_turned_short", Edit(PERSISTENT, "[K, M], [lda, 1]", "[K, M - 1], [lda, 1]"), TF32),
    Fault(
        "ws_fp32_sum_rounded_to_fp16",
        Edit(PERSISTENT, _EPILOGUE, _EPILOGUE.replace("acc,", "acc.to(tl.float16).to(tl.float32),")),
        FP32,
    ),
    Fault("ws_columns_past_the_end", Edit(PERSISTENT, _STORE, _STORE.replace("M, N", "M, N + 1")), PADDED, memory=True),
    Fault("ws_last_row_not_stored", Edit(PERSISTENT, _STORE, _STORE.replace("M, N", "M - 1, N")), POINTER),
    Fault(
        "ws_sum_rounded_to_bf16",
        Edit(PERSISTENT, _EPILOGUE, _EPILOGUE.replace("acc,", "acc.to(tl.bfloat16).to(tl.float32),")),
        POINTER,
    ),
    Fault(
        "ws_addmm_sum_rounded_to_fp16",
        Edit(PERSISTENT, _EPILOGUE, _EPILOGUE.replace("acc,", "acc.to(tl.float16).to(tl.float32),")),
        ADDMM,
    ),
    Fault(
        "ws_stored_sum_rounded_to_e4m3",
        Edit(PERSISTENT, "acc.to(c_ptr.dtype.element_ty)", "acc.to(tl.float8e4nv).to(c_ptr.dtype.element_ty)"),
        SUBTILE,
    ),
    Fault(
        "ws_scales_of_the_first_columns",
        Edit(
            PERSISTENT,
            "rn = first_n + tl.arange(0, COLUMNS)\n    acc = epilogue(\n        acc, rm, rn,",
            "rn = first_n + tl.arange(0, COLUMNS)\n    acc = epilogue(\n        acc, rm, rn - first_n,",
        ),
        SCALED,
    ),
    Fault(
        "ws_column_major_read_as_row_major",
        Edit(
            PERSISTENT,
            "tl.make_tensor_descriptor(a_ptr, [K, M], [lda, 1]",
            "tl.make_tensor_descriptor(a_ptr, [K, M - 1], [lda, 1]",
        ),
        COLUMN,
    ),
)
