"""Functions of the rows of a matrix: what they read and write, and their grid.

A :class:`RowFunction` states its computation once, over :class:`~conformance.numerics.error_bounds.Computed`. That
gives its reference and its bound.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.families.examples import FLOATS
from conformance.families.family import Tiles
from conformance.inputs.fills import Draws, Floats
from conformance.numerics.error_bounds import Computed
from conformance.problems import Layout, Operand, Problem, check_choice

#: Added to the squares of norms. A power of two, which every format holds.
EPS = 2.0**-20


@dataclass(frozen=True)
class Part:
    """One operand or output: its ``name``, ``axes`` and ``dtype``, which is None for the problem's.

    The axes are "rc" for rows and columns, "r" for a number per row, and "c" for one per column.
    """

    name: str
    axes: str = "rc"
    dtype: str | None = None


#: Arrays of operands by name.
Arrays = dict[str, Floats]


@dataclass(frozen=True, eq=False, repr=False)
class RowFunction:
    """A function of rows, which is one object in each process: a pickled one is looked up by its name.

    ``operands`` begin with x, ``outputs`` with the main result.

    ``compute(problem, quantities)`` returns the quantities of the outputs by name, from those of the operands.
    ``exact(problem, draws)`` returns operands whose results every kernel within the bound rounds alike, as fp64 that
    the problem's dtype holds. ``steps``: these results are exact in every step, whatever the dtype. ``spread(problem,
    draws)`` returns rows of sizes far apart. ``faults``: other computations, by the cause that they stand for.
    """

    name: str
    operands: tuple[Part, ...]
    outputs: tuple[Part, ...]
    compute: Callable[[RowProblem, Mapping[str, Computed]], Mapping[str, Computed]]
    exact: Callable[[RowProblem, Draws], Arrays]
    spread: Callable[[RowProblem, Draws], Arrays]
    steps: bool = False
    faults: tuple[tuple[str, Callable[[RowProblem, Mapping[str, Computed]], Mapping[str, Computed]]], ...] = ()

    def __post_init__(self) -> None:
        FUNCTIONS[self.name] = self

    def __repr__(self) -> str:
        return f"<function of rows {self.name}>"

    def __reduce__(self) -> tuple[Callable[[str, str], RowFunction], tuple[str, str]]:
        return function_of, (self.compute.__module__, self.name)


#: The functions of rows by name.
FUNCTIONS: dict[str, RowFunction] = {}


def function_of(module: str, name: str) -> RowFunction:
    """Returns the function called ``name``, which ``module`` makes when it is imported."""
    importlib.import_module(module)
    return FUNCTIONS[name]


@dataclass(frozen=True)
class RowProblem(Problem):
    """``function`` of a matrix x of ``rows`` and ``columns``. Its other operands and its outputs are those that the
    function lists; matrices among the operands have ``layout_x``, outputs ``layout_out``, the rest is contiguous.

    Raises ValueError for sizes below 0, an ``eps`` that is not positive, and dtypes that are not bf16, fp16 or fp32.
    """

    function: RowFunction
    rows: int
    columns: int
    dtype: str = "bf16"
    eps: float = EPS
    layout_x: Layout = Layout()
    layout_out: Layout = Layout()

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, FLOATS)
        for name in ("rows", "columns"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be >= 0")
        if self.eps <= 0:
            raise ValueError(f"eps is {self.eps}: it must be positive, so that a row of zeros has a result")

    @property
    def op(self) -> str:  # type: ignore[override]
        return self.function.name

    @property
    def has_product(self) -> bool:
        """False: nothing is multiplied by a matrix unit."""
        return False

    def extents(self, part: Part) -> tuple[int, ...]:
        """Returns the shape of an operand or output."""
        sizes = {"r": self.rows, "c": self.columns}
        return tuple(sizes[axis] for axis in part.axes)

    def _operand(self, part: Part, layout: Layout) -> Operand:
        shape, dtype = self.extents(part), part.dtype or self.dtype
        return layout.operand(part.name, shape, dtype) if len(shape) == 2 else Operand(part.name, shape, (1,), dtype)

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """The operands of the function."""
        return tuple(self._operand(part, self.layout_x) for part in self.function.operands)

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        """The outputs of the function."""
        return tuple(self._operand(part, self.layout_out) for part in self.function.outputs)

    @functools.cached_property
    def id(self) -> str:
        """Stable text such as ``rms_norm-33x80-bf16-row+3.row-eps1e-05``."""
        parts = [self.op, f"{self.rows}x{self.columns}", self.dtype]
        layouts = f"{self.layout_x.id}.{self.layout_out.id}"
        parts += [layouts] if layouts != "row.row" else []
        parts += [f"eps{self.eps:g}"] if self.eps != EPS else []
        return "-".join(parts)


def tiles(problem: RowProblem, config: Any) -> Tiles:
    """Returns the blocks of rows; each program walks over the columns."""
    return (-(-problem.rows // config.block_m), 1, 1)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns a program for each block of rows."""
    return tiles[:1]
