"""Goes on with a run that ended before its last case: cases with a record are kept, and the others are judged.

When a run has selected its cases it leaves two files for this. One is the list of the cases. By the other one,
:data:`PLAN_FILE`, a later process sees whether it would judge them in the same way.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.faults import FaultClass
from conformance.gate.runs.run_environment import ENVIRONMENT_FILE, deciding_variables
from conformance.judging.settings import Settings
from conformance.machine.environment_faults import fault_of_signal
from conformance.plain_json import jsonable, parsed
from conformance.plugin.fresh_pytest import RUN, FreshPytest
from conformance.plugin.leftovers import remove_before_next_part
from conformance.plugin.record_files import last_foreseen, process_file
from conformance.records import (
    RUN_FILE,
    CaseRecord,
    LineProblems,
    RunInfo,
    RunPart,
    ShardPlan,
    Status,
    each_record,
    first_of,
    incompleteness,
    plain_file,
    read_run,
    record_files,
    refuse_more_than,
    replace_file,
)
from conformance.reporting.run_verdict import many
from conformance.user_files.run_options import joined

PLAN_FILE = "plan.json"
SELECTED_FILE = "selected.txt"
#: The file with the records of the earlier parts.
EARLIER_FILE = "records-earlier.jsonl"
#: The outcome in the record of a file that could not be collected. A resumed run collects it again.
NOT_COLLECTED = "failed in collection"
#: The number of ends of a run at which a case was under way before that is taken for its crash.
MOST_DEATHS = 3
_SHARD_OPTIONS = frozenset({"--shard", "--conformance-shard"})
#: Seconds in which workers end whose run was killed.
ENDING_S = 15.0
#: Bytes of a file that are read: a selection has 100 or more a case.
FILE_LIMIT = 1 << 30


def write_plan(folder: Path, plan: ShardPlan) -> None:
    """Writes the file by which a resumed run is compared with this one."""
    replace_file(folder / PLAN_FILE, json.dumps(jsonable(plan), indent=1) + "\n")


@dataclass(frozen=True)
class Left:
    """The files that a run has left in its folder. ``environment`` is of its beginning; ``began`` says its command
    line. ``plan`` and ``selected`` are None if it ended before it had selected its cases."""

    info: RunInfo
    environment: Mapping[str, Any]
    began: str
    plan: ShardPlan | None
    selected: tuple[str, ...] | None


#: What must be the same in all parts of a run, of the data of ``environment.json``.
_SAME = ("distributions", "extensions", "ptxas")


def _facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what must be the same, of the data of ``environment.json``."""
    variables = deciding_variables(environment["variables"])
    kept = {f"the variable {name}": value for name, value in variables.items()}
    code = {
        "the harness's code": environment["code"]["sha256"],
        "the code of the suites": environment["code"]["suites"],
    }
    return {**environment["stack"], **code, **{name: environment[name] for name in _SAME}, **kept}


def read_left(folder: Path) -> Left:
    """Reads what a run has left in ``folder``. Raises pytest.UsageError if there is no run that can go on."""
    if not (folder / RUN_FILE).exists():
        raise pytest.UsageError(f"--resume {folder}: there is no run; give the folder of one that ended early")
    plan, selected = None, None
    try:
        info = read_run(folder)
        environment = parsed(_text(folder / ENVIRONMENT_FILE))
        began = f"the run began with: pytest {shlex.join(environment['options'])}"
        _facts(environment)
        if (folder / PLAN_FILE).exists():
            plan = msgspec.json.decode(_text(folder / PLAN_FILE), type=ShardPlan)
            selected = tuple(_text(folder / SELECTED_FILE).split("\n")[:-1])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:  # someone's edits
        raise pytest.UsageError(f"--resume {folder}: the run cannot be read ({error}); begin a new one") from None
    if info.merged is not None:
        raise pytest.UsageError(f"--resume {folder}: it was merged from shards; resume the shard that is not complete")
    return Left(info, environment, began, plan, selected)


def begins_again(folder: Path) -> bool:
    """True if the run in ``folder`` ended before it had written its environment, so that nothing can be compared. Its
    files are removed then, and a run begins there as in a new folder. Raises pytest.UsageError if it goes on."""
    names = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    if RUN_FILE not in names or names - {RUN_FILE, f"{RUN_FILE}.tmp", f"{ENVIRONMENT_FILE}.tmp"}:
        return False
    unlock = lock_folder(folder)
    try:
        for name in names:
            (folder / name).unlink()
    finally:
        unlock()
    return True


def _text(file: Path) -> str:
    refuse_more_than(FILE_LIMIT, plain_file(file))
    return file.read_text(encoding="utf-8")


