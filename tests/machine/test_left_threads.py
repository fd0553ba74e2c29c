"""A thread that code of a folder leaves is named although it has not begun; a library's new threads cost little."""

from __future__ import annotations

import _thread
import ctypes
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from conformance.machine import left_threads
from conformance.machine.left_threads import left, running

HERE = Path(__file__).parent


class Waiting(threading.Thread):
    def run(self):
        ENDS.wait()


ENDS = threading.Event()


def waits():
    ENDS.wait()


STARTS = {
    "bare": lambda: _thread.start_new_thread(waits, ()),
    "daemon": lambda: threading.Thread(target=waits, daemon=True).start(),
    "built-in": lambda: threading.Timer(0.5, len, ("",)).start(),
    "subclass": lambda: Waiting().start(),
}


@pytest.fixture
def ends():
    ENDS.clear()
    before = running()
    yield
    ENDS.set()
    while running().count > before.count:
        time.sleep(0.01)


@pytest.mark.parametrize("kind", STARTS)
def test_a_thread_that_was_just_started_is_found(kind, ends):
    for _ in range(30 if kind == "bare" else 3):
        before = running()
        STARTS[kind]()
        assert len(left(before, HERE)) == 1, kind


def test_a_thread_that_has_not_begun_is_waited_for(monkeypatch, ends):
    """Between its start and its first step a thread has no frame."""
    before = running()
    STARTS["bare"]()
    frames, looks = sys._current_frames, []

    def late():
        looks.append(1)
        return {number: frame for number, frame in frames().items() if number in before.python or len(looks) > 5}

    monkeypatch.setattr(sys, "_current_frames", late)
    monkeypatch.setattr(left_threads, "_another_runs", lambda: True)
    assert left(before, HERE) == ["one without a name"]


def test_native_threads_of_a_library_cost_little_and_fail_no_case():
    library = ctypes.CDLL(None)
    number = ctypes.c_ulong()
    before = running()
    begun = time.perf_counter()
    assert library.pthread_create(ctypes.byref(number), None, library.sleep, ctypes.c_void_p(1)) == 0
    assert left(before, HERE) == []
    assert time.perf_counter() - begun < 1
    assert left(running(), HERE) == []
    library.pthread_join(number, None)


def test_a_case_without_new_threads_costs_less_than_a_tenth_of_a_millisecond():
    def cost():
        begun = time.thread_time()
        for _ in range(100):
            left(running(), HERE)
        return (time.thread_time() - begun) / 100

    assert min(cost() for _ in range(5)) < 1e-4
    assert running().count - 2 == len(os.listdir("/proc/self/task"))
