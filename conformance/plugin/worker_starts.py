"""Starts a worker of xdist again that is killed or stopped before it answers.

The run goes on with the workers that live. xdist itself ends the run if a worker dies between its start and its first
answer. The OOM killer likes such processes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, NoReturn

import pytest

from conformance.machine.awake_time import AwakeTime
from conformance.machine.overdue import deadline

#: Seconds between the tries to start a worker: what ended the first may be over then.
PAUSES_S = (0.5, 2.0, 5.0)
#: Seconds in which a started process must answer. Its server may have to import torch from a cold network file system.
ANSWER_S = 90.0
#: Seconds after which a worker that did not start is not tried again.
TRIES_S = 1.5 * ANSWER_S
#: Workers that may die in a row before they have collected the suites, if the run has fewer.
LEAST_DEATHS = 8
#: Where the scheduler finds a function of a dead worker and the node id of its test that was under way. It returns True
#: if another worker judges that test again, because the worker did not die of it.
JUDGED_AGAIN = pytest.StashKey[Callable[[Any, str], bool]]()
#: Errors that another try does not mend.
_LASTING = (FileNotFoundError, PermissionError, NotADirectoryError)


class WorkerStarts:
    """Hooks by which the workers of a run start. ``workers``: how many it should have.

    ``started`` is called with each node that has started, ``failed`` with the name of each that has not. ``said`` is
    called with a sentence for the user. ``ends`` ends a run that has no worker left, with a sentence and the error of
    the last start."""

    def __init__(
        self,
        workers: int,
        started: Callable[[Any], None],
        failed: Callable[[str], None],
        said: Callable[[str], None],
        ends: Callable[[str, BaseException | None], NoReturn],
    ) -> None:
        self._most_deaths = max(workers, LEAST_DEATHS)
        self._started, self._failed, self._said, self._ends = started, failed, said, ends
        self._session: Any = None  # xdist's
        self._scheduler: Any = None
        self._setup_node: Callable[..., Any]
        self._given_up = 0  # workers that did not start at all
        self._any = False
        self._deaths = 0  # of workers in a row that had not collected
        self._left = 0  # cases that were left when the last worker ended
        self._last_death = ""
        self._error: BaseException | None = None
        #: Returns True if a worker can take the place of a node's that has died.
        self.has_room: Callable[[Any], bool] = lambda node: True

    def early_death(self, error: object, costly: bool) -> None:
        """A worker died of ``error`` before it had collected the suites. ``costly``: it had hung, or its own code
        failed, as that of the next ones will. Few of these end the run."""
        self._deaths += 1 if not costly else LEAST_DEATHS // 2
        self._last_death = str(error)

    def collected(self) -> None:
        """A worker has collected the suites."""
        self._deaths = 0

    def retire(self, worker: str) -> None:
        """Gives ``worker`` no more cases. Any thread may call this."""
        self._scheduler.retire(worker)

    def stop(self, why: str) -> None:
        """Ends the run before its last case. Any thread may call this."""
        self._session.shouldstop = why

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        self._session = config.pluginmanager.get_plugin("dsession")
        manager = self._session.nodemanager
        self._setup_node, manager.setup_node = manager.setup_node, self._start
        self._session._clone_node = self._replace

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionstart(self) -> Generator[None]:
        yield
        if self._session is not None:
            self._session._active_nodes.discard(None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        if self._session is not None and not self._session._active_nodes:
            self._end()  # not while the session starts: pytest would print a sentence and end it without our hooks

    @pytest.hookimpl(optionalhook=True, wrapper=True)
    def pytest_xdist_make_scheduler(self) -> Generator[None, Any, Any]:
        self._scheduler = yield
        self._scheduler.numnodes -= self._given_up
        return self._scheduler

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """The last worker may end before the last case: others would have run the rest, or it lacks the cases that are
        left. Another one tries them. They are given up if it runs none of them."""
        session, left = self._session, getattr(self._scheduler, "pending", [])
        output = getattr(node, "workeroutput", {})
        ends = session.shuttingdown or session.shouldstop or output.get("shouldstop") or output.get("shouldfail")
        if error is not None or ends or not left or session._active_nodes != {node}:
            return
        if len(left) != self._left:
            self._left = len(left)
            session.shuttingdown = False
            self._replace(node)
        else:
            left.clear()

    def _replace(self, node: Any) -> Any:
        """Starts a worker in the place of ``node``; takes the place of xdist's own method."""
        session, spec = self._session, node.gateway.spec
        clone = None
        others = session._active_nodes - {node}
        if self._deaths <= self._most_deaths and (self.has_room(node) or not others):
            time.sleep(min(self._deaths * PAUSES_S[0] / 2, PAUSES_S[1]))
            self._rename(spec)
            clone = self._start(spec, session.queue.put)
        else:
            self._given_up += 1
        if clone is not None:
            session._active_nodes.add(clone)
            return clone
        if not others:
            self._end()
        scheduler = self._scheduler
        if node not in scheduler.node2collection:
            scheduler.numnodes -= 1
            if scheduler.collection is None and scheduler.node2collection and scheduler.collection_is_completed:
                scheduler.schedule()
        return None

    def _end(self) -> NoReturn:
        if self._deaths > self._most_deaths:
            last = last_line(self._last_death)
            self._ends(f"workers die before they have collected the suites; the last one: {last}", None)
        self._ends(f"no worker could be started: {_words(self._error)}", self._error)

    def _start(self, spec: Any, put: Callable[[Any], None]) -> Any:
        """Returns a node of xdist whose process has answered; None if none of some tries gave one."""
        clock = AwakeTime()
        hopeless = self._given_up and not self._any  # none has started: do not wait as long for each
        for pause in (None,) if hopeless else (*PAUSES_S, None):
            try:
                with deadline("the start of a worker", 2 * ANSWER_S), _answer_awaited():
                    node = self._setup_node(spec, put)
            except _failures() as error:
                self._failed(spec.id)
                self._error = error
                if isinstance(error, _LASTING):
                    raise pytest.UsageError(f"--tx {_given(spec)}: the worker cannot be started: {error}") from None
                if pause is None or clock.seconds() > TRIES_S:
                    break
                time.sleep(pause)
                self._rename(spec)
            else:
                self._any = True
                self._started(node)
                return node
        self._given_up += 1
        self._said(f"a worker could not be started (--tx {_given(spec)}: {_words(self._error)})")
        return None

    def _rename(self, spec: Any) -> None:
        spec.id = None
        self._session.nodemanager.group.allocate_id(spec)


