"""The reference of scaled rows, and a fill whose products are exact in fp32."""

from __future__ import annotations

import torch

from conformance import reference
from conformance.inputs.fills import FillKind, FillSet, register_fills
from vendor_rows.problem import ScaledRows

DISTINCT = FillKind("distinct", exact=True, holds="integers that all differ", shows="wrong rows, columns and scales")


@reference.value.register
def _value(problem: ScaledRows, inputs, *, device=None):
    return (inputs["x"].double() * inputs["scale"].double()[:, None]).to(device or "cpu")


def _build(request):
    problem = request.problem
    x = torch.arange(1, problem.rows * problem.columns + 1).reshape(problem.rows, problem.columns).float()
    inputs = {"x": x, "scale": torch.arange(problem.rows).float() * 2 + 1}
    return request.fill("exact", inputs, reference.value(problem, inputs, device=request.device), None)


register_fills(ScaledRows, FillSet((DISTINCT,), lambda problem, contract: (DISTINCT.name,), _build))
