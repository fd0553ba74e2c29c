"""Faults of the kernel with Triton 3.3's descriptors. No interpreter has the tensor maps of the others."""

import dataclasses
from functools import partial

from conformance.families.gemm.problem import mm
from conformance.kernels.legacy_tma import KERNELS
from conformance.problems import Layout
from tests.planted import cases as on
from tests.planted.cases import Case, Edit, Fault, fault, grouped

NAME = "mm_legacy_descriptor_persistent"
DEVICE, HOST = "device/legacy_tma.py", "legacy_tma.py"
MISSING = not next(kernel for kernel in KERNELS if kernel.name == NAME).offered

PLAIN = Case(NAME, mm(40, 56, 40), on.SMALL, on.TWO_SMS, "sm_90")
PADDED = dataclasses.replace(PLAIN, problem=mm(40, 56, 40, layout_a=on.PADDED, layout_b=on.PADDED))
COLUMN = dataclasses.replace(PLAIN, problem=mm(40, 56, 40, layout_a=Layout("col")))

_TILES = "tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N), tl.num_programs(0)):\n        tile_m"
_K_LOOP = "for k in range(0, tl.cdiv(K, BLOCK_K)):\n                first_k = k"

_fault = partial(fault, defect=MISSING)

LEGACY: tuple[Fault, ...] = grouped(
    "legacy",
    _fault("legacy_one_program", PLAIN, DEVICE, _TILES, _TILES.replace("tl.num_programs(0)", "2 * tl.num_programs(0)")),
    _fault("legacy_first_k", PLAIN, DEVICE, _K_LOOP, _K_LOOP.replace("range(0", "range(1"), cause="is skipped"),
    _fault(
        "legacy_pitch",
        PADDED,
        DEVICE,
        "(a_ptr, [M, K], [lda, 1]",
        "(a_ptr, [M, K], [K, 1]",
        cause="A is read as if it were contiguous",
    ),
    _fault("legacy_extent", PADDED, DEVICE, "(a_ptr, [M, K], [lda, 1]", "(a_ptr, [M, lda], [lda, 1]"),
    Fault(
        "legacy_order",
        Edit(HOST, '"A_ROW_MAJOR": row_major(problem.operand("a"))', '"A_ROW_MAJOR": True'),
        COLUMN,
        "A is read with its strides exchanged",
        defect=MISSING,
    ),
)
