"""Common parts of ``gate`` and ``matrix``: their options, and how stacks are built, run and reported."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType

from conformance.cases import known_names
from conformance.commands import CommandError, command_errors, positive
from conformance.commands.shared import history_options, policy_options
from conformance.commands.shared.blamed_findings import blamed_findings
from conformance.commands.shared.comparison_output import deliver, no_answer, no_answer_json, write_files
from conformance.commands.shared.confirmed_scripts import reproduced
from conformance.commands.shared.finding_ages import OlderRuns, older_source, with_ages
from conformance.commands.shared.history_options import write_issues
from conformance.commands.shared.policy_options import compared
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.stacks.environments import Environment, build, resolve_all
from conformance.gate.stacks.older_releases import index_versions
from conformance.gate.stacks.stack_file import Stack, StackError
from conformance.gate.stacks.stack_runs import (
    Abilities,
    NoRun,
    RunError,
    Say,
    StackRun,
    abilities,
    complete,
    listed,
    run,
)
from conformance.gate.verdict.baseline_repeats import with_baseline_runs
from conformance.gate.verdict.known_findings import EarlierAnswer, with_known
from conformance.machine.gpus import find_gpus
from conformance.machine.kept_answers import code_digest, default_cache
from conformance.records import RecordError, read_run
from conformance.reporting.first_line import many
from conformance.reporting.progress import Progress, ProgressDisplay, about, can_redraw
from conformance.reporting.text import clean, log_safe
from conformance.user_files.case_list import CaseListError, kept_case_list, read_case_list
from conformance.user_files.findings import Comparison
from conformance.user_files.run_options import REQUIRE, TIERS
from conformance.user_files.thresholds import Tables

#: Options of the suites that the gate passes on, each as often as it is given.
_PASSED_ON = ("target", "suite", "kernel", "config")
#: Form of a comparison -> the file's name.
REPORTS = {"json": "comparison.json", "markdown": "comparison.md", "html": "report.html"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tier", choices=TIERS, default="quick", help="how much to run with each stack (default: quick)"
    )
    for name in _PASSED_ON:
        parser.add_argument(
            f"--{name}", action="append", default=[], metavar=name.upper(), help=f"only this {name} (repeatable)"
        )
    parser.add_argument("-k", metavar="EXPR", help="only the cases whose ids have these words, as pytest's -k")
    parser.add_argument(
        "--cases", metavar="FILE", type=Path, help="only the cases whose ids this file lists, one a line"
    )
    parser.add_argument(
        "--repeats",
        metavar="N",
        type=positive,
        default=1,
        help="judge each launch N times in its case, which passes if all agree (default: 1)",
    )
    parser.add_argument("--compile-only", action="store_true", help="compile and check the code, run nothing")
    parser.add_argument("--no-gpu", action="store_true", help="interpreter and cross-compilation only")
    parser.add_argument(
        "--require",
        choices=REQUIRE,
        help="no answer if a case that can be proven so is proven by less with one of the stacks",
    )
    policy_options.add_threshold_option(parser)
    policy_options.add_options(parser)
    parser.add_argument(
        "--reproducers",
        metavar="N",
        type=_count,
        default=8,
        help="write and try scripts for this many causes and kernels of regressions, the worst first (default: 8)",
    )
    parser.add_argument(
        "--blame",
        metavar="N",
        type=_count,
        default=0,
        help="name the guilty compiler stage of this many causes of regressions, the worst first (default: 0, which "
        "prints the commands that do)",
    )
    parser.add_argument(
        "--baseline-runs",
        metavar="N",
        type=positive,
        default=1,
        help="run the baseline N times, and say in how many of its runs each finding shows (default: 1)",
    )
    parser.add_argument(
        "--no-age", action="store_true", help="do not run cases of regressions with the last three releases"
    )
    parser.add_argument(
        "--older",
        metavar="STACK",
        action="append",
        default=[],
        help="an older release to ask how old a cause is: a stack, or the folder of a run (repeatable)",
    )
    history_options.add_options(parser)
    parser.add_argument(
        "--output", metavar="DIR", type=Path, help="where the reports go (default: reports/gate-<time>)"
    )
    parser.add_argument(
        "--cache", metavar="DIR", type=Path, help="environments and runs (default: ~/.cache/triton-conformance)"
    )


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: a number of groups, 0 or more, is required")
    return int(text)


@command_errors(
    StackError, RunError, known_names.UnknownName, CaseListError, OSError
)  # OSError: a cache that cannot be written
def run_stacks(
    arguments: argparse.Namespace, stacks: Sequence[Stack], stages: Stages, baselines: Collection[int]
) -> list[StackRun]:
    """A run for each of ``stacks``, in their order, with the user's options. Those at the places ``baselines`` are run
    as often as the user asked. Raises :class:`CommandError`; for unusable files before the first run."""
    policy_options.refuse_unusable(arguments)
    policy_options.thresholds(arguments)  # one that cannot be read is refused before the runs
    _check_names(arguments, stacks)
    if arguments.repeats > 1 and arguments.compile_only:
        raise CommandError(f"--repeats {arguments.repeats} contradicts --compile-only, which runs nothing")
    if arguments.require and arguments.compile_only:
        raise CommandError(f"--require {arguments.require} contradicts --compile-only, which runs nothing")
    if arguments.require == "device" and arguments.no_gpu:
        raise CommandError("--require device contradicts --no-gpu: give one of them")
    if arguments.no_age and arguments.older:
        raise CommandError(f"--older {arguments.older[0]} contradicts --no-age, which asks no older release")
    _older_sources(arguments)
    cases = read_case_list(arguments.cases) if arguments.cases else frozenset[str]()
    history_options.refuse_unusable(arguments)
    if arguments.output:
        make(arguments.output)
    cache = cache_of(arguments)
    options = ["--tier", arguments.tier]
    for name in _PASSED_ON:
        options += [word for value in getattr(arguments, name) for word in (f"--{name}", value)]
    options += ["--compile-only"] * arguments.compile_only + ["--no-gpu"] * arguments.no_gpu
    options += ["--require", arguments.require] if arguments.require else []
    options += ["-k", arguments.k] if arguments.k is not None else []
    options += ["--repeats", str(arguments.repeats)] if arguments.repeats > 1 else []
    options += ["--cases", str(kept_case_list(cases, cache))] if cases else []
    again = dict.fromkeys(sorted(baselines), arguments.baseline_runs - 1)
    try:
        return runs(stacks, options, arguments.target, arguments.kernel, cache, stages, arguments.config, cases, again)
    except NoRun as error:
        output = arguments.output or new_output()
        make(output)
        (output / REPORTS["json"]).write_text(no_answer_json(error.name, error.fault), encoding="utf-8")
        print(no_answer(error.name, error.fault), flush=True)
        raise


@command_errors(StackError)
def _older_sources(arguments: argparse.Namespace) -> list[Stack | Path]:
    return [older_source(text) for text in arguments.older]


def cache_of(arguments: argparse.Namespace) -> Path:
    """Returns the cache as each process finds it: those of the stacks run in other directories."""
    return (arguments.cache or default_cache()).resolve()


@command_errors(known_names.UnknownName)
def _check_names(arguments: argparse.Namespace, stacks: Sequence[Stack]) -> None:
    """Raises :class:`CommandError` for a suite, target or kernel that no stack can have. Packages of a stack may bring
    kernels, and this environment may have no torch. Then the stacks are asked for their kernels after they have been
    built."""
    known_names.check_suites(arguments.suite)
    if arguments.k is not None:
        import pytest

        from conformance.plugin.keyword_filter import matches

        with command_errors(pytest.UsageError):
            matches(arguments.k)
    known_names.check_target_spelling(arguments.target)
    if not any(stack.sites or stack.wheels for stack in stacks):
        with suppress(ImportError):
            known_names.check_kernels(arguments.kernel)


def runs(
    stacks: Sequence[Stack],
    options: Sequence[str],
    targets: Sequence[str],
    kernels: Sequence[str],
    cache: Path,
    stages: Stages,
    configs: Sequence[str] = (),
    cases: Collection[str] = (),
    again: Mapping[int, int] = MappingProxyType({}),
) -> list[StackRun]:
    """A run for each of ``stacks``. The runs come one after the other, because each uses every core and every GPU.
    Equal stacks have a run each, so that their comparison shows what changes by itself. All stacks are resolved before
    one is installed, and every stack is installed and checked before the first run. ``targets``, ``kernels``,
    ``configs`` and ``cases`` are those that the user named. ``again`` says by the place of a stack how many further
    runs of it follow those of all. Raises StackError, RunError or :class:`known_names.UnknownName`."""
    code = code_digest()
    environments, able = [], []
    resolved = resolve_all(stacks, cache, bool(find_gpus().entries), say)  # a wrong name costs no installation
    for one in resolved:
        stages.begin(f"{one.stack.title}: its packages are installed and asked what they can do")
        environments.append(build(one, say))
        able.append(abilities(environments[-1]))
    for environment, can in zip(environments, able, strict=True):
        _introduce(environment, can)
        _check_stack(environment, can, code, targets)
    _check_kernels(stacks, able, kernels)
    count = _case_count(environments, options, configs, cases) if configs or cases else None
    stack_runs: list[StackRun] = []
    times, earlier = Counter[tuple[object, ...]](), ""
    places = [*range(len(stacks)), *(place for place, count in again.items() for _ in range(count))]
    for turn, place in enumerate(places):
        environment, name = environments[place], environments[place].stack.title
        if code_digest() != code:
            raise RunError(
                f"the harness's code changed before the run with {name!r} began; all stacks must be judged by the "
                "same: leave it as it is and start again"
            )
        number = "" if turn < len(stacks) else f" once more ({places[: turn + 1].count(place)} of {again[place] + 1})"
        stages.begin(f"{name}: the suites run{number}{earlier}")
        same = (environment.folder, environment.stack.variables)
        with _progress(name) as show:
            folder, reused = run(environment, able[place], options, cache, show, times[same], count)
        print(f"{name}: {'unchanged, its run is used again' if reused else 'done'}: {folder}", file=sys.stderr)
        times[same] += 1
        if turn < len(stacks):
            stack_runs.append(StackRun(environment, folder, tuple(options)))
        else:
            stack_runs[place] = replace(stack_runs[place], repeats=(*stack_runs[place].repeats, folder))
        earlier = _took(name, folder)
    return stack_runs


def _took(name: str, folder: Path) -> str:
    """Returns a text such as "; with current they took 3 min", or "" if the run of ``name`` has no wall time. The
    stage of the next stack shows it, because nothing else is known of a stack that never ran."""
    with suppress(OSError, RecordError):
        seconds = read_run(folder).wall_s
        if seconds is not None:
            return f"; with {name} they took {about(seconds)}"
    return ""


def _check_stack(environment: Environment, can: Abilities, code: str, targets: Sequence[str]) -> None:
    """Raises RunError if the stack's packages bring another harness, which would judge it by other rules. Raises it,
    too, if the stack cannot compile for one of the ``targets`` that the user named."""
    name = environment.stack.name
    if not str(can.stack.get("harness")).endswith(code[:12]):
        raise RunError(
            f"stack {name!r} brings a triton-conformance of its own: {can.stack.get('harness')}; "
            "all stacks must be judged by the same: remove it from the stack's packages"
        )
    lost = [target for target in known_names.target_ids(targets) if target not in can.targets]
    if lost:
        reasons = "; ".join(f"{target}: {can.lacking.get(target, 'it knows no such target')}" for target in lost)
        raise RunError(f"stack {name!r} cannot compile for {reasons}")


def _check_kernels(stacks: Sequence[Stack], able: Sequence[Abilities], kernels: Sequence[str]) -> None:
    """Raises :class:`known_names.UnknownName` for one of the ``kernels`` that no stack has, and RunError for a stack
    that has none of them. Which of them a stack lacks is printed: that it has lost a kernel is a finding."""
    known_names.check_kernels(kernels, {name for can in able for name in can.kernels})
    for stack, can in zip(stacks, able, strict=True):
        lost = [name for name in kernels if name not in can.kernels]
        if lost and len(lost) == len(kernels):
            raise RunError(f"stack {stack.name!r} has no kernel {' or '.join(lost)}: there is nothing to run with it")
        for name in lost:
            print(f"{stack.name}: lacks the kernel {name}", file=sys.stderr)


def _case_count(
    environments: Sequence[Environment], options: Sequence[str], configs: Sequence[str], cases: Collection[str]
) -> int:
    """Returns the most cases that one of the stacks has with ``options``. Raises :class:`known_names.UnknownName` for a
    config or a case that no stack has, and RunError for a stack that has none of them. What one of them lacks is a
    finding."""
    ids = [listed(environment, options) for environment in environments]
    what = f"with {shlex.join(options)}"
    known_names.check_cases(set().union(*ids), configs, cases, what)
    for environment, own in zip(environments, ids, strict=True):
        if not own:
            name = environment.stack.name
            raise RunError(f"stack {name!r} has no case {what}: there is nothing to run with it")
    return max(map(len, ids))


def new_output() -> Path:
    """Returns the default folder for the reports."""
    return Path("reports") / f"gate-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"


def _introduce(environment: Environment, can: Abilities) -> None:
    """Prints the versions of a stack and what it cannot do."""
    versions = ", ".join(f"{name} {value}" for name, value in can.stack.items() if value)
    print(f"{environment.stack.title}: {versions}", file=sys.stderr)
    if can.interpreter is not None:
        print(f"  nothing is interpreted: {can.interpreter}", file=sys.stderr)
    for name, reason in can.lacking.items():
        print(f"  lacks {name}: {reason}", file=sys.stderr)


class Stages:
    """Says on the standard error stream which of ``total`` stages of the gate begins."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun = 0

    def begin(self, what: str) -> None:
        self._begun += 1
        print(f"[{self._begun}/{self._total}] {what}", file=sys.stderr, flush=True)


