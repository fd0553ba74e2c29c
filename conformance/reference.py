"""The oracle: what the right result of a problem is, whatever its family.

:func:`value` and :func:`magnitude` dispatch on the problem's class (:func:`functools.singledispatch`). Every module of
:mod:`conformance.references` registers its family. A family may register its own anywhere else, such as beside its
fills (:mod:`conformance.inputs.fills`)::

    from conformance import reference

    @reference.value.register
    def _(problem: MyProblem, inputs, *, device=None):
        return ...  # fp64, in the shape of problem.output

and likewise ``magnitude``, if its error bounds need one.
"""

from __future__ import annotations

import importlib
import pkgutil

from conformance import references
from conformance.references.dispatch import Device, magnitude, value

__all__ = ["Device", "magnitude", "value"]

for _module in pkgutil.iter_modules(references.__path__):
    importlib.import_module(f"{references.__name__}.{_module.name}")
