"""Judges failed cases again, each time in a fresh process, and tells what always fails from what comes and goes.

A case that fails alike every time keeps its status. One that does not is flaky; it never becomes a pass.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

from conformance.faults import FaultClass
from conformance.judging.settings import Settings
from conformance.machine.gpus import core_count
from conformance.records import CaseRecord, Rerun, Status, read_records
from conformance.reporting.run_verdict import many

#: The most cases of one run that are judged again.
MOST_CASES = 20
#: The part of the run's time that reruns may take, and the seconds that they may take in a short run.
PART_OF_RUN = 0.1
LEAST_S = 60.0
#: Characters of a diagnosis that a rerun keeps.
DIAGNOSIS = 2000
#: Statuses of cases that end their process or take their whole deadline: they are judged again once.
_ONCE_MORE = (Status.CRASH, Status.TIMEOUT)
#: The program of a fresh pytest with the search path of this one. The system kills it if this process ends.
_PYTEST = (
    "import ctypes, json, sys; ctypes.CDLL(None).prctl(1, 9); sys.path[:], words = json.loads(sys.argv[1]); "
    "import pytest; sys.exit(pytest.main(words))"
)


class Reruns:
    """Judges failed cases of a run again as the run did, with the command line ``words`` in the folder ``base`` and the
    variables ``environment``. ``workers``: how many processes run cases."""

    def __init__(
        self, settings: Settings, words: Sequence[str], base: Path, environment: Mapping[str, str], workers: int
    ) -> None:
        self._settings = settings
        self._words = list(words)
        self._base = base
        self._environment = dict(environment)
        self._at_once = max(1, min(workers, core_count()))
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._failed: dict[str, None] = {}

    def failed(self, case: str) -> None:
        """Notes that ``case`` failed. The first ones are judged again."""
        if self._settings.reruns and len(self._failed) < 2 * MOST_CASES:  # the machine may have broken some of them
            self._failed[case] = None

    def stop(self) -> None:
        """Ends what is running, and begins no more."""
        self._stopped.set()
        with self._lock:
            for process in self._running:
                _kill(process)

    def judge(self, recorded: Callable[[str], CaseRecord | None], run_s: float) -> dict[str, CaseRecord]:
        """Judges failed cases again after a run of ``run_s`` seconds, and returns the new records by case.
        ``recorded`` returns the record of a case, None if it has none."""
        until = time.monotonic() + max(PART_OF_RUN * run_s, LEAST_S)
        records = [record for case in self._failed if (record := recorded(case)) is not None]
        records = [record for record in records if record.fault_class is FaultClass.REGRESSION][:MOST_CASES]
        tries = [
            (record, number)
            for record in records
            for number in range(min(self._settings.reruns, 1) if record.status in _ONCE_MORE else self._settings.reruns)
        ]
        if not tries:
            return {}
        with ThreadPoolExecutor(self._at_once) as pool:
            ended = list(pool.map(lambda one: self._rerun(one[0], one[1], until), tries))
        reruns: dict[str, list[Rerun]] = {}
        for (record, _), rerun in zip(tries, ended, strict=True):
            reruns.setdefault(record.case, []).extend([rerun] if rerun else [])
        return {record.case: judged(record, reruns[record.case]) for record in records if reruns[record.case]}

    def _rerun(self, record: CaseRecord, number: int, until: float) -> Rerun | None:
        """Returns what ``record``'s case gives in a fresh process; None if there is no time left for it."""
        left = until - time.monotonic()
        if self._stopped.is_set() or record.durations.get("total", 0.0) > left:
            return None
        gpu = self._gpu(record, number)
        try:
            with tempfile.TemporaryDirectory(prefix="conformance-rerun-", ignore_cleanup_errors=True) as scratch:
                again = self._judged_in(Path(scratch), record.case, gpu, left)
        except OSError:  # no disk, no process, or a try that has left nothing
            return None
        if again is None:
            return None
        failing = tuple(check for check, _ in again.failing)
        return Rerun(again.status, failing, again.diagnosis[:DIAGNOSIS], again.gpu, again.fault)

    def _judged_in(self, scratch: Path, case: str, gpu: str | None, seconds: float) -> CaseRecord | None:
        """Returns the record of ``case`` of a fresh process; None if it has none. Raises OSError."""
        with self._lock:
            if self._stopped.is_set():
                return None
            process = self._started(case, gpu, scratch)
            self._running.add(process)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _kill(process)
            process.wait()
            with self._lock:
                self._running.discard(process)
        return next((record for record in read_records(scratch / "run").records if record.case == case), None)

    def _gpu(self, record: CaseRecord, number: int) -> str | None:
        """Returns the GPU of a rerun: first that of the case, then another one if the run has more."""
        entries = self._settings.gpus.entries
        if record.gpu not in entries:
            return next(iter(entries), None)
        return entries[(entries.index(record.gpu) + number) % len(entries)]

    def _started(self, case: str, gpu: str | None, scratch: Path) -> subprocess.Popen[bytes]:
        words = [
            *self._words,
            *("--conformance-case", case, "--conformance-reruns", "0"),
            *("-n", "1", "--maxfail", "0", f"--junitxml={scratch / 'junit.xml'}"),
            *("-o", f"cache_dir={scratch / 'cache'}", f"--conformance-run-dir={scratch / 'run'}"),
        ]
        environment = dict(self._environment)
        if self._settings.shard is not None:
            words += ["--conformance-shard", "1/1"]
        if gpu is not None:
            environment[self._settings.gpus.variable] = gpu
            words += ["--conformance-gpus", "1"]
        with open(os.devnull, "r+b") as nothing:
            return subprocess.Popen(
                [sys.executable, "-c", _PYTEST, json.dumps([[str(entry) for entry in sys.path], words])],
                cwd=self._base,
                env=environment,
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                start_new_session=True,
            )

    def sentence(self, failed: int, judged_again: Mapping[str, CaseRecord]) -> str:
        """Says how many of the ``failed`` cases were judged again, and why others were not; empty if none was to be."""
        if not failed or not self._settings.reruns:
            return ""
        flaky = sum(record.status is Status.FLAKY for record in judged_again.values())
        tries = sum(len(record.reruns) for record in judged_again.values())
        texts = []
        if judged_again:
            texts.append(f"{many(len(judged_again), 'failed case')} judged again, {tries} times in all: {flaky} flaky")
        if once := failed - len(judged_again):
            texts.append(f"{many(once, 'failed case')} judged once: {_LIMITS}")
        return "; ".join(texts)


#: Why a failed case was judged once.
_LIMITS = (
    f"reruns end after {MOST_CASES} cases, {PART_OF_RUN:.0%} of the run's time or {LEAST_S:g} s, and leave out what "
    "the machine broke"
)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills ``process`` and its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def judged(record: CaseRecord, reruns: Sequence[Rerun]) -> CaseRecord:
    """Returns ``record`` with its ``reruns``. It is flaky if one of them ended in another way: with another status, or
    with other checks that failed. A rerun that the machine broke, or that was not run, says nothing."""
    record = replace(record, reruns=tuple(reruns))
    first = Rerun(record.status, tuple(check for check, _ in record.failing))
    telling = [rerun for rerun in reruns if rerun.fault is None and rerun.status is not Status.NOT_RUN]
    if all(_alike(first, rerun) for rerun in telling):
        return record
    endings = ", then ".join(map(str, chain([first], reruns)))
    return replace(record, status=Status.FLAKY, diagnosis=f"flaky: {endings}\n{record.diagnosis}")


def _alike(first: Rerun, second: Rerun) -> bool:
    return first.status is second.status and set(first.failing) == set(second.failing)
