"""Refuses what would end the run's own process at once where it runs the cases itself: the exit status could be 0."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

#: Functions of ``os`` that end a process, or replace its program, without an exception. The others call these.
_ENDING = ("_exit", "execv", "execve")
#: What was refused, in words, until a case takes it. In a thread the error ends the thread alone.
REFUSED: list[str] = []


def refuse() -> Callable[[], None]:
    """Makes them raise RuntimeError in this process, not in those that it forks. Returns what gives them back."""
    before = {name: getattr(os, name) for name in _ENDING}
    for name, function in before.items():
        setattr(os, name, _refusing(name, function, os.getpid()))

    def give_back() -> None:
        for name, function in before.items():
            setattr(os, name, function)

    return give_back


def _refusing(name: str, function: Callable[..., Any], process: int) -> Callable[..., Any]:
    @wraps(function)
    def refusing(*arguments: Any, **named: Any) -> Any:
        if os.getpid() == process:
            text = f"os.{name} was called: it would end the run, whose cases run in pytest's own process; see '-n 1'"
            REFUSED.append(text)
            raise RuntimeError(text)
        return function(*arguments, **named)

    return refusing
