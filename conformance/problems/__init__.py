"""Problems: what is computed, with the operands, dtypes and layouts.

A problem says nothing about how it is computed: no tiles, no target, no kernel. It is hashable, picklable and
has a stable text id, so that records of two runs can be joined on it.
"""

from conformance.problems.attention import Attention, Mask, Score
from conformance.problems.conv import Conv, conv2d, conv3d
from conformance.problems.gemm import (
    BLOCK_SCALINGS,
    Bias,
    Fusion,
    Gemm,
    addmm,
    baddbmm,
    bmm,
    dual_mm,
    fused_mm,
    int_mm,
    mixed_mm,
    mm,
    mm_plus_mm,
    mm_with_sums,
    scaled_mm,
)
from conformance.problems.grouped import GroupedGemm
from conformance.problems.problem import Problem
from conformance.problems.tensors import (
    BASE_ALIGNMENT,
    DTYPES,
    EVERY_FP8,
    FNUZ,
    FP8,
    INTEGERS,
    PRECISIONS,
    RESULTS,
    SPLIT_PRECISIONS,
    Layout,
    Operand,
    itemsize,
)

__all__ = [
    "BASE_ALIGNMENT",
    "BLOCK_SCALINGS",
    "DTYPES",
    "EVERY_FP8",
    "FNUZ",
    "FP8",
    "INTEGERS",
    "PRECISIONS",
    "RESULTS",
    "SPLIT_PRECISIONS",
    "Attention",
    "Bias",
    "Conv",
    "Fusion",
    "Gemm",
    "GroupedGemm",
    "Layout",
    "Mask",
    "Operand",
    "Problem",
    "Score",
    "addmm",
    "baddbmm",
    "bmm",
    "conv2d",
    "conv3d",
    "dual_mm",
    "fused_mm",
    "int_mm",
    "itemsize",
    "mixed_mm",
    "mm",
    "mm_plus_mm",
    "mm_with_sums",
    "scaled_mm",
]
