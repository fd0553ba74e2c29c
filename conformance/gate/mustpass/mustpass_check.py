"""Checks a run against its mustpass lists: which cases are missing, double, unlisted or different, and how many are
proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from conformance.gate.mustpass.mustpass_lists import (
    DEFAULT_TARGETS,
    Level,
    MustpassError,
    MustpassList,
    is_proof,
    level_of,
    outcome,
    satisfies,
    stack_text,
    target_of,
)
from conformance.records import CaseRecord, RunInfo, Status, first_of
from conformance.user_files.toml_entries import holds


@dataclass(frozen=True)
class Difference:
    """Cases of one target whose results are not what is owed. ``what``: missing, duplicate, unlisted or differing;
    ``outcomes``: for each of ``cases`` that differ, what is owed and what the run has."""

    target: str
    what: str
    cases: tuple[str, ...]
    outcomes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.target}: {len(self.cases)} {self.what}"

    def __str__(self) -> str:
        shown = [f"{case} ({text})" for case, text in zip(self.cases, self.outcomes, strict=False)] or self.cases
        return f"{self.title}: {first_of(shown, 3)}"


@dataclass(frozen=True)
class Headline:
    """The number of the cases that ``target`` owes and that were proven. Refusals that the list expects do not count as
    owed; cases that it expects as not run do. ``by_outcome``: number of proven cases by the way in which they were
    proven."""

    target: str
    level: Level
    owed: int
    proven: int
    by_outcome: Mapping[str, int]

    def __str__(self) -> str:
        ways = ", ".join(f"{count} {way}" for way, count in sorted(self.by_outcome.items()))
        return f"{self.target}: {self.proven} of {self.owed} owed cases proven, level {self.level.value}" + (
            f" ({ways})" if ways else ""
        )


@dataclass(frozen=True)
class MustpassCheck:
    """A run checked against the lists: the differences, a sentence for each list that is lacking, and a headline for
    each target."""

    differences: tuple[Difference, ...]
    lacking: tuple[str, ...]
    headlines: tuple[Headline, ...]

    @property
    def complete(self) -> bool:
        """True if the run has a result of every case that is owed."""
        return not self.lacking and not any(difference.what == "missing" for difference in self.differences)


def once(records: Sequence[CaseRecord]) -> dict[str, CaseRecord]:
    """Returns the records by case, without the cases that have several records: none of them can be told to count."""
    counts = Counter(record.case for record in records)
    return {record.case: record for record in records if counts[record.case] == 1}


def applicable(lists: Sequence[MustpassList], run: RunInfo, records: Sequence[CaseRecord]) -> dict[str, MustpassList]:
    """The lists for this run by target: those of its tier, its targets, its level and its stack.

    A run of some targets has the cases that a run of all has of them. So if no list is for these targets alone, those
    of a run of all targets apply, less the list of cases that name none. Raises :class:`MustpassError` if a target has
    two: nothing says which of them counts.
    """
    level, targets = level_of(records), tuple(sorted(run.targets))
    exact = any(mustpass.targets == targets for mustpass in lists)
    by_target: dict[str, MustpassList] = {}
    for mustpass in lists:
        if (mustpass.tier, mustpass.level) != (run.tier, level):
            continue
        if mustpass.targets != targets and (exact or mustpass.targets or mustpass.target not in targets):
            continue
        if not holds(mustpass.stack, run.stack):
            continue
        other = by_target.setdefault(mustpass.target, mustpass)
        if other is not mustpass:
            ranges = f"{stack_text(other.stack)} and {stack_text(mustpass.stack)}"
            raise MustpassError(
                f"{mustpass.target}: two lists are for this run, of {ranges}: keep one, or narrow its stack"
            )
    return by_target


def check(
    lists: Sequence[MustpassList], run: RunInfo, records: Sequence[CaseRecord], excused: Collection[str] = ()
) -> MustpassCheck:
    """Checks ``records`` against those of ``lists`` that are for this run. A failure that a waiver or the run itself
    excuses is no difference, and not proven either. ``excused``: the failing cases that waivers cover."""
    chosen = applicable(lists, run, records)
    if run.targets and chosen and not any(mustpass.targets for mustpass in chosen.values()):
        records = [record for record in records if target_of(record.case, chosen) in chosen]
    counts = Counter(record.case for record in records)
    by_case = {record.case: record for record in records}
    listed = {case: target for target, mustpass in chosen.items() for case in mustpass.outcomes}
    targets = {*chosen, *run.targets, *(record.target for record in records if record.target)}
    differing: dict[tuple[str, str], list[str]] = {}
    for case, count in sorted(counts.items()):
        target = listed.get(case) or target_of(case, targets)
        if count > 1:
            differing.setdefault((target, "duplicate"), []).append(case)
        if case not in listed:
            differing.setdefault((target, "unlisted"), []).append(case)
    for target, mustpass in chosen.items():
        for case, owed in mustpass.outcomes.items():
            if case not in by_case:
                differing.setdefault((target, "missing"), []).append(case)
            elif not (satisfies(outcome(by_case[case]), owed) or is_excused(by_case[case], excused)):
                differing.setdefault((target, "differing"), []).append(case)

    def texts(target: str, cases: Iterable[str]) -> tuple[str, ...]:
        owed = chosen[target].outcomes
        return tuple(f"{owed[case]} is owed, {outcome(by_case[case])} found" for case in cases)

    unlisted = {target: len(cases) for (target, what), cases in differing.items() if what == "unlisted"}
    with_cases = sorted(unlisted.keys() - chosen.keys())
    without_cases = sorted(set(run.targets) - chosen.keys() - unlisted.keys())
    level, single = level_of(records), once(records)
    return MustpassCheck(
        tuple(
            Difference(target, what, tuple(cases), texts(target, cases) if what == "differing" else ())
            for (target, what), cases in sorted(differing.items())
            if target in chosen or what != "unlisted"
        ),
        tuple(_lacking(target, unlisted.get(target, 0), run, level) for target in (*with_cases, *without_cases)),
        tuple(_headline(mustpass, single) for _, mustpass in sorted(chosen.items())),
    )


def is_excused(record: CaseRecord, excused: Collection[str]) -> bool:
    """True if a failure is accepted: by an expected failure, or by a waiver that has ``excused`` its case."""
    return record.status is Status.EXPECTED_FAIL or record.case in excused


def _lacking(target: str, cases: int, run: RunInfo, level: Level) -> str:
    versions = ", ".join(f"{name} {run.stack.get(name)}" for name in ("torch", "triton"))
    targets = " ".join(sorted(run.targets)) or DEFAULT_TARGETS
    return (
        f"{target}: no mustpass list for tier {run.tier}, level {level.value}, targets {targets}, {versions}. "
        f"Cases without a list: {cases}. Write one with conformance mustpass write"
    )


def _headline(mustpass: MustpassList, by_case: Mapping[str, CaseRecord]) -> Headline:
    owed = {case: owed for case, owed in mustpass.outcomes.items() if not owed.startswith("not-applicable:")}
    outcomes = {case: outcome(by_case[case]) for case in owed if case in by_case}
    proven = [way for case, way in outcomes.items() if is_proof(way) and satisfies(way, owed[case])]
    return Headline(mustpass.target, mustpass.level, len(owed), len(proven), Counter(proven))
