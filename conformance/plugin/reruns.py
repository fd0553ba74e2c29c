"""Judges failed cases again, each time in a fresh process, and tells what always fails from what comes and goes.

A case that fails alike every time keeps its status. One that does not is flaky; it never becomes a pass. If its GPU may
be broken, that is a fault of the machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

from conformance.faults import FaultClass
from conformance.judging.settings import Settings
from conformance.machine.gpus import core_count
from conformance.plugin.fresh_pytest import FreshPytest
from conformance.plugin.suspect_gpus import SuspectGpus
from conformance.records import CaseRecord, Rerun, Status
from conformance.reporting.run_verdict import many

#: The most cases of one run that are judged again.
MOST_CASES = 20
#: The part of the run's time that reruns may take, and the seconds that they may take in a short run.
PART_OF_RUN = 0.1
LEAST_S = 60.0
#: Characters of a diagnosis that a rerun keeps.
DIAGNOSIS = 2000
#: Times that a case is judged again on two GPUs before the one where it fails is suspect. By chance a case that fails
#: half of the time does so once in 64 times.
CONFIRMATIONS = 2
#: Statuses of cases that end their process or take their whole deadline: they are judged again once on a GPU.
_ONCE_MORE = (Status.CRASH, Status.TIMEOUT)


class Reruns:
    """Judges failed cases of a run again, each in a ``fresh`` pytest. ``suspects`` tells GPUs that may be broken, and
    ``workers`` is the number of processes that run cases."""

    def __init__(self, settings: Settings, fresh: FreshPytest, suspects: SuspectGpus, workers: int) -> None:
        self._settings = settings
        self._fresh = fresh
        self._suspects = suspects
        self._processes = max(1, min(workers, core_count()))
        self._failed: dict[str, None] = {}
        self._judged: dict[str, CaseRecord] = {}
        self._without_record = False  # whether a rerun left none

    def failed(self, case: str) -> None:
        """Notes that ``case`` failed. The first ones are judged again."""
        if self._settings.reruns and len(self._failed) < 2 * MOST_CASES:  # the machine may have broken some of them
            self._failed[case] = None

    def judge(self, recorded: Callable[[str], CaseRecord | None], run_s: float) -> dict[str, CaseRecord]:
        """Judges failed cases again after a run of ``run_s`` seconds, and returns the new records by case.
        ``recorded`` returns the record of a case, None if it has none."""
        until = time.monotonic() + max(PART_OF_RUN * run_s, LEAST_S)
        records = [record for case in self._failed if (record := recorded(case)) is not None]
        records = [record for record in records if record.fault_class is FaultClass.REGRESSION][:MOST_CASES]
        left = [record for record in records if record.case not in self._judged]
        tries = [(record, gpu) for record in left for gpu in self._gpus(record)]
        if tries:
            with ThreadPoolExecutor(self._processes) as pool:
                ended = list(pool.map(lambda one: self._rerun(one[0], one[1], until), tries))
            reruns: dict[str, list[Rerun]] = {}
            for (record, _), rerun in zip(tries, ended, strict=True):
                reruns.setdefault(record.case, []).extend([rerun] if rerun else [])
            for record in left:
                self._conclude(record, reruns[record.case])
        return dict(self._judged)

    def judge_now(self, record: CaseRecord) -> CaseRecord:
        """Judges the case of the failed ``record`` again while the run goes on, and returns its new record, which
        :meth:`judge` returns, too."""
        until = time.monotonic() + LEAST_S
        self._conclude(record, self._at_once(record, self._gpus(record), until))
        return self._judged.get(record.case, record)

    def _conclude(self, record: CaseRecord, reruns: list[Rerun]) -> None:
        """Keeps what the ``reruns`` say of ``record``. A case that comes and goes may have failed on its own GPU
        alone by chance. So it is judged on both GPUs again before one of them is suspect."""
        until = time.monotonic() + LEAST_S
        for _ in range(CONFIRMATIONS):
            if not self._suspects.passes_elsewhere(record, reruns):
                break
            other = next(rerun.gpu for rerun in reruns if rerun.gpu != record.gpu)
            reruns += self._at_once(record, (record.gpu, other), until)
        suspect = None if record.status is Status.COMPILE_ERROR else self._suspects.fault(record, reruns)
        if reruns or suspect:
            record = judged(record, reruns)
            self._judged[record.case] = record if suspect is None else replace(record, fault=suspect)

    def _at_once(self, record: CaseRecord, gpus: Sequence[str | None], until: float) -> list[Rerun]:
        """Returns what ``record``'s case gives on each of ``gpus``, as far as there is time."""
        with ThreadPoolExecutor(max(len(gpus), 1)) as pool:
            return [rerun for rerun in pool.map(lambda gpu: self._rerun(record, gpu, until), gpus) if rerun]

    def _rerun(self, record: CaseRecord, gpu: str | None, until: float) -> Rerun | None:
        """Returns what ``record``'s case gives in a fresh process; None if there is no time left for it."""
        left = until - time.monotonic()
        if self._fresh.stopped or record.durations.get("total", 0.0) > left:
            return None
        try:
            with tempfile.TemporaryDirectory(prefix="conformance-rerun-", ignore_cleanup_errors=True) as scratch:
                again = self._fresh.judge([record.case], Path(scratch), gpu, left).records.get(record.case)
        except OSError:  # no disk, no process, or a try that has left nothing
            again = None
        if again is None:
            self._without_record |= time.monotonic() < until  # else its time was up
            return None
        failing = tuple(check for check, _ in again.failing)
        return Rerun(again.status, failing, again.diagnosis[:DIAGNOSIS], again.gpu, again.fault)

    def _gpus(self, record: CaseRecord) -> list[str | None]:
        """Returns the GPU of each try to come: first that of the case, then others if the run has more. A case that
        ends its process or takes its whole deadline is judged once on each of two GPUs."""
        entries, tries = self._settings.gpus.entries, self._settings.reruns
        if record.status in _ONCE_MORE:
            tries = min(tries, 1 if record.gpu not in entries else 2, max(1, len(entries)))
        if record.gpu not in entries:
            return [next(iter(entries), None)] * tries
        first = entries.index(record.gpu)
        return [entries[(first + number) % len(entries)] for number in range(tries)]

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
            texts.append(f"{many(once, 'failed case')} judged once: {self._why_once}")
        return "; ".join(texts)

    @property
    def _why_once(self) -> str:
        if self._fresh.stopped:
            return "a signal ended the reruns"
        return "a rerun left no record, as if the suite had changed" if self._without_record else _LIMITS


#: Why a failed case was judged once.
_LIMITS = (
    f"reruns end after {MOST_CASES} cases, {PART_OF_RUN:.0%} of the run's time or {LEAST_S:g} s, and leave out what "
    "the machine broke"
)


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
