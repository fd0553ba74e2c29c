"""The watchdog's one thread: each case has its whole deadline, and no case has more. Time passes as the test says."""

import threading
from types import SimpleNamespace

import pytest

from conformance.plugin import watchdog


class Clock:
    """Stands in for the module ``time`` of one thread that sleeps."""

    def __init__(self):
        self.now = self._asleep_until = 0.0
        self._changed = threading.Condition()

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        with self._changed:
            self._asleep_until = self.now + seconds
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.now >= self._asleep_until)

    def advance(self, seconds):
        """Returns when the thread sleeps again."""
        with self._changed:
            self.now += seconds
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._asleep_until > self.now, timeout=60)


class Faulthandler:
    """Stands in for the module of that name: ``ends_at`` is when its thread would end the process, None for never."""

    def __init__(self, clock):
        self._clock, self.ends_at, self.starts = clock, None, 0

    def dump_traceback_later(self, seconds, **_):
        self.ends_at = self._clock.now + seconds
        self.starts += 1

    def cancel_dump_traceback_later(self):
        self.ends_at = None


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(watchdog, "time", clock)
    return clock


@pytest.fixture
def thread_outside_python(clock, monkeypatch):
    thread = Faulthandler(clock)
    monkeypatch.setattr(watchdog, "faulthandler", thread)
    return thread


def test_each_case_has_the_whole_deadline(tmp_path, clock, thread_outside_python):
    ended = []

    class Watching(watchdog.Watchdog):
        def finish(self, recorder, status, diagnosis):
            ended.append(recorder.case)
            self._watched = None

        def _expired(self, recorder):
            self.finish(recorder, None, "")

    watching = Watching(10.0, tmp_path / "stacks.txt", None, lambda record: None).watching
    for case, seconds in [("first", 6), ("second", 6), ("third", 9), ("slow", 11), ("last", 6)]:
        with watching(SimpleNamespace(case=case, stage="")):
            clock.advance(seconds)
    assert ended == ["slow"]


def test_the_thread_outside_python_is_started_once_for_many_cases(tmp_path, clock, thread_outside_python):
    dog = watchdog.Watchdog(10.0, tmp_path / "stacks.txt", None, lambda record: None)
    for number in range(240):  # 60 seconds, exact in binary
        with dog.watching(SimpleNamespace(case=f"case {number}", stage="")):
            latest = 10.0 + watchdog.LOCK_GRACE_S + watchdog.REARM_S
            assert 10.0 + watchdog.LOCK_GRACE_S <= thread_outside_python.ends_at - clock.now <= latest
            clock.advance(0.25)
    assert thread_outside_python.starts == pytest.approx(60 / watchdog.REARM_S, abs=1)
    dog.stop()
    assert thread_outside_python.ends_at is None


def test_a_process_that_waits_for_its_next_case_is_not_ended(tmp_path, clock, thread_outside_python):
    dog = watchdog.Watchdog(10.0, tmp_path / "stacks.txt", None, lambda record: None)
    for waits in (0, 1, 9, 25):
        with dog.watching(SimpleNamespace(case="case", stage="")):
            clock.advance(1)
        for _ in range(waits):
            clock.advance(1)
            assert thread_outside_python.ends_at is None or thread_outside_python.ends_at > clock.now
    assert thread_outside_python.ends_at is None
