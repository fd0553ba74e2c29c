"""Loads what installed packages add by entry points. One that is broken or hangs is left out, and costs no other."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from itertools import islice
from typing import Any, TypeVar

from conformance.exception_text import text_of
from conformance.machine.overdue import deadline
from conformance.machine.process_exit import REFUSED, refuse

#: Why entry points were left out, by the words that name them.
LEFT_OUT: dict[str, str] = {}
#: The variable with those that the process which leads a run has left out: its other processes do not try them.
VARIABLE = "CONFORMANCE_LEFT_OUT"
#: An entry point that gives more things than this gives them without end.
MOST = 10_000

Loaded = TypeVar("Loaded")


class OutsideError(Exception):
    """Says that a thing that an installed package adds cannot be taken; the message names the entry point."""


def package_of(entry: EntryPoint) -> str:
    """Returns the name and version of the package that has ``entry``; empty if it has none."""
    try:
        return "" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
    except ValueError:  # its METADATA is no UTF-8
        return "a package whose METADATA cannot be read"


def taken(where: str, load: Callable[[], Loaded]) -> Loaded | None:
    """Returns what ``load`` returns; None if the entry point ``where`` is left out, now or by the run."""
    if where in (earlier := left_out_before()):
        LEFT_OUT[where] = earlier[where]
        return None
    give_back = refuse("this command")
    try:
        with deadline(where):
            return load()
    except OutsideError as error:
        LEFT_OUT[where] = str(error)
    except (Exception, SystemExit) as error:  # whatever a stranger's module raises
        LEFT_OUT[where] = f"{where} cannot be loaded: {text_of(error)}"
    finally:
        give_back()
        REFUSED.clear()
    return None


def left_out_before() -> dict[str, str]:
    """Returns what the process that leads the run has left out."""
    return dict(json.loads(os.environ.get(VARIABLE, "{}")))


def things(loaded: Any, kind: type) -> list[Any]:
    """Returns the things that an entry point gives: it names one of a ``kind``, several, or a callable that returns
    them. Raises ValueError if there is no end."""
    returned = loaded() if callable(loaded) and not isinstance(loaded, kind) else loaded
    several: Iterable[Any] = [returned] if isinstance(returned, kind) else returned
    entries = list(islice(several, MOST + 1))
    if len(entries) > MOST:
        raise ValueError(f"it gives more than {MOST} things")
    return entries
