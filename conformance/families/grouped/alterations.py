"""Faults of grouped products: operands of another group, what an element depends on, products that fail."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from conformance.families.family import Indices, Needed, every
from conformance.families.gemm.alterations import matrix_axes
from conformance.families.grouped import reference as grouped
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.products import Product, with_inputs
from conformance.numerics.alterations import Alteration, Outputs, Tiling
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill


def alterations(problem: GroupedGemm, contract: Contract, tiling: Tiling, exact: bool) -> Iterator[Alteration]:
    """Every alteration of ``problem``; none unless the fills are ``exact``."""
    if not exact:
        return
    begins = [0, *problem.ends[:-1]]
    count = problem.groups
    where = {
        "the first group's begin is used for all": [0] * count,
        "the begin of the previous group is used": [0, *begins[:-1]],
        "the end of the group is used as its begin": list(problem.ends),
    }
    which = {
        "that of the first group is used for all": [0] * count,
        "that of the previous group is used": [max(group - 1, 0) for group in range(count)],
        "that of the next group is used": [min(group + 1, count - 1) for group in range(count)],
        "that of the next group is used, cyclically": [(group + 1) % count for group in range(count)],
        "that of the last group is used for all": [count - 1] * count,
    }
    for name in ("a", "b"):
        split = _is_split(problem, name)
        for what, numbers in (where if split else which).items():
            if numbers != (begins if split else list(range(count))):
                yield _Misread({name: numbers}).alteration(problem, f"{name.upper()}: {what}")
    if _is_split(problem, "a") and _is_split(problem, "b"):
        for what, numbers in where.items():
            if numbers != begins:
                yield _Misread({"a": numbers, "b": numbers}).alteration(problem, f"A and B: {what}")
    elif not problem.ragged:
        for what, numbers in which.items():
            yield _Misread({"a": numbers, "b": numbers}).alteration(problem, f"A and B: {what}")


def _is_split(problem: GroupedGemm, name: str) -> bool:
    """True if the groups share the tensor called ``name``."""
    return len(problem.operand(name).shape) == 2


class _Misread:
    """The place from which each group's matrix is read: the number of a group, or where it begins in a tensor that is
    split."""

    def __init__(self, places: Mapping[str, list[int]]) -> None:
        self.places = places

    def alteration(self, problem: GroupedGemm, cause: str) -> Alteration:
        def compute(inputs: Mapping[str, Tensor]) -> Outputs:
            operands = {name: self._matrices(problem, name, inputs[name].double()) for name in "ab"}
            products = [a @ b for a, b in zip(operands["a"], operands["b"], strict=True)]
            return {"out": (grouped.joined(problem, "out", grouped.scaled(problem, inputs, products)), None)}

        return Alteration(cause, compute)

    def _matrices(self, problem: GroupedGemm, name: str, tensor: Tensor) -> list[Tensor]:
        own = grouped.parts(problem, name, tensor)
        if name not in self.places:
            return own
        places = self.places[name]
        if not _is_split(problem, name):
            return [own[place] for place in places]
        dim = {"a": "MK", "b": "KN"}[name].index(problem.ragged)
        longest = max(itertools.chain((0,), (place + size for place, size in zip(places, problem.sizes, strict=True))))
        behind = max(0, longest - tensor.shape[dim])
        shape = list(tensor.shape)
        shape[dim] = behind
        longer = torch.cat([tensor, torch.full(shape, torch.nan, dtype=tensor.dtype)], dim)
        return [longer.narrow(dim, place, size) for place, size in zip(places, problem.sizes, strict=True)]


def axes(problem: GroupedGemm, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand ``name``."""
    return matrix_axes(problem, name, "group")


def needed(problem: GroupedGemm, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns the elements that ``stored`` of ``output`` need; see :class:`~conformance.families.family.Family`."""
    rows, columns = stored[-2:]
    inside = [torch.arange(problem.ends[-1])[None] < end for end in (0, *problem.ends)]
    member = torch.cat([last & ~first for first, last in itertools.pairwise(inside)])  # (groups, along the split axis)
    if problem.ragged == "K":
        k = member[stored[0]].any(0)
        return (
            {"a": (rows, k), "b": (k, columns), **_of_group_scales(problem, stored[0], stored)} if bool(k.any()) else {}
        )
    all_of_k = every(problem.K or 0)
    if not problem.K:
        return {}
    groups = stored[0] if not problem.ragged else (member & (rows if problem.ragged == "M" else columns)).any(1)
    a, b = (rows, all_of_k), (all_of_k, columns)
    operands = {"a": a if problem.ragged == "M" else (groups, *a), "b": b if problem.ragged == "N" else (groups, *b)}
    return operands | _of_group_scales(problem, groups, stored)


def _of_group_scales(problem: GroupedGemm, groups: Tensor, stored: Indices) -> Needed:
    """Returns the scales of the rows and columns of ``groups``, as the operand has them."""
    if problem.scaling is None:
        return {}
    if problem.scaling == "tensor":
        return {"scale_a": (groups,), "scale_b": (groups,)}
    lines = {"M": stored[-2], "N": stored[-1]}
    pairs = {"scale_a": "M", "scale_b": "N"}.items()
    return {name: (lines[axis],) if problem.ragged == axis else (groups, lines[axis]) for name, axis in pairs}


def products(problem: GroupedGemm, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    """Returns the products with a wrong element; see :class:`~conformance.families.family.Family`."""
    lists = [grouped.parts(problem, name, tensor) for name, tensor in (("out", out), ("out", bad))]
    operands = [grouped.parts(problem, name, fill.inputs[name].double()) for name in "ab"]
    for group, (a, b, part, wrong) in enumerate(zip(*operands, *lists, strict=True)):
        if bool(wrong.any()):
            sizes = problem.group_extents(group)
            inputs = {"a": a, "b": b, **grouped.group_scales(problem, fill.inputs)[group]}
            product = problem.group_product(group)
            yield Product(f"group {group}", product, with_inputs(fill, inputs), part, wrong, ((0, sizes[2]),))
