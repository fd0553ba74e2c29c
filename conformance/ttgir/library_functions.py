"""Functions of NVIDIA's libdevice and AMD's OCML, which a kernel calls by name: what each computes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from conformance.ttgir.arithmetic import Compute, Maker, UnknownOperation, attributes, operands, result_type
from conformance.ttgir.formats import rounded
from conformance.ttgir.text import Operation


def _by_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Compute:
    return lambda x: function(torch.from_numpy(np.array(x))).numpy()


def _half_away(x: Any) -> Any:
    """The nearest integer; of two, the one that is further from zero."""
    return np.copysign(np.floor(np.abs(x) + np.asarray(0.5, np.asarray(x).dtype)), x)


#: By the name that both libraries have for it, without prefix and suffix.
_FUNCTIONS: dict[str, Compute] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil, "copysign": np.copysign, "cos": np.cos,
    "cosh": np.cosh, "erf": _by_torch(torch.erf), "erfc": _by_torch(torch.erfc), "exp": np.exp, "exp2": np.exp2,
    "exp10": lambda x: np.power(np.asarray(10, np.asarray(x).dtype), x), "expm1": np.expm1, "fabs": np.abs,
    "floor": np.floor, "fma": lambda a, b, c: np.asarray(a, np.float64) * b + c, "fmax": np.fmax, "fmin": np.fmin,
    "fmod": np.fmod, "hypot": np.hypot, "isinf": np.isinf, "isnan": np.isnan, "lgamma": _by_torch(torch.lgamma),
    "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2, "nearbyint": np.rint, "pow": np.power,
    "rint": np.rint, "round": _half_away, "rsqrt": lambda x: 1 / np.sqrt(x), "signbit": np.signbit, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc,
}  # fmt: skip
#: The spellings of a function: __nv_tanhf of fp32 and __nv_tanh of fp64, __ocml_tanh_f32, quick forms of fp32.
_SYMBOL = re.compile(r"__(?:nv_(?:fast_)?|ocml_(?:native_)?)(\w+?)(?:_f(?:16|32|64))?$")


def _external(operation: Operation) -> tuple[list[str], Compute]:
    symbol = attributes(operation)["symbol"].strip('"')
    match = _SYMBOL.match(symbol)
    name = match[1] if match else ""
    function = _FUNCTIONS.get(name) or _FUNCTIONS.get(name.removesuffix("d").removesuffix("f"))
    if function is None:
        raise UnknownOperation(f"{operation.name} {symbol}")
    kind = result_type(operation)
    return operands(operation), lambda *values: rounded(function(*values), kind.element)


#: How each operation of this module is made.
MAKERS: dict[str, Maker] = {"tt.extern_elementwise": _external}
