"""Functions of the rows of a matrix: what they read and write, and their grid.

A :class:`RowFunction` states its computation once, over :class:`~conformance.numerics.error_bounds.Computed`. That
gives its reference and its bound.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from conformance.families.examples import FLOATS
from conformance.families.family import Needed, Tiles
from conformance.inputs.fills import Draws, Floats
from conformance.numerics.error_bounds import Computed
from conformance.problems import DTYPES, Layout, Operand, Problem, check_choice

#: Added to the squares of norms. A power of two, which every format holds.
EPS = 2.0**-20


@dataclass(frozen=True)
class Part:
    """One operand or output: its ``name``, ``axes`` and ``dtype``, which is None for the problem's.

    The axes are "rc" for rows and columns, "r" for a number per row, and "c" for one per column. A function may have
    further axes.
    """

    name: str
    axes: str = "rc"
    dtype: str | None = None


@dataclass(frozen=True)
class Axis:
    """A further axis of a function: what one index of it is called, and its ``extent`` in a problem."""

    name: str
    extent: Callable[[RowProblem], int]


#: The axes that every function has, by their letters.
ROW, COLUMN = Axis("row", lambda problem: problem.rows), Axis("column", lambda problem: problem.columns)
AXES = {"r": ROW, "c": COLUMN}

#: Arrays of operands by name.
Arrays = dict[str, Floats]


def normal_values(problem: RowProblem, draws: Draws) -> Arrays:
    """Returns near-normal values for every operand."""
    return {part.name: draws.normal(problem.extents(part)) for part in problem.function.operands}


@dataclass(frozen=True, eq=False, repr=False)
class RowFunction:
    """A function of rows, which is one object in each process: a pickled one is looked up by its name.

    ``operands`` begin with x, ``outputs`` with the main result.

    ``compute(problem, quantities)`` returns the quantities of the outputs by name, from those of the operands.
    ``exact(problem, draws)`` returns operands whose results every kernel within the bound rounds alike, as fp64 that
    the problem's dtype holds. ``steps``: these results are exact in every step, whatever the dtype; True, or the names
    of the outputs of which this holds. ``spread(problem, draws)`` returns rows of sizes far apart, and ``usual`` plain
    ones. ``infinity``: the value in the second row of the fill "special", NaN if an ignored first row hides its own.
    ``special``: False if operands must be finite. ``of_nothing``: the outputs that are not 0 of a problem without an
    element. ``faults``: other computations, by the cause that they stand for. ``axes``: further axes by their letters.
    ``needs(problem, inputs, along)`` returns what the stored elements need of each operand, from the stored indices by
    the letters of their axes. None: whole rows, and columns of operands without rows.
    """

    name: str
    operands: tuple[Part, ...]
    outputs: tuple[Part, ...]
    compute: Callable[[RowProblem, Mapping[str, Computed]], Mapping[str, Computed]]
    exact: Callable[[RowProblem, Draws], Arrays]
    spread: Callable[[RowProblem, Draws], Arrays]
    steps: bool | tuple[str, ...] = False
    faults: tuple[tuple[str, Callable[[RowProblem, Mapping[str, Computed]], Mapping[str, Computed]]], ...] = ()
    usual: Callable[[RowProblem, Draws], Arrays] = normal_values
    infinity: float = math.inf
    special: bool = True
    of_nothing: Callable[[RowProblem], Mapping[str, float]] = lambda problem: {}
    axes: Mapping[str, Axis] = field(default_factory=dict)
    needs: Callable[[RowProblem, Mapping[str, Tensor], Mapping[str, Tensor]], Needed] | None = None

    def __post_init__(self) -> None:
        FUNCTIONS[self.name] = self

    def axis(self, letter: str) -> Axis:
        """Returns the axis that ``letter`` stands for. Raises KeyError for one that the function does not have."""
        return AXES[letter] if letter in AXES else self.axes[letter]

    def exact_steps(self, output: str) -> bool:
        """True if ``output`` is exact in every step of the exact fill."""
        return self.steps if isinstance(self.steps, bool) else output in self.steps

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
    function lists. Operands with the axes of the first one have ``layout_x``, outputs with those of the first output
    ``layout_out``. The rest is contiguous.

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
        return tuple(self.function.axis(letter).extent(self) for letter in part.axes)

    def _tensors(self, parts: tuple[Part, ...], layout: Layout) -> tuple[Operand, ...]:
        tensors = []
        for part in parts:
            shape, dtype = self.extents(part), part.dtype or self.dtype
            if len(shape) == 1:
                tensors.append(Operand(part.name, shape, (1,), dtype))
            else:
                own = layout if part.axes == parts[0].axes else Layout()
                tensors.append(own.operand(part.name, shape, dtype))
        return tuple(tensors)

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """The operands of the function."""
        return self._tensors(self.function.operands, self.layout_x)

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        """The outputs of the function."""
        return self._tensors(self.function.outputs, self.layout_out)

    @property
    def narrow_dtypes(self) -> tuple[str, ...]:
        """Returns the floating-point dtypes of operands and outputs but fp32, which some targets lack."""
        names = dict.fromkeys(tensor.dtype for tensor in self.tensors if DTYPES[tensor.dtype].is_floating_point)
        return tuple(name for name in names if name != "fp32")

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


def judged_tiles(problem: RowProblem, config: Any) -> tuple[int, int]:
    """Returns the blocks of rows and of columns that the first output has; 1 along an axis that it lacks."""
    letters = problem.function.outputs[0].axes
    rows = -(-problem.rows // config.block_m) if "r" in letters else 1
    return rows, -(-problem.columns // config.block_n) if "c" in letters else 1
