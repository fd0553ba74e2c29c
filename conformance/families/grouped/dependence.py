"""Says on which elements of the operands an element of a grouped product depends."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.gemm.dependence import matrix_axes
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.index_sets import Indices, Needed, every


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
