"""The process of a file's code reaches nothing of others, and its end is told in a sentence."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time

import pytest

from conformance.plain_files import sandbox
from conformance.plain_files.sandbox import SandboxError, is_fenced, run_apart

#: The request of ptrace that traces a process and does not stop it.
SEIZE = 0x4206


def test_what_it_returns_comes_back(tmp_path):
    assert run_apart(lambda: b"x" * 300_000, tmp_path, 10) == b"x" * 300_000


def reached(folder):
    """The names of what this process could do to its parent and to files of others."""
    parent = os.getppid()
    ways = {
        "memory": lambda: open(f"/proc/{parent}/mem", "r+b", 0).close(),
        "file": lambda: (folder / "file").write_text("x"),
        "removal": (folder / "here").unlink,
        "signal": lambda: os.kill(parent, signal.SIGCONT),
        "network": lambda: socket.create_connection(("127.0.0.1", 9), 1),
        "program": lambda: subprocess.run(["touch", str(folder / "touched")], check=True, capture_output=True),
        "input": lambda: os.read(0, 1)[0],
    }
    done = []
    for name, way in ways.items():
        try:
            way()
        except ConnectionRefusedError:
            done.append(name)  # it got as far as the other end
        except (OSError, subprocess.CalledProcessError, IndexError):
            continue
        else:
            done.append(name)
    if ctypes.CDLL(None).ptrace(SEIZE, parent, None, None) == 0:
        done.append("trace")
    return " ".join(done).encode() or b"nothing"


@pytest.mark.skipif(not is_fenced(), reason="this system has no Landlock")
def test_it_reaches_no_file_and_no_process_of_others(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "here").write_text("kept")
    allowed = run_apart(lambda: reached(tmp_path), tmp_path / "own", 30).split()
    assert set(allowed) <= {b"nothing", b"signal", b"network"}  # these two need later versions of Landlock
    assert sorted(os.listdir(tmp_path)) == ["here", "own"]
    monkeypatch.setattr(sandbox, "_fence", lambda *writable: None)
    unfenced = run_apart(lambda: reached(tmp_path), tmp_path / "own", 30).split()
    assert {b"memory", b"file", b"removal", b"program", b"trace"} <= set(unfenced)


def raised():
    raise ValueError("too bad")


ENDS = {
    "raises": (raised, "without an answer: ValueError: too bad"),
    "exits": (lambda: os._exit(0), "without an answer: nothing was said"),
    "dies": (lambda: os.kill(os.getpid(), signal.SIGKILL), "by SIGKILL"),
    "hangs": (lambda: time.sleep(60), "did not end within 0.3 s"),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_end_without_an_answer_is_a_sentence(tmp_path, name):
    work, text = ENDS[name]
    with pytest.raises(SandboxError, match=text):
        run_apart(work, tmp_path, 0.3 if name == "hangs" else 10)


def left_behind(folder, keeps_pipe):
    """Starts a process that leaves the group and outlives its parent."""
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        if not keeps_pipe:
            os.close(3)
        (folder / "left").write_text(str(os.getpid()))
        time.sleep(60)
        os._exit(0)
    while not (folder / "left").exists() or not (folder / "left").read_text():
        time.sleep(0.01)
    return b"done"


def test_it_stays_where_nothing_looks_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "descendants", set)
    run_apart(lambda: left_behind(tmp_path, keeps_pipe=False), tmp_path, 30)
    os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)  # raises ProcessLookupError if it has ended


@pytest.mark.parametrize("keeps_pipe", [True, False])
def test_a_process_that_left_the_group_ends_too_and_delays_nothing(tmp_path, keeps_pipe):
    before = time.monotonic()
    assert run_apart(lambda: left_behind(tmp_path, keeps_pipe), tmp_path, 30) == b"done"
    assert time.monotonic() - before < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "left").read_text()), 0)
