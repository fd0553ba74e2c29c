"""Rotary embedding, cross entropy, reductions and gradients of norms: each program has a block of rows."""

from __future__ import annotations

from typing import Any

from conformance.families.rows import cross_entropy, norm_gradients, reductions, rotary
from conformance.heuristics.configs import AnyConfig, RowConfig
from conformance.kernels.device import cross_entropy as losses
from conformance.kernels.device import norm_gradients as gradients
from conformance.kernels.device.reductions import max_rows, sum_rows
from conformance.kernels.device.rotary import rotary_rows
from conformance.kernels.families.rows import PlainRowKernel

#: One row and several, one warp and several, a few columns and many.
CONFIGS: tuple[AnyConfig, ...] = (
    RowConfig(4, 32, 1, 1),
    RowConfig(1, 256, 2, 4),
    RowConfig(16, 64, 3, 4),
)
PLAIN: dict[str, Any] = {"SMOOTHING": 0.0, "IGNORED": cross_entropy.IGNORED}
SMOOTHED = {**PLAIN, "SMOOTHING": cross_entropy.SMOOTHING}

KERNELS = (
    PlainRowKernel(rotary.ROTARY, rotary_rows, CONFIGS, NEIGHBOURS=False),
    PlainRowKernel(rotary.ROTARY_NEIGHBOURS, rotary_rows, CONFIGS, NEIGHBOURS=True),
    PlainRowKernel(cross_entropy.CROSS_ENTROPY, losses.cross_entropy_rows, CONFIGS, **PLAIN),
    PlainRowKernel(cross_entropy.CROSS_ENTROPY_SMOOTHED, losses.cross_entropy_rows, CONFIGS, **SMOOTHED),
    PlainRowKernel(cross_entropy.CROSS_ENTROPY_BACKWARD, losses.cross_entropy_gradient_rows, CONFIGS, **PLAIN),
    PlainRowKernel(
        cross_entropy.CROSS_ENTROPY_SMOOTHED_BACKWARD, losses.cross_entropy_gradient_rows, CONFIGS, **SMOOTHED
    ),
    PlainRowKernel(reductions.ROW_SUM, sum_rows, CONFIGS),
    PlainRowKernel(reductions.ROW_MAX, max_rows, CONFIGS),
    PlainRowKernel(
        norm_gradients.LAYER_NORM_BACKWARD, gradients.layer_norm_gradient_rows, CONFIGS,
        gradients.layer_norm_gradient_columns,
    ),
    PlainRowKernel(
        norm_gradients.RMS_NORM_BACKWARD, gradients.rms_norm_gradient_rows, CONFIGS, gradients.rms_norm_gradient_columns
    ),
)  # fmt: skip
