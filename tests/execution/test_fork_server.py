"""The server that forks compile processes: a fork is like a new process, and its end is always heard of."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import pytest

from conformance.execution.compile import fork_server
from conformance.execution.compile.compilation import child_environment
from conformance.execution.compile.fork_server import ForkedProcess, ForkServer, ForkServerLost

HERE = "tests.execution.test_fork_server"


def tell(pipe: int, *, name: str) -> None:
    """Runs in a fork, and reports what it sees."""
    Connection(pipe).send(
        (os.environ.get(name), os.getcwd(), sys.path, "torch" in sys.modules, os.getpgrp() == os.getpid())
    )
    print("printed")


def end(pipe: int, *, code: int) -> None:
    """A fork that exits with ``code``, or by signal ``-code``."""
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def wait(pipe: int) -> None:
    time.sleep(600)


@pytest.fixture(scope="module")
def server() -> ForkServer:
    return ForkServer(child_environment())


def forked(server: ForkServer, function: str, **arguments: object) -> tuple[ForkedProcess, Connection, int]:
    mine, theirs = Pipe()
    output = os.open(tempfile.mkdtemp() + "/output", os.O_RDWR | os.O_CREAT)
    process = server.fork(f"{HERE}:{function}", arguments, (theirs.fileno(),), output, dict(os.environ))
    theirs.close()
    return process, mine, output


def test_a_fork_has_what_its_asker_has_now(server: ForkServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for value in ("first", "second"):
        monkeypatch.setenv("TOLD", value)
        monkeypatch.syspath_prepend(str(tmp_path / value))
        (tmp_path / value).mkdir()
        monkeypatch.chdir(tmp_path / value)
        process, pipe, output = forked(server, "tell", name="TOLD")
        assert pipe.recv() == (value, str(tmp_path / value), sys.path, True, True)
        assert process.wait(10) == 0
        assert os.pread(output, 100, 0) == b"printed\n"


def test_an_environment_may_be_larger_than_a_message_of_the_system(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLD", "x" * (1 << 20))
    process, pipe, _ = forked(server, "tell", name="TOLD")
    assert len(pipe.recv()[0]) == 1 << 20
    assert process.wait(10) == 0


def test_a_server_that_cannot_be_asked_says_what_the_system_said(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(*_: object) -> None:
        raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))

    server.start()
    monkeypatch.setattr(socket, "send_fds", send)
    with pytest.raises(ForkServerLost, match=r"cannot be asked: .*Message too long"):
        forked(server, "wait")


@pytest.mark.parametrize("code", [0, 3, -signal.SIGSEGV, -signal.SIGKILL])
def test_how_a_fork_ended_is_known(server: ForkServer, code: int) -> None:
    process, pipe, _ = forked(server, "end", code=code)
    assert process.wait(10) == code
    assert process.wait(10) == code
    assert not process.running
    with pytest.raises(EOFError):
        pipe.recv()


def test_a_lost_server_is_replaced(server: ForkServer) -> None:
    process, _, _ = forked(server, "wait")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    assert process.running
    assert server._connection is not None
    assert server._connection._server is not None
    server._connection._server.kill()
    assert process.wait(10) == -signal.SIGKILL, "a status that went with the server"
    os.kill(process.pid, signal.SIGKILL)
    again, pipe, _ = forked(server, "tell", name="TOLD")
    assert pipe.recv()[3]
    assert again.wait(10) == 0


def shared() -> ForkServer:
    return ForkServer(child_environment(), ("json", "tests.execution.test_fork_server"), shared=True)


def test_a_shared_server_starts_once_and_ends_with_the_last_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []
    servers = []
    for number in range(2):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        server = shared()
        servers.append(server)
        process, pipe, _ = forked(server, "tell", name="TOLD")
        assert pipe.recv()[3:] == (False, True), "it has imported what it was told"
        assert process.wait(10) == 0
        assert server._connection is not None
        pids.append(server._connection._server and server._connection._server.pid)
    assert pids[0] is not None, "the first starts it"
    assert pids[1] is None, "the second joins it"
    starter = servers[0]._connection
    for server in servers:
        assert starter is not None
        assert starter._server is not None
        assert starter._server.poll() is None, "it serves the others still"
        assert server._connection is not None
        server._connection._socket.shutdown(socket.SHUT_RDWR)
    assert starter is not None
    assert starter._server is not None
    assert starter._server.wait(10) == 0


def test_a_run_has_servers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    servers = []
    for name in ("one", "one", "another"):
        monkeypatch.setenv(fork_server.RUN_VARIABLE, name)
        servers.append(shared())
        servers[-1].start()
        assert servers[-1]._connection is not None
        started.append(servers[-1]._connection._server is not None)
    assert started == [True, False, True]


def test_another_users_server_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_is_ours", lambda connection: False)
    with pytest.raises(ForkServerLost, match="another user"):
        forked(shared(), "wait")


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/nowhere"])
    with pytest.raises(ForkServerLost, match="No module named"):
        forked(ForkServer(child_environment()), "wait")
