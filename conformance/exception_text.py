"""The text of an exception, whatever its own code does: its words, its first cause, and the line of a kernel that
raised it.

A case, a compiler or another package raises what it likes. The methods of such a class may raise, too, its class may
hide its name, and its causes may be a cycle. Compilers and interpreters also wrap what went wrong.
"""

from __future__ import annotations

import itertools
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from conformance.case_status import ConformanceFailure
from conformance.plain_json import TEXT_LIMIT

#: Packages that stand between a line of a kernel and the error that it raised, apart from this one and Python's own.
_BETWEEN = ("triton", "numpy", "torch")
_STANDARD = sysconfig.get_path("stdlib")
#: Lines of a kernel that are told, the innermost first.
_LINES = 3
#: Errors of a chain of causes that are looked at.
_LONGEST_CHAIN = 100
#: Characters that pytest may print of an exception with its causes. Longer ones take seconds.
PRINTED_LIMIT = 50 * TEXT_LIMIT


class UnprintableError(Exception):
    """Stands for an exception whose own code fails, or whose text is too long to print."""


def words_of(error: BaseException) -> str:
    """Returns the words of ``error``, cut if they are long; a sentence in brackets if its own code fails.

    >>> words_of(KeyError("x"))
    "'x'"
    """
    try:
        text = str.__str__(str(error))  # a subclass of str may override its methods
    except BaseException as failure:
        return f"(its words cannot be read: its own code raises {class_name(failure)})"
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]} ... ({len(text)} characters)"


def text_of(error: BaseException) -> str:
    """Returns the class and the words of ``error``.

    >>> text_of(KeyError("x"))
    "KeyError: 'x'"
    """
    return f"{class_name(error)}: {words_of(error)}"


def class_name(error: BaseException) -> str:
    """Returns the name of the class of ``error``, whatever that class says of itself."""
    return str.__str__(type.__dict__["__name__"].__get__(type(error)))


def causes_of(
    error: BaseException, is_cause: Callable[[BaseException], bool] = lambda context: False
) -> list[BaseException]:
    """Returns ``error`` and the errors that it was raised from, the first one last, each once. An error that was only
    being handled when another was raised is one of them if ``is_cause`` says so."""
    causes = [error]
    while len(causes) < _LONGEST_CHAIN:
        cause, context = _of_base("__cause__", causes[-1]), _of_base("__context__", causes[-1])
        if cause is None and context is not None and is_cause(context):
            cause = context
        if cause is None or any(cause is earlier for earlier in causes):
            break
        causes.append(cause)
    return causes


def traceback_of(error: BaseException) -> TracebackType | None:
    """Returns the traceback of ``error``, whatever its class says of it."""
    frames: TracebackType | None = _of_base("__traceback__", error)
    return frames


def printable(error: BaseException) -> BaseException:
    """Returns ``error`` if its class, words, causes and notes can be printed, else an exception in its place that says
    what it was. A failed check stays one."""
    try:
        if error.__class__ is type(error) and _printed_length(error) <= PRINTED_LIMIT:
            return error
    except BaseException:  # its own code, which is why another stands for it
        pass
    stands_for = ConformanceFailure if issubclass(type(error), ConformanceFailure) else UnprintableError
    text = words_of(error) if stands_for is ConformanceFailure else text_of(error)
    return stands_for(text).with_traceback(traceback_of(error))


def _printed_length(error: BaseException) -> int:
    """Returns the number of characters that pytest would print, or a number past the limit."""
    length = len(str.__str__(str(error))) + len(str.__str__(repr(error)))
    if length > PRINTED_LIMIT:
        return length
    for line in traceback.TracebackException.from_exception(error, lookup_lines=False).format():
        length += len(line)
        if length > PRINTED_LIMIT:
            break
    return length


def _of_base(attribute: str, error: BaseException) -> Any:
    return BaseException.__dict__[attribute].__get__(error)


def with_first_error(error: BaseException) -> str:
    """Returns the type and words of ``error``. On the next line follows the error that it was raised from first, unless
    its words are there already. Of one without words, such as an assertion, the line of source that raised it is given.
    """
    text = text_of(error)
    first = causes_of(error)[-1]
    words = words_of(first) or _last_line(first)
    return text if first is error or not words or words in text else f"{text}\n{class_name(first)}: {words}"


def place_of(error: BaseException) -> str:
    """Returns where ``error`` was raised, as " at conftest.py:3"; empty if it is not known."""
    frames = traceback.extract_tb(traceback_of(error))
    return f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _last_line(error: BaseException) -> str:
    """Returns the line of source that raised ``error``; empty if it is not known."""
    frames = traceback.extract_tb(traceback_of(error))
    return (frames[-1].line or "") if frames else ""


def raised_by_kernel(error: BaseException) -> str:
    """The line of the kernel that raised ``error`` in the interpreter, the lines that called it, and the words of the
    first error; empty if no kernel ran."""
    chain = causes_of(error)
    places = [f"{Path(file).name.split('#')[0]}:{line} in {name}" for file, line, name in _kernel_lines(chain)]
    if not places:
        return ""
    first = chain[-1]
    line = _last_line(first)
    words = words_of(first).split("\n")[0] or (f"not {line}" if line else "")
    inner, *callers = [place for place, _ in itertools.groupby(reversed(places))][:_LINES]
    called = f", called at {', '.join(callers)}" if callers else ""
    return f"the kernel raises {class_name(first)} ({words[:160]}) at {inner}{called}"


def _kernel_lines(chain: list[BaseException]) -> Iterator[tuple[str, int, str]]:
    """File, line and function of every frame below Triton's that is neither its own nor a library's, from the launch
    on."""
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in _BETWEEN}
    triton, *folders = [str(Path(file).parent) if file else "no such package" for file in files.values()]
    folders += [triton, str(Path(__file__).parent), "<"]
    below = False
    for error in chain:
        for frame, line in traceback.walk_tb(traceback_of(error)):
            file = frame.f_code.co_filename
            below |= file.startswith(triton)
            standard = file.startswith(_STANDARD) and "site-packages" not in file
            if below and not standard and not file.startswith(tuple(folders)):
                yield file, line, frame.f_code.co_name
