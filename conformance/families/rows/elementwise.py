"""Functions of single elements, and gates: an activation of x times another matrix. All in fp32.

With the exact operands of an activation every step is exact, or rounds to the same number on all machines. They are 0,
and values so far from 0 that a sum of 1 and an exponential is 1 or the exponential.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from torch import Tensor

from conformance.families.family import Needed
from conformance.families.rows.functions import OUT, Compute, Quantities, X
from conformance.families.rows.problem import Arrays, Part, RowFunction, RowProblem
from conformance.inputs.fills import Draws, Floats
from conformance.numerics.error_bounds import Computed, erf, exp, sigmoid, tanh

GATE = Part("gate")
#: What leaky relu multiplies values below 0 by: a power of two, which rounds nothing.
SLOPE = 2.0**-3
#: From here on e**-x is less than half a unit of 1, and e**x is infinite or e**-x zero in fp32.
SATURATED, VANISHED = 20, 120
#: Values at which exponentials overflow, underflow or become subnormal, or at which a kernel may choose another form.
FAR = (0.0, -0.0, 20.0, -20.0, 87.0, -87.0, 88.5, -88.5, 90.0, -90.0, 104.0, -104.0, 2.0**-10, -(2.0**-10))

Activation = Callable[[Computed], Computed]


def relu(x: Computed) -> Computed:
    """max(x, 0)."""
    return x.where(x.value > 0, 0.0).where(~x.value.isnan(), x)


def leaky_relu(x: Computed) -> Computed:
    """x above 0, else SLOPE times x."""
    return x.where(x.value > 0, x * SLOPE)


def elu(x: Computed) -> Computed:
    """x above 0, else e**x - 1: by an exponential and a difference, or closer."""
    return x.where(x.value > 0, exp(x) - 1.0)


def gelu(x: Computed) -> Computed:
    """x * (1 + erf(x / sqrt(2))) / 2."""
    return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)


def gelu_tanh(x: Computed) -> Computed:
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (tanh(inner) + 1.0)


def silu(x: Computed) -> Computed:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def _of_x(activation: Activation) -> Compute:
    return lambda problem, q: {"out": activation(q["x"])}


def _gated(activation: Activation) -> Compute:
    return lambda problem, q: {"out": activation(q["x"]) * q["gate"]}


def _among(points: Sequence[float]) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns x among ``points``, and gates that are powers of two."""

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        shape = (problem.rows, problem.columns)
        x: Floats = np.asarray(points, np.float64)[draws.below(len(points), shape)]
        return {"x": x, "gate": np.ldexp(1.0, draws.below(7, shape) - 3) * draws.signs(shape)}

    return draw


def _far(problem: RowProblem, draws: Draws) -> Arrays:
    """Every other element is one of FAR, the rest is near-normal and up to three binades larger."""
    shape = (problem.rows, problem.columns)
    near = np.ldexp(draws.normal(shape), draws.below(4, shape))
    far = np.asarray(FAR)[draws.below(len(FAR), shape)]
    return {"x": np.where(draws.chance(0.5, shape), near, far), "gate": draws.normal(shape)}


def _own_elements(problem: RowProblem, inputs: Mapping[str, Tensor], along: Mapping[str, Tensor]) -> Needed:
    """Returns the elements of every operand at the stored places: nothing else of their rows is needed."""
    return {part.name: (along["r"], along["c"]) for part in problem.function.operands}


def _function(
    name: str,
    activation: Activation,
    points: Sequence[float],
    others: Sequence[tuple[str, Activation]],
    *,
    steps: bool,
    gate: bool = False,
) -> RowFunction:
    """``others``: the activations that a kernel may compute instead, by their cause."""
    compute = _gated if gate else _of_x
    faults = [(cause, compute(other)) for cause, other in others]
    if gate:
        faults += [
            ("the gate is left out", _of_x(activation)),
            ("x and the gate are exchanged", _exchanged(activation)),
            ("the gate is added, not multiplied", lambda problem, q: {"out": activation(q["x"]) + q["gate"]}),
        ]
    operands = (X, GATE) if gate else (X,)
    return RowFunction(
        name,
        operands,
        (OUT,),
        compute(activation),
        _among(points),
        _far,
        steps=steps,
        faults=tuple(faults),
        needs=_own_elements,
    )


def _exchanged(activation: Activation) -> Compute:
    def compute(problem: RowProblem, q: Quantities) -> Quantities:
        return {"out": activation(q["gate"]) * q["x"]}

    return compute


def _same(x: Computed) -> Computed:
    return x


_LARGE = tuple(map(float, range(SATURATED, 128)))
_SMALL = tuple(n / 8 for n in range(1, 128))
_VANISHED = tuple(float(-n) for n in range(VANISHED, 256))
_ALL = (0.0, -0.0, *_LARGE, *_SMALL, *(-value for value in (*_LARGE, *_SMALL)), math.inf)
_NOTHING = ("x is stored as it is", _same)
_SIGMOID = ("the sigmoid alone is stored, without its product with x", sigmoid)
_BY_TANH = ("the gelu is that by tanh", gelu_tanh)
_BY_ERF = ("the gelu is that by erf", gelu)
_AS_SILU = ("silu is computed", silu)
_AS_RELU = ("relu is computed", relu)

ELEMENTWISE = (
    _function("relu", relu, (*_ALL, -math.inf), (_NOTHING,), steps=True),
    _function("leaky_relu", leaky_relu, (*_ALL, -math.inf), (_NOTHING, _AS_RELU), steps=True),
    _function(
        "elu", elu, (0.0, *_LARGE, *_SMALL, *(-value for value in _LARGE), -math.inf), (_NOTHING, _AS_RELU), steps=True
    ),
    _function("gelu", gelu, (0.0, *_LARGE), (_NOTHING, _AS_SILU, _BY_TANH), steps=False),
    _function("gelu_tanh", gelu_tanh, (0.0, *_LARGE), (_NOTHING, _AS_SILU, _BY_ERF), steps=False),
    _function("silu", silu, (0.0, *_LARGE, *_VANISHED), (_NOTHING, _SIGMOID), steps=True),
    _function(
        "sigmoid", sigmoid, (0.0, *_LARGE, math.inf, *_VANISHED, -math.inf), (_NOTHING, ("tanh is computed", tanh)),
        steps=True,
    ),
    _function(
        "tanh", tanh, (0.0, *_LARGE, *(-value for value in _LARGE), math.inf, -math.inf),
        (_NOTHING, ("the sigmoid is computed", sigmoid)), steps=True,
    ),
    _function("swiglu", silu, (0.0, *_LARGE, *_VANISHED), (_SIGMOID, ("x times the gate is stored", _same)),
              steps=True, gate=True),
    _function("geglu", gelu, (0.0, *_LARGE), (_AS_SILU, _BY_TANH), steps=False, gate=True),
)  # fmt: skip
