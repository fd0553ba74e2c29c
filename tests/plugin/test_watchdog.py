"""The watchdog's one thread: each case has its whole deadline, and no case has more."""

import time
from types import SimpleNamespace

from conformance.plugin.watchdog import Watchdog


def test_each_case_has_the_whole_deadline(tmp_path):
    ended = []

    class Watching(Watchdog):
        def finish(self, recorder, status, diagnosis):
            ended.append(recorder.case)
            self._watched = None

    watchdog = Watching(0.5, tmp_path / "stacks.txt", None, lambda record: None)
    for case, seconds in [("first", 0.3), ("second", 0.3), ("slow", 0.8), ("fourth", 0.3)]:
        with watchdog.watching(SimpleNamespace(case=case, stage="")):
            time.sleep(seconds)
    assert ended == ["slow"]
