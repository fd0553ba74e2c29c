"""Gives the warnings of a worker's cases to the process that leads the run in words and classes that it knows.

xdist makes each warning again there: it imports the class's module, which may be a suite that only workers can import.
"""

from __future__ import annotations

import builtins
import warnings

import pytest

from conformance.exception_text import class_name, words_of

#: The classes of warnings that every process has.
_COMMON = tuple(
    kind
    for module in (builtins, pytest)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Warning)
)


class WorkerWarnings:
    """Hooks of a worker."""

    @pytest.hookimpl(tryfirst=True)  # before xdist's, which sends the warning
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        message = warning_message.message
        if not isinstance(message, Warning):
            return
        kind = type(message)
        common = next(one for base in type.mro(kind) for one in _COMMON if one is base)
        words = words_of(message) if common is kind else f"{class_name(message)}: {words_of(message)}"
        warning_message.message = common(words.encode(errors="backslashreplace").decode())
        warning_message.category = common
