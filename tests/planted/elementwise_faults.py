"""Faults of functions of single elements and of gates. Those of masks and addresses are shown by one of each kind."""

from __future__ import annotations

from conformance.families.rows.elementwise import ELEMENTWISE
from tests.planted.cases import grouped
from tests.planted.row_faults import SHARED, Texts, faults_of

_ACTIVATED, _SIGMOID, _TANH, _GATE = "activated", "sigmoid", "hyperbolic_tangent", "gate_rows"
_EXP, _BF16 = "tl.exp(-x)", ".to(tl.bfloat16).to(tl.float32)"
_ERF = "tl.erf(x * 0.7071067811865476)"
_INNER = "(x + x * x * x * 0.044715) * 0.7978845608028654"
_FORM = "2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0"
_AS_SILU = ("x * sigmoid(x)", "silu is computed")


def _activation(text: str, *faults: Texts) -> dict[str, tuple[Texts, ...]]:
    """Faults in the line of an activation, of which ``text`` is replaced as a whole in the first ones."""
    return {_ACTIVATED: tuple((fault, text, new, *cause) for fault, new, *cause in faults)}


_LINEAR = "tl.where(x <= 0.0, 0.0, x)"
_LEAKY = "tl.where(x > 0.0, x, x * SLOPE)"
_ELU = "tl.where(x > 0.0, x, tl.exp(x) - 1.0)"
_GELU = "x * 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))"
_BY_TANH = f"x * 0.5 * (1.0 + hyperbolic_tangent({_INNER}))"
#: Faults of the sigmoid, which silu and swiglu compute, too.
_OF_SIGMOID: tuple[Texts, ...] = (
    ("base_two", _EXP, "tl.exp2(-x)"),
    ("other_sign", _EXP, "tl.exp(x)"),
    ("other_form", "1.0 / (1.0 + tl.exp(-x))", "tl.exp(x) / (1.0 + tl.exp(x))"),
    ("exponential_in_bf16", _EXP, f"{_EXP}{_BF16}"),
    ("series", _EXP, "(1.0 - x + 0.5 * x * x)"),
    ("clamped", _EXP, "tl.exp(-tl.maximum(x, -15.0))"),
)

