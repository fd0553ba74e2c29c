"""Profiles: what a target claims to do, and whether the records prove it.

``profiles.toml`` has two kinds of tables. A ``[[profile]]`` has these keys:

``id``, ``about``
    Its name, and what it is in a few words.
``includes`` (optional)
    Profiles that are claimed with it.
``kernels``, ``suites``, ``dtypes`` (optional)
    Which cases prove it: patterns of kernels, patterns of suites, and dtypes. All that are given must hold.
``without`` (optional)
    Patterns of kernels that do not count, though ``kernels`` matches them.
``evidence`` (optional)
    Patterns of checks (such as "codegen/requires/TMA_LOAD"), one of which must have passed in one of these cases. A
    kernel that gives the right numbers by another way does not prove that the hardware's way works.

A ``[[target]]`` has an ``id`` and the profiles that it ``claims``.

Cases are chosen by their ids, which say suite, kernel and dtype. A mustpass list has nothing else, and a case that was
left out has no record. A claim is proven if all its cases that the target's list owes are proven. In one of them
compiled code must have run, with the evidence that the profile asks for. A wrong compiler would go unseen if the source
was only interpreted, or the code not run. A refusal that the list expects is not owed. The level of a claim is the
least level of its cases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from conformance.gate.mustpass.mustpass_check import is_excused, once
from conformance.gate.mustpass.mustpass_lists import (
    ANY,
    LEVELS,
    PASSED_BY,
    Level,
    MustpassList,
    is_proof,
    outcome,
    satisfies,
)
from conformance.records import CaseRecord, Status
from conformance.user_files import toml_entries
from conformance.user_files.case_list import any_matches
from conformance.user_files.toml_entries import EntryError, NamedEntry, Names, Text
from conformance.user_files.waiver_file import FAILURES

BUILT_IN = "profiles.toml"  # in conformance/data


class Profile(NamedEntry, frozen=True, kw_only=True):
    """One profile; the module says what its keys mean."""

    table = "profile"
    title = "profile"

    about: Text
    includes: Names = ()
    kernels: Names = ()
    without: Names = ()
    suites: Names = ()
    dtypes: Names = ()
    evidence: Names = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.selects and (self.evidence or not self.includes):
            raise ValueError("it has no cases: give one of kernels, suites, dtypes, or includes")

    @property
    def selects(self) -> bool:
        """True if it has cases of its own, and not only those of the profiles that it includes."""
        return bool(self.kernels or self.suites or self.dtypes)

    def chosen(self, cases: Cases) -> list[str]:
        """Returns the ``cases`` that prove this profile."""
        return [
            case
            for (suite, kernel), members in (cases.items() if self.selects else ())
            if not self.suites or any_matches(self.suites, suite)
            if not self.kernels or any_matches(self.kernels, kernel)
            if not any_matches(self.without, kernel)
            for case in members
            if not self.dtypes or not set(self.dtypes).isdisjoint(case.removesuffix("]").split("-"))
        ]


class TargetClaims(NamedEntry, frozen=True, kw_only=True):
    """The profiles that one target claims."""

    table = "target"
    title = "target"

    claims: Names


#: Case ids by suite and kernel; an id that names no kernel has what comes first in its brackets.
Cases = Mapping[tuple[str, str], Sequence[str]]


def cases_by_kernel(cases: Iterable[str]) -> Cases:
    """``cases`` by the suite and the kernel that their ids name.

    >>> cases_by_kernel(["test_tma.py::test_loads[mm-bf16-sm_90]"])
    {('tma', 'mm'): ['test_tma.py::test_loads[mm-bf16-sm_90]']}
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        file, _, test = case.partition("::")
        suite = file.rpartition("/")[2].removesuffix(".py").removeprefix("test_")
        kernel = test.partition("[")[2].removesuffix("]").partition("-")[0]
        groups.setdefault((suite, kernel), []).append(case)
    return groups


