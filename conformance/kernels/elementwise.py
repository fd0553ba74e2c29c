"""Functions of single elements, and gates: each program has a block of rows, and walks over their columns once."""

from __future__ import annotations

from conformance.families.rows.elementwise import ELEMENTWISE, SLOPE
from conformance.heuristics.configs import AnyConfig, RowConfig
from conformance.kernels.device.elementwise import gate_rows, map_rows
from conformance.kernels.families.rows import PlainRowKernel

#: One row and several, one warp and several, a few columns and many.
CONFIGS: tuple[AnyConfig, ...] = (
    RowConfig(4, 64, 1, 2),
    RowConfig(1, 256, 2, 4),
    RowConfig(32, 16, 3, 4),
)
#: The activation of each gate.
GATES = {"swiglu": "silu", "geglu": "gelu"}

KERNELS = tuple(
    PlainRowKernel(function, gate_rows, CONFIGS, FUNCTION=GATES[function.name])
    if len(function.operands) > 1
    else PlainRowKernel(function, map_rows, CONFIGS, SLOPE=SLOPE, FUNCTION=function.name)
    for function in ELEMENTWISE
)
