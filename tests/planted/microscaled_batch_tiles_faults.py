"""Faults of products of block-scaled operands by tiles of several matrices: whose codes and scales they have, and what
lies past the last matrix."""

from dataclasses import replace

from conformance.families.microscaled.problem import MicroscaledGemm
from conformance.heuristics.configs import BatchConfig
from conformance.problems import Layout
from conformance.targets import find
from tests.planted.cases import Case, fault, grouped

#: Whether the installed Triton's scaled products have two dimensions alone.
_ABSENT = not find("sm_90").capability("scaled-batch").available

SOURCE, HOST = (
    "device/microscaled_mm.py::load_batch_of_scales,gemm_microscaled_batch_tiles",
    "microscaled_mm_batch_tiles.py",
)

#: Two tiles of rows and of columns in each of three matrices, which have gaps; the second tile of the batch has one
#: matrix, and k ends within a block of scales.
MX8 = Case(
    "microscaled_mm_batch_tiles",
    MicroscaledGemm(
        *("mxfp8", "mxfp8", 42, 74, 176),
        batch=3,
        layout_a=Layout(batch_pad=48),
        layout_b=Layout("col", batch_pad=32),
        layout_out=Layout(batch_pad=12),
        layout_scale=Layout(batch_pad=5),
    ),
    BatchConfig(32, 64, 64, 1, 4),
)
#: A tile of four matrices, of which the last has three.
FOUR = replace(MX8, problem=replace(MX8.problem, batch=7), config=BatchConfig(32, 32, 64, 1, 4, matrices=4))

_STEP = "tl.program_id(0) // tiles * MATRICES + tl.arange(0, MATRICES)"
_SCALE_B = "scale_b_ptr + matrix * stride_scale_bz"

_FAULTS = grouped(
    "microscaled_batch_tiles",
    fault("batch_tile_scale_of_its_number", MX8, SOURCE, _SCALE_B, "scale_b_ptr + matrix % MATRICES * stride_scale_bz"),
    fault(
        "batch_tile_matrices_exchanged", MX8, SOURCE, "b_ptr + matrix * stride_bz", "b_ptr + (matrix ^ 1) * stride_bz"
    ),
    fault("batch_tile_of_two_in_steps_of_one", FOUR, SOURCE, _STEP, _STEP.replace("* MATRICES", "* (MATRICES // 2)")),
    fault(
        "batch_tile_programs_of_one_matrix", FOUR, HOST, "triton.cdiv(plan.problem.batch, plan.config.matrices)", "1"
    ),
    fault(
        "batch_tile_matrices_in_other_order",
        MX8,
        SOURCE,
        _STEP,
        _STEP.replace("tl.program_id(0) // tiles", "(tl.cdiv(batch, MATRICES) - 1 - tl.program_id(0) // tiles)"),
        equivalent="each tile of each matrix is still computed once",
    ),
)
MICROSCALED_BATCH_TILES = tuple(replace(fault, defect=_ABSENT) for fault in _FAULTS)
