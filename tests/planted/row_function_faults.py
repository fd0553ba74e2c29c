"""Faults of rotary embedding, cross entropy, reductions and gradients of norms: what each computes. Those of masks and
addresses are shown by softmax and the norms."""

from __future__ import annotations

from conformance.families.rows.cross_entropy import CROSS_ENTROPY_SMOOTHED, CROSS_ENTROPY_SMOOTHED_BACKWARD
from conformance.families.rows.norm_gradients import LAYER_NORM_BACKWARD
from conformance.families.rows.reductions import ROW_MAX, ROW_SUM
from conformance.families.rows.rotary import ROTARY
from tests.planted.cases import grouped
from tests.planted.row_faults import faults_of

_TURNED = "left = a * cos - b * sin\n        right = b * cos + a * sin"
_KEPT = "left = a\n        right = b"

FUNCTIONS = grouped(
    "row-functions",
    *faults_of(
        ROTARY,
        "device/rotary.py",
        {
            "rotary_rows": (
                ("identity", _TURNED, _KEPT, "x is stored as it is"),
                ("cos_for_sin", "sin_ptr, rm", "cos_ptr, rm"),
            )
        },
    ),
    *faults_of(
        CROSS_ENTROPY_SMOOTHED,
        "device/cross_entropy.py",
        {
            "cross_entropy_rows": (
                ("no_logit", "lse - (1.0 - SMOOTHING) * logit", "lse"),
                ("ignored_times_0", "tl.where(counts, loss, 0.0)", "loss * counts.to(tl.float32)"),
                ("sum", "plain / columns", "plain"),
            )
        },
    ),
    *faults_of(
        CROSS_ENTROPY_SMOOTHED_BACKWARD,
        "device/cross_entropy.py",
        {
            "cross_entropy_gradient_rows": (
                ("no_grad", "out * grad[:, None]", "out", "grad is left out"),
                ("even_left_out", "out = out - SMOOTHING / columns", "out = out"),
            )
        },
    ),
    *faults_of(
        ROW_SUM,
        "device/reductions.py",
        {
            "sum_rows": (
                ("mean", "out_ptr + rm, total", "out_ptr + rm, total / columns"),
                ("other", "columns, 0.0", "columns, 1.0"),
            )
        },
    ),
    *faults_of(
        ROW_MAX,
        "device/reductions.py",
        {
            "max_rows": (
                ("later_nan", "(top == top) & (any_nan", "(any_nan"),
                ("last_of_equals", "tl.min(tl.where(here, rn, 2147483647), 1)", "tl.max(tl.where(here, rn, -1), 1)"),
            )
        },
    ),
    *faults_of(
        LAYER_NORM_BACKWARD,
        "device/norm_gradients.py",
        {
            "layer_norm_gradient_rows": (
                ("no_along", " - y * along[:, None]", "", "the mean of y * g is not subtracted"),
                ("no_even", " - even[:, None]", "", "the mean of g is not subtracted"),
            ),
            "layer_norm_gradient_columns": (
                ("grad_alone", "tl.sum(grad * y, 0)", "tl.sum(grad, 0)", "is the sum of grad alone"),
                ("last_rows", "weight += ", "weight = "),
            ),
        },
    ),
)
