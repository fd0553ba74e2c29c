"""Threads that code of a folder leaves running are named, also one that has just been started."""

from __future__ import annotations

import _thread
import threading
from pathlib import Path

from conformance.machine import left_threads

HERE = Path(__file__).parent


def test_a_thread_that_has_not_begun_is_named():
    ends = threading.Event()
    for _ in range(5):
        before = left_threads.running()
        _thread.start_new_thread(lambda: ends.wait(10), ())
        assert left_threads.left(before, HERE) == ["one without a name"]
    ends.set()


def test_threads_from_before_and_of_others_are_not_named():
    ends = threading.Event()
    threading.Thread(target=lambda: ends.wait(10), daemon=True).start()
    before = left_threads.running()
    assert left_threads.left(before, HERE) == []
    threading.Thread(target=ends.wait, args=(10,), daemon=True).start()
    assert left_threads.left(before, HERE) == [], "it runs code of the standard library"
    ends.set()
