"""The matrix products of which a problem consists: a matrix of a batch, a group, a convolution's group of channels.

Each is a problem of two dimensions with inputs in fp64 and the part of the output that it makes, so that one search
serves all of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.families.conv import reference as conv
from conformance.families.conv.problem import Conv
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.problem import BLOCK_SCALINGS, Bias, Gemm, addmm, mm
from conformance.families.grouped import reference as grouped
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.weight_gradient import reference as weight_gradient
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.numerics.fill import Fill
from conformance.numerics.tiling import Tiling
from conformance.problems import Problem


@dataclass(frozen=True, eq=False)
class Product:
    """One product of a problem.

    ``name`` says which ("" for the only one). ``problem`` has two dimensions; ``fill`` holds its inputs, in fp64 or as
    the kernel got them. ``output`` and ``bad`` (rows, columns) are what it made and where that is wrong. ``segments``
    are ranges of k, each of which is looped over by itself and begins with a k-block of its own; ``segment`` is what
    one is called. ``plain``: the operands are A and B themselves, as they lie in memory.
    """

    name: str
    problem: Gemm
    fill: Fill
    output: Tensor
    bad: Tensor
    segments: tuple[tuple[int, int], ...]
    segment: str = "part of K"
    plain: bool = False


def products_of(problem: Problem, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    """The products of ``problem`` with a wrong element; none for a family that is no product."""
    if isinstance(problem, Gemm):
        yield from _of_gemm(problem, fill, out, bad, tiling)
    elif isinstance(problem, GroupedGemm):
        lists = [grouped.parts(problem, name, tensor) for name, tensor in (("out", out), ("out", bad))]
        operands = [grouped.parts(problem, name, fill.inputs[name].double()) for name in "ab"]
        for group, (a, b, part, wrong) in enumerate(zip(*operands, *lists, strict=True)):
            if bool(wrong.any()):
                sizes = problem.group_extents(group)
                inputs = {"a": a, "b": b, **grouped.group_scales(problem, fill.inputs)[group]}
                product = problem.group_product(group)
                yield Product(f"group {group}", product, _inner(fill, inputs), part, wrong, ((0, sizes[2]),))
    elif isinstance(problem, Conv):
        yield from _of_conv(problem, fill, out, bad, tiling)
    elif isinstance(problem, WeightGradient) and problem.positions:
        yield from _of_weight_gradient(problem, fill, out, bad)


def _inner(fill: Fill, inputs: Mapping[str, Tensor]) -> Fill:
    return dataclasses.replace(fill, inputs=dict(inputs), cache={})


def _of_gemm(problem: Gemm, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    block_k, k = tiling.block[2], problem.K
    if problem.batch is not None:
        operation = addmm if problem.bias is not None else mm
        fields: dict[str, Any] = {"out_dtype": problem.out_dtype, "precision": problem.precision}
        if problem.bias is not None:
            kind = problem.bias.kind.removeprefix("b")
            fields |= {"alpha": problem.alpha, "beta": problem.beta, "bias": Bias(kind, problem.bias.dtype)}
        for z in bad.flatten(1).any(1).nonzero()[:, 0].tolist():
            inputs = {name: fill.inputs[name][z] for name in "ab"}
            if problem.bias is not None:
                bias = fill.inputs["bias"]
                inputs["bias"] = bias[z] if problem.bias.kind.startswith("b") else bias
                if problem.bias.kind == "b1n":
                    inputs["bias"] = inputs["bias"].reshape(1, -1)
            inner = operation(problem.M, problem.N, k, problem.dtype, **fields)
            yield Product(f"matrix {z}", inner, _inner(fill, inputs), out[z], bad[z], ((0, k),))
        return
    if problem.op == "mm_plus_mm" or (tiling.splits and problem.op == "mm" and k and not k % tiling.splits):
        a, b = gemm.factors(problem, fill.inputs, device="cpu")
        count = 2 if problem.op == "mm_plus_mm" else tiling.splits or 1
        a, b, segments = _padded(a, b, [a.shape[1] // count] * count, block_k)
        inner = mm(problem.M, problem.N, a.shape[1], problem.dtype, out_dtype=problem.output_dtype)
        name = "product" if problem.op == "mm_plus_mm" else "part of K"
        yield Product("", inner, _inner(fill, {"a": a, "b": b}), out, bad, segments, name)
        return
    plain = problem.fusion is None and problem.scaling not in BLOCK_SCALINGS
    yield Product("", problem, fill, out, bad, ((0, k),), plain=plain)


def _of_conv(problem: Conv, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    """Rows are output positions, columns output channels of a group; k runs over channels within taps."""
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
        a, b, segments = _padded(a, b, [problem.group_channels] * problem.taps, tiling.block[2])
        inputs = {"a": a, "b": b}
        out_dtype = problem.out_dtype or problem.dtype
        if problem.bias:
            inputs["bias"] = fill.inputs["bias"].reshape(problem.groups, columns)[group]
            inner = addmm(rows, columns, a.shape[1], problem.dtype, alpha=1.0, beta=1.0, out_dtype=out_dtype)
        else:
            inner = mm(rows, columns, a.shape[1], problem.dtype, out_dtype=out_dtype)
        name = f"group {group}" if problem.groups > 1 else ""
        yield Product(name, inner, _inner(fill, inputs), output, wrong, segments, "tap")


def _of_weight_gradient(problem: WeightGradient, fill: Fill, out: Tensor, bad: Tensor) -> Iterator[Product]:
    """Rows are output channels of a group, columns taps and channels; k runs over output positions of all images."""
    inputs = {name: tensor.cpu() for name, tensor in fill.inputs.items()}
    matrices = [weight_gradient.matrices(problem, tensor) for tensor in (out, bad)]
    for group, (a, b) in enumerate(weight_gradient.factors(problem, inputs)):
        output, wrong = (matrix[group] for matrix in matrices)
        if bool(wrong.any()):
            name = f"group {group}" if problem.groups > 1 else ""
            yield Product(name, problem.product, _inner(fill, {"a": a, "b": b}), output, wrong, ((0, a.shape[1]),))


def _windows(problem: Conv, x: Tensor) -> Tensor:
    """Returns what each output position sees: (positions, groups, taps, channels of a group)."""
    taps = []
    for tap in itertools.product(*map(range, problem.correlation.kernel)):
        values, _ = conv.seen(problem.correlation, x, tap)
        taps.append(values.movedim(1, -1).reshape(-1, problem.groups, problem.group_channels))
    return torch.stack(taps, 2)


def _padded(
    a: Tensor, b: Tensor, lengths: Sequence[int], block_k: int
) -> tuple[Tensor, Tensor, tuple[tuple[int, int], ...]]:
    """A and B with zeros behind each segment of k, so that the next begins with a k-block; and where segments lie."""
    columns, rows, segments, first = [], [], [], 0
    for left, right, length in zip(a.split(list(lengths), 1), b.split(list(lengths), 0), lengths, strict=True):
        behind = -length % block_k
        columns.append(torch.nn.functional.pad(left, (0, behind)))
        rows.append(torch.nn.functional.pad(right, (0, 0, 0, behind)))
        segments.append((first, first + length))
        first += length + behind
    return torch.cat(columns, 1), torch.cat(rows, 0), tuple(segments)
