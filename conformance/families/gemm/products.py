"""The products of two matrices of which a problem consists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from conformance.families.gemm import reference
from conformance.families.gemm.problem import BLOCK_SCALINGS, Bias, Gemm, addmm, mm
from conformance.families.products import Product, padded, with_inputs
from conformance.numerics.fill import Fill
from conformance.numerics.tiling import Tiling


def products(problem: Gemm, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    """Returns the products with a wrong element; see :class:`~conformance.families.family.Family`."""
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
            yield Product(f"matrix {z}", inner, with_inputs(fill, inputs), out[z], bad[z], ((0, k),))
        return
    if problem.op == "mm_plus_mm" or (tiling.splits and problem.op == "mm" and k and not k % tiling.splits):
        a, b = reference.factors(problem, fill.inputs, device="cpu")
        count = 2 if problem.op == "mm_plus_mm" else tiling.splits or 1
        a, b, segments = padded(a, b, [a.shape[1] // count] * count, block_k)
        inner = mm(problem.M, problem.N, a.shape[1], problem.dtype, out_dtype=problem.output_dtype)
        name = "product" if problem.op == "mm_plus_mm" else "part of K"
        yield Product("", inner, with_inputs(fill, {"a": a, "b": b}), out, bad, segments, name)
        return
    plain = problem.fusion is None and problem.scaling not in BLOCK_SCALINGS
    yield Product("", problem, fill, out, bad, ((0, k),), plain=plain)


def is_plain(problem: Gemm) -> bool:
    """True for one product of mm, addmm or scaled_mm with scales of whole operands, rows or columns."""
    return problem.op in ("mm", "addmm", "scaled_mm") and problem.scaling not in BLOCK_SCALINGS
