"""Mustpass lists: the cases that a target owes, and the outcome of each. A listed case without a record is missing.

A list is for one tier, one target, one level and a range of stacks, all in its header. The range is there because the
installed torch and triton decide which cases of Inductor exist and which are refused. The header also names all targets
of the run, because the quick tier spreads its cases over them. Cases whose id names no target have a list of their own,
for the target "any". ::

    # Mustpass list of the conformance harness, written by conformance mustpass write. Do not edit: write it again.
    format: 1
    tier: quick
    target: sm_90
    level: interpreted
    targets: sm_90 gfx942
    stack: torch ==2.13.*; triton ==3.7.*
    harness: 0.1.0 4f1c…
    cases: 2
    sha256: 83ab…

    not-applicable:capability test_a.py::test_b[sm_90]
    pass:interpreter test_a.py::test_c[mm-sm_90]

An outcome is ``pass:device``, ``pass:ttgir``, ``pass:interpreter``, ``pass`` (judged without running a kernel) or
``compiled``. The last says that every check of the code passed, with nothing to run it on. Other outcomes are
``not-applicable:<reason code>`` and ``not-run:<reason code>``. A case that fails when the list is written is owed as a
pass.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from conformance.machine.kept_answers import code_digest
from conformance.proof_level import ProofLevel, proof_level
from conformance.records import CaseRecord, ExecutorName, ReasonCode, RunInfo, Status, plain_file
from conformance.user_files.toml_entries import range_problem

FORMAT = 1
LISTS = Path(__file__).resolve().parents[2] / "data" / "mustpass"  # those that come with the package
ANY = "any"  # the target of cases that name none
FILE_LIMIT = 64 * 1024 * 1024  # bytes
PASSES = ("pass", *(f"pass:{name.value}" for name in ExecutorName))  # a later one proves what an earlier one does
#: Outcomes from the least to the most: a machine with more GPUs gives a later one.
_RISING = (f"{Status.NOT_RUN.value}:{ReasonCode.NO_DEVICE.value}", "compiled", *PASSES)
_TITLE = (
    "# Mustpass list of the conformance harness, written by conformance mustpass write. Do not edit: write it again."
)
_HEADER = ("format", "tier", "target", "level", "targets", "stack", "harness", "cases", "sha256")
DEFAULT_TARGETS = "default"
_OLD_OUTCOMES = {"waived": Status.EXPECTED_FAIL.value}  # names that older lists may have


class Level(str, Enum):
    """The highest level of proof that a run can reach: the code only, the interpreter's numbers, those of the compiled
    kernels' TTGIR, or the device's."""

    COMPILED = "compiled"
    INTERPRETED = "interpreted"
    EXECUTED = "executed"
    DEVICE = "device"


LEVELS = tuple(Level)  # from the least
#: How a list calls each way to pass, and the level of a run by the best way that it had.
PASSED_BY: Mapping[ProofLevel, tuple[str, Level]] = {
    ProofLevel.INTERPRETED: (f"pass:{ExecutorName.INTERPRETER}", Level.INTERPRETED),
    ProofLevel.EXECUTED: (f"pass:{ExecutorName.TTGIR}", Level.EXECUTED),
    ProofLevel.DEVICE: (f"pass:{ExecutorName.DEVICE}", Level.DEVICE),
}
_WITHOUT_A_RUN = ("pass", Level.COMPILED)


class MustpassError(ValueError):
    """A mustpass list cannot be used or written; the message says why and what to do."""


@dataclass(frozen=True)
class MustpassList:
    """One list. ``outcomes``: case id -> the outcome that is owed; ``stack``: component -> version specifier."""

    tier: str
    target: str
    level: Level
    targets: tuple[str, ...]
    stack: Mapping[str, str]
    harness: str
    outcomes: Mapping[str, str]

    @property
    def name(self) -> str:
        """The file that holds it, in a folder of lists for one range of stacks and one set of targets."""
        return f"{self.tier}-{self.target}-{self.level.value}.txt"

    @property
    def range(self) -> str:
        """Returns the stacks and the set of targets that the list is for, in words."""
        return f"{stack_text(self.stack)} and targets {' '.join(self.targets) or DEFAULT_TARGETS}"


def level_of(records: Iterable[CaseRecord]) -> Level:
    """The level of a run: that of the best executor that it had."""
    return PASSED_BY.get(max(map(proof_level, records), default=ProofLevel.NOTHING), _WITHOUT_A_RUN)[1]


def outcome(record: CaseRecord) -> str:
    """Returns the outcome of ``record`` as a list writes it; for a failure its status."""
    if record.status is Status.PASS:
        return PASSED_BY.get(proof_level(record), _WITHOUT_A_RUN)[0]
    code = record.reason.code.value if record.reason else "no-reason"
    if record.status is Status.NOT_RUN and record.verdicts and all(verdict.passed for verdict in record.verdicts):
        return "compiled"
    if record.status in (Status.NOT_RUN, Status.NOT_APPLICABLE):
        return f"{record.status.value}:{code}"
    return str(record.status.value)


def is_proof(owed: str) -> bool:
    """True if a list that says ``owed`` of a case asks for something to be shown, not for a refusal."""
    return owed in _RISING[1:]


def satisfies(result: str, owed: str) -> bool:
    """True if the outcome ``result`` is what is ``owed``, or proves more of the same."""
    return result in _RISING[_RISING.index(owed) :] if owed in _RISING else result == owed


# --- writing ----------------------------------------------------------------------------------------------------------


def lists_of(run: RunInfo, records: Sequence[CaseRecord], stack: Mapping[str, str] | None = None) -> list[MustpassList]:
    """Returns the lists of a complete ``run`` with ``records``, one for each target. ``stack``: the range that they are
    for; by default all patch releases of the torch and triton that ran. Raises :class:`MustpassError` for a run that is
    not complete."""
    _check_complete(run, records)
    targets = tuple(sorted(run.targets))
    all_targets = {*targets, *(record.target for record in records if record.target)}
    by_target: dict[str, dict[str, str]] = {target: {} for target in targets}  # one without cases owes none
    for record in records:
        by_target.setdefault(target_of(record.case, all_targets), {})[record.case] = _owed(record)
    level, releases = level_of(records), stack or _minor_releases(run.stack)
    return [
        MustpassList(run.tier, target, level, targets, releases, harness(), outcomes)
        for target, outcomes in sorted(by_target.items())
    ]


def _check_complete(run: RunInfo, records: Sequence[CaseRecord]) -> None:
    problems = list(run.problems)
    if run.wall_s is None or run.selected is None:
        problems.append("it did not end")
    elif run.selected != len(records):
        problems.append(f"{run.selected} cases were selected and {len(records)} are recorded")
    twice = [case for case, count in Counter(record.case for record in records).items() if count > 1]
    problems += [f"{case} is recorded more than once" for case in twice[:5]]
    problems += [f"the id {record.case!r} cannot be listed" for record in records if not record.case.isprintable()][:5]
    if not records:
        problems.append("it has no records")
    names = [run.tier, *run.targets, *{record.target for record in records if record.target}]
    problems += [f"{name!r} cannot be part of a file's name" for name in names if not re.fullmatch(r"\w[\w.+-]*", name)]
    if problems:
        raise MustpassError(f"run {run.id} is not complete, so it is no list of what is owed: {'; '.join(problems)}")


def target_of(case: str, targets: Collection[str]) -> str:
    """Returns the target that the id of a case names at its end, "any" if it names none. A record's field is not used:
    a case that crashed early or was refused has none.

    >>> target_of("test_tma.py::test_loads[mm-bf16-sm_90]", ["sm_90", "gfx950"])
    'sm_90'
    >>> target_of("test_tma.py::test_refusals[mm]", ["sm_90", "gfx950"])
    'any'
    """
    last = case.removesuffix("]").replace("[", "-").rpartition("-")[2]
    return last if case.endswith("]") and last in targets else ANY


def _owed(record: CaseRecord) -> str:
    result = outcome(record)
    listed = result in PASSES or record.status in (Status.NOT_RUN, Status.NOT_APPLICABLE)
    return result if listed else f"pass:{record.executor}" if record.executor else "pass"


def _minor_releases(stack: Mapping[str, object]) -> dict[str, str]:
    versions = {name: stack.get(name) for name in ("torch", "triton")}
    parts = {name: version.split(".")[:2] for name, version in versions.items() if isinstance(version, str)}
    return {name: f"=={'.'.join(part)}.*" for name, part in parts.items()}


def harness() -> str:
    """The version of this package and a digest of its code, which decides what cases there are."""
    try:
        number = version("triton-conformance")
    except PackageNotFoundError:
        number = "unknown"
    return f"{number} {code_digest()[:16]}"


def written(mustpass: MustpassList) -> str:
    """Returns the text of a list."""
    lines = [f"{owed} {case}\n" for case, owed in sorted(mustpass.outcomes.items())]
    values = {
        "format": str(FORMAT),
        "tier": mustpass.tier,
        "target": mustpass.target,
        "level": mustpass.level.value,
        "targets": " ".join(mustpass.targets) or DEFAULT_TARGETS,
        "stack": stack_text(mustpass.stack),
        "harness": mustpass.harness,
        "cases": str(len(lines)),
        "sha256": _digest(lines),
    }
    return "\n".join([_TITLE, *(f"{key}: {values[key]}" for key in _HEADER), "", "".join(lines)])


def stack_text(stack: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {version}" for name, version in stack.items())


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class Change:
    """The changes that a new version of a list would bring. ``weaker``: cases that would owe less than before."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    weaker: tuple[str, ...]
    other: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{len(self.added)} added", f"{len(self.removed)} removed", f"{len(self.weaker)} owe less"]
        return ", ".join([*parts, f"{len(self.other)} owe more"])

    @property
    def shrinks(self) -> bool:
        return bool(self.removed or self.weaker)


