"""Makes launches of all that a wrapper does after its first launch, each of a function with its own name.

The harness compiles the launches of a plan by the names of their functions. So a function that is launched again is a
copy with another name. What torch copies, fills or adds is done by device functions of this package.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from conformance.plain_files import device_steps
from conformance.plain_files.device_functions import Taken, taken
from conformance.plain_files.tape import (
    Added,
    Copied,
    Filled,
    Function,
    Launched,
    Module,
    Number,
    Step,
    Tape,
    Value,
    moved,
)


class Replayable:
    """The functions of an answer, and those that replaying it needs in addition."""

    def __init__(self, functions: Sequence[Taken]) -> None:
        self.functions = list(functions)
        self._copies: dict[tuple[int | str, int], int] = {}

    def tape(self, tape: Tape) -> Tape:
        """Returns ``tape`` with launches alone from its first launch on."""
        if tape.fault or tape.refused:
            return tape
        first = first_launch(tape)
        used: Counter[int | str] = Counter()
        steps: list[Step] = list(tape.steps[:first])
        for step in tape.steps[first:]:
            origin, launch = (step.function, step) if isinstance(step, Launched) else _as_launch(step)
            used[origin] += 1
            steps.append(msgspec.structs.replace(launch, function=self._number(origin, used[origin])))
        return msgspec.structs.replace(tape, steps=tuple(steps))

    def _number(self, origin: int | str, turn: int) -> int:
        """Returns the number of the function ``origin`` that is launched for the ``turn``-th time by one call."""
        if isinstance(origin, int) and turn == 1:
            return origin
        if (origin, turn) not in self._copies:
            function = self.functions[origin] if isinstance(origin, int) else _own(origin)
            self._copies[origin, turn] = len(self.functions)
            self.functions.append(function.renamed(f"{function.name}_{turn}") if turn > 1 else function)
        return self._copies[origin, turn]


def first_launch(tape: Tape) -> int:
    """Returns the number of the first step that is a launch."""
    return next(place for place, step in enumerate(tape.steps) if isinstance(step, Launched))


def _own(name: str) -> Taken:
    code, path = getattr(device_steps, name).fn.__code__, Path(device_steps.__file__)
    function = Function(name, str(path), code.co_firstlineno, {"tl": Module("triton.language")})
    (own,) = taken([function], path.resolve().parent, path / "none")
    return msgspec.structs.replace(own, is_own=True)


def _as_launch(step: Filled | Copied | Added) -> tuple[int | str, Launched]:
    """Returns the function that does ``step``, and its launch, to which the number of the function is to be added."""
    missing = device_steps.MOST_DIMENSIONS - len(step.view.shape)
    sizes = (1,) * missing + step.view.shape
    numbers: dict[str, Any] = {"count": math.prod(sizes), "BLOCK": device_steps.BLOCK}
    numbers |= {f"size_{axis}": sizes[axis] for axis in (1, 2, 3)}
    arguments: dict[str, Value] = {"target": step.view}
    strides = {"to": step.view.strides}
    name = "filled_after_launch"
    if isinstance(step, Copied):
        name = "copied_after_launch"
        arguments["source"], strides["from"] = step.source, step.source.strides
    elif isinstance(step, Added):
        name = "added_after_launch"
        shape, of_source = step.source.shape, step.source.strides
        arguments["source"], kept = step.source, [axis for axis in range(len(shape)) if axis != step.axis]
        strides["from"] = tuple(of_source[axis] for axis in kept)
        if len(step.view.shape) > len(kept):  # the sum has kept its axis
            strides["from"] = (*strides["from"][: step.axis], 0, *strides["from"][step.axis :])
        numbers |= {"parts": shape[step.axis], "step": of_source[step.axis]}
    else:
        arguments["value"] = step.number
    for end, each in strides.items():
        numbers |= {f"{end}_{axis}": stride for axis, stride in enumerate((0,) * missing + each)}
    arguments |= {name: Number(number) for name, number in numbers.items()}
    return name, Launched(0, (-(-math.prod(sizes) // device_steps.BLOCK),), arguments, {})


def called_again(tape: Tape) -> Tape:
    """Returns the steps of a call after those of an earlier one with other operands, which are all 1. Memory that the
    wrapper keeps is that of both; the earlier call has its own operands, results and workspaces."""
    count = len(tape.memories)
    numbers = {number: number if memory.kept else count + number for number, memory in enumerate(tape.memories)}
    earlier = [
        msgspec.structs.replace(
            memory, name=f"earlier {memory.name}", workspace=True, kept=not memory.workspace, initial=Number(1)
        )
        for memory in tape.memories
    ]
    steps = [moved(step, numbers) for step in tape.steps]
    return msgspec.structs.replace(tape, memories=(*tape.memories, *earlier), steps=(*steps, *tape.steps))
