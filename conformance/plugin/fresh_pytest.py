"""Runs single cases in a separate pytest process with one worker, and returns their records."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.judging.settings import Settings
from conformance.records import CaseRecord, read_records
from conformance.user_files.run_options import without_option

#: The program of a fresh pytest with the search path of this one. The system kills it if this process ends.
_PYTEST = (
    "import ctypes, json, sys; ctypes.CDLL(None).prctl(1, 9); sys.path[:], words = json.loads(sys.argv[1]); "
    "import pytest; sys.exit(pytest.main(words))"
)
#: The folder of the run in the folder that a caller gives.
RUN = "run"


@dataclass(frozen=True)
class Judged:
    """The ``records`` of a fresh pytest by case, and the number of the ``signal`` that ended it; 0 if none did."""

    records: Mapping[str, CaseRecord]
    signal: int = 0


class FreshPytest:
    """Runs single cases with the command line ``words`` of a run, in its folder ``base`` and with the variables
    ``environment``."""

    def __init__(self, settings: Settings, words: Sequence[str], base: Path, environment: Mapping[str, str]) -> None:
        self._settings = settings
        words = without_option("resume", words)
        self._ray = settings.ray is not None and settings.has_gpu  # cases without a GPU need nothing of the cluster
        self._words = words if self._ray else without_option("ray", words)
        self._base = base
        self._environment = dict(environment)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    @property
    def stopped(self) -> bool:
        """True if no more may be begun."""
        return self._stopped

    def stop(self) -> None:
        """Ends what is running. No more is begun."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)

    def judge(self, cases: Sequence[str], scratch: Path, gpu: str | None, seconds: float | None = None) -> Judged:
        """Judges ``cases`` one after the other, and returns the records that there are within ``seconds``. ``gpu`` is
        an entry of the visible devices, None if the run has no GPU. The run is in the folder :data:`RUN` of
        ``scratch``. Raises OSError if no process starts, or if it has left no run."""
        with self._lock:
            if self._stopped:
                return Judged({})
            process = self._started(cases, scratch, gpu)
            self._running.add(process)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return Judged({})
        finally:
            _kill(process)
            process.wait()
            with self._lock:
                self._running.discard(process)
        ended_by = 0 if self._stopped else max(0, -code)
        try:
            return Judged({record.case: record for record in read_records(scratch / RUN).records}, ended_by)
        except OSError:
            if ended_by:
                return Judged({}, ended_by)  # before its first record
            raise

    def _started(self, cases: Sequence[str], scratch: Path, gpu: str | None) -> subprocess.Popen[bytes]:
        listed = scratch / "cases.txt"
        listed.write_text("".join(f"{case}\n" for case in cases), encoding="utf-8")
        words = [
            *self._words,
            *(f"--conformance-cases={listed}", "--conformance-reruns", "0"),
            *("-n", "1", "--maxfail", "0", f"--junitxml={scratch / 'junit.xml'}"),
            *("-o", f"cache_dir={scratch / 'cache'}", f"--conformance-run-dir={scratch / RUN}"),
        ]
        environment = dict(self._environment)
        if self._settings.shard is not None:
            words += ["--conformance-shard", "1/1"]
        if gpu is not None and not self._ray:  # Ray binds it
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


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills ``process`` and its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
