"""The family of grouped products: what its problems, examples and random problems are, whatever the kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from conformance.families.grouped.problem import KINDS, GroupedGemm
from conformance.kernels.families.draw import Draw
from conformance.kernels.families.examples import (
    EVEN,
    FLOATS,
    TIMED_EDGE,
    WHOLE_TILES,
    dtype_fields,
    matrix_sizes,
    rest,
)
from conformance.kernels.kernel import Kernel, Variant
from conformance.problems import Layout, Problem, itemsize

Laid = TypeVar("Laid", bound=Problem)


class GroupedFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.grouped.problem.GroupedGemm`. A third-party kernel
    needs only this
    base."""

    weight = 1
    family = "grouped"
    more_shapes = (WHOLE_TILES,)
    operations = frozenset({"grouped_mm"})
    dtypes = FLOATS

    @property
    def scaled(self) -> bool:
        """True if its operands are fp8 with scales, of which k lies side by side."""
        return "scaled_grouped_mm" in self.operations

    def problem(self, dtype: str, kind: str, sizes: tuple[int, ...], **fields: Any) -> GroupedGemm:
        """Returns a problem of the kernel's operation, in the orders that it takes. For a kernel with descriptors it
        has pitches and batches that these can have. ``dtype`` is one of :meth:`dtype_names`, ``fields`` are those of
        :class:`~conformance.families.grouped.problem.GroupedGemm`."""
        if self.scaled:
            fields = {"scaling": "row", **fields}
            for name, order in (("layout_a", "row"), ("layout_b", "col")):
                fields[name] = dataclasses.replace(fields.get(name, Layout()), order=order)
        problem = GroupedGemm(kind, sizes, **{**fields, **dtype_fields(dtype)})
        return describable(problem, ("a", "b", "out"), 16) if self.descriptors else problem

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> GroupedGemm:
        """See :class:`Kernel`: a group of one product's rows, one of none and one of a few; of whole tiles two."""
        m, n, k = matrix_sizes(config, dtype, shape)
        rows = (m, m) if shape in (WHOLE_TILES, EVEN) else (m, 0, 24)
        return self.problem(dtype, "2d-3d", rows, N=n, K=k)

    def timed(self, dtype: str) -> GroupedGemm:
        """See :class:`Kernel`: four groups of one square product."""
        edge = TIMED_EDGE + rest(dtype)
        return self.problem(dtype, "2d-3d", (edge // 4,) * 4, N=edge, K=edge)

    def draw_problem(self, draw: Draw) -> GroupedGemm:
        """See :class:`Kernel`: any kind and sizes, groups of nothing among them."""
        pick = draw.pick
        kind = pick(("2d-3d", "3d-2d", "2d-2d", "3d-3d"))
        sizes = tuple(pick((0, 1, 8, 17, 40, 64)) for _ in range(pick((1, 2, 4))))
        extents: dict[str, Any] = {"M": draw.size(), "N": draw.size(), "K": draw.k()}
        if kind == "3d-3d":
            sizes = (extents["M"],) * len(sizes)
        else:
            extents[KINDS[kind]] = None
        dtype = pick(self.dtypes)
        fields: dict[str, Any] = {name: draw.layout() for name in ("layout_a", "layout_b", "layout_out")}
        if dtype == "fp32":
            dtype = pick(("fp32", "tf32"))
        if self.scaled:
            fields |= {"scaling": pick(("tensor", "row")), "fast_accum": pick((False, True))}
        return self.problem(dtype, kind, sizes, **extents, **fields)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: descriptors of both kinds, on few programs."""
        descriptors = draw.pick(("device", "host")) if self.descriptors else "device"
        return Variant(descriptors, sms=draw.pick((None, 2, 3)))


def describable(problem: Laid, names: Sequence[str], multiple: int) -> Laid:
    """Returns ``problem`` with tensors ``names`` that descriptors can have: bases, rows and matrices are multiples of
    ``multiple`` bytes apart."""
    layouts = {}
    for name in names:
        layout, operand = getattr(problem, f"layout_{name}"), problem.operand(name)
        step = multiple // itemsize(operand.dtype)
        if layout.batch == "inner":
            layout = dataclasses.replace(layout, batch="outer", batch_pad=step)
        layout = dataclasses.replace(layout, step=1)
        pitch = layout.strides(operand.shape)[-2 if layout.order == "row" else -1]
        more = {key: -(-getattr(layout, key) // step) * step for key in ("batch_pad", "offset")}
        layouts[f"layout_{name}"] = dataclasses.replace(layout, pad=layout.pad + -pitch % step, **more)
    return dataclasses.replace(problem, **layouts)  # type: ignore[type-var]
