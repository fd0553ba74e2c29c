"""The problem: every row of an fp32 matrix is multiplied by the row's scale."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from conformance.problems import Operand, Problem


@dataclass(frozen=True)
class ScaledRows(Problem):
    """out[r, c] = x[r, c] * scale[r]: x and out are (rows, columns), scale is (rows,), all of them fp32.

    Rows of x lie ``columns + pad`` elements apart.
    """

    rows: int
    columns: int
    pad: int = 0
    op: str = "scaled_rows"
    dtype: str = "fp32"

    @property
    def operands(self):
        x = Operand("x", (self.rows, self.columns), (self.columns + self.pad, 1), self.dtype)
        return x, Operand("scale", (self.rows,), (1,), self.dtype)

    @property
    def outputs(self):
        return (Operand("out", (self.rows, self.columns), (self.columns, 1), self.dtype),)

    @property
    def id(self):
        return f"scaled_rows-{self.rows}x{self.columns}" + (f"+{self.pad}" if self.pad else "")

    @property
    def dense(self):
        return dataclasses.replace(self, pad=0)
