"""Problems: what is computed, with the operands, dtypes and layouts.

A problem says nothing about how it is computed: no tiles, no target, no kernel. It is hashable, picklable and
has a stable text id, so that records of two runs can be joined on it.
"""

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
    "DTYPES",
    "EVERY_FP8",
    "FNUZ",
    "FP8",
    "INTEGERS",
    "PRECISIONS",
    "RESULTS",
    "SPLIT_PRECISIONS",
    "Layout",
    "Operand",
    "Problem",
    "itemsize",
]
