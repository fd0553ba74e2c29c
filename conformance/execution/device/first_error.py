"""Finds the error from which an exception was raised: compilers and interpreters wrap what went wrong, and some lose
its words."""

from __future__ import annotations

import itertools
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

#: Packages that stand between a line of a kernel and the error that it raised, apart from this one and Python's own.
_BETWEEN = ("triton", "numpy", "torch")
_STANDARD = sysconfig.get_path("stdlib")
#: Lines of a kernel that are told, the innermost first.
_LINES = 3


def with_first_error(error: BaseException) -> str:
    """Returns the type and words of ``error``. On the next line follows the error that it was raised from first, unless
    its words are there already. Of one without words, such as an assertion, the line of source that raised it is given.
    """
    text = f"{type(error).__name__}: {error}"
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    frames = traceback.extract_tb(first.__traceback__)
    words = str(first) or (frames[-1].line if frames else "")
    return text if first is error or not words or words in text else f"{text}\n{type(first).__name__}: {words}"


def raised_by_kernel(error: BaseException) -> str:
    """The line of the kernel that raised ``error`` in the interpreter, the lines that called it, and the words of the
    first error; empty if no kernel ran."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    places = [f"{Path(file).name.split('#')[0]}:{line} in {name}" for file, line, name in _kernel_lines(chain)]
    if not places:
        return ""
    first = chain[-1]
    frames = traceback.extract_tb(first.__traceback__)
    words = str(first).split("\n")[0] or (f"not {frames[-1].line}" if frames and frames[-1].line else "")
    inner, *callers = [place for place, _ in itertools.groupby(reversed(places))][:_LINES]
    called = f", called at {', '.join(callers)}" if callers else ""
    return f"the kernel raises {type(first).__name__} ({words[:160]}) at {inner}{called}"


def _kernel_lines(chain: list[BaseException]) -> Iterator[tuple[str, int, str]]:
    """File, line and function of every frame below Triton's that is neither its own nor a library's, from the launch
    on."""
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in _BETWEEN}
    triton, *folders = [str(Path(file).parent) if file else "no such package" for file in files.values()]
    folders += [triton, str(Path(__file__).parents[1]), "<"]
    below = False
    for error in chain:
        for frame, line in traceback.walk_tb(error.__traceback__):
            file = frame.f_code.co_filename
            below |= file.startswith(triton)
            standard = file.startswith(_STANDARD) and "site-packages" not in file
            if below and not standard and not file.startswith(tuple(folders)):
                yield file, line, frame.f_code.co_name
