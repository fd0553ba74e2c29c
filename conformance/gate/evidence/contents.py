"""The contents of a bundle, parsed: the run, its records, the selected cases and the environment.

Every case that its mustpass lists owe must be there, but it may have failed. Of a merged run every case must be of one
shard, and the shards must be all of one plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

import msgspec

from conformance import records
from conformance.gate.evidence.archive import Rejected, RejectReason, decode_object
from conformance.gate.evidence.options import OptionCheck, check_options
from conformance.gate.evidence.selftest_result import SELFTEST_FILE, SelftestResult, read_selftest
from conformance.gate.mustpass import mustpass_check, mustpass_lists
from conformance.gate.runs.run_environment import ENVIRONMENT_FILE
from conformance.gate.runs.run_environment import SCHEMA as ENVIRONMENT_SCHEMA
from conformance.gate.shards.union import (
    SHARDS_FILE,
    Part,
    UnionError,
    check_parts,
    combined_environment,
    combined_run,
    parts_of,
)
from conformance.records import (
    LINE_LIMIT,
    RECORDS_FILE,
    RUN_FILE,
    CaseRecord,
    RecordError,
    RunInfo,
    Status,
    first_of,
    jsonable,
    list_digest,
)

ENVELOPE_FILE = "statement.dsse.json"
SELECTED_FILE = "selected.txt"
REQUIRED = (ENVIRONMENT_FILE, RECORDS_FILE, RUN_FILE, SELECTED_FILE)
OPTIONAL = ("junit.xml", "summary.md", SHARDS_FILE)
WAIVERS, MUSTPASS = "waivers/", "mustpass/"  # folders in the archive
_Parsed = TypeVar("_Parsed")


class _Code(TypedDict):
    sha256: str
    suites: list[str]


class _EnvironmentFile(TypedDict):
    """The fields of an environment that are read; it may have others."""

    run: str
    started: str
    stack: dict[str, Any]
    python: dict[str, Any]
    platform: str
    gpus: list[str]
    distributions: dict[str, dict[str, Any] | None]
    extensions: list[dict[str, Any]]
    ptxas: list[dict[str, Any]]
    code: _Code
    git: dict[str, Any] | None
    options: list[str]
    variables: dict[str, str]


@dataclass(frozen=True)
class Contents:
    """The parsed members; ``environment`` is as :mod:`conformance.gate.runs.run_environment` writes it. ``selftest`` is
    None for a bundle without one. ``parts`` are the shards of a merged run, by their numbers; else empty."""

    run: RunInfo
    records: tuple[CaseRecord, ...]
    selected: tuple[str, ...]
    environment: Mapping[str, Any]
    selftest: SelftestResult | None = None
    parts: tuple[Part, ...] = ()


def parse(members: Mapping[str, bytes]) -> Contents:
    """Returns the contents of ``members``. Raises :class:`Rejected` if they are unreadable, incomplete or of several
    runs."""
    for name in REQUIRED:
        if name not in members:
            raise Rejected(RejectReason.MEMBERS, f"{name} is missing; a bundle needs {', '.join(REQUIRED)}")
    run = _read(records.run_from_text, members[RUN_FILE], RUN_FILE)
    contents = Contents(
        run,
        _records(members[RECORDS_FILE]),
        _selected(members[SELECTED_FILE]),
        parse_environment(members[ENVIRONMENT_FILE]),
        read_selftest(members[SELFTEST_FILE]) if SELFTEST_FILE in members else None,
        _parts(members.get(SHARDS_FILE), run),
    )
    _check_complete(contents)
    if contents.parts:
        _check_union(contents, members[RECORDS_FILE])
    elif run.shard is not None:
        _check_shard(contents, members[RECORDS_FILE])
    _check_one_run(contents)
    return contents


def _parts(content: bytes | None, run: RunInfo) -> tuple[Part, ...]:
    """Returns the parts of a merged run, of which ``content`` is the ``shards.json``; none of another run."""
    if (content is None) != (run.merged is None):
        text = f"{RUN_FILE} is of a run that was {'not ' if run.merged is None else ''}merged"
        raise Rejected(RejectReason.SHARDS, f"{text}, and {SHARDS_FILE} is {'missing' if content is None else 'there'}")
    if content is None or run.merged is None:
        return ()
    try:
        parts = parts_of(decode_object(content, SHARDS_FILE), run.merged.plan)
        for part in parts:
            _check_environment(part.environment)
    except Rejected:
        raise
    except ValueError as error:
        raise Rejected(RejectReason.UNREADABLE, f"{SHARDS_FILE}: {error}") from None
    if not parts:
        raise Rejected(RejectReason.SHARDS, f"{SHARDS_FILE} has no shard")
    return tuple(parts)


def _check_shard(contents: Contents, lines: bytes) -> None:
    """Raises :class:`Rejected` unless the run of a shard has the cases that its plan gives it, and the lines that it
    wrote. That the plan has its digest shows when all shards are there."""
    shard = contents.run.shard
    assert shard is not None
    if not 1 <= shard.number <= len(shard.plan.case_lists):
        raise Rejected(RejectReason.SHARDS, f"{RUN_FILE} is of the shard {shard}, which there is not")
    if list_digest(sorted(contents.selected)) != shard.plan.case_lists[shard.number - 1]:
        raise Rejected(RejectReason.SHARDS, f"{SELECTED_FILE} does not have the cases of the shard {shard}")
    if hashlib.sha256(lines).hexdigest() != shard.records:
        text = f"{RECORDS_FILE} does not have the lines that the run of the shard {shard} wrote"
        raise Rejected(RejectReason.SHARDS, text)


def _check_union(contents: Contents, lines: bytes) -> None:
    """Raises :class:`Rejected` unless the run is what its shards make together. All shards of its plan are
    required, with the cases that the plan gives each, and with the lines that each wrote."""
    run, parts = contents.run, contents.parts
    assert run.merged is not None
    plan = run.merged.plan
    try:
        check_parts(parts, run.merged.mixed_devices)
    except UnionError as error:
        raise Rejected(RejectReason.SHARDS, f"{SHARDS_FILE}: {parts[error.place].run.id!r:.80}: {error}") from None
    digests = [hashlib.sha256() for _ in parts]
    shard_of: dict[str, int] = {}
    start = 0
    for number, part in enumerate(parts, 1):
        own = contents.selected[start : start + plan.cases[number - 1]]
        start += len(own)
        shard_of.update(dict.fromkeys(own, number))
        if part.shard.number != number or list_digest(own) != plan.case_lists[number - 1]:
            text = f"{SELECTED_FILE} does not have the cases of the shard {number} in its place"
            raise Rejected(RejectReason.SHARDS, text)
    if start != len(contents.selected):
        raise Rejected(RejectReason.SHARDS, f"{SELECTED_FILE} has cases of no shard")
    for record, line in zip(contents.records, lines.split(b"\n"), strict=False):
        digests[shard_of[record.case] - 1].update(line + b"\n")
    for number, (digest, part) in enumerate(zip(digests, parts, strict=True), 1):
        if digest.hexdigest() != part.shard.records:
            text = f"{RECORDS_FILE} does not have the lines that the run of the shard {number} wrote"
            raise Rejected(RejectReason.SHARDS, text)
    judged = any(record.is_judged(bool(plan.options.get("compile_only"))) for record in contents.records)
    computed = combined_run(parts, run.id, judged)
    if records.run_from_text(json.dumps(jsonable(computed))) != run:
        raise Rejected(RejectReason.SHARDS, f"{RUN_FILE} does not follow from the runs in {SHARDS_FILE}")
    if combined_environment(parts, run) != contents.environment:
        raise Rejected(RejectReason.SHARDS, f"{ENVIRONMENT_FILE} does not follow from those in {SHARDS_FILE}")


def _selected(content: bytes) -> tuple[str, ...]:
    try:
        *cases, rest = content.decode("utf-8").split("\n")
    except ValueError as error:
        raise Rejected(RejectReason.UNREADABLE, f"{SELECTED_FILE} is not UTF-8: {error}") from None
    if rest:
        raise Rejected(RejectReason.UNREADABLE, f"{SELECTED_FILE}: the last line is cut short")
    return tuple(cases)


def _records(content: bytes) -> tuple[CaseRecord, ...]:
    *lines, rest = content.split(b"\n")
    if rest:
        raise Rejected(RejectReason.UNREADABLE, f"{RECORDS_FILE}: the last line is cut short")
    largest = max(map(len, lines), default=0)
    if largest > LINE_LIMIT:
        raise Rejected(
            RejectReason.TOO_LARGE,
            f"{RECORDS_FILE}: a line has {largest} bytes, more than {LINE_LIMIT} bytes, the limit",
        )
    return tuple(_read(records.from_line, line, f"{RECORDS_FILE}:{number}") for number, line in enumerate(lines, 1))


def _read(read: Callable[[bytes], _Parsed], content: bytes, place: str) -> _Parsed:
    """Parses ``content``, the JSON at ``place``, by ``read``."""
    decode_object(content, place)
    try:
        return read(content)
    except RecordError as error:
        raise Rejected(RejectReason.UNREADABLE, f"{place}: {error}") from None


def parse_environment(content: bytes) -> dict[str, Any]:
    """Returns the environment in ``content``, an ``environment.json``. Raises :class:`Rejected`."""
    data = decode_object(content, ENVIRONMENT_FILE)
    _check_environment(data)
    return data


def _check_environment(data: Mapping[str, Any]) -> None:
    if data.get("schema") != ENVIRONMENT_SCHEMA:
        schema = f"{ENVIRONMENT_FILE} has schema {data.get('schema')!r:.40}"
        raise Rejected(RejectReason.UNREADABLE, f"{schema}: this version reads schema {ENVIRONMENT_SCHEMA}")
    try:
        msgspec.convert(data, _EnvironmentFile)
    except msgspec.ValidationError as error:
        raise Rejected(RejectReason.UNREADABLE, f"{ENVIRONMENT_FILE}: {error}") from None


def checked_options(contents: Contents) -> OptionCheck:
    """Returns the meaning of the run's options and variables for evidence. Raises :class:`Rejected` for those that no
    evidence may have."""
    environments = [contents.environment, *(part.environment for part in contents.parts)]
    checks = [check_options(environment["options"], environment["variables"]) for environment in environments]
    for checked in checks:
        if checked.refused:
            text = f"run with options that are not permitted: {', '.join(checked.refused)}"
            raise Rejected(RejectReason.FORBIDDEN_OPTION, text)
    return checks[0]


def _check_complete(contents: Contents) -> None:
    run, problems = (
        contents.run,
        records.incompleteness(contents.selected, [record.case for record in contents.records]),
    )
    if len(set(contents.selected)) != len(contents.selected):
        problems.append(f"{SELECTED_FILE} names a case twice")
    if run.wall_s is None:
        problems.append("the run did not end")
    elif run.selected != len(contents.selected):
        problems.append(f"{RUN_FILE} says {run.selected} cases were selected, {SELECTED_FILE} {len(contents.selected)}")
    if problems:
        raise Rejected(RejectReason.INCOMPLETE, "; ".join(problems))


def _check_one_run(contents: Contents) -> None:
    """Raises :class:`Rejected` unless run.json, the environment and every record are of one run."""
    run, environment = contents.run, contents.environment
    if (environment["run"], environment["started"]) != (run.id, run.started):
        theirs = f"{environment['run']!r:.80} started {environment['started']!r:.40}"
        raise Rejected(
            RejectReason.MIXED_RUNS,
            f"the environment is of run {theirs}, {RUN_FILE} of {run.id!r:.80} {run.started!r:.40}",
        )
    checked = check_options(environment["options"], environment["variables"])
    for what, option, ran in (("tier", checked.tier, run.tier), ("seed", checked.seed, run.seed)):
        if option is not None and option != ran:
            raise Rejected(
                RejectReason.MIXED_RUNS, f"{RUN_FILE} is of {what} {ran!r:.40}, and its options ask for {option!r:.40}"
            )
    if contents.selftest is not None:
        _check_selftest(contents.selftest, environment)
    ran_on = [environment["stack"], *(record.stack for record in contents.records)]
    for name, value in run.stack.items() if run.merged is None else ():
        if all(stack.get(name) != value for stack in ran_on):
            text = f"{RUN_FILE} is of {name} {value!r:.80}, its environment of {environment['stack'].get(name)!r:.80}"
            raise Rejected(RejectReason.MIXED_RUNS, text)
    stacks = _stacks(contents)
    for record in contents.records:
        if (record.seed, record.tier) != (run.seed, run.tier):
            theirs = f"tier {record.tier!r:.40} and seed {record.seed!r:.40}"
            raise Rejected(
                RejectReason.MIXED_RUNS,
                f"{record.case} is of {theirs}, the run of {run.tier!r:.40} and {run.seed!r:.40}",
            )
        for name, value in record.stack.items():
            ran, began = stacks.get(record.case, (run.stack, environment["stack"]))
            # A process that imported nothing knows the versions of the metadata only, those of the environment.
            if value not in (ran.get(name), began.get(name)):
                text = f"{record.case} ran on {name} {value!r:.80}, the run on {ran.get(name)!r:.80}"
                raise Rejected(RejectReason.MIXED_RUNS, text)


def _stacks(contents: Contents) -> dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Returns the stack of the run and of the environment of each case's shard; empty for a run that was not merged."""
    stacks = [(part.run.stack, part.environment["stack"]) for part in contents.parts for _ in range(_own_cases(part))]
    return dict(zip(contents.selected, stacks, strict=True)) if stacks else {}


