"""Quantised rows and back, in int8, e4m3, the MX formats and codes of a codebook: a program has a block of rows."""

from __future__ import annotations

from typing import Any

from conformance.families.rows import narrow, quantisation
from conformance.families.rows.quantisation import GROUP
from conformance.heuristics.configs import AnyConfig, RowConfig
from conformance.kernels.device import narrow as codes
from conformance.kernels.device import quantisation as device
from conformance.kernels.families.rows import PlainRowKernel

#: One row and several, one warp and several; columns are whole blocks of GROUP.
CONFIGS: tuple[AnyConfig, ...] = (
    RowConfig(4, 32, 1, 1),
    RowConfig(1, 256, 2, 4),
    RowConfig(16, 64, 3, 4),
)
#: The device code of the functions of narrow formats, in the order of :data:`narrow.NARROW`.
NARROW = (
    *(codes.mxfp8_rows, codes.mxfp8_back_rows, codes.mxfp4_rows, codes.mxfp4_back_rows),
    *(codes.codebook_rows, codes.codebook_back_rows),
)


#: What kernels need whose blocks of columns are whole blocks with a scale of their own.
WHOLE: dict[str, Any] = {"GROUP": GROUP, "least_columns": GROUP}

KERNELS = (
    *(
        kernel
        for number, dtype in enumerate(quantisation.LIMITS)
        for kernel in (
            PlainRowKernel(quantisation.QUANTISED[2 * number], device.quantize_rows, CONFIGS, FP8=dtype == "e4m3"),
            PlainRowKernel(
                quantisation.QUANTISED[2 * number + 1], device.quantize_blocks, CONFIGS, FP8=dtype == "e4m3", **WHOLE
            ),
            PlainRowKernel(quantisation.STATIC[number], device.quantize_static_rows, CONFIGS, FP8=dtype == "e4m3"),
            PlainRowKernel(quantisation.DEQUANTISED[2 * number], device.dequantize_rows, CONFIGS, GROUP=0),
            PlainRowKernel(quantisation.DEQUANTISED[2 * number + 1], device.dequantize_rows, CONFIGS, GROUP=GROUP),
        )
    ),
    *(PlainRowKernel(function, code, CONFIGS, **WHOLE) for function, code in zip(narrow.NARROW, NARROW, strict=True)),
)
