"""The right sums of an operand's rows in fp32, next to a product of that operand."""

from __future__ import annotations

import dataclasses

from torch import Tensor

from conformance.families.gemm.bounds import row_sums
from conformance.families.gemm.problem import Gemm
from conformance.inputs.fill_set import FillRequest
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill

#: Integers whose sums of sizes stay below 2**24 are added in fp32 without rounding, in any order.
FP32_BITS = 24


def with_row_sums(request: FillRequest[Gemm], fill: Fill) -> Fill:
    """Returns ``fill`` of the product of ``mm_with_sums``, and with it that of the sums of A's rows."""
    a = fill.inputs["a"].to(request.device or "cpu")
    return dataclasses.replace(fill, parts={"sums": sums_part(fill, request.contract, a, fill.meta.get("unit_a", 0))})


def sums_part(fill: Fill, contract: Contract, rows: Tensor, unit: int) -> Fill:
    """The fill of the sums of ``rows`` (rows, k), an operand of the product that ``fill`` is of.

    Sums are judged bit by bit where ``fill`` is exact and the operand holds integers of 2**``unit`` so small that no
    order of summation rounds. Others are judged by the bound of an fp32 sum. Under "special" they are judged as the
    product is.
    """
    total, error = row_sums(contract, rows)
    size = float(rows.double().abs().sum(1).max()) if rows.numel() else 0.0
    exact = fill.method == "exact" and size < 2.0 ** (FP32_BITS + unit)
    method = "exact" if exact else "bounded" if fill.method == "exact" else fill.method
    return Fill(fill.name, fill.seed, method, fill.inputs, total, None if exact else error)
