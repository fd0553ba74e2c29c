"""Softmax and norms: each program has a block of rows, and walks over their columns twice or three times."""

from __future__ import annotations

from conformance.families.rows import functions
from conformance.heuristics.configs import AnyConfig, RowConfig
from conformance.kernels.device import rows as device
from conformance.kernels.families.rows import PlainRowKernel

#: One row and several, one warp and several, a few columns and many.
CONFIGS: tuple[AnyConfig, ...] = (
    RowConfig(4, 32, 1, 1),
    RowConfig(1, 256, 2, 4),
    RowConfig(16, 64, 3, 4),
    RowConfig(2, 1024, 2, 8),
)

KERNELS = (
    PlainRowKernel(functions.SOFTMAX, device.softmax_rows, CONFIGS, LOG=False),
    PlainRowKernel(functions.LOG_SOFTMAX, device.softmax_rows, CONFIGS, LOG=True),
    PlainRowKernel(functions.RMS_NORM, device.rms_norm_rows, CONFIGS),
    PlainRowKernel(functions.ADD_RMS_NORM, device.add_rms_norm_rows, CONFIGS),
    PlainRowKernel(functions.LAYER_NORM, device.layer_norm_rows, CONFIGS),
    PlainRowKernel(functions.L2_NORM, device.l2_norm_rows, CONFIGS),
)