def _own_cases(part: Part) -> int:
    return part.shard.plan.cases[part.shard.number - 1]


def _check_selftest(selftest: SelftestResult, environment: Mapping[str, Any]) -> None:
    """Raises :class:`Rejected` unless the self-test is of the code and the stack of the run."""
    here = {"code": environment["code"]["sha256"], **environment["stack"]}
    theirs = {"code": selftest.code_sha256, **selftest.stack}
    for name in ("code", "torch", "triton"):
        if theirs.get(name) != here.get(name):
            text = f"the self-test is of {name} {theirs.get(name)!r:.80}, the run of {here.get(name)!r:.80}"
            raise Rejected(RejectReason.MIXED_RUNS, f"{text}: make it again with the stack of the run")


#: Of cases that did not fail, and may still have shown less than they owe.
_UNPROVEN = (Status.PASS, Status.NOT_APPLICABLE, Status.NOT_RUN)


def check_owed(members: Mapping[str, bytes], contents: Contents) -> None:
    """Raises :class:`Rejected` if ``members`` has mustpass lists and

    * they cannot be used, or none is for this run,
    * the records lack an owed case or have one that is not listed, or
    * a case that owes a proof was refused, or shows less than it owes: that is as good as missing.

    Evidence may show failed cases. The statement's result and the gate report them.
    """
    names = [name for name in sorted(members) if name.startswith(MUSTPASS)]
    if not names:
        return
    try:
        lists = [mustpass_lists.parsed(members[name].decode("utf-8"), name) for name in names]
        chosen = mustpass_check.applicable(lists, contents.run, contents.records)
        checked = mustpass_check.check(lists, contents.run, contents.records)
    except ValueError as error:
        raise Rejected(RejectReason.OWED_CASES, f"{error}") from None
    owed = {case: way for mustpass in chosen.values() for case, way in mustpass.outcomes.items()}
    unproven = {record.case for record in contents.records if record.status in _UNPROVEN}
    unproven &= {case for case, way in owed.items() if mustpass_lists.is_proof(way)}
    problems = [str(difference) for difference in checked.differences if difference.what != "differing"]
    differing = [difference for difference in checked.differences if difference.what == "differing"]
    outcomes = {case: text for one in differing for case, text in zip(one.cases, one.outcomes, strict=True)}
    short = [f"{case}: {outcomes[case]}" for case in sorted(unproven & outcomes.keys())]
    problems += [first_of(short, 3)] if short else []
    if problems or checked.lacking:
        raise Rejected(RejectReason.OWED_CASES, "; ".join([*problems, *checked.lacking]))
