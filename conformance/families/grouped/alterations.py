"""Alterations of grouped products: operands, rows or columns of another group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from conformance.families.grouped import reference as grouped
from conformance.families.grouped.problem import GroupedGemm
from conformance.numerics.alterations import Alteration, Outputs
from conformance.numerics.contract import Contract
from conformance.numerics.tiling import Tiling


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
        "that of the last group is used for all": [count - 1] * count,
    }
    for name in ("a", "b"):
        split = _is_split(problem, name)
        for what, numbers in (where if split else which).items():
            if numbers != (begins if split else list(range(count))):
                yield _Reading({name: numbers}).alteration(problem, f"{name.upper()}: {what}")
    if _is_split(problem, "a") and _is_split(problem, "b"):
        for what, numbers in where.items():
            if numbers != begins:
                yield _Reading({"a": numbers, "b": numbers}).alteration(problem, f"A and B: {what}")
    elif not problem.ragged:
        for what, numbers in which.items():
            yield _Reading({"a": numbers, "b": numbers}).alteration(problem, f"A and B: {what}")


def _is_split(problem: GroupedGemm, name: str) -> bool:
    """True if the groups share the tensor called ``name``."""
    return len(problem.operand(name).shape) == 2


class _Reading:
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
