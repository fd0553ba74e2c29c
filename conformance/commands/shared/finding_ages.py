"""Runs a few cases of each cause with older releases, so that a comparison says how old the cause is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.version import Version

from conformance.cases import known_names
from conformance.gate.runs.run_reader import ComparedRun, read_compared_run
from conformance.gate.stacks import older_releases
from conformance.gate.stacks.environments import prepare
from conformance.gate.stacks.older_releases import IndexAnswerError, parsed_version, without
from conformance.gate.stacks.stack_file import Stack, StackError, parse
from conformance.gate.stacks.stack_runs import (
    Abilities,
    RunError,
    Say,
    StackRun,
    abilities,
    complete,
    kept_run,
    listed,
    run,
)
from conformance.gate.verdict.finding_age import Releases, aged, chosen_cases
from conformance.gate.verdict.shown_again import Sight, sight
from conformance.machine.gpus import find_gpus
from conformance.records import RUN_FILE, RecordError
from conformance.reporting.first_line import many
from conformance.user_files.case_list import kept_case_list
from conformance.user_files.findings import Comparison, Finding
from conformance.user_files.thresholds import KernelThresholds, Tables

#: Characters of the reason why a release was not asked.
WHY_LIMIT = 200


def older_source(text: str) -> Stack | Path:
    """Returns the stack, or the folder of a run, that the user has of an older release. Raises :class:`StackError`."""
    folder = Path(text)
    if not folder.is_dir():
        return parse(text)
    if not (folder / RUN_FILE).is_file():
        raise StackError(f"{text} is no run's folder: give one, or a folder of packages as site={text}")
    return folder


@dataclass(frozen=True)
class OlderRuns:
    """Runs older releases. ``options`` are those of the gate's own runs; ``cache`` is where environments and runs are
    kept; ``sources`` are what the user has of older releases. ``progress`` shows how far the run of a stack is, ``say``
    prints a line, and ``index`` names the releases of a distribution."""

    options: Sequence[str]
    cache: Path
    sources: Sequence[Stack | Path]
    progress: Callable[[str], AbstractContextManager[Say]]
    say: Callable[[str], None]
    index: Callable[[str], list[Version]]

    def run(self, stack: Stack, cases: Sequence[str]) -> Path:
        """The folder of a run of ``cases`` with ``stack``: one of the gate's own runs, if it is kept, has them, too.
        Raises StackError, RunError or OSError."""
        (environment,) = prepare([stack], self.cache, bool(find_gpus().entries), self.say)
        can = abilities(environment)
        kept = kept_run(environment, can, self.options, self.cache)
        if kept is not None:
            return kept
        options = [*_of_targets(self.options, can), "--cases", str(kept_case_list(cases, self.cache))]
        if not listed(environment, options):
            raise RunError("it has none of the cases")
        self.say(f"{stack.name} is asked how old the causes are, by {many(len(cases), 'case')}")
        with self.progress(stack.name) as say:
            return run(environment, can, options, self.cache, say)[0]


def _of_targets(options: Sequence[str], can: Abilities) -> list[str]:
    """``options`` without a list of cases and without the targets that a stack lacks. Raises RunError if it lacks
    all."""
    left: list[str] = []
    lost: list[str] = []
    words = iter(options)
    for word in words:
        value = next(words, "") if word in ("--cases", "--target") else ""
        if word == "--target" and not set(known_names.target_ids([value])) <= set(can.targets):
            lost.append(value)
        elif word != "--cases":
            left += [word, value] if word == "--target" else [word]
    if lost and "--target" not in left:
        why = can.lacking.get(lost[0], "it knows no such target")
        raise RunError(f"it cannot compile for {lost[0]}: {why}")
    return left


@dataclass
class _AgeRuns:
    """The runs of older releases of one ``component``, and why others were not asked. ``harness`` is that of the
    candidate's run: another one judges by other rules."""

    component: str
    harness: object
    runs: dict[Version, ComparedRun] = field(default_factory=dict)
    not_asked: dict[Version, str] = field(default_factory=dict)
    unusable: list[str] = field(default_factory=list)

    def take(self, folder: Path, name: str, expected_version: Version | None = None) -> None:
        """Takes the run in ``folder`` for the version that it recorded, which must be ``expected_version`` if given.
        Raises RecordError or OSError."""
        side = read_compared_run(folder, name)
        version = _release(side, self.component)
        if expected_version not in (None, version):
            self.not_asked.setdefault(expected_version, f"its environment has {self.component} {version}")
        elif version is None:
            self.unusable.append(f"{side.name}: it names no version of {self.component}")
        elif side.stack.get("harness") != self.harness:
            self.not_asked.setdefault(version, f"another triton-conformance judged {side.name}")
        elif not complete(folder):
            self.not_asked.setdefault(version, f"{side.name} is not whole")
        else:
            self.runs.setdefault(version, side)