@dataclass(frozen=True)
class Profiles:
    """All profiles by name, and what each target claims."""

    profiles: Mapping[str, Profile]
    claims: Mapping[str, tuple[str, ...]]

    def claimed(self, target: str) -> tuple[Profile, ...]:
        """Returns the profiles with cases of their own that ``target`` claims, by name or because one that it claims
        includes them."""
        claimed: dict[str, Profile] = {}
        pending = list(self.claims.get(target, ()))
        for name in pending:
            if name not in claimed:
                claimed[name] = self.profiles[name]
                pending += claimed[name].includes
        return tuple(profile for profile in claimed.values() if profile.selects)


def read_profiles(paths: Iterable[Path] = (), own_claims: Mapping[str, tuple[str, ...]] | None = None) -> Profiles:
    """Returns the profiles that come with the package and those in the files ``paths``.

    ``own_claims``: what targets claim by themselves (``conformance.targets.claims()``). What a file says that a target
    claims replaces it. Raises :class:`EntryError`.
    """
    return parsed(toml_entries.read_texts(BUILT_IN, paths, "profiles"), own_claims)


def parsed(texts: Mapping[str, str], own_claims: Mapping[str, tuple[str, ...]] | None = None) -> Profiles:
    """The profiles in TOML ``texts`` by file name, and the claims: see :func:`read_profiles`."""
    entries: list[Profile] = []
    claims: dict[str, tuple[str, ...]] = dict(own_claims or {})
    for file, text in texts.items():
        data = toml_entries.load(text, file, Profile, TargetClaims)
        entries += toml_entries.entries(data, file, Profile)
        targets = toml_entries.by_id(toml_entries.entries(data, file, TargetClaims))
        claims |= {name: target.claims for name, target in targets.items()}
    profiles = toml_entries.by_id(entries)
    users = {name: f"profile {profile.id!r}" for profile in profiles.values() for name in profile.includes}
    users |= {name: f"target {target!r}" for target, names in claims.items() for name in names}
    for name in sorted(users.keys() - profiles.keys()):
        raise EntryError(f"{users[name]} names profile {name!r}, which there is not: use {', '.join(profiles)}")
    return Profiles(profiles, claims)


class State(str, Enum):
    """The state of a claim: proven or not. ``EXCUSED``: but for failures that waivers or expected failures excuse.
    ``FAILED`` and ``NOT_PROVEN`` fail the gate."""

    PROVEN = "proven"
    EXCUSED = "excused"
    FAILED = "failed"
    NOT_PROVEN = "not proven"


@dataclass(frozen=True)
class Claim:
    """The answer of the records about one claim. ``proven`` of ``owed`` cases were; ``cases`` are those that speak
    against it, ``text`` says why in a sentence."""

    target: str
    profile: str
    state: State
    level: Level | None
    owed: int
    proven: int
    text: str
    cases: tuple[str, ...] = ()

    def __str__(self) -> str:
        level = f" at level {self.level.value}" if self.level else ""
        return f"{self.target}: {self.profile} {self.state.value}{level}: {self.text}"


def claims(
    profiles: Profiles, lists: Mapping[str, MustpassList], records: Sequence[CaseRecord], excused: Collection[str] = ()
) -> list[Claim]:
    """Returns every claim of every target in ``lists`` (by target, those of the run). ``excused``: failing cases that a
    waiver covers."""
    by_case = once(records)
    every_claim: list[Claim] = []
    for target, mustpass in sorted(lists.items()):
        cases = cases_by_kernel(mustpass.outcomes)
        every_claim += [
            _claim(profile, mustpass, profile.chosen(cases), by_case, excused) for profile in profiles.claimed(target)
        ]
    return every_claim


