"""A run held against its mustpass lists: what is missing, double, unlisted or different, and the headline figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from conformance.gate.mustpass.mustpass_lists import (
    DEFAULT_TARGETS,
    Level,
    Mustpass,
    MustpassError,
    is_proof,
    level_of,
    outcome,
    satisfies,
    stack_text,
    target_of,
)
from conformance.gate.user_files.stack_ranges import holds
from conformance.records import CaseRecord, RunInfo, Status


@dataclass(frozen=True)
class Difference:
    """Cases of one target whose results are not what is owed. ``what``: missing, duplicate, unlisted or differing;
    ``outcomes``: for each of ``cases`` that differ what was owed and found."""

    target: str
    what: str
    cases: tuple[str, ...]
    outcomes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.target}: {len(self.cases)} {self.what}"

    def __str__(self) -> str:
        shown = [f"{case} ({text})" for case, text in zip(self.cases, self.outcomes, strict=False)] or self.cases
        more = f" and {len(self.cases) - 3} more" if len(self.cases) > 3 else ""
        return f"{self.title}: {', '.join(shown[:3])}{more}"


@dataclass(frozen=True)
class Headline:
    """How many of the cases that ``target`` owes were proven. Refusals that the list expects are not owed; cases that
    need what the run did not have are. ``by_outcome`` says in which way how many were proven."""

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
class Checked:
    """A run held against the lists: what differs, the lists that are lacking, the headline of each target."""

    differences: tuple[Difference, ...]
    lacking: tuple[str, ...]
    headlines: tuple[Headline, ...]

    @property
    def complete(self) -> bool:
        """Whether the run has a result of every case that is owed."""
        return not self.lacking and not any(difference.what == "missing" for difference in self.differences)


def once(records: Sequence[CaseRecord]) -> dict[str, CaseRecord]:
    """The records by case, without those cases that have several: which of them counts nobody can say."""
    counts = Counter(record.case for record in records)
    return {record.case: record for record in records if counts[record.case] == 1}


def applicable(lists: Iterable[Mustpass], run: RunInfo, records: Sequence[CaseRecord]) -> list[Mustpass]:
    """The lists that are for this run: its tier, its targets, its level and its stack. Raises :class:`MustpassError`
    if two of one target are: nothing says which of them counts."""
    level, targets = level_of(records), tuple(sorted(run.targets))
    found = [
        each
        for each in lists
        if (each.tier, each.level, each.targets) == (run.tier, level, targets) and holds(each.stack, run.stack)
    ]
    for target, count in Counter(each.target for each in found).items():
        if count > 1:
            ranges = " and ".join(stack_text(each.stack) for each in found if each.target == target)
            raise MustpassError(f"{target}: {count} lists are for this run, of {ranges}: keep one, or narrow its stack")
    return found


def check(
    lists: Sequence[Mustpass], run: RunInfo, records: Sequence[CaseRecord], excused: Collection[str] = ()
) -> Checked:
    """Holds ``records`` against those of ``lists`` that are for this run. A failure that is ``excused`` by a waiver, or
    that an expected failure covers, is no difference; it is not proven either."""
    chosen = {each.target: each for each in applicable(lists, run, records)}
    counts = Counter(record.case for record in records)
    by_case = {record.case: record for record in records}
    single = once(records)
    listed = {case: target for target, each in chosen.items() for case in each.outcomes}
    known = {*chosen, *run.targets, *(record.target for record in records if record.target)}
    found: dict[tuple[str, str], list[str]] = {}
    for case, count in sorted(counts.items()):
        target = listed.get(case) or target_of(case, known)
        if count > 1:
            found.setdefault((target, "duplicate"), []).append(case)
        if case not in listed:
            found.setdefault((target, "unlisted"), []).append(case)
    for target, each in chosen.items():
        for case, owed in each.outcomes.items():
            if case not in by_case:
                found.setdefault((target, "missing"), []).append(case)
            elif not (satisfies(outcome(by_case[case]), owed) or is_excused(by_case[case], excused)):
                found.setdefault((target, "differing"), []).append(case)

    def texts(target: str, cases: Iterable[str]) -> tuple[str, ...]:
        owed = chosen[target].outcomes
        return tuple(f"{owed[case]} is owed, {outcome(by_case[case])} found" for case in cases)

    without = {target: cases for (target, what), cases in found.items() if what == "unlisted" and target not in chosen}
    lacking = [_lacking(target, len(cases), run, level_of(records)) for target, cases in sorted(without.items())]
    lacking += [
        _lacking(target, 0, run, level_of(records))
        for target in sorted(set(run.targets) - chosen.keys() - without.keys())
    ]
    return Checked(
        tuple(
            Difference(target, what, tuple(cases), texts(target, cases) if what == "differing" else ())
            for (target, what), cases in sorted(found.items())
            if target in chosen or what != "unlisted"
        ),
        tuple(lacking),
        tuple(_headline(each, single) for _, each in sorted(chosen.items())),
    )


def is_excused(record: CaseRecord, excused: Collection[str]) -> bool:
    """Whether a failure is accepted: by an expected failure, or by a waiver that has ``excused`` its case."""
    return record.status is Status.EXPECTED_FAIL or record.case in excused


def _lacking(target: str, cases: int, run: RunInfo, level: Level) -> str:
    versions = ", ".join(f"{name} {run.stack.get(name)}" for name in ("torch", "triton"))
    targets = " ".join(sorted(run.targets)) or DEFAULT_TARGETS
    return (
        f"{target}: no mustpass list for tier {run.tier}, level {level.value}, targets {targets}, {versions} "
        f"({cases} cases have nothing to be held against): write one with conformance mustpass write"
    )


def _headline(mustpass: Mustpass, by_case: Mapping[str, CaseRecord]) -> Headline:
    owed = {case: owed for case, owed in mustpass.outcomes.items() if not owed.startswith("not-applicable:")}
    found = {case: outcome(by_case[case]) for case in owed if case in by_case}
    proven = [way for case, way in found.items() if is_proof(way) and satisfies(way, owed[case])]
    return Headline(mustpass.target, mustpass.level, len(owed), len(proven), Counter(proven))
