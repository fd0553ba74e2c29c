"""Says on which elements of the operands an element of a product depends."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from conformance.families.gemm.problem import BLOCK_SCALINGS, SCALE_BLOCK, Gemm
from conformance.families.index_sets import Indices, Needed, chosen, divided, every
from conformance.problems import Problem

#: Names of the last two axes of an operand of a product.
_MATRIX = {
    **dict.fromkeys(("a", "c"), ("row", "k")),
    **dict.fromkeys(("b", "d"), ("k", "column")),
    "scale_a": ("row", "block of k"),
    "scale_b": ("block of k", "column"),
}


def axes(problem: Gemm, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand ``name``."""
    return matrix_axes(problem, name, "matrix")


def matrix_axes(problem: Problem, name: str, lead: str) -> tuple[str, ...]:
    """Returns the axes of an operand of products; ``lead`` names the axis before those of one matrix."""
    rank = len(problem.operand(name).shape)
    if name == "bias" and rank == 1:
        return ("column",)
    return (lead, *_MATRIX.get(name, ("row", "column")))[-rank:] if rank > 1 else ("row",) * rank


def needed(problem: Gemm, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns the elements that ``stored`` of ``output`` need; see :class:`~conformance.families.family.Family`."""
    if output == "sums":
        return {"a": (stored[0], every(problem.K))} if problem.K else {}
    return _of_product(problem, inputs, stored)


def _of_product(problem: Gemm, inputs: Mapping[str, Tensor], stored: Indices) -> Needed:
    *lead, rows, columns = stored
    result: Needed = {}
    if problem.has_product:
        of_a = rows
        if "rows" in inputs and problem.fusion is not None and problem.fusion.prologue == "gather":
            of_a = chosen(problem.operand("a").shape[-2], inputs["rows"].cpu().long()[rows])
            result["rows"] = (rows,)
        if "rows" in inputs and problem.fusion is not None and problem.fusion.prologue == "scatter":
            of_a = rows[inputs["rows"].cpu().long()]
            result["rows"] = (of_a,)
        more = {"mm_plus_mm": (("c", "d"),), "dual_mm": (("a", "d"),)}.get(problem.op, ())
        for left, right in (("a", "b"), *more):
            result[left] = (*lead, of_a, every(problem.K))
            result[right] = (*lead, every(problem.K), columns)
        result |= _of_scales(problem, rows, columns)
        if problem.fusion is not None and problem.fusion.prologue == "scale":
            result["row_scale"] = (rows,)
        if problem.fusion is not None and problem.fusion.prologue == "scale-k":
            result["k_scale"] = (every(problem.K),)
    if problem.reads_bias and problem.bias is not None:
        kind = problem.bias.kind
        own = {"m": rows, "1": every(1), "n": columns, "b": lead[0] if lead else rows}
        result["bias"] = tuple(own[letter] for letter in kind)
    for step, name in (("residual", "residual"), ("dropout", "mask")):
        if problem.fusion is not None and step in problem.fusion.epilogue:
            result[name] = (rows, columns)
    return result


def _of_scales(problem: Gemm, rows: Tensor, columns: Tensor) -> Needed:
    if problem.scaling is None or problem.scaling == "tensor":
        return {}
    shapes = {name: problem.operand(name).shape for name in ("scale_a", "scale_b")}
    if problem.scaling in BLOCK_SCALINGS:
        kinds = problem.scaling.split("/")
        rows, columns = (
            index if kind == "1x128" else divided(index, SCALE_BLOCK, extent)
            for index, kind, extent in zip(
                (rows, columns), kinds, (shapes["scale_a"][0], shapes["scale_b"][1]), strict=True
            )
        )
    return {"scale_a": (rows, every(shapes["scale_a"][1])), "scale_b": (every(shapes["scale_b"][0]), columns)}
