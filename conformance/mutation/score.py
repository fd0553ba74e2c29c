"""The mutation score as text: tables by function, class and check, and the survivors with their differences.

Whether the cause that a diagnosis names can be that of a mutant is decided here.

:data:`ACCEPTED` is the place to add to when a diagnosis learns to name more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from conformance.mutation.results import MutantOutcome, Result

#: What was observed of addresses: it is right of any fault that changes them.
ADDRESSES = (
    r"is (read|stored to|changed) ",
    "are stored by",
    "not written",
    "without .*, and reads",
    "no program reads",
    "where no program has stored",
)

#: By class of fault: patterns of causes that describe it. A class that is missing tells nothing of the right cause.
ACCEPTED: dict[str, tuple[str, ...]] = {
    "mask": (
        *ADDRESSES,
        "mask",
        "tail",
        "read as",
        "dropped",
        "skipped",
        "absent",
        "used twice",
        "is seen",
        "key behind",
    ),
    "bound": (*ADDRESSES, "mask", "tail", "read as", "dropped", "skipped", "tile", "twice", "absent", "left out"),
    "stride": (
        *ADDRESSES,
        "stride",
        "contiguous",
        "transpos",
        "one (row|column)",
        "other dimension",
        "used for all",
        "indexed within",
        "block of",
        "absent",
        "of another (batch|head|matrix|row|column)",
    ),
    "scale": ("scale", "alpha", "beta", "bias", "factor"),
    "other": ("filled with", "read as", "tail"),
    "rounding": ("round", "cut", "precision", "pass through", "passes through", "bits"),
    "accumulator": (
        *ADDRESSES,
        *("round", "cut", "accumulator", "reset", "precision", "k-block", "sum", "absent", "twice", "through"),
    ),
    "loop": (*ADDRESSES, "k-block", "skipped", "twice", "dropped", "absent", "tile", "step", "left out"),
    "program": (*ADDRESSES, "tile", "program", "batch", "written"),
}


#: How the cause of an error begins.
RAISED = "the kernel raises "


class Named(str, Enum):
    """The value of the diagnosis of a kill."""

    RIGHT = "right"
    WRONG = "wrong"
    NONE = "none"
    UNTOLD = "untold"


def named_cause(kind: str, cause: str, function: str = "") -> Named:
    """Decides whether ``cause``, as a diagnosis named it, fits a fault of class ``kind`` in ``function`` (module.name);
    UNTOLD if the class does not tell. A line that raised an error is right in the function itself, or in what it calls.
    """
    if not cause:
        return Named.NONE
    if RAISED in cause:
        own = re.escape(function.rsplit(".", 1)[-1])
        return Named.RIGHT if re.search(rf" in {own}\b", cause) else Named.UNTOLD
    if kind not in ACCEPTED:
        return Named.UNTOLD
    fits = any(re.search(pattern, cause) for pattern in ACCEPTED[kind])
    return Named.RIGHT if fits else Named.WRONG


#: The columns of a table of outcomes.
COLUMNS = ("killed", "compile-error", "survived", "known", "equivalent")


def outcome_column(result: Result, expected: Mapping[str, str]) -> str:
    """Returns the column that counts ``result``. ``expected`` has the reason for each known survivor."""
    survived = result.outcome is MutantOutcome.SURVIVED
    return "known" if survived and result.mutant in expected else result.outcome.value


def share_killed(results: Iterable[Result]) -> float:
    """Killed mutants of those that are not proved equivalent, in percent; 100 if there is none."""
    counts = Counter(result.outcome for result in results)
    killed = counts[MutantOutcome.KILLED] + counts[MutantOutcome.COMPILE_ERROR]
    total = killed + counts[MutantOutcome.SURVIVED]
    return 100.0 * killed / total if total else 100.0


def table(results: Sequence[Result], expected: Mapping[str, str], title: str, row: Callable[[Result], str]) -> str:
    """Returns a Markdown table with the outcomes of each ``row``, and of all."""
    rows: dict[str, list[Result]] = {}
    for result in sorted(results, key=row):
        rows.setdefault(row(result), []).append(result)
    lines = [f"| {title} | mutants | {' | '.join(COLUMNS)} | % killed |", "|---" * (len(COLUMNS) + 3) + "|"]
    for name, some in [*rows.items(), ("**all**", list(results))]:
        counts = Counter(outcome_column(result, expected) for result in some)
        cells = " | ".join(str(counts[column]) for column in COLUMNS)
        lines.append(f"| {name} | {len(some)} | {cells} | {share_killed(some):.1f} |")
    return "\n".join(lines)


def checks_table(results: Iterable[Result]) -> str:
    """Returns a Markdown table of what killed."""
    killed = Counter(
        result.check for result in results if result.outcome in (MutantOutcome.KILLED, MutantOutcome.COMPILE_ERROR)
    )
    lines = ["| check | kills |", "|---|---|", *(f"| {check} | {count} |" for check, count in killed.most_common())]
    return "\n".join(lines)


def causes_table(results: Iterable[Result]) -> str:
    """Returns a Markdown table of what diagnoses named, by class of fault. Only kills by numbers are diagnosed."""
    counts: dict[str, Counter[Named]] = {}
    for result in results:
        if result.outcome is MutantOutcome.KILLED and result.check.startswith(("numerics", "repeat", "memory")):
            counts.setdefault(result.kind, Counter())[named_cause(result.kind, result.cause, result.function)] += 1
    lines = [f"| class | {' | '.join(name.value for name in Named)} |", "|---" * (len(Named) + 1) + "|"]
    lines += [f"| {kind} | {' | '.join(str(counts[kind][name]) for name in Named)} |" for kind in sorted(counts)]
    return "\n".join(lines)


def survivors(results: Iterable[Result], expected: Mapping[str, str]) -> str:
    """Every survivor, with its difference and, where it is known, the reason."""
    parts = []
    for result in sorted(results, key=lambda each: each.mutant):
        if result.outcome is MutantOutcome.SURVIVED:
            reason = expected.get(result.mutant) or result.text or f"{result.plans} plans pass"
            parts.append("\n".join([f"{result.mutant}: {reason}", *(f"    {line}" for line in result.diff)]))
    return "\n".join(parts)


def report(results: Sequence[Result], expected: Mapping[str, str], *, causes: bool) -> str:
    """Returns all of it."""
    tables = [
        table(results, expected, "function", lambda result: result.function),
        table(results, expected, "class", lambda result: result.kind),
        checks_table(results),
    ]
    if causes:
        tables.append(causes_table(results))
    seconds = sum(result.seconds for result in results)
    tables.append(
        f"{len(results)} mutants, {seconds / max(len(results), 1):.2f} s each; {share_killed(results):.1f} % killed"
    )
    return "\n\n".join(tables)
