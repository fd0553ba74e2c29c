"""The oracle: what the right result of a problem is, whatever its family.

Both functions dispatch on the problem's class (:func:`functools.singledispatch`). The families of this package are
registered below; their details are in :mod:`conformance.references`. A family from elsewhere registers its own::

    from conformance import reference

    @reference.value.register
    def _(problem: MyProblem, inputs, *, device=None):
        return ...  # fp64, in the shape of problem.output

and likewise ``magnitude``, if its error bounds need one. Its fills are registered with
:func:`conformance.inputs.fills.register_fills`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from torch import Tensor

from conformance.problems import Attention, Conv, Gemm, GroupedGemm, Problem
from conformance.references import attention, conv, gemm, grouped
from conformance.references.operands import Device

__all__ = ["Device", "magnitude", "value"]


@functools.singledispatch
def value(problem: Problem, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The first output of ``problem`` in fp64 and in its shape, before it is rounded to the output dtype.

    ``inputs`` maps operand names to tensors of the operands' shapes. ``device`` is where the value is computed and
    where it lives (None: where the first operand lives; for attention the CPU). Raises KeyError for a missing operand,
    ValueError for one of another shape, TypeError for a family without a reference.
    """
    raise TypeError(_unknown(problem, "reference value"))


@functools.singledispatch
def magnitude(problem: Problem, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The sum of the products' absolute values, in fp64 and in the shape of the first output, without the epilogue.

    Arguments and errors are those of :func:`value`. Attention has none: its bounds follow every step of the softmax.
    """
    raise TypeError(_unknown(problem, "magnitude"))


def _unknown(problem: Problem, what: str) -> str:
    name = type(problem).__name__
    return f"{problem.id} is a {name}, for which there is no {what}: register one for {name}"


value.register(Gemm, gemm.value)
value.register(Conv, conv.value)
value.register(GroupedGemm, grouped.value)
value.register(Attention, attention.value)
magnitude.register(Gemm, gemm.magnitude)
magnitude.register(Conv, conv.magnitude)
magnitude.register(GroupedGemm, grouped.magnitude)
