"""Judges the first failures on each GPU again during the run, and takes a GPU out of it that is suspect twice."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.faults import FaultClass, FaultKind
from conformance.plugin.case_ids import CaseIds
from conformance.plugin.record_files import recorded
from conformance.plugin.reruns import Reruns

#: The failures on one GPU that are judged again while the run goes on. The others are when it has ended.
MOST_ON_A_GPU = 4
#: The times that a GPU is suspect before it gets no more cases.
SUSPECT_TIMES = 2
#: Seconds in which a worker has written the record of a case that it has reported.
WRITTEN_S = 5.0


class EarlyReruns:
    """Hooks of the process that leads the run in ``folder`` on some ``gpus``, with workers. ``withdraw`` is called once
    with each GPU that is suspect twice, in another thread."""

    def __init__(
        self, folder: Path, case_ids: CaseIds, reruns: Reruns, gpus: int, withdraw: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._looks = 2 * MOST_ON_A_GPU * gpus  # for records of failed cases
        self._case_ids = case_ids
        self._reruns = reruns
        self._withdraw = withdraw
        self._failed: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._tried: Counter[str] = Counter()
        self._suspect: Counter[str] = Counter()
        self._thread: threading.Thread | None = None
        self._ended = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        case = self._case_ids(report.nodeid) if report.failed else None
        if case is None or not hasattr(report, "node") or not self._looks:
            return
        self._looks -= 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._judge_all, name="early-reruns", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # a limit of threads: all are judged at the end
                self._thread = None
                return
        self._failed.put(case)

    def end(self) -> None:
        """Waits for the case that is judged, and begins no more."""
        if self._thread is not None:
            self._ended = True
            self._failed.put(None)
            self._thread.join()

    def _judge_all(self) -> None:
        while (case := self._failed.get()) is not None and not self._ended:
            self._judge(case)

    def _judge(self, case: str) -> None:
        until = time.monotonic() + WRITTEN_S
        while (record := recorded(self._folder, case)) is None and time.monotonic() < until:
            time.sleep(0.05)
        if record is None or record.gpu is None or record.fault_class is not FaultClass.REGRESSION:
            return
        gpu = record.gpu
        if self._tried[gpu] >= MOST_ON_A_GPU or self._suspect[gpu] >= SUSPECT_TIMES:
            return
        self._tried[gpu] += 1
        fault = self._reruns.judge_now(record).fault
        if fault is not None and fault.kind == FaultKind.DEVICE_SUSPECT:
            self._suspect[gpu] += 1
            if self._suspect[gpu] == SUSPECT_TIMES:
                self._withdraw(gpu)