@contextmanager
def _progress(name: str) -> Iterator[Say]:
    """Shows what the yielded function is told of a run: below the other lines of a terminal, else once a minute, with
    the stack's ``name``. On a terminal the line above says that name, which may be as long as a line."""
    lines = ["starting"]

    def say(text: str) -> None:
        nonlocal lines
        lines = clean(text).splitlines() or lines

    def look() -> Progress:
        return Progress(lines[0], now="; ".join(lines[1:2]), source="; ".join(lines[2:]))

    def write_line(text: str) -> None:
        print(f"{name}: {text}", file=sys.stderr, flush=True)

    display = ProgressDisplay(sys.stderr, can_redraw(sys.stderr), write_line)
    display.show(look)
    try:
        yield say
    finally:
        display.hide()


def report_pair(
    arguments: argparse.Namespace,
    baseline: StackRun,
    candidate: StackRun,
    output: Path,
    stages: Stages,
    earlier_answers: Sequence[EarlierAnswer] = (),
    issues: Path | None = None,
) -> tuple[int, Comparison]:
    """Compares two runs and writes the comparison to ``output``, in every form, and an issue for each cause to
    ``issues``. ``earlier_answers`` are about the pair. Returns 0 if the candidate is safe, and the
    comparison."""
    stages.begin(f"{baseline.name} and {candidate.name} are compared, and scripts that show new failures are tried")
    names, thresholds = (baseline.name, candidate.name), policy_options.thresholds(arguments)
    comparison = compared(baseline.folder, candidate.folder, names, thresholds)
    comparison = policy_options.after_waivers(arguments, comparison, candidate.folder)
    if baseline.repeats:
        comparison = _with_baseline_runs(comparison, baseline, candidate, thresholds)
    comparison = with_known(comparison, earlier_answers)
    make(output)
    files = {option: str(output / name) for option, name in REPORTS.items()}
    status = deliver(comparison, baseline.folder, candidate.folder, files)
    asks_ages = not arguments.no_age and not comparison.broken
    if asks_ages:
        comparison = _with_ages(arguments, comparison, baseline, candidate, thresholds)
        for group in comparison.groups:
            if group.age:
                print(log_safe(f"{group.kind.value} {group.cause}: {group.age.text}"), flush=True)
    scripts, folder = [], output / "reproducers"
    for line in reproduced(comparison, baseline, candidate, folder, arguments.reproducers, say):
        print(log_safe(line), flush=True)
        scripts.append(line.replace(f"{output.resolve()}/", ""))  # the page is read elsewhere
    blamed = []
    for line, answered in blamed_findings(comparison, baseline, candidate, arguments.blame, say):
        print(log_safe(line), flush=True)
        blamed += [line] if answered else []
    scripts += blamed
    comparison = replace(comparison, scripts=tuple(scripts))
    if scripts or asks_ages:  # once more, with what was tried
        write_files(comparison, baseline.folder, candidate.folder, files)
    if issues and not comparison.broken:
        written = write_issues(comparison, candidate.folder, issues, folder, _guilty_stages(comparison, blamed))
        print(f"{issues}: {many(len(written), 'issue')}", file=sys.stderr)
    print(f"\n{output}: {', '.join(REPORTS.values())}", file=sys.stderr)
    return status, comparison


