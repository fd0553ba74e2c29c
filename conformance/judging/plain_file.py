"""Judges the kernels of a plain file, case by case."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.judging.case_recorder import CaseEnded, CaseRecorder
from conformance.judging.conform import conform
from conformance.judging.harness import Harness, chosen_targets
from conformance.judging.settings import Settings
from conformance.kernels.catalogue import get
from conformance.machine.entry_point_loading import OutsideError
from conformance.machine.gpus import Gpus
from conformance.plain_files import asked_problems
from conformance.plain_files.asked_problems import Asked
from conformance.plain_files.description import Described
from conformance.plain_files.device_functions import ForeignCode
from conformance.plain_files.file_kernel import Recorded, key
from conformance.plain_files.lacking import lacked
from conformance.plain_files.sandbox import SandboxError, is_fenced
from conformance.records import CompileFailure, ConformanceFailure
from conformance.targets import Target, devices_seen_elsewhere
from conformance.user_files.expected_failures import read_expected_failures

#: The target where none is named and there is no GPU.
USUAL_TARGET = "sm_90"
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
            kept.append(asked_problems.recorded(path, entry, targets, options.folder))
        except (SandboxError, ForeignCode) as error:
            lacks = lacked(error)
            status = "not-run" if lacks else "fail"
            say(f"{status:<15}{entry.call}: {error}" + (f"; {lacks}" if lacks else ""))
            judged.statuses[status] += 1
    asked_problems.enter([each for each, _ in kept], options.folder)
    # drawn now: the process of the file's code is a copy of this one, and could read it
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    harness = Harness(dataclasses.replace(settings, seed=seed))
    with contextlib.closing(harness.pool):
        for each, cases in kept:
            for case in cases:
                _judge(harness, each, case, judged, say)
    counts = ", ".join(f"{count} {status}" for status, count in judged.statuses.items())
    say(f"{path.name}: {counts}; seed {seed}")
    return judged


def _judge(harness: Harness, recorded: Recorded, case: Asked, judged: JudgedFile, say: Callable[[str], None]) -> None:
    kernel: Any = get(recorded.name)
    name = f"{recorded.name} {case.problem.id} {case.config.id} {case.target.id}"
    tape, _ = recorded.tapes[key(case.problem, case.config, case.target)]
    status, text = "pass", ""
    recorder = CaseRecorder(f"{recorded.name}::{case.problem.id}")
    if tape.fault:
        lacks = lacked(tape.fault)
        status, text = ("not-run", lacks) if lacks else ("fail", f"{tape.check}: {tape.fault}")
    else:
        try:
            conform(harness, recorder, kernel, case.problem, config=case.config, target=case.target)
            text = f"by {recorder.record().executor}"
        except CaseEnded as end:
            status, text = end.status.value, str(end.reason)
        except ConformanceFailure as error:
            status, text = "fail", str(error)
        except Exception as error:
            words = str(error) if isinstance(error, CompileFailure) else f"{type(error).__name__}: {error}"
            lacks = lacked(error)
            status, text = ("not-run", lacks) if lacks else ("fail", words)
    first = status != judged.last  # the whole text of the first of several failures
    judged.statuses[status] += 1
    judged.last = status
    say(f"{status:<15}{name}" + (f": {text if first else text.partition(_LINE)[0]}" if text else ""))
