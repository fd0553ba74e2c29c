"""A timing is alone on its device; everything else is not kept waiting."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from conformance.machine.gpus import NotAlone, Turns


def use(folder, seconds, ready, how="together"):
    with getattr(Turns("0", folder), how)():
        ready.set()
        time.sleep(seconds)


def waiting(folder):
    """Returns the number of processes that wait to be alone: they hold the turnstile together."""
    (turnstile,) = folder.glob("*.turnstile")
    number = f":{turnstile.stat().st_ino} "
    return sum("READ" in line and number in line for line in Path("/proc/locks").read_text().splitlines())


def note(folder, how, begins):
    begins.set()
    with getattr(Turns("0", folder), how)(), (folder / "turns.txt").open("a") as turns:
        turns.write(f"{how} ")


@pytest.fixture
def busy(tmp_path):
    """Starts a process that uses the device for some seconds."""
    context = multiprocessing.get_context("spawn")
    started = []

    def start(seconds, how="together"):
        ready = context.Event()
        process = context.Process(target=use, args=(tmp_path, seconds, ready, how), daemon=True)
        process.start()
        assert ready.wait(60)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


def test_cases_use_a_device_together(tmp_path, busy):
    busy(60)
    with Turns("0", tmp_path).together():
        pass


def test_a_timing_waits_until_it_is_alone(tmp_path, busy):
    busy(1.0)
    started = time.monotonic()
    with Turns("0", tmp_path).alone(30):
        assert time.monotonic() - started > 0.9


def test_a_timing_does_not_wait_for_ever(tmp_path, busy):
    busy(60)
    with pytest.raises(NotAlone, match=r"0\.1 s"), Turns("0", tmp_path).alone(0.1):
        pass


def test_nobody_comes_in_while_one_is_alone(tmp_path):
    turns = Turns("0", tmp_path)
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=use, args=(tmp_path, 0.0, ready), daemon=True)
    with turns.alone(5):
        process.start()
        assert not ready.wait(3)
    assert ready.wait(60)
    process.join()


def test_those_who_wait_to_be_alone_go_before_others(tmp_path):
    """Else the device would have to be emptied for each of them."""
    context = multiprocessing.get_context("spawn")
    turns = Turns("0", tmp_path)
    hows = ["alone", "together", "alone"]
    with turns.together():
        processes = []
        for how in hows:
            begins = context.Event()
            processes.append(context.Process(target=note, args=(tmp_path, how, begins), daemon=True))
            processes[-1].start()
            assert begins.wait(60)
            until = time.monotonic() + 30
            while waiting(tmp_path) < hows[: len(processes)].count("alone") and time.monotonic() < until:
                time.sleep(0.01)
    for process in processes:
        process.join(60)
    assert (tmp_path / "turns.txt").read_text() == "alone alone together "


def test_one_case_at_a_time_has_much_memory(tmp_path, busy):
    busy(1.0, "with_much_memory")
    started = time.monotonic()
    with Turns("0", tmp_path).with_much_memory():
        assert time.monotonic() - started > 0.9


def test_cases_with_little_memory_do_not_wait_for_one_with_much(tmp_path, busy):
    busy(60, "with_much_memory")
    with Turns("0", tmp_path).together():
        pass


def test_a_process_that_dies_gives_its_turn_back(tmp_path, busy):
    process = busy(60)
    process.kill()
    process.join()
    with Turns("0", tmp_path).alone(5):
        pass


def test_the_files_of_another_user_are_not_touched(tmp_path, monkeypatch):
    for user in (1, 2):
        monkeypatch.setattr("os.getuid", lambda user=user: user)
        with Turns("0", tmp_path).together():
            pass
    assert len(list(tmp_path.iterdir())) == 4


def test_a_lock_that_cannot_be_had_is_no_busy_device(tmp_path, monkeypatch):
    def fail(file, operation):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    with pytest.raises(OSError, match="No locks available"), Turns("0", tmp_path).alone(5):
        pass


def test_other_devices_are_not_waited_for(tmp_path, busy):
    busy(60)
    with Turns("1", tmp_path).alone(1):
        pass


def fails():
    raise ZeroDivisionError


def test_a_timing_learns_how_long_the_device_was_idle(tmp_path):
    turns = Turns("0", tmp_path)
    with turns.timing() as idle_s:
        assert idle_s == math.inf
    (ended,) = tmp_path.glob("*.timed")
    os.utime(ended, (time.time() - 1000,) * 2)
    with turns.alone(5):
        pass  # says nothing of the device
    with contextlib.suppress(ZeroDivisionError), turns.timing() as idle_s:
        assert 1000 <= idle_s < 1500
        fails()  # and may leave it idle
    with Turns("0", tmp_path).timing() as idle_s:
        assert 1000 <= idle_s < 1500
    with turns.timing() as idle_s:
        assert 0 <= idle_s < 500
