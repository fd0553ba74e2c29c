"""Says of each cause whether an earlier answer has it. That a cause is known changes nothing else in the answer.

Signatures of findings, and the JSON that an earlier gate or comparison wrote, are here too.

A signature is made of a finding's kind and of its cause without what differs from case to case or from build to build.
That is sizes, counts, addresses, paths, line numbers, versions, ids of cases and generated names. It names neither the
kernel nor the stacks. So a finding of the same cause in another kernel has the same signature, as has one that torch's
own Triton brings. Targets, data types, features, links and numbers of issues are part of a cause.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.plain_json import RecordError, parsed
from conformance.records import plain_file
from conformance.user_files.findings import Comparison, Group, Kind, Severity

#: Hexadecimal digits of a signature.
DIGITS = 12

#: What stays as it is although it has numbers: links, numbers of issues, and the ids of known defects.
_KEPT = re.compile(
    r"https?://[^\s)\]>,;]+|#\d{3,}\b|\b(?:[Ii]ssue|[Pp]ull(?: request)?|PR) #?\d{3,}\b|known-defect \([^)]*\)|"
    r"\b(?:sm|gfx)_?\d+\w*(?:-\d+)?"
)
_SUBSTITUTIONS = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\S*\btest_\w+\.py::\S+", "CASE"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?\S*", "N"),
        (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "HEX"),
        (r"0x[0-9a-fA-F]+|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}\b", "HEX"),
        (r"(?<![\w.])(?:~|\.{1,2})?(?:/[\w.+@~-]+){2,}(?::\d+)*", "PATH"),
        (r"(\b[\w+-]+\.(?:cpp|cc|h|hpp|inc|td|py|mlir|ll|ptx|cu))(?::\d+)+", r"\1"),
        (r"\btmp[a-z0-9_]{6,}\b", "TMP"),
        (r"(?<![\w%])%[\w.#:$-]+", "%V"),
        (r"#([a-z]\w*?)\d+\b", r"#\1"),  # a layout of MLIR
        (r"\bgw\d+\b", "gwN"),
        (r"\bm\d+n\d+k\d+\b", "mNnNkN"),
        (r"(?<![\w.])\d+(?:x\d+)+(?:x(?=[a-z]))?(?:-[sw]\d+)*", "SIZE"),
        (r"(?<![\w.])\d+x(?=[a-z])", "SIZE"),
        (r"(?<=[a-z])_(?:\d+(?:de|d|c)?)+\b", "_N"),
        (r"(?<![\w.])[-+]?\d+(?:\.\d+)*(?:[eE][-+]?\d+)?(?:[KMGT]?i?B|[num]?s)?(?![\w])", "N"),
        (r"\bN (?:[KMGT]?i?B|bytes?|[num]?s|seconds?)\b", "N"),
        (r"[\[(] ?N(?:, ?N)*,? ?[\])]", "[..]"),
        (r"\bN(?:, ?N)+\b", "N"),
        (r"\bN ([a-z]+)s\b", r"N \1"),  # "1 row" and "2 rows"
        (r"\s+", " "),
    )
)


#: Characters of a cause that count. The patterns take time by the square of a text without a blank.
LONGEST_CAUSE = 5000


def signature(kind: Kind | str, cause: str) -> str:
    """Returns the signature of a finding of ``kind`` with ``cause``, such as "NEW_FAIL-3f2a91c04b7e".

    >>> signature("NEW_FAIL", "no barrier at line 40") == signature("NEW_FAIL", "no barrier at line 90")
    True
    """
    name = kind.value if isinstance(kind, Kind) else kind
    text = cause if name == Kind.NEW_KNOWN_DEFECT.value else stable_cause(cause)  # an entry's id and link stay
    digest = hashlib.sha256(f"{name}\n{text}".encode(errors="backslashreplace")).hexdigest()
    return f"{name}-{digest[:DIGITS]}"


def stable_cause(cause: str) -> str:
    """``cause`` without what differs from case to case, from run to run and from build to build.

    >>> stable_cause("LLVM ERROR: 12 registers at /tmp/a/b.py:40 on 0x7fff00")
    'LLVM ERROR: N register at PATH on HEX'
    """
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{chr(0xE000 + len(kept) - 1)}"  # no pattern below matches these characters

    text = _KEPT.sub(keep, cause[:LONGEST_CAUSE].replace("\0", " "))
    for pattern, replacement in _SUBSTITUTIONS:
        text = pattern.sub(replacement, text)
    for number, original in enumerate(kept):
        text = text.replace(f"\0{chr(0xE000 + number)}", original, 1)
    return text.strip()


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


#: How many kernels and targets are named that an earlier answer has not.
PLACES_SHOWN = 5
#: Kinds of failures whose causes are worded alike.
_FAILING = (Kind.NEW_FAIL, Kind.NEW_CRASH, Kind.NONDETERMINISTIC, Kind.STILL_FAIL)
_NEW, _MORE, _KNOWN = "new", "in more kernels or targets", "known"


def with_known(comparison: Comparison, answers: Sequence[EarlierAnswer]) -> Comparison:
    """``comparison`` with what the earlier ``answers`` say of its regressions and warnings; itself without answers."""
    if not answers:
        return comparison
    answers = sorted(answers, key=lambda one: one.date or "9999")
    counts, groups = Counter[str](), []
    for group in comparison.groups:
        if group.severity is Severity.INFO:
            groups.append(group)
            continue
        state, text = _state(group, answers)
        counts[state] += group.severity is Severity.REGRESSION
        groups.append(replace(group, earlier=text, notes=(text, *group.notes)))
    return replace(
        comparison, groups=tuple(groups), history=(*comparison.history, _summary(comparison, answers, counts))
    )


def _state(group: Group, answers: Sequence[EarlierAnswer]) -> tuple[str, str]:
    """Returns the state of ``group`` (known or new), and a sentence about it."""
    name, as_kind = _earlier_name(group, answers)
    first = next((answer for answer in answers if name in answer.causes), None)
    if first is None:
        waived = {(one.case, group.kind.value) for one in group.findings}
        other = next((answer for answer in answers if waived <= answer.waived), None)
        if other:
            return _KNOWN, f"as in {other}, where waivers covered it"
        return _NEW, f"{'not in' if answers[-1].partial else 'new since'} {answers[-1]}"
    earlier = [answer.causes[name] for answer in answers if name in answer.causes]
    places = {place for one in earlier for place in one.places}
    more = sorted(
        {(one.kernel or "", one.target or "") for one in group.findings if (one.kernel, one.target) not in places}
    )
    then = as_kind + _then(group, earlier)
    if not more:
        return _KNOWN, f"as in {first}{then}"
    shown = ", ".join(" on ".join(filter(None, place)) for place in more[:PLACES_SHOWN])
    rest = f" and {len(more) - PLACES_SHOWN} more" if len(more) > PLACES_SHOWN else ""
    return _MORE, f"as in {first}{then}, and now also in {shown}{rest}"


def _earlier_name(group: Group, answers: Sequence[EarlierAnswer]) -> tuple[str, str]:
    """Returns the signature by which ``answers`` know ``group``, and a note if they know it as another kind. A case
    that newly failed then may fail on both sides now."""
    own = signature(group.kind, group.cause)
    signatures = {name for answer in answers for name in answer.causes}
    if own not in signatures and group.kind in _FAILING:
        for kind in _FAILING:
            if (name := signature(kind, group.cause)) in signatures:
                return name, f", there {kind.value}"
    return own, ""


def _then(group: Group, earlier: Sequence[EarlierCause]) -> str:
    """Returns the sentence that the cause was no regression then, if it is one now."""
    was_one = any(one.severity == Severity.REGRESSION.value for one in earlier)
    return (
        "" if was_one or group.severity is not Severity.REGRESSION else f", where it was only a {earlier[-1].severity}"
    )


def _summary(comparison: Comparison, answers: Sequence[EarlierAnswer], counts: Counter[str]) -> str:
    """Returns a sentence for the first screen: how many causes of regressions are new."""
    last, now = answers[-1], _present(comparison, answers[-1])
    gone = sum(one.severity == Severity.REGRESSION.value and name not in now for name, one in last.causes.items())
    total, new = counts.total(), "not in the earlier answer," if last.partial else "new"
    parts = [
        f"{_are(counts[_NEW])} {new} of {total} {'cause' if total == 1 else 'causes'} of regressions",
        f"{_are(counts[_MORE])} known and now in more kernels or targets",
        f"{_are(counts[_KNOWN])} as there",
        f"{_are(gone)} {'not compared now' if comparison.broken or comparison.narrowing else 'gone'}",
    ]
    shown = [
        parts[0],
        *(part for part, count in zip(parts[1:], (counts[_MORE], counts[_KNOWN], gone), strict=True) if count),
    ]
    return f"since {last}: {', '.join(shown)}"


def _present(comparison: Comparison, last: EarlierAnswer) -> set[str]:
    """Returns the signatures of the causes of ``last`` that ``comparison`` has, too. A failure may have another kind
    now, and waivers may cover more."""
    now = set[str]()
    for group in comparison.groups:
        kinds = _FAILING if group.kind in _FAILING else (group.kind,)
        now |= {signature(kind, group.cause) for kind in kinds}
        if group.kind is Kind.WAIVED:
            kind, cases = group.cause.partition(",")[0], {one.case for one in group.findings}
            now |= {name for name, one in last.causes.items() if name.startswith(f"{kind}-") and one.cases & cases}
    return now


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"
