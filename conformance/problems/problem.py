"""The common parts of every problem: named operands in, named outputs out, and a stable text id."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence

from conformance.problems.tensors import Operand


class Problem(abc.ABC):
    """A computation, without anything about how it is done. Hashable and picklable."""

    #: the operation, such as "mm" or "conv"
    op: str
    #: dtype of the operands, a key of ``DTYPES``
    dtype: str
    #: how fp32 operands are multiplied: "ieee" or "tf32"; products of two matrices know more
    precision: str = "ieee"

    @property
    @abc.abstractmethod
    def operands(self) -> tuple[Operand, ...]:
        """The input tensors."""

    @property
    @abc.abstractmethod
    def outputs(self) -> tuple[Operand, ...]:
        """The output tensors, the operation's main result first."""

    @property
    @abc.abstractmethod
    def id(self) -> str:
        """Stable text that names this problem."""

    @property
    @abc.abstractmethod
    def dense(self) -> Problem:
        """The same problem without its layouts, on which the values of a fill do not depend."""

    @property
    def fixed_values(self) -> Mapping[str, Sequence[int]]:
        """The operands that have one value only, whatever the fill."""
        return {}

    @property
    def output(self) -> Operand:
        """The first output."""
        return self.outputs[0]

    @property
    def output_dtype(self) -> str:
        """dtype of the first output."""
        return self.output.dtype

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """Operands and outputs."""
        return (*self.operands, *self.outputs)

    def operand(self, name: str) -> Operand:
        """Returns the input or output called ``name``; KeyError if the problem has none of that name."""
        for operand in self.tensors:
            if operand.name == name:
                return operand
        raise KeyError(f"{self.id} has no operand {name!r}: it has {[operand.name for operand in self.tensors]}")