#: The faults of each function by the function of the source.
OWN: dict[str, dict[str, tuple[Texts, ...]]] = {
    "relu": _activation(
        _LINEAR,
        ("identity", "x", "x is stored as it is"),
        ("absolute", "tl.abs(x)"),
        ("negated", "tl.where(x >= 0.0, 0.0, x)"),
        ("nan_lost", "tl.where(x > 0.0, x, 0.0)"),
        ("six", "tl.where(x <= 0.0, 0.0, tl.where(x > 6.0, 6.0, x))"),
        ("above_one", "tl.where(x <= 1.0, 0.0, x)"),
        ("leaky", "tl.where(x <= 0.0, x * 0.01, x)"),
        ("in_fp8", "tl.where(x <= 0.0, 0.0, x).to(tl.float8e5).to(tl.float32)"),
    ),
    "leaky_relu": _activation(
        _LEAKY,
        ("identity", "x", "x is stored as it is"),
        ("no_slope", "tl.where(x > 0.0, x, 0.0)", "relu is computed"),
        ("everywhere", "x * SLOPE"),
        ("other_side", "tl.where(x > 0.0, x * SLOPE, x)"),
        ("divided", "tl.where(x > 0.0, x, x / SLOPE)"),
        ("below_one", "tl.where(x > 1.0, x, x * SLOPE)"),
        ("other_sign", "tl.where(x > 0.0, x, -x * SLOPE)"),
        ("another_slope", "tl.where(x > 0.0, x, x * 0.01)"),
    ),
    "elu": _activation(
        _ELU,
        ("identity", "x", "x is stored as it is"),
        ("no_exponential", "tl.where(x > 0.0, x, 0.0)", "relu is computed"),
        ("one_left_out", "tl.where(x > 0.0, x, tl.exp(x))"),
        ("everywhere", "tl.exp(x) - 1.0"),
        ("other_sign", "tl.where(x > 0.0, x, tl.exp(-x) - 1.0)"),
        ("base_two", "tl.where(x > 0.0, x, tl.exp2(x) - 1.0)"),
        ("multiplied", "x * (x > 0.0) + (tl.exp(x) - 1.0) * (x <= 0.0)"),
        ("exponential_in_bf16", f"tl.where(x > 0.0, x, tl.exp(x){_BF16} - 1.0)"),
    ),
    "gelu": _activation(
        _GELU,
        ("identity", "x", "x is stored as it is"),
        ("as_silu", *_AS_SILU),
        ("by_tanh", _BY_TANH, "the gelu is that by tanh"),
        ("not_halved", _GELU.replace(" * 0.5", "")),
        ("one_left_out", _GELU.replace("1.0 + ", "")),
        ("root_of_two", _GELU.replace("0.70710678", "1.41421356")),
        ("other_sign", _GELU.replace("+ tl.erf", "- tl.erf")),
        ("erf_in_bf16", _GELU.replace(_ERF, f"{_ERF}{_BF16}")),
    ),
    "gelu_tanh": _activation(
        _BY_TANH,
        ("identity", "x", "x is stored as it is"),
        ("as_silu", *_AS_SILU),
        ("by_erf", _GELU, "the gelu is that by erf"),
        ("no_cube", _BY_TANH.replace(" + x * x * x * 0.044715", "")),
        ("squared", _BY_TANH.replace("x * x * x", "x * x")),
        ("no_root", _BY_TANH.replace(" * 0.7978845608028654", "")),
        ("not_halved", _BY_TANH.replace(" * 0.5", "")),
        ("tanh_in_bf16", _BY_TANH.replace(_INNER, f"({_INNER}){_BF16}")),
    ),
    "silu": {
        _SIGMOID: _OF_SIGMOID,
        _ACTIVATED: (("sigmoid_alone", "x * sigmoid(x)", "sigmoid(x)", "the sigmoid alone"),
                     ("added", "x * sigmoid(x)", "x + sigmoid(x)")),
    },
    "sigmoid": {
        _SIGMOID: (*_OF_SIGMOID, ("one_left_out", "(1.0 + tl", "(0.0 + tl"), ("doubled", "1.0 / (", "2.0 / ("))
    },
    "tanh": {
        _TANH: (
            ("as_sigmoid", _FORM, "sigmoid(x)", "the sigmoid is computed"),
            ("not_doubled", "tl.exp(-2.0 * x)", "tl.exp(-x)"),
            ("one_left_out", ") - 1.0", ")"),
            ("base_two", "tl.exp(", "tl.exp2("),
            ("other_sign", "tl.exp(-2.0", "tl.exp(2.0"),
            ("other_form", _FORM, "(tl.exp(x) - tl.exp(-x)) / (tl.exp(x) + tl.exp(-x))"),
            ("series", _FORM, "x - x * x * x / 3.0"),
            ("exponential_in_bf16", "tl.exp(-2.0 * x)", f"tl.exp(-2.0 * x){_BF16}"),
        )
    },
    "swiglu": {
        _SIGMOID: _OF_SIGMOID[:2],
        _GATE: (
            ("gate_left_out", " * gate\n", "\n", "the gate is left out"),
            ("x_for_gate", "load_block(gate_ptr", "load_block(x_ptr"),
            ("exchanged", "activated(x, 1.0, FUNCTION) * gate", "activated(gate, 1.0, FUNCTION) * x",
             "x and the gate are exchanged"),
            ("added", "FUNCTION) * gate", "FUNCTION) + gate"),
            ("rounded_bf16", "FUNCTION) * gate", f"FUNCTION){_BF16} * gate"),
            ("gate_of_first_block", "load_block(gate_ptr, rm, there, stride_xm, stride_xn, start",
             "load_block(gate_ptr, rm, there, stride_xm, stride_xn, 0 * start"),
        ),
    },
    "geglu": {
        _ACTIVATED: (("as_silu", _GELU, *_AS_SILU), ("by_tanh", _GELU, _BY_TANH, "the gelu is that by tanh")),
        _GATE: (
            ("gate_left_out", " * gate\n", "\n", "the gate is left out"),
            ("exchanged", "activated(x, 1.0, FUNCTION) * gate", "activated(gate, 1.0, FUNCTION) * x",
             "x and the gate are exchanged"),
            ("not_activated", "activated(x, 1.0, FUNCTION)", "x"),
            ("gate_activated_too", "FUNCTION) * gate", "FUNCTION) * activated(gate, 1.0, FUNCTION)"),
            ("divided", "FUNCTION) * gate", "FUNCTION) / gate"),
            ("rounded_bf16", "FUNCTION) * gate", f"FUNCTION){_BF16} * gate"),
        ),
    },
}  # fmt: skip

ELEMENTS = grouped(
    "elementwise",
    *(fault for function in ELEMENTWISE for fault in faults_of(function, "device/elementwise.py", OWN[function.name])),
    *(
        fault
        for function in ELEMENTWISE
        if function.name in ("silu", "swiglu")
        for fault in faults_of(function, "device/rows.py", SHARED)
    ),
)
