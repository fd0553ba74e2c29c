"""The oracle: the right result of a problem of any family.

:func:`value` and :func:`magnitude` dispatch on the problem's class (:func:`functools.singledispatch`). Each family in
:mod:`conformance.families` registers its own. A family of another package does the same, for example next to its fills
(:mod:`conformance.inputs.fills`)::

    from conformance import reference

    @reference.value.register
    def _(problem: MyProblem, inputs, *, device=None):
        return ...  # fp64, in the shape of problem.output

and likewise ``magnitude``, if its error bounds need one.
"""

from __future__ import annotations

from conformance.problems import Device, magnitude, value  # isort: skip  (families take it here)
import conformance.families  # noqa: F401  (registers the reference of each family)

__all__ = ["Device", "magnitude", "value"]