def change(old: Mapping[str, str], new: Mapping[str, str]) -> Change:
    """Returns the difference between the outcomes of two lists.

    >>> change({"a": "pass", "b": "pass"}, {"b": "fail", "c": "pass"})
    Change(added=('c',), removed=('a',), weaker=('b',), other=())
    """
    differing = sorted(case for case in old.keys() & new.keys() if old[case] != new[case])
    weaker = tuple(case for case in differing if not _owes_more(new[case], old[case]))
    return Change(
        tuple(sorted(new.keys() - old.keys())),
        tuple(sorted(old.keys() - new.keys())),
        weaker,
        tuple(case for case in differing if case not in set(weaker)),
    )


def _owes_more(new: str, old: str) -> bool:
    """True if ``new`` asks for all that ``old`` did: a pass for what was refused, a device for the interpreter."""
    return is_proof(new) and (not is_proof(old) or _RISING.index(new) > _RISING.index(old))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_lists(folder: Path) -> list[MustpassList]:
    """Returns all lists below ``folder``. Raises :class:`MustpassError` if one of them cannot be used or there
    is none."""
    return [read_list(path) for path in list_files(folder).values()]


def list_files(folder: Path) -> dict[str, Path]:
    """Returns the files of all lists below ``folder`` by their paths in it. Raises :class:`MustpassError` if there is
    none."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.txt"))}
    if not paths:
        raise MustpassError(f"{folder} holds no mustpass list: write some with conformance mustpass write")
    return paths


def read_list(path: Path) -> MustpassList:
    """Returns the list in the file ``path``. Raises :class:`MustpassError`."""
    try:
        if plain_file(path).stat().st_size > FILE_LIMIT:
            raise MustpassError(f"{path}: a mustpass list has at most {FILE_LIMIT} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MustpassError(f"{path} cannot be read: {error}") from None
    return parsed(text, str(path))


def parsed(text: str, file: str) -> MustpassList:
    """Returns the list in ``text``, which was read from ``file``. Raises :class:`MustpassError` unless it is as
    written."""

    def refuse(problem: str) -> MustpassError:
        return MustpassError(f"{file}: {problem}: write the list again")

    lines = text.split("\n")
    head, body = lines[1 : len(_HEADER) + 1], lines[len(_HEADER) + 2 : -1]
    values = dict(line.split(": ", 1) for line in head if ": " in line)
    blank = lines[len(_HEADER) + 1 : len(_HEADER) + 2]
    if tuple(values) != _HEADER or lines[0] != _TITLE or blank != [""] or lines[-1] != "":
        raise refuse(f"not a mustpass list, whose header has {', '.join(_HEADER)}")
    if values["format"] != str(FORMAT):
        raise refuse(f"format {values['format']!r}: this version reads format {FORMAT}")
    if values["level"] not in [level.value for level in LEVELS]:
        raise refuse(f"level {values['level']!r} must be one of {', '.join(level.value for level in LEVELS)}")
    if values["sha256"] != _digest(f"{line}\n" for line in body) or values["cases"] != str(len(body)):
        raise refuse("its cases are not those that were written")
    outcomes = {case: _OLD_OUTCOMES.get(owed, owed) for owed, _, case in (line.partition(" ") for line in body)}
    if len(outcomes) != len(body) or "" in outcomes:
        raise refuse("a case is listed twice or without its outcome")
    stack = dict(part.split(" ", 1) for part in values["stack"].split("; ") if " " in part)
    problem = range_problem(stack)
    if problem or not stack:
        raise refuse(problem or "its header has no range of versions")
    targets = () if values["targets"] == DEFAULT_TARGETS else tuple(values["targets"].split())
    return MustpassList(
        values["tier"], values["target"], Level(values["level"]), targets, stack, values["harness"], outcomes
    )
