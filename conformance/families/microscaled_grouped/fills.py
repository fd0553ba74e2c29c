"""Fills of grouped products of block-scaled operands: those of each group's product, put together.

Each group has draws of its own, so that the rows, the matrix or the scales of another group show. B of a group without
rows, which must not be read, has scales of NaN, or is NaN itself where it has none.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from conformance.families.grouped.fills import SEEDS_PER_PROBLEM
from conformance.families.microscaled import fills as microscaled
from conformance.families.microscaled.problem import MicroscaledGemm
from conformance.families.microscaled_grouped import reference as microscaled_grouped
from conformance.families.microscaled_grouped.problem import MicroscaledGroupedGemm
from conformance.inputs.fills import FillRequest, FillSet
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.problems import DTYPES


def applicable(problem: MicroscaledGroupedGemm, contract: Contract) -> tuple[str, ...]:
    """Returns the fills of the product of a group that has rows."""
    rows = [group for group in range(problem.groups) if problem.sizes[group]]
    return microscaled.applicable(problem.group(rows[0] if rows else 0), contract)


def build(request: FillRequest[MicroscaledGroupedGemm]) -> Fill:
    """Returns the fill that ``request`` names; see :class:`FillSet`."""
    problem = request.problem
    products = [problem.group(group) for group in range(problem.groups)]
    fills = [
        microscaled.build(
            FillRequest(
                request.name, product, request.contract, SEEDS_PER_PROBLEM * request.seed + group, request.device
            )
        )
        if product.output.numel or request.name == "sums"
        else None
        for group, product in enumerate(products)
    ]
    parts = [
        _unread(product) if fill is None or not product.M else dict(fill.inputs)
        for fill, product in zip(fills, products, strict=True)
    ]
    inputs = {name: _joined(name, [part[name] for part in parts]) for name in parts[0]}
    inputs["offsets"] = torch.tensor(problem.ends, dtype=torch.int32)
    built = [fill for fill in fills if fill is not None]
    expected = microscaled_grouped.value(problem, inputs, device=request.device)
    errors = [fill.error for fill in built if fill.error is not None]
    meta = {"contract_assumed": request.contract.accumulator.assumed} if built[0].method == "bounded" else None
    return request.fill(built[0].method, inputs, expected, torch.cat(errors) if errors else None, meta)


def _joined(name: str, tensors: list[Tensor]) -> Tensor:
    """Returns the tensor called ``name`` of all groups from those of each."""
    if name in ("a", "scale_a"):
        return torch.cat([tensor.view(torch.uint8) for tensor in tensors]).view(tensors[0].dtype)
    return torch.stack([tensor.view(torch.uint8) for tensor in tensors]).view(tensors[0].dtype)


def _unread(product: MicroscaledGemm) -> dict[str, Tensor]:
    """Returns the operands of a group without rows."""
    operands = {}
    for operand in product.operands:
        dtype = DTYPES[operand.dtype]
        ignored = torch.full(operand.shape, 255, dtype=torch.uint8)
        operands[operand.name] = (
            ignored if dtype == torch.uint8 else torch.full(operand.shape, math.nan, dtype=torch.float32).to(dtype)
        )
    return operands


FILLS = FillSet(microscaled.FILLS.kinds, applicable, build)
