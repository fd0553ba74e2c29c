"""The data that a decorator attaches to a test, and the table of cases with ids that the plugin makes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    """The parts of a run that decide which cases a test has. ``kernels`` empty means all; ``asked_for_targets`` whether
    the user named the targets."""

    targets: tuple[Target, ...]
    tier: str
    kernels: tuple[str, ...] = ()
    has_gpu: bool = False
    compile_only: bool = False
    asked_for_targets: bool = False

    def has(self, kernel: str) -> bool:
        """True if the run has the kernel of this name."""
        return not self.kernels or kernel in self.kernels


@dataclass(frozen=True)
class CaseTable:
    """The names of a test's arguments, and by the id of each case their values."""

    names: tuple[str, ...]
    rows: dict[str, tuple[Any, ...]]


class Cases(Protocol):
    """The data that a decorator attaches to a test."""

    def names(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """Returns the parameters of a test that takes ``arguments``, in the order of their values in a row."""

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """Returns the cases of a test that takes ``arguments``."""

    def find(self, text: str, targets: Sequence[Target], arguments: Sequence[str]) -> tuple[Any, ...] | None:
        """Returns the values of the case whose id has ``text`` in its brackets, in the order of :meth:`names`.

        Finds every case that some tier can have for ``targets``, and lists no others. None if there is none.
        """

    def rule(self, kernel: Kernel | None, tier: str) -> str:
        """Says in a clause how ``tier`` chooses among the cases of ``kernel``, None for a test without one."""


def name_of(test: Callable[..., Any]) -> str:
    """Returns the name by which a choice of cases knows ``test``, such as "test_scaling.test_scales"."""
    return f"{test.__module__.rpartition('.')[2]}.{test.__name__}"


#: Of the digests. With another the quick tier takes other values, and may lose the only case of an expected failure.
SALT = b"14"


def digest(*words: str) -> int:
    """Returns a number that only ``words`` decide, in every process and release of Python."""
    return int.from_bytes(hashlib.blake2b("\n".join(words).encode(), digest_size=6, salt=SALT).digest(), "big")


def cases_of(test: Callable[..., Any]) -> Cases | None:
    """Returns the data attached to ``test``; None if it is no scenario."""
    cases: Cases | None = getattr(test, ATTRIBUTE, None)
    return cases


def parsed(text: str, parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Yields the values whose texts, joined by "-", are ``text``; ``parts`` maps texts to values for each part.

    >>> list(parsed("a-b-1", [{"a": "A", "a-b": "AB"}, {"1": 1, "b-1": 2}]))
    [('A', 2), ('AB', 1)]
    """
    if not parts:
        yield from [()] if not text else []
        return
    for start, value in parts[0].items():
        if text == start or (len(parts) > 1 and text.startswith(f"{start}-")):
            for others in parsed(text[len(start) + 1 :], parts[1:]):
                yield (value, *others)


def named_texts(name: str, values: Iterable[Any]) -> dict[str, Any]:
    """Returns ``values`` by their texts in a case id, such as "order=row.col"."""
    return {f"{name}={identify(value)}": value for value in values}


def identify(value: Any) -> str:
    """Returns the text of one parameter in a case id."""
    if isinstance(value, Kernel):
        return value.name
    if isinstance(value, (Target, AnyConfig, Layout, Problem, Variant)):
        return value.id or "plain"
    if isinstance(value, tuple):
        return ".".join(identify(item) for item in value)
    return str(value)
