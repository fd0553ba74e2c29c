"""The reference of a grouped product, group by group: its fp64 value, its magnitude, the sums of a tensor core."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from conformance.families.gemm import reference as gemm
from conformance.families.gemm.reference import unit_epilogue
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.products import Inputs, UnitAnswers, seen_format, sum_of
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.tensor_core import Factors
from conformance.problems import Device, check_inputs, in_fp64


def value(problem: GroupedGemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The products of all groups in fp64; arguments and errors are those of :func:`conformance.problems.value`.

    ``inputs["offsets"]`` must hold the problem's own offsets: ValueError is raised for others.
    """
    a, b = _operands(problem, inputs, device)
    return joined(problem, "out", scaled(problem, inputs, _products(problem, a, b)))


def magnitude(problem: GroupedGemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """Returns the same of ``|A|`` and ``|B|``, without scales."""
    a, b = _operands(problem, inputs, device)
    return joined(problem, "out", _products(problem, a.abs(), b.abs()))


def scaled(problem: GroupedGemm, inputs: Mapping[str, Tensor], products: Sequence[Tensor]) -> list[Tensor]:
    """The products of all groups times their scales in fp64; as they are, if the problem has none."""
    scales = group_scales(problem, inputs)
    return [
        gemm.epilogue(problem.group_product(group), scales[group], product) for group, product in enumerate(products)
    ]


def group_scales(problem: GroupedGemm, inputs: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Returns the scales of each group, as :meth:`GroupedGemm.group_product` has them; {} without scales."""
    scales: list[dict[str, Tensor]] = [{} for _ in range(problem.groups)]
    for name in ("scale_a", "scale_b") if problem.scaling else ():
        for group, own in enumerate(parts(problem, name, inputs[name])):
            shape = problem.group_product(group).operand(name).shape
            scales[group][name] = own.reshape(shape)
    return scales


def joined(problem: GroupedGemm, name: str, matrices: Sequence[Tensor]) -> Tensor:
    """Returns the tensor called ``name`` ("a", "b", "out" or that of a scale) from the matrix, or the scales, of each
    group."""
    if name.startswith("scale"):
        matrices = [scales.flatten() if problem.scaling == "row" else scales for scales in matrices]
    dim = _split_dim(problem, name)
    return torch.stack(list(matrices)) if dim is None else torch.cat(list(matrices), dim)


def parts(problem: GroupedGemm, name: str, tensor: Tensor) -> list[Tensor]:
    """Returns the matrix, or scales, of each group in the tensor called ``name``: views, the inverse of
    :func:`joined`."""
    dim = _split_dim(problem, name)
    if dim is None:
        return list(tensor.unbind(0))
    return list(tensor.split(list(problem.sizes), dim))


def _split_dim(problem: GroupedGemm, name: str) -> int | None:
    """The dimension in which a tensor that the groups share is split; None for one matrix, or its scales, per group."""
    dims = {"a": "MK", "b": "KN", "out": "MN", "scale_a": "M", "scale_b": "N"}[name]
    if name.startswith("scale") and problem.scaling == "tensor":
        return None
    return dims.index(problem.ragged) if problem.ragged and problem.ragged in dims else None


def _products(problem: GroupedGemm, a: Tensor, b: Tensor) -> list[Tensor]:
    pairs = zip(parts(problem, "a", a), parts(problem, "b", b), strict=True)
    return [(left @ right).add_(0.0) for left, right in pairs]  # a sum that starts from +0 is never -0


def _operands(problem: GroupedGemm, inputs: Mapping[str, Tensor], device: Device) -> list[Tensor]:
    check_inputs(problem, inputs)
    if problem.ragged and inputs["offsets"].tolist() != list(problem.ends):
        raise ValueError(f"{problem.id}: the offsets are {inputs['offsets'].tolist()}, they must be {problem.ends}")
    return in_fp64(inputs, "ab", device)


def product_count(problem: GroupedGemm) -> int:
    """Returns how many products are summed."""
    return sum(math.prod(problem.group_extents(group)) for group in range(problem.groups))


def unit_results(problem: GroupedGemm, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """Returns the product of each group with its scales."""
    form = seen_format(problem, problem.dtype)
    operands = [parts(problem, name, inputs[name].double()) for name in "ab"]
    totals = []
    for group, (a, b) in enumerate(zip(*operands, strict=True)):
        total = sum_of(unit, order, [Factors(a, b, form, form)])
        totals += unit_epilogue(problem.group_product(group), total, group_scales(problem, inputs)[group])
    return [joined(problem, "out", totals)]


UNIT = UnitAnswers(unit_results, product_count)
