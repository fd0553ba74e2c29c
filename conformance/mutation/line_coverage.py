"""Which lines of device functions a run in the interpreter reaches."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, TypeVar

from conformance.mutation.functions import DeviceFunction

Result = TypeVar("Result")


def lines_reached(
    run: Callable[[], Result], functions: Iterable[DeviceFunction]
) -> tuple[Result, dict[str, list[int]]]:
    """The result of ``run``, and by name of each of ``functions`` the lines that ran, counted from its first as 1."""
    starts = {(str(function.path), function.handle.fn.__name__): function for function in functions}
    reached: dict[str, set[int]] = defaultdict(set)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        function = starts.get((frame.f_code.co_filename, frame.f_code.co_name))
        if function is None:
            return None
        lines, before = reached[function.name], function.first - 1

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                lines.add(frame.f_lineno - before)
            return line

        return line

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        result = run()
    finally:
        sys.settrace(earlier)
    return result, {name: sorted(lines) for name, lines in reached.items()}
