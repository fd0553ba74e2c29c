"""Operands of the graphs that suites compile."""

from __future__ import annotations

from conformance.problems import Operand


def dense(
    name: str, *shape: int, dtype: str = "fp32", last: int | None = None, strides: tuple[int, ...] | None = None
) -> Operand:
    """An operand of ``shape`` without gaps between its elements, unless ``strides`` (in elements) are given.

    ``last`` is the dimension with stride 1: the last one unless given.
    """
    if strides is None:
        dimensions = [d for d in range(len(shape)) if d != last] + ([] if last is None else [last])
        by_dimension, step = [0] * len(shape), 1
        for dimension in reversed(dimensions):
            by_dimension[dimension] = step
            step *= max(shape[dimension], 1)
        strides = tuple(by_dimension)
    return Operand(name, shape, strides, dtype)
