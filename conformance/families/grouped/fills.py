"""Fills of grouped products: those of a plain product for each group, put together.

Each group has draws, units and a budget of its own, so whatever reads another group's rows, columns or k is seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from conformance.families.gemm import fills as gemm
from conformance.families.gemm.arrangement import ignored
from conformance.families.gemm.problem import Gemm
from conformance.families.grouped import reference as grouped
from conformance.families.grouped.problem import GroupedGemm
from conformance.inputs.fills import FillError, FillRequest, FillSet
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill

#: Seeds that the groups of one problem have to themselves.
SEEDS_PER_PROBLEM = 2**20


def applicable(problem: GroupedGemm, contract: Contract) -> tuple[str, ...]:
    """With an empty output there is only "transparent", without any product only that and "randn"."""
    if problem.output.numel == 0:
        return ("transparent",)
    if not any(all(problem.group_extents(group)) for group in range(problem.groups)):
        return ("transparent", "randn")
    return tuple(name for name in FILLS.names if problem.scaling or name != "wide-scales")


def build(request: FillRequest[GroupedGemm]) -> Fill:
    """Returns the fill that ``request`` names; see :class:`FillSet`. An operand's matrix that no product uses, such as
    B of a group without rows, is NaN throughout."""
    problem = request.problem
    fills = [_group_fill(request, group) for group in range(problem.groups)]
    names = [operand.name for operand in problem.operands if operand.name != "offsets"]
    inputs = {name: grouped.joined(problem, name, [fill.inputs[name] for fill in fills]) for name in names}
    if problem.ragged:
        inputs["offsets"] = torch.tensor(problem.ends, dtype=torch.int32)
    expected = grouped.value(problem, inputs, device=request.device)
    method = fills[0].method
    if method == "exact" and not torch.equal(expected, grouped.joined(problem, "out", [f.expected for f in fills])):
        raise FillError(
            f"{problem.id}, fill {request.name}, seed {request.seed}: the value is not that of the groups put together"
        )
    errors = [fill.error for fill in fills if fill.error is not None]
    error = grouped.joined(problem, "out", errors) if errors else None
    return request.fill(method, inputs, expected, error, _meta(fills))


def _group_fill(request: FillRequest[GroupedGemm], group: int) -> Fill:
    """Returns the fill of one group's product, with a seed of its own."""
    problem = request.problem
    product = problem.group_product(group)
    own = FillRequest(request.name, product, request.contract, SEEDS_PER_PROBLEM * request.seed + group, request.device)
    return _without_product(own) if 0 in problem.group_extents(group) else gemm.build(own)


def _without_product(request: FillRequest[Gemm]) -> Fill:
    """Returns a fill of no product: NaN operands, zero result. Scales, which may still multiply it, are 1."""
    product, name = request.problem, request.name
    inputs = {
        operand.name: torch.ones(operand.shape) if operand.name.startswith("scale") else ignored(operand)
        for operand in product.operands
    }
    zeros = torch.zeros(product.M, product.N, dtype=torch.float64, device=request.device)
    if name in ("transparent", "wide-A", "wide-B", "wide-scales"):
        return request.fill("exact", inputs, zeros, None)
    return request.fill("special" if name == "special" else "bounded", inputs, zeros, zeros)


def _meta(parts: Sequence[Fill]) -> dict[str, object]:
    """Returns the measurements of all groups: for an exact fill the largest sum and the smallest unit."""
    meta: dict[str, object] = {}
    for key, choose in (("unit_out", min), ("budget_bits", min), ("max_subset_sum", max), ("contract_assumed", max)):
        if figures := [part.meta[key] for part in parts if key in part.meta]:
            meta[key] = choose(figures)
    return meta


FILLS = FillSet(gemm.FILLS.kinds, applicable, build)