def _claim(
    profile: Profile,
    mustpass: MustpassList,
    cases: Iterable[str],
    by_case: Mapping[str, CaseRecord],
    excused: Collection[str],
) -> Claim:
    """Returns the claim of ``profile``, which the ``cases`` of the list prove."""
    listed = {case: mustpass.outcomes[case] for case in cases}
    owed = {case: way for case, way in listed.items() if is_proof(way)}
    results = {case: outcome(by_case[case]) if case in by_case else "missing or duplicate" for case in owed}
    short = [case for case in owed if not satisfies(results[case], owed[case])]
    failed = [case for case in short if case in by_case and by_case[case].status in _FAILING]
    excused_cases = [case for case in short if case in by_case and is_excused(by_case[case], excused)]
    bad = [case for case in failed if case not in excused]
    rest = sorted({*short} - {*bad, *excused_cases})
    proven = sorted(owed.keys() - {*short})

    def claim(state: State, text: str, against: Iterable[str] = ()) -> Claim:
        level = _level(results[case] for case in proven) if state in (State.PROVEN, State.EXCUSED) else None
        return Claim(mustpass.target, profile.id, state, level, len(owed), len(proven), text, tuple(against))

    if not owed:
        refused = f", {len(listed)} listed as refused or not run" if listed else ""
        return claim(State.NOT_PROVEN, f"the target's list owes no case of it{refused}", listed)
    if bad:
        return claim(State.FAILED, f"{len(bad)} of {len(owed)} cases failed", bad)
    if rest:
        why = sorted({results[case] for case in rest})
        return claim(State.NOT_PROVEN, f"{len(rest)} of {len(owed)} cases are {', '.join(why)}", rest)
    if proven and not any(results[case] in _LEVELS for case in proven):
        text = "its cases pass without compiling or running a kernel, which shows nothing of the target"
        return claim(State.NOT_PROVEN, text, proven)
    of_code = [case for case in proven if _LEVELS.get(results[case]) in _RUNS_OF_CODE]
    if proven and not of_code:
        text = "no compiled code was run: its cases ran the source alone, or only compiled"
        return claim(State.NOT_PROVEN, text, proven)
    if profile.evidence and not any(_shows(profile, by_case[case]) for case in of_code):
        text = f"no case whose code was run passed {' or '.join(profile.evidence)}"
        return claim(State.NOT_PROVEN, text, proven)
    waiting = sum(way.startswith("not-run:") for way in listed.values())
    more = f", {waiting} more need what this run did not have" if waiting else ""
    if excused_cases:
        return claim(
            State.EXCUSED, f"{len(proven)} of {len(owed)} cases, {len(excused_cases)} excused{more}", excused_cases
        )
    return claim(State.PROVEN, f"{len(owed)} cases{more}")


_FAILING = {*FAILURES, Status.UNEXPECTED_PASS}
#: The levels at which compiled code was run.
_RUNS_OF_CODE = (Level.EXECUTED, Level.DEVICE)
_LEVELS = {"compiled": Level.COMPILED, **dict(PASSED_BY.values())}


def _level(ways: Iterable[str]) -> Level | None:
    """Returns the least level of those at which something was compiled or run."""
    return min((_LEVELS[way] for way in ways if way in _LEVELS), key=LEVELS.index, default=None)


def _shows(profile: Profile, record: CaseRecord) -> bool:
    return any(verdict.passed and any_matches(profile.evidence, verdict.check) for verdict in record.verdicts)


def not_claimed(
    profiles: Profiles, lists: Mapping[str, MustpassList], records: Sequence[CaseRecord]
) -> list[tuple[str, str]]:
    """Target and profile of each capability that a target's cases show and that it does not claim."""
    by_case = once(records)
    shown = []
    for target, mustpass in sorted(lists.items()):
        claimed = {profile.id for profile in profiles.claimed(target)}
        listed = cases_by_kernel(mustpass.outcomes)
        for profile in profiles.profiles.values():
            if profile.id in claimed or not profile.selects or target == ANY:
                continue
            records_of = (by_case[case] for case in profile.chosen(listed) if case in by_case)
            passing = (record for record in records_of if _LEVELS.get(outcome(record)) in _RUNS_OF_CODE)
            if any(not profile.evidence or _shows(profile, record) for record in passing):
                shown.append((target, profile.id))
    return shown
