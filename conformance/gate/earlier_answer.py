"""Reads the answer of an earlier gate or comparison: the JSON that it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.gate.verdict.finding_signatures import signature
from conformance.plain_json import RecordError, parsed
from conformance.records import plain_file
from conformance.user_files.findings import Kind, Severity

#: Versions of the JSON that can be read. What a signature is made of is the same in all of them.
SCHEMAS = (2,)


class EarlierAnswerError(ValueError):
    """A file is no earlier answer; the message names it, what is wrong and what to do."""


@dataclass(frozen=True)
class EarlierCause:
    """A cause of an earlier answer: its ``severity``, and the kernels and targets of its ``cases``."""

    severity: str
    places: frozenset[tuple[str | None, str | None]]
    cases: frozenset[str] = frozenset()


@dataclass(frozen=True)
class EarlierAnswer:
    """An earlier answer. ``file`` is how the user calls it, ``date`` the day on which its candidate was run, "" if it
    does not say. ``stacks`` are the names of its two sides. ``causes`` are by signature. ``waived`` are the cases whose
    regressions a waiver covered, with their kinds. ``broken``: a side of it was not whole. ``narrowed``: its runs left
    cases out."""

    file: str
    date: str
    stacks: tuple[str, str]
    causes: Mapping[str, EarlierCause]
    waived: frozenset[tuple[str, str]] = frozenset()
    broken: bool = False
    narrowed: bool = False

    @property
    def partial(self) -> bool:
        """True if it may lack causes that a whole answer has."""
        return self.broken or self.narrowed

    def is_about(self, baseline: str, candidate: str) -> bool:
        """Returns True if the answer compares the stacks of these names, whatever they brought along."""
        names = *self.stacks, baseline, candidate
        own, others = (tuple(name.partition(" (brings ")[0] for name in pair) for pair in (names[:2], names[2:]))
        return own == others

    def __str__(self) -> str:
        text = f"the answer of {self.date} ({self.file})" if self.date else f"the answer in {self.file}"
        if self.broken:
            return f"{text}, of a run that is not whole"
        return f"{text}, of a part of a tier" if self.narrowed else text


def read_earlier_answer(file: Path) -> EarlierAnswer:
    """Returns the answer in ``file``. Raises :class:`EarlierAnswerError`."""
    advice = "give the comparison.json of a gate, or what compare --json wrote"
    try:
        data = parsed(plain_file(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, RecordError) as error:
        raise EarlierAnswerError(f"--known {file}: it cannot be read as JSON ({error}): {advice}") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if isinstance(data, dict) and "answer" in data and "groups" not in data:
        raise EarlierAnswerError(f"--known {file}: nothing was compared there ({str(data['answer'])[:200]}): {advice}")
    if not isinstance(data, dict) or "groups" not in data or type(schema) is not int:
        raise EarlierAnswerError(f"--known {file}: it is no answer of a gate: {advice}")
    if schema not in SCHEMAS:
        schemas = ", ".join(map(str, SCHEMAS))
        raise EarlierAnswerError(
            f"--known {file}: it has schema {schema}, and this version reads {schemas}: make it again with this version"
        )
    try:
        return _answer(file, data)
    except (LookupError, TypeError, AttributeError) as error:
        raise EarlierAnswerError(f"--known {file}: it is no whole answer ({error!r}): {advice}") from None


def _answer(file: Path, data: Mapping[str, Any]) -> EarlierAnswer:
    causes: dict[str, EarlierCause] = {}
    waived: set[tuple[str, str]] = set()
    for group in data["groups"]:
        kind, cause, severity = group["kind"], group["cause"], group["severity"]
        places = frozenset((one["kernel"], one["target"]) for one in group["findings"])
        cases = frozenset(one["case"] for one in group["findings"])
        if kind == Kind.WAIVED.value:
            waived |= {(case, cause.partition(",")[0]) for case in cases}
            continue
        name = signature(kind, cause)
        earlier = causes.get(name)
        if earlier is not None:  # the same cause, of another severity
            places |= earlier.places
            cases |= earlier.cases
            severity = Severity.REGRESSION.value if Severity.REGRESSION in (severity, earlier.severity) else severity
        causes[name] = EarlierCause(severity, places, cases)
    sides = data["baseline"], data["candidate"]
    date = str(sides[1].get("started", ""))[:10]
    stacks = str(sides[0]["name"]), str(sides[1]["name"])
    broken, narrowed = bool(data.get("broken")), bool(data.get("narrowing"))
    return EarlierAnswer(str(file), date, stacks, causes, frozenset(waived), broken, narrowed)
