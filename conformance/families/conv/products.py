"""The products of which a convolution consists, one for each group."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from conformance.families.conv import reference
from conformance.families.conv.problem import Conv
from conformance.families.gemm.problem import addmm, mm
from conformance.families.products import Product, padded, with_inputs
from conformance.numerics.fill import Fill
from conformance.numerics.tiling import Tiling


def products(problem: Conv, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    """Returns the products with a wrong element; see :class:`~conformance.families.family.Family`.

    Rows are output positions, columns output channels of a group; k runs over channels within taps.
    """
    windows = _windows(problem, fill.inputs["x"].cpu().double())
    weights = problem.by_output(fill.inputs["w"].cpu().double())
    weights = weights.reshape(problem.groups, -1, problem.group_channels, problem.taps)
    columns = problem.out_channels // problem.groups
    rows = problem.batch * math.prod(problem.out_size)
    matrices = [tensor.movedim(1, -1).reshape(rows, problem.groups, columns) for tensor in (out, bad)]
    for group in range(problem.groups):
        output, wrong = (matrix[:, group] for matrix in matrices)
        if not bool(wrong.any()):
            continue
        a = windows[:, group].reshape(rows, -1)
        b = weights[group].permute(2, 1, 0).reshape(-1, columns)
        a, b, segments = padded(a, b, [problem.group_channels] * problem.taps, tiling.block[2])
        inputs = {"a": a, "b": b}
        out_dtype = problem.out_dtype or problem.dtype
        if problem.bias:
            inputs["bias"] = fill.inputs["bias"].reshape(problem.groups, columns)[group]
            inner = addmm(rows, columns, a.shape[1], problem.dtype, alpha=1.0, beta=1.0, out_dtype=out_dtype)
        else:
            inner = mm(rows, columns, a.shape[1], problem.dtype, out_dtype=out_dtype)
        name = f"group {group}" if problem.groups > 1 else ""
        yield Product(name, inner, with_inputs(fill, inputs), output, wrong, segments, "tap")


def _windows(problem: Conv, x: Tensor) -> Tensor:
    """Returns the window of x for each output position: (positions, groups, taps, channels of a group)."""
    taps = []
    for tap in itertools.product(*map(range, problem.correlation.kernel)):
        values, _ = reference.seen(problem.correlation, x, tap)
        taps.append(values.movedim(1, -1).reshape(-1, problem.groups, problem.group_channels))
    return torch.stack(taps, 2)
