"""Ends workers that no longer run: those that were stopped, or that wait in the kernel for a driver.

A worker's own watchdog (:mod:`conformance.plugin.watchdog`) ends it at the deadline of its case, as long as its threads
run. This one is a thread of the process that leads the workers, and acts some seconds later.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.machine import overdue, stacks
from conformance.plugin import watchdog
from conformance.plugin.collection_watch import collected_now, collecting_file
from conformance.plugin.record_files import in_flight, journal_file, part_file, process_file

#: Seconds between two looks at the workers.
LOOK_S = 1.0
#: Seconds within which a process that is killed must be gone. One in the kernel may stay; the run goes on without it.
GONE_S = 10.0
#: Seconds for which a worker may do nothing before it has collected the suites, unless it collects a file.
PREPARE_S = 600.0
#: States of a process whose first thread does not run, and what each means. One that ended keeps its pipes open as
#: long as the kernel holds another of its threads.
_STILL = {
    "T": "it was stopped",
    "t": "a debugger held it",
    "D": "it waited in the kernel",
    "Z": "it ended but for what the kernel held",
}


#: Those of them that come from outside.
_BY_SOMEBODY = ("T", "t")


@dataclass
class _Watched:
    node: Any
    seen: object = None  # sizes of its files when they last changed
    quiet_s: float = 0.0  # for how long they have not
    still_s: float = 0.0  # for how long it has been in a state of _STILL
    has_collected: bool = False
    asked_at: float | None = None  # for its stacks
    killed_at: float | None = None


class WorkerWatch:
    """Watches workers whose cases have ``deadline_s`` seconds. ``lost`` is called in this thread with a worker that
    was killed and does not go."""

    def __init__(self, folder: Path, deadline_s: float, lost: Callable[[Any], None]) -> None:
        self._folder = folder
        self._limit_s = deadline_s + watchdog.LOCK_GRACE_S
        self._lost = lost
        self._workers: dict[str, _Watched] = {}
        self._reasons: dict[str, str] = {}
        self._stopped: set[str] = set()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, node: Any) -> None:
        """Begins to watch a worker of xdist."""
        self._workers[node.gateway.id] = _Watched(node)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="worker-watch", daemon=True)
            self._thread.start()

    def collected(self, node: Any) -> None:
        """The worker has collected the suites, and waits for cases."""
        if node.gateway.id in self._workers:
            self._workers[node.gateway.id].has_collected = True

    def forget(self, node: Any) -> None:
        """The worker has ended."""
        self._workers.pop(node.gateway.id, None)

    def stop(self) -> None:
        """Watches no longer."""
        self._ended.set()

    def kill_all(self) -> None:
        """Kills every worker."""
        for watched in list(self._workers.values()):
            _kill(watched.node)

    def reason(self, worker: str) -> str:
        """Returns the reason for which this ended the worker; empty if it did not."""
        return self._reasons.get(worker, "")

    def was_stopped(self, worker: str) -> bool:
        """Returns True if a signal from outside had stopped ``worker`` before: that is no fault of its case."""
        return worker in self._stopped

    def _run(self) -> None:
        last = time.monotonic()
        while not self._ended.wait(LOOK_S):
            now = time.monotonic()
            passed = min(now - last, 2 * LOOK_S)  # what passed while this process was stopped, too, does not count
            last = now
            for name, watched in list(self._workers.items()):
                with contextlib.suppress(OSError):  # the run's folder may be gone
                    self._look(name, watched, passed, now)

    def _look(self, name: str, watched: _Watched, passed: float, now: float) -> None:
        if watched.asked_at is not None and watched.killed_at is None:
            if now - watched.asked_at > stacks.ANSWER_S:
                watched.killed_at = now
                _kill(watched.node)
            return
        if watched.killed_at is not None:
            if now - watched.killed_at > GONE_S:
                self.forget(watched.node)
                self._lost(watched.node)
            return
        files = [_facts(path(self._folder, name)) for path in (journal_file, part_file, collecting_file)]
        watched.quiet_s = watched.quiet_s + passed if files == watched.seen else 0.0
        watched.seen = files
        state = _state(process_file(self._folder, name), watched.node)
        watched.still_s = watched.still_s + passed if state in _STILL else 0.0
        late = watched.quiet_s > self._limit_s
        hangs = self._hangs_early(name, watched) if not watched.has_collected else late and self._runs(name)
        if watched.still_s > self._limit_s or hangs:
            doing = f": {_STILL[state]}" if state in _STILL else ""
            self._reasons[name] = f"its process did nothing for {watched.quiet_s:.0f} s{doing}; the run killed it"
            self._stopped |= {name} if state in _BY_SOMEBODY else set()
            watched.asked_at = now
            number = _number(process_file(self._folder, name), watched.node)
            if number is not None and state not in _BY_SOMEBODY:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, stacks.ASK)
        elif late and watched.has_collected:
            watched.quiet_s = 0.0  # it waits for its next case

    def _runs(self, name: str) -> bool:
        return in_flight(self._folder, name) is not None

    def _hangs_early(self, name: str, watched: _Watched) -> bool:
        """True for a worker that has collected one file for too long: it could not end itself. Also if no worker that
        must collect has done anything for long: one of them may wait for another."""
        if collected_now(self._folder, name):
            return watched.quiet_s > self._limit_s + overdue.STUCK_S
        others = [other.quiet_s for other in list(self._workers.values()) if not other.has_collected]
        return min(others, default=watched.quiet_s) > max(PREPARE_S, self._limit_s)


def _kill(node: Any) -> None:
    """Kills the process that xdist started for a worker. If that is a launcher, its worker dies with it."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    if process is not None:
        process.kill()


def _facts(file: Path) -> tuple[int, int] | None:
    try:
        facts = os.stat(file)
    except FileNotFoundError:
        return None
    return facts.st_size, facts.st_mtime_ns


def is_local(node: Any) -> bool:
    """Returns True if the process of a worker is on this machine."""
    spec = node.gateway.spec
    return bool(spec.popen and not spec.via and not spec.ray)


def _number(file: Path, node: Any) -> int | None:
    """The number of the process of ``node``, if it is on this machine: execnet has asked it, or it is in ``file``."""
    if not is_local(node):
        return None
    try:
        return int(node.gateway._rinfo().pid)
    except (AttributeError, OSError):
        return int(file.read_text())


def _state(file: Path, node: Any) -> str:
    """The state of the process of ``node``, a letter; "-" if it is not known."""
    try:
        number = _number(file, node)
        stat = Path(f"/proc/{number}/stat").read_text(errors="replace")
    except (OSError, ValueError, AttributeError):
        return "-"
    return stat.rpartition(")")[2].split()[0]
