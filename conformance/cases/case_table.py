"""What a decorator of a test attaches to it, and what the plugin makes of that: a table of cases with ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from conformance.heuristics.configs import AnyConfig
from conformance.kernels.kernel import Kernel, Variant
from conformance.problems import Layout, Problem
from conformance.targets import Target

#: The attribute of a test function that holds its :class:`Cases`.
ATTRIBUTE = "conformance_cases"

Test = TypeVar("Test", bound=Callable[..., Any])


@dataclass(frozen=True)
class Selection:
    """What of a run decides which cases a test has. ``kernels`` empty means all; ``asked_for_targets`` whether the user
    named the targets."""

    targets: tuple[Target, ...]
    tier: str
    kernels: tuple[str, ...] = ()
    has_gpu: bool = False
    compile_only: bool = False
    asked_for_targets: bool = False


@dataclass(frozen=True)
class CaseTable:
    """The names of a test's arguments, and by the id of each case their values."""

    names: tuple[str, ...]
    rows: dict[str, tuple[Any, ...]]


class Cases(Protocol):
    """What a decorator attaches to a test."""

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """The cases of a test that takes ``arguments``."""


def cases_of(test: Callable[..., Any]) -> Cases | None:
    """Returns what was attached to ``test``; None if it is no scenario."""
    cases: Cases | None = getattr(test, ATTRIBUTE, None)
    return cases


def identify(value: Any) -> str:
    """The text of one parameter in a case id."""
    if isinstance(value, Kernel):
        return value.name
    if isinstance(value, (Target, AnyConfig, Layout, Problem, Variant)):
        return value.id or "plain"
    if isinstance(value, tuple):
        return ".".join(identify(item) for item in value)
    return str(value)
