"""Which cases a run lost, and whether the two runs are of the same thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from conformance.gate.findings import Finding, Kind
from conformance.gate.reading import Entry, SideReading

_Sets = list[tuple[str, Callable[[Entry], str | None]]]
#: What a lost case is counted by; of equally large sets the first names the cause.
_SETS: _Sets = [
    ("kernel", lambda entry: entry.kernel),
    ("suite", lambda entry: entry.suite),
    ("target", lambda entry: entry.target),
]


def absences(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Callable[[Entry], str]:
    """A function that says why a case of the baseline is not in the candidate: as one of a kernel, suite or target
    that vanished whole (the largest such set), or by itself."""
    if not after:
        return lambda entry: f"the candidate recorded none of the {len(before)} cases"
    totals: Counter[tuple[str, str]] = Counter()
    kept: set[tuple[str, str]] = set()
    for case, entry in before.items():
        for name, key in _SETS:
            value = key(entry)
            if value is not None:
                totals[name, value] += 1
                if case in after:
                    kept.add((name, value))

    def cause(entry: Entry) -> str:
        whole = [
            (name, value) for name, key in _SETS if (value := key(entry)) is not None and (name, value) not in kept
        ]
        if not whole:
            return "not recorded"
        name, value = max(whole, key=lambda one: totals[one])  # the first of equals
        return f"{name} {value}: none of its {totals[name, value]} cases was recorded"

    return cause


def incomplete(candidate: SideReading, missing: int) -> Iterator[Finding]:
    """Why a candidate's run cannot vouch for what it did not record; ``missing`` cases of the baseline are reported
    one by one already."""
    run = candidate.run
    recorded = len(candidate.entries)
    said = list(run.problems) if run else []
    if run and run.wall_s is None:
        said.append("the run did not end")
    if run and run.selected is not None and run.selected - recorded > missing:
        said.append(f"{run.selected - recorded} of {run.selected} selected cases were not recorded")
    if candidate.unusable:
        said.append(f"{candidate.unusable} lines of records could not be used")
    for text in said:
        cause = "the candidate's run is incomplete"
        yield Finding(Kind.LOST_COVERAGE, "(the candidate's run)", None, None, cause, "", text[:300])


def warnings(baseline: SideReading, candidate: SideReading) -> list[str]:
    """Why the two runs are only partly comparable, and what is wrong with either."""
    found = [
        f"{what} differ: {was} before, {now} now; {so}"
        for what, was, now, so in _differences(baseline, candidate)
        if was != now
    ]
    for label, side in (("baseline", baseline), ("candidate", candidate)):
        if side.run is None:
            found.append(f"the {label} has no usable run.json: whether its run ended and what was selected is unknown")
        else:
            found += [f"the {label}'s run: {problem}" for problem in side.run.problems]
            if side.run.wall_s is None:
                found.append(f"the {label}'s run did not end")
            if side.run.selected is not None and side.run.selected != len(side.entries):
                found.append(f"the {label}'s run selected {side.run.selected} cases; {len(side.entries)} are recorded")
        if side.mixed:
            found.append(f"the {label}'s records are not all of one {', '.join(side.mixed)}")
        if side.problems:
            found.append(f"the {label}'s records: {len(side.problems)} problems, the first: {side.problems[0]}")
    return found


def _differences(baseline: SideReading, candidate: SideReading) -> Iterator[tuple[str, object, object, str]]:
    both = (baseline, candidate)
    yield "tiers", baseline.tier, candidate.tier, "cases of one tier only count as lost or new"
    yield "seeds", baseline.seed, candidate.seed, "the bits of outputs are not compared"
    if baseline.run and candidate.run:
        targets = (", ".join(sorted(side.run.targets)) or "the default" for side in both if side.run)
        yield "targets", next(targets), next(targets), "cases of one run's targets only count as lost or new"
    for key, what, so in (
        ("harness", "harnesses", "checks may differ"),
        ("device", "devices", "times are not compared"),
    ):
        yield what, baseline.stack.get(key), candidate.stack.get(key), so
