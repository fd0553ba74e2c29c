"""The products of which a convolution's weight gradient consists, one for each group."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from conformance.families.products import Product, with_inputs
from conformance.families.weight_gradient import reference
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.numerics.fill import Fill
from conformance.numerics.tiling import Tiling


def products(problem: WeightGradient, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    """Returns the products with a wrong element; see :class:`~conformance.families.family.Family`.

    Rows are output channels of a group, columns taps and channels; k runs over output positions of all images.
    """
    if not problem.positions:
        return
    inputs = {name: tensor.cpu() for name, tensor in fill.inputs.items()}
    matrices = [reference.matrices(problem, tensor) for tensor in (out, bad)]
    for group, (a, b) in enumerate(reference.factors(problem, inputs)):
        output, wrong = (matrix[group] for matrix in matrices)
        if bool(wrong.any()):
            name = f"group {group}" if problem.groups > 1 else ""
            yield Product(name, problem.product, with_inputs(fill, {"a": a, "b": b}), output, wrong, ((0, a.shape[1]),))