class NothingLeft(Exception):
    """Each case of the run has a record. ``status`` is the exit status with which it ended."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Resume:
    """Goes on with the run of the ``settings``. ``fresh`` runs cases alone, in a pytest of their own.

    The run's folder is taken at once, and left as it is until :meth:`begin`, which :meth:`check` comes before.
    ``recorded`` are the kept cases with their statuses, and ``parts`` the earlier parts of the run. Raises
    pytest.UsageError if there is no run that can go on, or if it had another stack, tier, seed or other targets."""

    def __init__(self, settings: Settings, environment: Mapping[str, Any], fresh: FreshPytest) -> None:
        assert settings.resume is not None
        self._folder = folder = settings.resume
        self._fresh = fresh
        self._gpu = next(iter(settings.gpus.entries), None)
        self._on_cluster = settings.ray is not None and settings.has_gpu
        self.left = read_left(folder)
        self.parts: tuple[RunPart, ...] = self.left.info.parts
        self.recorded: dict[str, Status] = {}
        info = self.left.info
        before = {"tier": info.tier, "seed": info.seed, "targets": info.targets, **_facts(self.left.environment)}
        now = {"tier": settings.tier, "seed": settings.seed, "targets": settings.targets, **_facts(environment)}
        self._refuse_others(before, now)
        self._refuse_another_choice(settings)
        self.unlock = lock_folder(folder)
        self._refuse_living()
        foreseen = [last_foreseen(file) for file in folder.glob("inflight-*.jsonl")]
        self._foreseen = {record.case: record for record in foreseen if record is not None}
        remove_before_next_part(folder)

    def _refuse_others(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        for name in {**before, **now}:
            then, today = before.get(name), now.get(name)
            if then != today:
                text = f"{name} is {_short(today)}, and was {_short(then)}"
                raise pytest.UsageError(f"--resume {self._folder}: {text}; {self.left.began}")

    def _refuse_another_choice(self, settings: Settings) -> None:
        """Raises pytest.UsageError if this is a shard and the run was none, or the other way round. A shard may have
        all cases."""
        options = {word.partition("=")[0] for word in joined(self.left.environment["options"])}
        before, now = not options.isdisjoint(_SHARD_OPTIONS), settings.shard is not None
        if before != now:
            text = "the run was that of a shard, and this is none" if before else "the run was that of no shard"
            raise pytest.UsageError(f"--resume {self._folder}: {text}; {self.left.began}")

    def _refuse_living(self) -> None:
        """Raises pytest.UsageError if a worker has not ended, though its run has, after :data:`ENDING_S` seconds."""
        until = time.monotonic() + ENDING_S
        for file in self._folder.glob(process_file(Path(), "*").name):
            number = file.read_text(errors="replace").strip() if file.is_file() else ""
            while number.isdecimal() and _has_open(int(number), self._folder):
                if time.monotonic() > until:
                    raise pytest.UsageError(
                        f"--resume {self._folder}: process {number} of the run has not ended; end it first"
                    )
                time.sleep(0.05)

    def check(self, plan: ShardPlan, cases: Sequence[str]) -> None:
        """Raises pytest.UsageError if the run had another ``plan``, or selected others than ``cases``, and NothingLeft
        if it has ended and each case has a record."""
        if self.left.selected is None:
            return
        selected = [case for case in self.left.selected if "::" in case]  # and no file that was not collected
        if other := incompleteness(selected, cases):
            words = (
                other[0]
                .replace("but not recorded", "then and not now")
                .replace("recorded but not selected", "selected now and not then")
            )
            raise pytest.UsageError(f"--resume {self._folder}: {words}; {self.left.began}")
        if self.left.plan is not None:
            before, now = jsonable(self.left.plan), jsonable(plan)
            self._refuse_others({**before.pop("options"), **before}, {**now.pop("options"), **now})
        if self.left.info.wall_s is not None:
            kept = {record.case for record in self._kept(LineProblems())}
            if kept.issuperset(selected):
                text = f"--resume {self._folder}: each of {many(len(selected), 'case')} has a record, and none is left"
                if self.left.info.exit_status is None:
                    raise pytest.UsageError(f"{text} to judge; begin a new run")
                status = self.left.info.exit_status
                raise NothingLeft(
                    f"{text} to judge; the run ended with exit status {status}, and so does this one", status
                )

    def begin(self) -> str:
        """Puts the records that are kept into one file. Returns a sentence for the user. Raises OSError."""
        problems = LineProblems()
        self._settle(problems)
        for file in self._folder.glob("inflight-*.jsonl"):
            file.unlink()
        left = set(self.left.selected or ()).difference(self.recorded)
        self._foreseen = {case: record for case, record in self._foreseen.items() if case in left}
        began = self.parts[-1].next_began if self.parts else self.left.info.started
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        unfinished = tuple(sorted(self._foreseen))
        self.parts = (*self.parts, RunPart(began, now, len(self.recorded), unfinished, problems.count))
        if self.left.selected is None:
            return "the run goes on from its beginning: it had not selected its cases"
        under_way = f"; {many(len(unfinished), 'case')} under way when it ended" if unfinished else ""
        return f"the run goes on: {len(self.recorded)} of {many(len(self.left.selected), 'case')} recorded{under_way}"

    def _settle(self, problems: LineProblems) -> None:
        scratch, kept = self._folder / "earlier.tmp", self._folder / EARLIER_FILE
        with scratch.open("wb") as stream:
            for record in self._kept(problems):
                if record.case not in self.recorded:
                    self.recorded[record.case] = record.status
                    stream.write(record.to_line().encode())
            stream.flush()
            os.fsync(stream.fileno())
        before = record_files(self._folder)
        os.replace(scratch, kept)
        for file in before:
            if file != kept:
                file.unlink()

    def _kept(self, problems: LineProblems) -> Iterator[CaseRecord]:
        """Yields the records that are kept: not those of cases that the machine broke, nor of files that could not be
        collected. Those of other cases, and of another tier or seed, are ``problems``: the run did not write them."""
        info, selected = self.left.info, frozenset(self.left.selected or ())
        for file in record_files(self._folder):
            for placed in each_record(file, problems):
                record = placed.record
                own = record.tier in (None, info.tier) and record.seed in (None, info.seed)
                if record.case not in selected or not own:
                    problems.add(f"{file.name}: the record of {record.case} is not of this run")
                elif record.fault_class is not FaultClass.INFRASTRUCTURE and record.outcome != NOT_COLLECTED:
                    yield record

    def judge_alone(self, write: Callable[[CaseRecord], None], say: Callable[[str], None]) -> None:
        """Judges the cases that were under way when the run ended, one after the other. ``write`` gets their records,
        and ``say`` sentences for the user. A case that was under way at :data:`MOST_DEATHS` ends of the run has
        crashed. If the workers hold the GPUs of a Ray cluster they judge the others."""
        ends = {case: sum(case in part.unfinished for part in self.parts) for case in sorted(self._foreseen)}
        cases = [case for case, count in ends.items() if count < MOST_DEATHS]
        records = []
        for case in sorted(ends.keys() - {*cases}):
            text = f"the run ended {ends[case]} times while this case ran"
            records.append(self._crashed(case, text))
        if self._on_cluster:
            cases = []
        if cases:
            say(f"under way when the run ended, so judged first and alone: {first_of(cases, 3)}")
            records += self._judged_alone(cases)
        left = [case for case in cases if case not in {record.case for record in records}]
        for case in left if len(cases) > 1 else ():  # one of them may have ended the process of all
            records += self._judged_alone([case])
        for record in records:
            write(record)
            self.recorded[record.case] = record.status

    def _judged_alone(self, cases: Sequence[str]) -> list[CaseRecord]:
        """Returns the records of ``cases`` that a process of their own has left, and none for a case that the machine
        broke. A signal that ends the process of one case is that case's crash."""
        scratch = self._folder / "alone"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir()
            judged = self._fresh.judge(cases, scratch, self._gpu)
            records = [judged.records[case] for case in cases if case in judged.records]
            if judged.signal and len(cases) == 1 and not records:
                text = (
                    f"the run ended while this case ran; then signal {judged.signal} ended the pytest that ran it alone"
                )
                crashed = self._crashed(cases[0], text)
                return [replace(crashed, fault=fault_of_signal(judged.signal, "the process"))]
            if (artefacts := scratch / RUN / "artefacts").is_dir():
                shutil.copytree(artefacts, self._folder / "artefacts", dirs_exist_ok=True)
            return [record for record in records if record.fault_class is not FaultClass.INFRASTRUCTURE]
        except OSError:
            return []
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _crashed(self, case: str, text: str) -> CaseRecord:
        foreseen = self._foreseen[case]
        return replace(foreseen, status=Status.CRASH, diagnosis=f"{foreseen.diagnosis}\n{text}".strip())


def lock_folder(folder: Path) -> Callable[[], None]:
    """Locks ``folder`` and returns what unlocks it; the system does so if this process is killed. Raises
    pytest.UsageError if another process has locked it. Some network file systems know no such locks."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        raise pytest.UsageError(
            f"{folder}: a run that uses this folder goes on; wait until it ends, or end it"
        ) from None
    except OSError:
        pass
    return partial(os.close, opened)


def _has_open(number: int, folder: Path) -> bool:
    """True if process ``number`` lives and has a file in ``folder`` open. A number may be another process's by now."""
    try:
        names = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{number}/fd")]
    except OSError:
        return False
    return any(name.startswith(f"{folder.resolve()}/") for name in names)


def _short(value: Any) -> str:
    """Returns ``value`` for a sentence."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
