"""Examples, timed problems and random problems of products."""

from __future__ import annotations

from typing import Any

import triton

from conformance.families.draw import Draw
from conformance.families.examples import TIMED_EDGE, matrix_sizes, rest
from conformance.families.gemm import problem as problems
from conformance.families.gemm.problem import BLOCK_SCALINGS, Bias, Fusion, Gemm
from conformance.problems import Layout


def example(kernel: Any, dtype: str, config: Any, shape: str) -> Any:
    """Returns the product of a shape class in the operation and orders of ``kernel``."""
    return kernel.problem(dtype, *matrix_sizes(config, dtype, shape))


def timed(kernel: Any, dtype: str) -> Any:
    """Returns a square product."""
    edge = TIMED_EDGE + rest(dtype)
    return kernel.problem(dtype, edge, edge, edge)


def draw_problem(kernel: Any, draw: Draw) -> Gemm:
    """Returns a product of any sizes and layouts, with the operation's other operands."""
    pick, op = draw.pick, kernel.operation
    dtype = pick(kernel.dtypes)
    m, n, k = draw.size(), draw.size(), draw.k()
    if kernel.descriptors and draw.chance(0.8):  # otherwise nearly every pitch would be refused
        n, k = 8 * triton.cdiv(n, 8), 16 * triton.cdiv(k, 16)
    batched = op in ("bmm", "baddbmm")
    order_a, order_b = kernel.orders or (None, None)
    out = draw.layout("row" if kernel.descriptors else None, batched)
    if out.batch == "zero":
        out = Layout(out.order, out.pad, out.step, out.offset)
    fields: dict[str, Any] = {
        "layout_a": draw.layout(order_a, batched),
        "layout_b": draw.layout(order_b, batched),
        "layout_out": out,
    }
    if dtype == "fp32":
        fields["precision"] = pick(("ieee", "tf32"))
    elif op == "scaled_mm":
        fields["out_dtype"] = pick(("bf16", "fp16", "fp32"))
    elif op != "int_mm":
        fields["out_dtype"] = pick((None, None, "fp32"))
    if op == "scaled_mm":
        scalings = BLOCK_SCALINGS if kernel.block_scaled else ("tensor", "row")
        fields |= {"scaling": pick(scalings), "fast_accum": pick((False, True)), "b_dtype": pick(kernel.dtypes)}
    if op == "mixed_mm":
        fields["b_dtype"] = pick(("int8", "uint8"))
    if batched:
        fields["batch"] = pick((0, 1, 2, 3, 5))
    if op in ("addmm", "baddbmm"):
        fields |= {"alpha": pick((1.0, 2.0, -0.5, 0.3, 0.0)), "beta": pick((1.0, 0.5, -4.0, 0.7, 0.0))}
    if op in ("addmm", "baddbmm") or (op == "scaled_mm" and not kernel.block_scaled and draw.chance(0.5)):
        fields["bias"] = Bias(pick(("n", "1n", "m1", "mn", *(("b1n", "bmn") if batched else ()))))
    if op == "fused_mm":
        fields["fusion"] = _draw_fusion(draw, dtype)
        if "bias" in fields["fusion"].epilogue:
            fields["bias"] = Bias(pick(("n", "m1", "mn")))
    problem: Gemm = getattr(problems, op)(m, n, k, dtype, **fields)
    return problem


def _draw_fusion(draw: Draw, dtype: str) -> Fusion:
    prologue = draw.pick((None, "cast", "scale", "gather"))
    stored = None
    if prologue == "cast":
        stored = draw.pick([name for name in ("fp32", "fp16", "bf16") if name != dtype])
    names = [name for name in ("bias", "relu", "gelu", "residual", "dropout") if draw.chance(0.4)]
    draw.source.shuffle(names)
    return Fusion(prologue, stored, tuple(names))