def _failures() -> tuple[type[Exception], ...]:
    """Returns what a start raises if its process dies, hangs, writes something else or cannot be made."""
    import execnet  # here, as a run without workers needs none

    return OSError, EOFError, AssertionError, RuntimeError, execnet.RemoteError, execnet.HostNotFound


def _given(spec: Any) -> str:
    return str(spec).removeprefix("execmodel=main_thread_only//")


def _words(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {last_line(str(error))}" if str(error) else type(error).__name__


def is_traceback(text: str) -> bool:
    """Returns True if ``text`` is the traceback of an error, as xdist and execnet hand it over."""
    return text.startswith("Traceback ")


def last_line(text: str) -> str:
    """Returns the line of ``text`` that names the error: the last one of a traceback, else the first.

    >>> last_line("Traceback (most recent call last):\\n  File ...\\nValueError: x\\n")
    'ValueError: x'
    """
    lines = text.strip().splitlines()
    return lines[-1 if is_traceback(text) else 0] if lines else ""


@contextlib.contextmanager
def _answer_awaited() -> Iterator[None]:
    """Kills a process that execnet starts in the block if the block is not left in time, or with an error."""
    from execnet import gateway_io

    started: list[Any] = []
    create, left = gateway_io.create_io, threading.Event()

    def noted(*arguments: Any, **named: Any) -> Any:
        started.append(create(*arguments, **named))
        return started[-1]

    def kill_late() -> None:
        clock = AwakeTime()
        while clock.seconds() < ANSWER_S:
            if left.wait(AwakeTime.LOOK_S):
                return
        for one in started:
            one.kill()

    gateway_io.create_io = noted
    try:
        threading.Thread(target=kill_late, name="worker-start", daemon=True).start()
        yield
    except BaseException:
        for one in started:
            one.kill()
        raise
    finally:
        gateway_io.create_io = create
        left.set()
