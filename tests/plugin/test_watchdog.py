"""The watchdog's one thread: each case has its whole deadline, and no case has more. Time passes as the test says."""

import threading
from types import SimpleNamespace

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


def test_each_case_has_the_whole_deadline(tmp_path, monkeypatch):
    clock, ended = Clock(), []
    monkeypatch.setattr(watchdog, "time", clock)

    class Watching(watchdog.Watchdog):
        def finish(self, recorder, status, diagnosis):
            ended.append(recorder.case)
            self._watched = None

    watching = Watching(10.0, tmp_path / "stacks.txt", None, lambda record: None).watching
    for case, seconds in [("first", 6), ("second", 6), ("third", 9), ("slow", 11), ("last", 6)]:
        with watching(SimpleNamespace(case=case, stage="")):
            clock.advance(seconds)
    assert ended == ["slow"]
