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
#: Statuses of cases that end their process or take their whole deadline: they are judged again once.
_ONCE_MORE = (Status.CRASH, Status.TIMEOUT)


class Reruns:
    """Judges failed cases of a run again, each in a ``fresh`` pytest. ``suspects`` tells GPUs that may be broken, and
    ``workers`` is the number of processes that run cases."""

    def __init__(self, settings: Settings, fresh: FreshPytest, suspects: SuspectGpus, workers: int) -> None:
        self._settings = settings
        self._fresh = fresh
        self._suspects = suspects
        self._at_once = max(1, min(workers, core_count()))
        self._failed: dict[str, None] = {}

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
        return {record.case: self._judged(record, reruns[record.case]) for record in records if reruns[record.case]}

    def _judged(self, record: CaseRecord, reruns: Sequence[Rerun]) -> CaseRecord:
        suspect = None if record.status is Status.COMPILE_ERROR else self._suspects.fault(record, reruns)
        record = judged(record, reruns)
        return record if suspect is None else replace(record, fault=suspect)

    def _rerun(self, record: CaseRecord, number: int, until: float) -> Rerun | None:
        """Returns what ``record``'s case gives in a fresh process; None if there is no time left for it."""
        left = until - time.monotonic()
        if self._fresh.stopped or record.durations.get("total", 0.0) > left:
            return None
        gpu = self._gpu(record, number)
        try:
            with tempfile.TemporaryDirectory(prefix="conformance-rerun-", ignore_cleanup_errors=True) as scratch:
                again = self._fresh.judge([record.case], Path(scratch), gpu, left).records.get(record.case)
        except OSError:  # no disk, no process, or a try that has left nothing
            return None
        if again is None:
            return None
        failing = tuple(check for check, _ in again.failing)
        return Rerun(again.status, failing, again.diagnosis[:DIAGNOSIS], again.gpu, again.fault)

    def _gpu(self, record: CaseRecord, number: int) -> str | None:
        """Returns the GPU of a rerun: first that of the case, then another one if the run has more."""
        entries = self._settings.gpus.entries
        if record.gpu not in entries:
            return next(iter(entries), None)
        return entries[(entries.index(record.gpu) + number) % len(entries)]

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
