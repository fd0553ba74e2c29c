"""A fill: one set of inputs with the expected outputs and the method that judges them; and what a kernel made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Fill:
    """``method`` is "exact" (bitwise), "bounded" (interval) or "special" (class of NaN and infinity, else interval).

    ``inputs``: dense CPU tensors of the operands' dtypes and shapes by operand name. ``expected``: the fp64 value of
    the first output, in its shape, before output rounding. ``error``: its fp64 bound, None for exact fills. ``meta``:
    what the fill measured about itself (unit exponents, budget, trust). ``parts``: for each further output by name, a
    fill with that output's method, value and bound. ``cache`` holds what a verdict derives once and reuses. ``or_nan``:
    bool, in the shape of ``expected``, where NaN is right in addition to what ``expected`` and ``error`` allow, because
    the contract leaves it open; None for nowhere, and always for exact fills.
    """

    name: str
    seed: int
    method: str
    inputs: Mapping[str, Tensor]
    expected: Tensor
    error: Tensor | None
    meta: dict[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Fill] = field(default_factory=dict)
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)
    or_nan: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its inputs, values and bounds, those of its parts included, without the cache."""
        own = (*self.inputs.values(), self.expected, self.error, self.or_nan)
        return sum(0 if tensor is None else int(tensor.nbytes) for tensor in own) + sum(
            part.nbytes for part in self.parts.values()
        )

    def of(self, output: str) -> Fill:
        """Returns the fill with the expected values of ``output``; the first output's are this fill's own."""
        return self.parts.get(output, self)


@dataclass(frozen=True, eq=False)
class Seen:
    """The results of a kernel for one fill: its ``outputs`` by name, dense and on the CPU, right or wrong."""

    fill: Fill
    outputs: Mapping[str, Tensor]
