"""Judges the kernels of a plain file, case by case."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import select
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from conformance.judging.case_recorder import CaseEnded, CaseRecorder
from conformance.judging.conform import conform
from conformance.judging.harness import Harness, chosen_targets
from conformance.judging.settings import Settings
from conformance.kernels.catalogue import get
from conformance.machine.descendants import adopted, descendants
from conformance.machine.entry_point_loading import OutsideError
from conformance.machine.gpus import Gpus
from conformance.plain_files import asked_problems
from conformance.plain_files.asked_problems import Asked
from conformance.plain_files.description import Described
from conformance.plain_files.device_functions import ForeignCode
from conformance.plain_files.file_kernel import Recorded, key
from conformance.plain_files.lacking import lacked
from conformance.plain_files.sandbox import SandboxError, end_process, is_fenced
from conformance.records import CompileFailure, ConformanceFailure
from conformance.targets import Target, devices_seen_elsewhere
from conformance.user_files.expected_failures import read_expected_failures

#: The target where none is named and there is no GPU.
USUAL_TARGET = "sm_90"
#: Seconds that a case may take.
CASE_SECONDS = 300.0
_LINE = "\n"


class NotJudged(Exception):
    """The file cannot be judged; the message says why."""


@dataclass
class JudgedFile:
    """The cases of a file, counted by their statuses. ``last`` is the status of the last one."""

    statuses: Counter[str] = field(default_factory=Counter)
    last: str = ""

    @property
    def passed(self) -> bool:
        """True if a case passed, and no case failed or could not be run."""
        return bool(self.statuses["pass"]) and not self.statuses.keys() - {"pass", "not-applicable"}


@dataclass(frozen=True)
class Options:
    """The ``targets`` as named, the ``gpus`` to run on, and the ``seed`` of the operands; None stands for a random one.
    The ``folder`` gets the text of the device functions."""

    targets: tuple[str, ...]
    gpus: Gpus
    seed: int | None
    folder: Path


def targets_of(settings: Settings) -> tuple[Target, ...]:
    """Returns the targets of a run. Another process looks for devices, because the file's code runs in a fork of this
    one. torch fails in forks of a process that has used a device. Raises NotJudged if no device can be used."""
    if not settings.has_gpu or settings.targets:
        return chosen_targets(settings)
    try:
        return devices_seen_elsewhere()[:1]
    except LookupError as error:
        raise NotJudged(str(error)) from None


def judge_file(path: Path, entries: Sequence[Described], options: Options, say: Callable[[str], None]) -> JudgedFile:
    """Judges the operations ``entries`` of the file at ``path`` and says what comes of each case.

    The operands are drawn after the file's code has ended. Raises NotJudged if a target is unknown, DescriptionError if
    a file cannot have an operation."""
    if not is_fenced():
        say("this system has no Landlock: while the file's code runs it can write files and reach other processes")
    gpus, specs = options.gpus, options.targets or (() if options.gpus.entries else (USUAL_TARGET,))
    settings = Settings("quick", specs, (), (), 0, None, gpus, None, 60.0, (), read_expected_failures())
    try:
        targets = targets_of(settings)
    except (LookupError, OutsideError) as error:
        raise NotJudged(str(error.args[0])) from None
    judged = JudgedFile()
    kept: list[tuple[Recorded, list[Asked]]] = []
    for entry in entries:
        try:
            kept += asked_problems.recorded(path, entry, targets, options.folder)
        except (SandboxError, ForeignCode) as error:
            lacks = lacked(error)
            status = "not-run" if lacks else "fail"
            say(f"{status:<15}{entry.call}: {error}" + (f"; {lacks}" if lacks else ""))
            judged.statuses[status] += 1
    asked_problems.enter([each for each, _ in kept], options.folder)
    # drawn now: the process of the file's code is a copy of this one, and could read it
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    chosen, first = dataclasses.replace(settings, seed=seed), 0
    cases = [(each, case) for each, cases in kept for case in cases]
    if chosen.has_gpu:  # no fork of this process can use the GPU
        harness = Harness(chosen)
        with contextlib.closing(harness.pool):
            for each, case in cases:
                _say(judged, say, each, case, *_judge(harness, each, case))
        first = len(cases)
    while first < len(cases):  # a process that a case ends, or that does not end, costs that case
        first += _judged_apart(cases[first:], chosen, judged, say)
    counts = ", ".join(f"{count} {status}" for status, count in judged.statuses.items())
    say(f"{path.name}: {counts}; seed {seed}")
    return judged


def _judged_apart(
    cases: Sequence[tuple[Recorded, Asked]], settings: Settings, judged: JudgedFile, say: Callable[[str], None]
) -> int:
    """Judges ``cases`` in another process, up to one that ends it or is not done in time. Returns their number."""
    ours, theirs = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    earlier, number = descendants(), 0
    with adopted():
        process = os.fork()
        if not process:
            os.close(ours)
            _judge_each(cases, settings, theirs)
        os.close(theirs)
        with open(ours, "rb") as answers:
            try:
                for number, (recorded, case) in enumerate(cases, 1):  # noqa: B007
                    is_late = not select.select([answers], [], [], CASE_SECONDS)[0]
                    line = b"" if is_late else answers.readline()
                    if line:
                        status, text = json.loads(line)
                    else:
                        late = f"it did not end within {CASE_SECONDS:g} s: a kernel may have a loop without an end"
                        code = None if is_late else os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                        status, text = "fail", late if is_late else f"it ended its process, with status {code}"
                    _say(judged, say, recorded, case, status, text)
                    if not line:
                        break
            finally:
                end_process(process, earlier)
    return number


def _judge_each(cases: Sequence[tuple[Recorded, Asked]], settings: Settings, answers: int) -> NoReturn:
    """Judges ``cases``, writes what comes of each to ``answers`` as a line of JSON, and ends the process."""
    code = 1
    try:
        os.setsid()
        harness = Harness(settings)
        with contextlib.closing(harness.pool):
            for recorded, case in cases:
                line = json.dumps(_judge(harness, recorded, case)) + "\n"
                written = line.encode(errors="backslashreplace")
                while written:
                    written = written[os.write(answers, written) :]
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _say(
    judged: JudgedFile, say: Callable[[str], None], recorded: Recorded, case: Asked, status: str, text: str
) -> None:
    """Counts and says what came of a case."""
    first = status != judged.last  # the whole text of the first of several failures
    judged.statuses[status] += 1
    judged.last = status
    name = f"{recorded.name} {case.problem.id} {case.config.id} {case.target.id}"
    say(f"{status:<15}{name}" + (f": {text if first else text.partition(_LINE)[0]}" if text else ""))


def _judge(harness: Harness, recorded: Recorded, case: Asked) -> tuple[str, str]:
    """Returns the status of a case, and a text about it."""
    kernel: Any = get(recorded.name)
    tape, _ = recorded.tapes[key(case.problem, case.config, case.target)]
    recorder = CaseRecorder(f"{recorded.name}::{case.problem.id}")
    if tape.fault:
        lacks = lacked(tape.fault)
        return ("not-run", lacks) if lacks else ("fail", f"{tape.check}: {tape.fault}")
    try:
        conform(harness, recorder, kernel, case.problem, config=case.config, target=case.target)
    except CaseEnded as end:
        return end.status.value, str(end.reason)
    except ConformanceFailure as error:
        return "fail", str(error)
    except Exception as error:
        lacks = lacked(error)
        words = str(error) if isinstance(error, CompileFailure) else f"{type(error).__name__}: {error}"
        return ("not-run", lacks) if lacks else ("fail", words)
    record = recorder.record()
    warnings = [f"{each.check}: {each.text}" for each in record.verdicts if each.details.get("severity") == "warn"]
    return "pass", "; warning: ".join([f"by {record.executor}", *warnings])