@command_errors(OSError, RecordError)
def _with_baseline_runs(
    comparison: Comparison, baseline: StackRun, candidate: StackRun, thresholds: Tables
) -> Comparison:
    whole = [folder for folder in baseline.repeats if complete(folder)]
    sides = [read_compared_run(folder, baseline.name) for folder in (baseline.folder, *whole)]
    after, broken = read_compared_run(candidate.folder, candidate.name), len(baseline.repeats) - len(whole)
    return with_baseline_runs(comparison, sides, after, thresholds, broken)


@command_errors(OSError, RecordError)
def _with_ages(
    arguments: argparse.Namespace,
    comparison: Comparison,
    baseline: StackRun,
    candidate: StackRun,
    thresholds: Tables,
) -> Comparison:
    sources = _older_sources(arguments)
    older = OlderRuns(candidate.options, cache_of(arguments), sources, _progress, say, index_versions)
    return with_ages(comparison, baseline, candidate, older, thresholds)


def _guilty_stages(comparison: Comparison, lines: Sequence[str]) -> dict[tuple[str, str], str]:
    """Returns the guilty stage of each cause that was asked about, by kind and cause."""
    stages = {}
    for group in comparison.regressions:
        begins = f"{group.kind.value} {group.cause}: "
        text = next((line.removeprefix(begins) for line in lines if line.startswith(begins)), "")
        if text:
            stages[group.kind.value, group.cause] = text
    return stages


def say(text: str) -> None:
    """Prints a line of progress to stderr."""
    print(f"  {log_safe(text)}", file=sys.stderr, flush=True)


def make(output: Path) -> None:
    """Makes the folder ``output``. Raises :class:`CommandError`."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{output} cannot be made ({error}): give another --output") from None
