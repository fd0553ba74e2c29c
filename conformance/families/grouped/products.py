"""The products of which a grouped product consists, one for each group."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from conformance.families.grouped import reference
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.products import Product, with_inputs
from conformance.numerics.fill import Fill
from conformance.numerics.tiling import Tiling


def products(problem: GroupedGemm, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    """Returns the products with a wrong element; see :class:`~conformance.families.family.Family`."""
    lists = [reference.parts(problem, name, tensor) for name, tensor in (("out", out), ("out", bad))]
    operands = [reference.parts(problem, name, fill.inputs[name].double()) for name in "ab"]
    for group, (a, b, part, wrong) in enumerate(zip(*operands, *lists, strict=True)):
        if bool(wrong.any()):
            sizes = problem.group_extents(group)
            inputs = {"a": a, "b": b, **reference.group_scales(problem, fill.inputs)[group]}
            product = problem.group_product(group)
            yield Product(f"group {group}", product, with_inputs(fill, inputs), part, wrong, ((0, sizes[2]),))