def with_ages(
    comparison: Comparison, baseline: StackRun, candidate: StackRun, older: OlderRuns, thresholds: Tables
) -> Comparison:
    """``comparison`` with the age of each cause that fails the gate, or that the baseline has, too."""
    chosen = chosen_cases(comparison.groups)
    if not chosen:
        return comparison
    sides = tuple(read_compared_run(one.folder, one.name) for one in (baseline, candidate))
    stacks = baseline.environment.stack, candidate.environment.stack
    component = older_releases.changed_component(stacks, (sides[0].stack, sides[1].stack))
    version = _release(sides[1], component) if component else None
    if component is None or version is None:
        why = f"the candidate names no version of {component}" if component else "both stacks have the same versions"
        older.say(f"how old the causes are cannot be asked: {why}")
        return comparison
    cases = sorted({one.case for _, one in chosen})
    age_runs = _AgeRuns(component, sides[1].stack.get("harness"))
    if _rest(stacks[0], component) == _rest(stacks[1], component):
        age_runs.take(baseline.folder, baseline.name)
    for source in older.sources:
        _ask(age_runs, older, source, cases)
    versions, listed_all, why_none = _known_releases(stacks[1], component, older)
    for release in reversed(older_releases.last_releases(versions, version)):
        if release not in age_runs.runs:
            _ask(age_runs, older, older_releases.with_release(stacks[1], component, release), cases, release)
    for text in age_runs.unusable:
        older.say(f"not asked: {text}")
    before = tuple(one for one in sorted({*versions, *age_runs.runs}) if one < version)
    earlier_runs = {one: side for one, side in age_runs.runs.items() if one < version}
    releases = Releases(component, version, before, listed_all, _outstanding(age_runs), why_none)
    limits = KernelThresholds(thresholds, None, sides[1].run)
    sights = [(group, one, _sights(one, earlier_runs, sides[1], limits)) for group, one in chosen]
    return aged(comparison, releases, sights)


def _release(side: ComparedRun, component: str) -> Version | None:
    """Returns the version of ``component`` that ``side`` recorded. Builds of one torch for several devices, such as
    2.13.0+cpu, are one release."""
    version = parsed_version(side.stack.get(component))
    return Version(version.public) if version and component == "torch" else version


def _rest(stack: Stack, component: str) -> Stack:
    """Returns ``stack`` without ``component``, whatever its name there."""
    return replace(without(stack, component), name="", brings=())


def _ask(
    age_runs: _AgeRuns, older: OlderRuns, source: Stack | Path, cases: Sequence[str], version: Version | None = None
) -> None:
    """Takes the run of ``source``, which is made if it is a stack. That a stack cannot be run is no error here."""
    name = source.name if isinstance(source, Stack) else str(source)
    try:
        folder = older.run(source, cases) if isinstance(source, Stack) else _with_cases(source, cases)
        age_runs.take(folder, name, version)
    except (StackError, RunError, RecordError, OSError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0][:WHY_LIMIT]
        if version is None:
            age_runs.unusable.append(f"{name}: {why}")
        else:
            age_runs.not_asked.setdefault(version, why)


def _with_cases(folder: Path, cases: Sequence[str]) -> Path:
    """The run in ``folder``, which has all ``cases``: one that lacks some must not stand for its release. Raises
    RunError, RecordError or OSError."""
    records = read_compared_run(folder).records
    missing = sum(case not in records for case in cases)
    if missing:
        raise RunError(f"it lacks {missing} of {many(len(cases), 'case')}")
    return folder


def _known_releases(candidate: Stack, component: str, older: OlderRuns) -> tuple[list[Version], bool, str]:
    """Returns the known releases, whether an index listed all of them, and why not if it did not. Without an index they
    are those of which an environment is kept."""
    name = older_releases.distribution(candidate, component)
    try:
        return older.index(name), True, ""
    except IndexAnswerError as error:
        return older_releases.kept_versions(name, older.cache), False, str(error)


def _outstanding(age_runs: _AgeRuns) -> Mapping[Version, str]:
    return {version: why for version, why in age_runs.not_asked.items() if version not in age_runs.runs}


def _sights(
    one: Finding, runs: Mapping[Version, ComparedRun], candidate: ComparedRun, limits: KernelThresholds
) -> dict[Version, Sight]:
    """Looks for the finding ``one`` in each of ``runs``, and returns what each shows of it."""
    device = candidate.stack.get("device")
    return {
        version: sight(
            one,
            side.records.get(one.case),
            candidate.records.get(one.case),
            limits.of(one.kernel),
            same_device=side.stack.get("device") == device,
        )
        for version, side in runs.items()
    }
