"""The family of products of matrices: what its problems, examples and random problems are, whatever the kernel."""

from __future__ import annotations

from typing import Any

import triton

from conformance.families.gemm import problem as problems
from conformance.families.gemm.problem import BLOCK_SCALINGS, OPERATIONS, Bias, Fusion, Gemm
from conformance.kernels.families.draw import Draw
from conformance.kernels.families.examples import TIMED_EDGE, WHOLE_TILES, dtype_fields, matrix_sizes, rest
from conformance.kernels.kernel import Kernel, Variant
from conformance.problems import Layout


class GemmFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.gemm.problem.Gemm`. A third-party kernel needs only
    this base."""

    family = "gemm"
    more_shapes = (WHOLE_TILES,)
    more_orders = (("row", "col"), ("col", "row"), ("col", "col"))
    #: whether its scales are per block of the operands, instead of per tensor or row
    block_scaled: bool = False
    #: whether A may be column-major and B row-major; otherwise A is row-major and B column-major
    any_order: bool = True
    #: whether program number p of a grid with one program for each tile computes tile p in bands of GROUP_M rows
    banded_tiles: bool = False
    #: whether its loop over tiles gives warps different work
    specialised: bool = False
    #: whether suites show with it which matrix unit each target has
    shows_matrix_unit: bool = False

    @property
    def operation(self) -> str:
        """The first of its operations, in the order of :data:`~conformance.families.gemm.problem.OPERATIONS`."""
        return next(name for name in OPERATIONS if name in self.operations)

    def problem(self, dtype: str, M: int, N: int, K: int, **fields: Any) -> Gemm:
        """Returns a problem of the kernel's operation, in the orders that it takes. ``dtype`` is one of
        :meth:`dtype_names`, ``fields`` are those of :class:`~conformance.families.gemm.problem.Gemm`."""
        for name, order in zip(("layout_a", "layout_b"), self.orders or (), strict=False):
            fields.setdefault(name, Layout(order))
        if self.block_scaled:
            fields.setdefault("scaling", BLOCK_SCALINGS[1])
        problem: Gemm = getattr(problems, self.operation)(M, N, K, **{**fields, **dtype_fields(dtype)})
        return problem

    @property
    def orders(self) -> tuple[str, str] | None:
        """The orders of A and B where a problem may not have, or does not name, any other; None for all the same."""
        return self.usual_orders or (None if self.any_order else ("row", "col"))

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Gemm:
        return self.problem(dtype, *matrix_sizes(config, dtype, shape))

    def timed(self, dtype: str) -> Gemm:
        """See :class:`Kernel`: a square product."""
        edge = TIMED_EDGE + rest(dtype)
        return self.problem(dtype, edge, edge, edge)

    def draw_problem(self, draw: Draw) -> Gemm:
        """See :class:`Kernel`: any sizes and layouts, and the operation's other operands."""
        pick, op = draw.pick, self.operation
        dtype = pick(self.dtypes)
        m, n, k = draw.size(), draw.size(), draw.k()
        if self.descriptors and draw.chance(0.8):  # otherwise nearly every pitch would be refused
            n, k = 8 * triton.cdiv(n, 8), 16 * triton.cdiv(k, 16)
        batched = op in ("bmm", "baddbmm")
        order_a, order_b = self.orders or (None, None)
        out = draw.layout("row" if self.descriptors else None, batched)
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
            scalings = BLOCK_SCALINGS if self.block_scaled else ("tensor", "row")
            fields |= {"scaling": pick(scalings), "fast_accum": pick((False, True)), "b_dtype": pick(self.dtypes)}
        if op == "mixed_mm":
            fields["b_dtype"] = pick(("int8", "uint8"))
        if batched:
            fields["batch"] = pick((0, 1, 2, 3, 5))
        if op in ("addmm", "baddbmm"):
            fields |= {"alpha": pick((1.0, 2.0, -0.5, 0.3, 0.0)), "beta": pick((1.0, 0.5, -4.0, 0.7, 0.0))}
        if op in ("addmm", "baddbmm") or (op == "scaled_mm" and not self.block_scaled and draw.chance(0.5)):
            fields["bias"] = Bias(pick(("n", "1n", "m1", "mn", *(("b1n", "bmn") if batched else ()))))
        if op == "fused_mm":
            fields["fusion"] = _draw_fusion(draw, dtype)
            if "bias" in fields["fusion"].epilogue:
                fields["bias"] = Bias(pick(("n", "m1", "mn")))
        problem: Gemm = getattr(problems, op)(m, n, k, dtype, **fields)
        return problem

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: every form of a descriptor kernel, static sizes or not of another."""
        pick = draw.pick
        if self.descriptors:
            store = draw.chance(0.5)
            where, subtile = pick(("device", "host")), pick((1, 2, 4))
            return Variant(where, store, subtile, pick((False, True)), pick((False, True)), pick((None, 2, 3)))
        if self.persistent:
            return super().draw_variant(draw)
        return Variant(static=pick((False, True)))


def _draw_fusion(draw: Draw, dtype: str) -> Fusion:
    prologue = draw.pick((None, "cast", "scale", "gather"))
    stored = None
    if prologue == "cast":
        stored = draw.pick([name for name in ("fp32", "fp16", "bf16") if name != dtype])
    names = [name for name in ("bias", "relu", "gelu", "residual", "dropout") if draw.chance(0.4)]
    draw.source.shuffle(names)
    return Fusion(prologue, stored, tuple(names))
