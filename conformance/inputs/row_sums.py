"""What the sums of A's rows must be under the fills of ``mm_with_sums``."""

from __future__ import annotations

import dataclasses

from conformance.inputs.fill_set import FillRequest
from conformance.numerics.bounds import row_sums
from conformance.numerics.fill import Fill
from conformance.problems import Gemm

#: Integers whose sums of sizes stay below 2**24 are added in fp32 without rounding, in any order.
FP32_BITS = 24


def with_row_sums(request: FillRequest[Gemm], fill: Fill) -> Fill:
    """``fill`` of the product, and beside it that of the row sums.

    Sums are judged bit by bit where A holds integers so small that no order of summation rounds, else by the bound of
    an fp32 sum. Under "special" they are judged as the product is.
    """
    a = fill.inputs["a"].to(request.device or "cpu")
    total, error = row_sums(request.contract, a)
    size = float(a.double().abs().sum(1).max()) if a.numel() else 0.0
    exact = fill.method == "exact" and size < 2.0 ** (FP32_BITS + fill.meta["unit_a"])
    method = "exact" if exact else "bounded" if fill.method == "exact" else fill.method
    part = Fill(fill.name, fill.seed, method, fill.inputs, total, None if exact else error)
    return dataclasses.replace(fill, parts={"sums": part})
