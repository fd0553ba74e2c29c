"""Faults of the products with a specialised loop: each form of loop and each kind of load."""

from conformance.families.gemm.problem import int_mm, mm
from conformance.heuristics.configs import SpecialisedConfig
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from tests.planted.cases import Case, fault, grouped

LOOP, LOADS, HOST = "device/mm_specialised.py", "device/tiles.py::load_rows,load_columns", "mm_specialised.py"

PADDED = Layout(pad=8)
TWO = Variant(sms=2)
#: 2 x 2 ragged tiles for two programs, a ragged third k-block.
_SIZES = (72, 56, 72)


def _config(loop: str, described: str, block_k: int = 32) -> SpecialisedConfig:
    return SpecialisedConfig(64, 32, block_k, 2, 4, loop=loop, described=described)


POINTERS = Case("mm_specialised", mm(*_SIZES, layout_a=PADDED, layout_b=PADDED), _config("inner", ""), TWO, "sm_100")
DESCRIBED = Case("mm_specialised", mm(*_SIZES, layout_a=PADDED, layout_b=PADDED), _config("outer", "ab"), TWO, "sm_100")
TURNED = Case(
    "mm_specialised",
    mm(*_SIZES, layout_a=Layout("col", pad=8), layout_b=Layout("col", pad=8)),
    _config("flat", "ab"),
    TWO,
    "sm_100",
)
MIXED = Case("mm_specialised", mm(*_SIZES, "bf16", layout_out=PADDED), _config("outer", "b"), TWO, "sm_100")
EMPTY = Case("mm_specialised", mm(72, 56, 0), _config("outer", "ab"), TWO, "sm_100")
INT8 = Case(
    "int_mm_specialised", int_mm(*_SIZES, layout_a=PADDED, layout_b=PADDED), _config("outer", ""), TWO, "sm_120"
)

_STORE = "store_pointers(acc, c_ptr, rm, rn, M, N"

SPECIALISED = grouped(
    "specialised",
    fault("specialised_ktail", POINTERS, LOADS, "if not EVEN_K:", "if False:", count=2),
    fault("specialised_int8_tail", INT8, LOADS, "if not EVEN_K:", "if False:", count=2),
    fault("specialised_k_of_b", MIXED, LOOP, "b_desc.load([first_k, first_n])", "b_desc.load([0, first_n])"),
    fault("specialised_k_of_a", DESCRIBED, LOOP, "a_desc.load([first_m, first_k])", "a_desc.load([first_m, 0])"),
    fault("specialised_pitch_a", DESCRIBED, LOOP, "(a_ptr, [M, K], [lda, 1]", "(a_ptr, [M, K], [K, 1]"),
    fault("specialised_pitch_b", DESCRIBED, HOST, '"ldb": leading(b)', '"ldb": leading(a)'),
    fault("specialised_turned_place", TURNED, LOOP, "a_desc.load([first_k, first_m])", "a_desc.load([first_k, 0])"),
    fault("specialised_columns_of_b", TURNED, LOOP, "b_desc.load([first_n, first_k])", "b_desc.load([0, first_k])"),
    fault(
        "specialised_empty",
        EMPTY,
        LOOP,
        "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=SUM)",
        "acc = tl.full((BLOCK_M, BLOCK_N), 1.0, dtype=SUM)",
    ),
    fault("specialised_rounded", MIXED, LOOP, _STORE, _STORE.replace("acc,", "acc.to(tl.float16).to(tl.float32),")),
)
