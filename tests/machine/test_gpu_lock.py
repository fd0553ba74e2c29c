"""A timing is alone on its device; everything else is not kept waiting."""

from __future__ import annotations

import contextlib
import fcntl
import math
import multiprocessing
import os
import shutil
import stat
import time
from pathlib import Path

import pytest

from conformance.machine import gpus
from conformance.machine.environment_faults import fault_of_error
from conformance.machine.gpus import NotAlone, Turns, device_node


def use(folder, seconds, ready, how="together"):
    with getattr(Turns("0", folder), how)():
        ready.set()
        time.sleep(seconds)


def waiting(folder):
    """Returns the number of processes that wait to be alone: they hold the turnstile together."""
    (turnstile,) = folder.glob("*/*.turnstile")
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


def locks(folder):
    """The folder of this user's locks, made as a process makes it."""
    with Turns("0", folder).together():
        pass
    (own,) = folder.iterdir()
    return own


def test_the_files_of_another_user_are_not_touched(tmp_path, monkeypatch):
    folder = locks(tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr("os.getuid", lambda: 54321)
    folder.rename(folder.with_name("triton-conformance-54321-locks"))
    with pytest.raises(OSError, match="only you may use"), Turns("0", tmp_path).together():
        pass


def linked_folder(mine, elsewhere):
    mine.rename(elsewhere)
    mine.symlink_to(elsewhere)


def linked_file(mine, elsewhere):
    (mine / "device-0.use").unlink()
    (mine / "device-0.use").symlink_to(elsewhere)


def fifo(mine, elsewhere):
    (mine / "device-0.use").unlink()
    os.mkfifo(mine / "device-0.use", 0o600)


@pytest.mark.parametrize(
    "plant",
    [
        linked_folder,
        linked_file,
        fifo,
        lambda mine, _: mine.chmod(0o777),
        lambda mine, _: (mine / "device-0.use").chmod(0o666),
        lambda mine, _: [shutil.rmtree(mine), mine.write_text("")],
    ],
    ids=["a linked folder", "a linked file", "a fifo", "an open folder", "an open file", "a file for the folder"],
)
@pytest.mark.parametrize("how", ["together", "alone"])
def test_no_link_and_no_file_that_others_may_use_is_locked(tmp_path, plant, how):
    mine, elsewhere = locks(tmp_path), tmp_path / "elsewhere"
    plant(mine, elsewhere)
    before = elsewhere.exists()
    with (
        pytest.raises(OSError, match=r"only you may use|Too many levels|File exists"),
        getattr(Turns("0", tmp_path), how)(),
    ):
        pass
    assert elsewhere.exists() == before, "no file is made at the end of a link"


@pytest.mark.parametrize("how", ["together", "with_much_memory"])
def test_a_turn_that_does_not_come_is_a_fault_of_the_machine(tmp_path, busy, how):
    busy(60, "alone" if how == "together" else how)
    with pytest.raises(OSError, match="held by another process") as error, getattr(Turns("0", tmp_path), how)(0.2):
        pass
    fault = fault_of_error(error.value)
    assert (fault.kind, "0.2 s" in fault.text, str(tmp_path) in fault.text) == ("device", True, True)


def test_users_of_one_device_wait_for_each_other_at_its_node(tmp_path, monkeypatch):
    """/dev/null takes locks as a GPU's node does."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    mine, another = (Turns("0", folder, Path(os.devnull)) for folder in folders)
    with mine.together(), another.together(), pytest.raises(NotAlone), another.alone(0.1):
        pass
    with mine.alone(), pytest.raises(OSError, match=r"held by another process.*/dev/null"), another.together(0.1):
        pass
    with another.alone(0.1):
        pass


@pytest.mark.parametrize("plant", [lambda path: path.symlink_to(os.devnull), lambda path: path.touch(), lambda _: None])
def test_a_link_or_a_file_is_no_node(tmp_path, plant):
    node = tmp_path / "nvidia0"
    plant(node)
    with Turns("0", tmp_path, node).alone(), Turns("0", tmp_path / "..", Path(os.devnull)).together():
        pass


def test_a_node_that_takes_no_locks_is_replaced_by_a_file(tmp_path, monkeypatch):
    lock = fcntl.flock

    def refuse(file, how):
        if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):
            raise OSError(37, "No locks available")
        lock(file, how)

    monkeypatch.setattr("fcntl.flock", refuse)
    with Turns("0", tmp_path, Path(os.devnull)).alone():
        assert (next(tmp_path.iterdir()) / "device-0.use").exists()


def test_the_node_of_a_gpu_is_found_by_its_number_and_its_uuid(tmp_path, monkeypatch):
    monkeypatch.setattr(gpus, "ROOT", tmp_path)
    assert device_node("CUDA_VISIBLE_DEVICES", "0") == tmp_path / "dev/nvidia0"
    for bus, minor, uuid in (("0000:1b:00.0", 3, "GPU-a"), ("0000:05:00.0", 1, "GPU-b")):
        facts = tmp_path / "proc/driver/nvidia/gpus" / bus / "information"
        facts.parent.mkdir(parents=True)
        facts.write_text(f"Model: \t NVIDIA\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
    nodes = [device_node("CUDA_VISIBLE_DEVICES", entry) for entry in ("0", "1", "GPU-a", "MIG-x", "all", "../x")]
    assert nodes == [tmp_path / "dev/nvidia1", *[tmp_path / "dev/nvidia3"] * 2, None, None, None]
    for node, simds, render in ((0, 0, 0), (1, 304, 128), (2, 304, 136)):
        facts = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(node) / "properties"
        facts.parent.mkdir(parents=True)
        facts.write_text(f"simd_count {simds}\ndrm_render_minor {render}\n")
    nodes = [device_node("HIP_VISIBLE_DEVICES", entry) for entry in ("0", "1", "2", "all")]
    assert nodes == [tmp_path / "dev/dri/renderD128", tmp_path / "dev/dri/renderD136", None, None]


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
    (ended,) = tmp_path.glob("*/*.timed")
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
