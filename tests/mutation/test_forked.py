"""Work in forks: what they tell, and how they end."""

from __future__ import annotations

import functools
import os
import signal
import time

import pytest

from conformance.mutation.forked import ForkEnded, TooLong, limit_processor, told


def tells(*values, then=None):
    def work(tell):
        for value in values:
            tell(value)
        if then is not None:
            then()

    return work


def test_values_come_in_order():
    assert list(told(tells(1, "two", {"three": 3}), 10.0)) == [1, "two", {"three": 3}]


def test_nothing_of_this_process_changes():
    changed = []
    assert list(told(tells(then=functools.partial(changed.append, 1)), 10.0)) == []
    assert changed == []


@pytest.mark.parametrize(
    ("ending", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), r"crash \(SIGSEGV\)"),
        (lambda: os._exit(7), r"crash \(status 7\)"),
        (lambda: time.sleep(60), "hang"),
    ],
)
def test_an_early_end_is_told_after_the_values(ending, how):
    values = told(tells(1, then=ending), 0.5)
    assert next(values) == 1
    with pytest.raises(ForkEnded, match=how):
        next(values)


def test_an_error_of_the_work_is_no_end_of_a_mutant():
    def broken():
        raise ValueError("ours")

    with pytest.raises(RuntimeError, match="ValueError: ours"):
        list(told(tells(then=broken), 10.0))


def test_an_endless_loop_uses_up_its_processor_time():
    def loop(tell):
        limit_processor(0.1)
        try:
            while True:
                pass
        except TooLong:
            limit_processor(0)
            tell("too long")

    assert list(told(loop, 60.0)) == ["too long"]


def test_memory_is_limited():
    def greedy(tell):
        try:
            bytearray(64 << 30)
        except MemoryError:
            tell("no memory")

    assert list(told(greedy, 10.0)) == ["no memory"]
