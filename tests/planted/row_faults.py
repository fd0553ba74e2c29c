"""Faults of functions of rows: masks and addresses that all of them share, and what each computes."""

from __future__ import annotations

from conformance.families.rows import functions
from conformance.families.rows.problem import RowFunction, RowProblem
from conformance.heuristics.configs import RowConfig
from conformance.problems import Layout
from tests.planted.cases import Case, Fault, fault, grouped

CONFIG = RowConfig(4, 32, 1, 1)
#: Two ragged blocks of rows, and two of columns.
SIZES = (7, 41)
PADDED = {"layout_x": Layout(pad=3), "layout_out": Layout(pad=5)}

#: Name, text, other text and, if the data prove it, the cause.
Texts = tuple[str, ...]
#: What all kernels share, by the function of the source.
SHARED: dict[str, tuple[Texts, ...]] = {
    "row_block": (
        ("row_left_out", "rm < rows", "rm < rows - 1"),
        ("rows_overlap", "tl.program_id(0) * BLOCK_M", "tl.program_id(0) * (BLOCK_M - 1)"),
    ),
    "load_block": (
        ("column_not_read", "(rn < columns)", "(rn < columns - 1)"),
        ("first_block_again", "rn = start +", "rn = 0 * start +"),
        ("neighbours", "rn[None, :] * stride_n", "(rn ^ 1)[None, :] * stride_n"),
        ("first_row", "rm[:, None] * stride_m", "rm[:, None] * 0 * stride_m", ": the first one is used for all"),
        ("loaded_as_fp8", "other=other).to(", "other=other).to(tl.float8e5).to("),
    ),
    "store_block": (
        ("column_not_stored", "(rn < columns)", "(rn < columns - 1)"),
        ("stored_to_next_row", "rm[:, None] * stride_m", "(rm + 1)[:, None] * stride_m"),
        ("stored_as_fp8", "values.to(ptr", "values.to(tl.float8e5).to(tl.float32).to(ptr"),
    ),
}

_SOFTMAX: tuple[Texts, ...] = (
    ("no_maximum", 'shift = tl.where(higher == float("-inf"), 0.0, higher)', "shift = tl.zeros_like(higher)"),
    ("not_rescaled", "total = total * tl.exp(top - shift)", "total = total"),
    ("sum_of_last_block", "total = total * tl.exp(top - shift) + tl.sum", "total = tl.sum"),
    ("maximum_of_last_block", "tl.maximum(top, tl.max(x, 1))", "tl.max(x, 1)"),
)
_ROOT = "scale = tl.rsqrt(total / columns + eps)"
_TO_BF16 = ".to(tl.bfloat16).to(tl.float32)"
_SQUARES = "total += tl.sum(x * x, 1)"
_LAST_BLOCK = "columns 32..40 of 41 alone enter the sums"
_RMS: tuple[Texts, ...] = (
    ("eps_left_out", _ROOT, "scale = tl.rsqrt(total / columns)"),
    ("eps_outside", _ROOT, "scale = 1 / (tl.sqrt(total / columns) + eps)", "eps is added after the root"),
    ("summed", _ROOT, "scale = tl.rsqrt(total + eps)", "the squares are summed, not averaged"),
    ("padding_averaged", _ROOT, "scale = tl.rsqrt(total / (tl.cdiv(columns, BLOCK_N) * BLOCK_N) + eps)"),
    ("weight_left_out", "* weight[None, :]", "", "the weight is left out"),
    ("sum_of_last_block", _SQUARES, _SQUARES.replace("+=", "="), _LAST_BLOCK),
    ("not_squared", _SQUARES, "total += tl.sum(tl.abs(x), 1)", "absolute values are taken, not squares"),
    ("root_in_bf16", _ROOT, f"{_ROOT}{_TO_BF16}"),
)

#: What each computes: the function of the source, and its faults. A name that ends with "bf16" is about fp32 operands.
OWN: dict[RowFunction, tuple[str, tuple[Texts, ...]]] = {
    functions.SOFTMAX: (
        "softmax_rows",
        (
            *_SOFTMAX,
            ("not_divided", " / total[:, None]", "", "the sum of the exponentials is not divided by"),
            ("base_two", "tl.exp(out) /", "tl.exp2(out) /"),
            ("total_in_bf16", "/ total[", f"/ total{_TO_BF16}["),
        ),
    ),
    functions.LOG_SOFTMAX: (
        "softmax_rows",
        (
            *_SOFTMAX,
            ("no_logarithm", " - tl.log(total)[:, None]", "", "the logarithm of the sum is not subtracted"),
            ("base_two", "tl.log(total)", "tl.log2(total)"),
            ("logarithm_in_bf16", "tl.log(total)", f"tl.log(total){_TO_BF16}"),
        ),
    ),
    functions.RMS_NORM: ("rms_norm_rows", _RMS),
    functions.ADD_RMS_NORM: (
        "add_rms_norm_rows",
        (
            *_RMS,
            ("added_without_x", "store_block(added_ptr, x,", "store_block(added_ptr, x - x,"),
            ("added_in_bf16", _SQUARES, f"total += tl.sum(x{_TO_BF16} * x, 1)"),
        ),
    ),
    functions.LAYER_NORM: (
        "layer_norm_rows",
        (
            ("no_mean", "mean = total / columns", "mean = total * 0.0"),
            ("padding_in_mean", "total / columns", "total / (tl.cdiv(columns, BLOCK_N) * BLOCK_N)"),
            (
                "padding_in_variance",
                "arange(0, BLOCK_N) < columns)",
                "arange(0, BLOCK_N) >= 0)",
                "columns 41..63 are not masked",
            ),
            (
                "one_less",
                "squares / columns",
                "squares / (columns - 1)",
                "means of squares are divided by 40, not by 41",
            ),
            ("eps_left_out", "squares / columns + eps", "squares / columns"),
            ("bias_left_out", " + bias[None, :]", "", "the bias is left out"),
            ("weight_left_out", "* weight[None, :]", "", "the weight is left out"),
            ("bias_for_weight", "load_columns(weight_ptr", "load_columns(bias_ptr", "weight is read as bias"),
        ),
    ),
    functions.L2_NORM: (
        "l2_norm_rows",
        (
            ("eps_left_out", "tl.rsqrt(total + eps)", "tl.rsqrt(total)"),
            ("eps_outside", "tl.rsqrt(total + eps)", "1 / (tl.sqrt(total) + eps)"),
            ("averaged", "total + eps", "total / columns + eps", "the squares are averaged, not summed"),
            ("not_a_root", "tl.rsqrt(total + eps)", "1 / (total + eps)", "no root is taken"),
            ("sum_of_last_block", _SQUARES, _SQUARES.replace("+=", "="), _LAST_BLOCK),
        ),
    ),
}


def faults_of(function: RowFunction, file: str, by_source: dict[str, tuple[Texts, ...]]) -> tuple[Fault, ...]:
    """The faults of the kernel of ``function``, which has its name."""
    faults = []
    for source, each in by_source.items():
        for name, old, new, *cause in each:
            problem = RowProblem(function, *SIZES, "fp32" if name.endswith("bf16") else "bf16", **PADDED)
            case = Case(function.name, problem, CONFIG)
            text = cause[0] if cause else ""
            faults.append(fault(f"{function.name}_{name}", case, f"{file}::{source}", old, new, cause=text))
    return tuple(faults)


ROWS = grouped(
    "rows",
    *(
        each
        for function, (source, own) in OWN.items()
        for each in faults_of(function, "device/rows.py", {**SHARED, source: own})
    ),
)
