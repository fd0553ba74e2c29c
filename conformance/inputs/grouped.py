"""Fills of grouped products: those of a plain product for each group, put together.

Each group has draws, units and a budget of its own, so whatever reads another group's rows, columns or k is seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from conformance.inputs import gemm
from conformance.inputs.exact import FillError, ignored
from conformance.inputs.fill_set import FillSet
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.problems import Gemm, GroupedGemm, mm
from conformance.references import grouped
from conformance.references.operands import Device

#: Seeds that the groups of one problem have to themselves.
SEEDS_PER_PROBLEM = 2**20


def applicable(problem: GroupedGemm, contract: Contract) -> tuple[str, ...]:
    """With an empty output there is only "transparent", without any product only that and "randn"."""
    if problem.output.numel == 0:
        return ("transparent",)
    multiplied = any(all(problem.group_extents(group)) for group in range(problem.groups))
    return FILLS.names if multiplied else ("transparent", "randn")


def build(name: str, problem: GroupedGemm, contract: Contract, seed: int, device: Device) -> Fill:
    """The fill called ``name``; see :class:`FillSet`. An operand's matrix that no product uses, such as B of a group
    without rows, is NaN throughout."""
    parts = [
        _group_fill(name, _product(problem, group), contract, SEEDS_PER_PROBLEM * seed + group, device)
        for group in range(problem.groups)
    ]
    inputs = {operand: grouped.joined(problem, operand, [part.inputs[operand] for part in parts]) for operand in "ab"}
    if problem.ragged:
        inputs["offsets"] = torch.tensor(problem.ends, dtype=torch.int32)
    expected = grouped.value(problem, inputs, device=device)
    method = parts[0].method
    if method == "exact" and not torch.equal(expected, grouped.joined(problem, "out", [p.expected for p in parts])):
        raise FillError(f"{problem.id}, fill {name}, seed {seed}: the value is not that of the groups put together")
    return Fill(name, seed, method, inputs, expected, _error(problem, parts), _meta(parts))


def _product(problem: GroupedGemm, group: int) -> Gemm:
    """The product of one group."""
    m, n, k = problem.group_extents(group)
    return mm(m, n, k, problem.dtype, out_dtype=problem.out_dtype, precision=problem.precision)


def _group_fill(name: str, product: Gemm, contract: Contract, seed: int, device: Device) -> Fill:
    if 0 in (product.M, product.N, product.K):
        return _without_product(name, product, seed, device)
    return gemm.build(name, product, contract, seed, device)


def _without_product(name: str, product: Gemm, seed: int, device: Device) -> Fill:
    """Zeros of no k, or operands that nothing may read."""
    inputs = {operand.name: ignored(operand) for operand in product.operands}
    zeros = torch.zeros(product.M, product.N, dtype=torch.float64, device=device)
    if name in ("transparent", "wide-A", "wide-B"):
        return Fill(name, seed, "exact", inputs, zeros, None)
    return Fill(name, seed, "special" if name == "special" else "bounded", inputs, zeros, zeros)


def _error(problem: GroupedGemm, parts: Sequence[Fill]) -> Tensor | None:
    errors = [part.error for part in parts if part.error is not None]
    return grouped.joined(problem, "out", errors) if errors else None


def _meta(parts: Sequence[Fill]) -> dict[str, object]:
    """What all groups measured: for an exact fill its largest sum and the smallest unit; see inputs/exact.py."""
    shown = [part.meta for part in parts if part.meta]
    meta: dict[str, object] = {}
    for key, choose in (("unit_out", min), ("budget_bits", min), ("max_subset_sum", max), ("contract_assumed", max)):
        if found := [part[key] for part in shown if key in part]:
            meta[key] = choose(found)
    return meta


FILLS = FillSet(gemm.UNSCALED, applicable, build)
