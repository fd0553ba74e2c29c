"""The base of the kernels of grouped products."""

from __future__ import annotations

import dataclasses
from typing import Any

from conformance.families.draw import Draw
from conformance.families.examples import FLOATS, dtype_fields
from conformance.families.grouped.problem import GroupedGemm, spaced
from conformance.kernels.kernel import Kernel, Variant
from conformance.problems import Layout


class GroupedFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.grouped.problem.GroupedGemm`. A third-party kernel
    needs only this base."""

    problems = GroupedGemm
    weight = 1
    family = "grouped"
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
        return spaced(problem, ("a", "b", "out"), 16) if self.descriptors else problem

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: descriptors of both kinds, on few programs."""
        descriptors = draw.pick(("device", "host")) if self.descriptors else "device"
        return Variant(descriptors, sms=draw.pick((None, 2, 3)))
