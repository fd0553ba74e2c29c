"""A screen of several GPUs at the same time: one process for each, of which none can take down another."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conformance.machine.gpu_health import gpu_state
from conformance.machine.gpus import Gpus, worker_environment
from conformance.screening.answers import GpuAnswer
from conformance.screening.findings import Seen, Verdict
from conformance.screening.worker import MARK

#: Seconds without a sign of life after which a process hangs: a kernel takes milliseconds, to compile one few seconds.
QUIET_S = 60.0
#: Seconds after its time for which a process may take to answer.
GRACE_S = 30.0
#: Lines of a dead process's error output that are quoted.
_LINES = 3


def screen(
    gpus: Gpus, seconds: float, turns: int = 0, command: Sequence[str] = (), said: Callable[[GpuAnswer], None] = print
) -> list[GpuAnswer]:
    """Screens all of ``gpus`` at once, each for ``seconds`` from the start of its process. Calls ``said`` with each
    answer when it is there. ``command`` stands in for the worker's, in tests."""
    answers: dict[str, GpuAnswer] = {}
    lock = threading.Lock()

    def one(entry: str) -> None:
        answer = _Watch(gpus, entry, seconds, turns, command).answer()
        with lock:
            answers[entry] = answer
            said(answer)

    threads = [threading.Thread(target=one, args=(entry,), daemon=True) for entry in gpus.entries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[entry] for entry in gpus.entries]


class _Watch:
    """The process of one GPU, and what it said."""

    def __init__(self, gpus: Gpus, entry: str, seconds: float, turns: int, command: Sequence[str]) -> None:
        self._gpus, self._entry, self._seconds = gpus, entry, seconds
        worker = command or [sys.executable, "-m", "conformance.screening.worker"]
        self._command = [*worker, str(seconds), str(turns)]
        self._heard = self._began = time.monotonic()
        self._about: dict[str, str] = {}
        self._states: dict[str, str] = {}
        self._last: Mapping[str, Any] = {}
        self._progress: Mapping[str, Any] = {}
        self._errors: collections.deque[str] = collections.deque(maxlen=_LINES)

    def answer(self) -> GpuAnswer:
        """Runs the process to its end, or ends it if it hangs."""
        self._states["before"] = gpu_state(self._gpus.variable, self._entry)
        environment = worker_environment(self._gpus, self._entry, False, len(self._gpus.entries))
        path = os.pathsep.join(str(entry) for entry in sys.path if entry)
        self._heard = self._began = time.monotonic()
        try:
            process = subprocess.Popen(
                self._command,
                env={**os.environ, **environment, "PYTHONPATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as error:
            return self._of(Verdict.NOT_RUN, f"its process could not be started: {error}")
        readers = [threading.Thread(target=reader, args=(process,), daemon=True) for reader in (self._read, self._keep)]
        for reader in readers:
            reader.start()
        hung = self._wait(process)
        for reader in readers:
            reader.join(timeout=5)
        self._states["after"] = gpu_state(self._gpus.variable, self._entry)
        return self._judged(process.returncode, hung)

    def _wait(self, process: subprocess.Popen[str]) -> str:
        """Waits for the end of ``process``. Returns why it hung, "" if it did not. Ends one that hangs."""
        while True:
            try:
                process.wait(timeout=0.2)
                return ""
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if "during" not in self._states and now - self._began > 0.7 * self._seconds:
                self._states["during"] = gpu_state(self._gpus.variable, self._entry)
            quiet = now - self._heard
            late = now - self._began > self._seconds + GRACE_S
            if quiet > QUIET_S or late:
                process.kill()
                try:
                    process.wait(timeout=5)
                except subprocess.TimeoutExpired:
                    return f"its process gave no sign of life for {quiet:.0f} s, and cannot be ended"
                return f"its process gave no sign of life for {quiet:.0f} s" if not late else "its process did not end"

    def _judged(self, status: int | None, hung: str) -> GpuAnswer:
        if hung:
            return self._of(Verdict.HUNG, f"{hung}, after {self._so_far()}")
        if "not_run" in self._last:
            return self._of(Verdict.NOT_RUN, str(self._last["not_run"]))
        if "failed" in self._last:
            return self._of(Verdict.CRASHED, f"the GPU's process failed after {self._so_far()}: {self._last['failed']}")
        if "seen" in self._last:
            try:
                seen = Seen.from_dict(self._last["seen"])
            except (KeyError, TypeError, ValueError) as error:
                return self._of(Verdict.CRASHED, f"the GPU's process gave an answer that cannot be read: {error!r}")
            more = {"about": self._about, "states": self._states, "seconds": time.monotonic() - self._began}
            return GpuAnswer.of(self._entry, seen, **more)
        end = f"exit status {status}"
        if status is not None and status < 0:
            end = f"signal {signal.Signals(-status).name}" if -status in set(signal.Signals) else f"signal {-status}"
        quoted = f": {' '.join(self._errors)}" if self._errors else ""
        return self._of(Verdict.CRASHED, f"the GPU's process ended by {end} after {self._so_far()}{quoted}")

    def _so_far(self) -> str:
        """Returns how far the process is known to have come, with the wrong tiles that it had seen."""
        wrong = self._progress.get("wrong_tiles", 0)
        return f"{self._progress.get('turns', 0)} turns" + (f" with {wrong} wrong tiles" if wrong else "")

    def _of(self, answer: Verdict, why: str) -> GpuAnswer:
        seconds = time.monotonic() - self._began
        return GpuAnswer(self._entry, answer, why, None, self._about, self._states, seconds)

    def _read(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self._heard = time.monotonic()
            if not line.startswith(MARK):
                continue
            try:
                message = json.loads(line.removeprefix(MARK))
            except ValueError:
                continue  # cut off, as the process died
            if "about" in message:
                self._about = message["about"]
            elif "turns" in message:
                self._progress = message
            else:
                self._last = message

    def _keep(self, process: subprocess.Popen[str]) -> None:
        for line in process.stderr or ():
            if line.strip():
                self._errors.append(line.strip()[:300])
