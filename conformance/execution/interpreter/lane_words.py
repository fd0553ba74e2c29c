"""Words about the lanes that the mask of a load leaves without a value."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from conformance.diagnosis.diagnose import axes
from conformance.execution.interpreter.accesses import UndefinedLanes
from conformance.problems import Problem


def lane_words(problem: Problem, lanes: UndefinedLanes) -> str:
    """Returns such as "k 33 to 63 of a" for the lanes of one load, "" for none that lies past an operand's end. Of an
    operand it names the indices along dimensions that no output has, if there are any."""
    outputs = {axis for output in problem.outputs for axis in _axes(problem, output.name)}
    parts = []
    for operand, dimensions in lanes.items():
        named = [(axis, places) for axis, places in zip(_axes(problem, operand), dimensions, strict=True) if places]
        inner = [pair for pair in named if pair[0] not in outputs]
        parts += [f"{axis} {_runs(sorted(places))} of {operand}" for axis, places in inner or named]
    return " and ".join(parts)


def _axes(problem: Problem, name: str) -> Sequence[str]:
    """The names of the dimensions of an operand; numbers for a family that has none."""
    try:
        return axes(problem, name)
    except TypeError:
        shapes = {tensor.name: tensor.shape for tensor in problem.tensors}
        return [f"index {dim} of dimension" for dim in range(len(shapes.get(name, ())))]


def _runs(numbers: Sequence[int]) -> str:
    """Returns sorted ``numbers`` as runs.

    >>> _runs([33, 34, 35, 40])
    '33 to 35, 40'
    """
    runs = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}")
    return ", ".join(runs[:4]) + (", ..." if len(runs) > 4 else "")
