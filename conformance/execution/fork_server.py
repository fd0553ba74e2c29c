"""A process that has imported what compile processes need and forks one whenever it is asked: imports are paid once.

The server has no GPU, no thread of its own and no state beyond its imports, so a fork of it is like a new process. Each
fork gets the environment, the search path and the folder that its asker has at that moment.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

#: What the server imports: torch, triton, this harness's compile process and its kernels.
PRELOADED = ("torch", "triton", "conformance.execution.compile_worker", "conformance.kernels.catalogue")
#: Seconds in which the server must have imported all that; a cold network file system is slow.
START_SECONDS = 180.0
#: Bytes of one message: an environment fits in it many times.
MESSAGE = 1 << 20


class ForkServerLost(RuntimeError):
    """The server ended, or did not start; the message has what it wrote."""


class ForkedProcess:
    """One process of the server, in a process group of its own. ``pid`` is its number."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._code: int | None = None

    @property
    def running(self) -> bool:
        """Whether its end was not heard of yet."""
        return self._code is None and self._ended.empty()

    def end(self, code: int) -> None:
        """Called when it has ended: its exit status, or -n for signal n."""
        self._ended.put(code)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, or -n for signal n. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        if self._code is None:
            try:
                self._code = self._ended.get(timeout=timeout)
            except queue.Empty:
                raise subprocess.TimeoutExpired(["forked process"], timeout or 0.0) from None
        return self._code


class ForkServer:
    """The server of this process. It starts when a fork is first asked for, and again if it was lost."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """``environment`` is that of the server; a fork replaces it."""
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._connection: _Connection | None = None

    def fork(
        self, function: str, arguments: Mapping[str, Any], pipe: int, output: int, environment: Mapping[str, str]
    ) -> ForkedProcess:
        """A process that calls ``function`` ("package.module:function") with its copy of the descriptor ``pipe`` and
        ``arguments``, which are plain data. What it prints goes to the descriptor ``output``. Raises
        :class:`ForkServerLost`."""
        asked = {
            "function": function,
            "arguments": dict(arguments),
            "environment": dict(environment),
            "path": [str(entry) for entry in sys.path],
            "folder": os.getcwd(),
        }
        with self._lock:
            if self._connection is None or self._connection.lost:
                self._connection = _Connection(self._environment)
            return self._connection.fork(json.dumps(asked).encode(), (pipe, output))


class _Connection:
    """One life of the server, and a thread that hears of the processes that end."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the server
        code = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
            "from conformance.execution.fork_server import serve; serve(int(sys.argv[1]))"
        )
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-c", code, str(theirs.fileno()), json.dumps([str(entry) for entry in sys.path])],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self.lost = False
        self._forked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._living: dict[int, ForkedProcess] = {}
        self._early: dict[int, int] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, name="fork-server", daemon=True).start()

    def fork(self, message: bytes, files: Sequence[int]) -> ForkedProcess:
        try:
            socket.send_fds(self._socket, [message], list(files))
        except OSError:
            raise self._error() from None
        try:
            pid = self._forked.get(timeout=START_SECONDS)
        except queue.Empty:
            self._server.kill()
            pid = None
        if pid is None:
            raise self._error()
        process = ForkedProcess(pid)
        with self._lock:
            if pid in self._early:
                process.end(self._early.pop(pid))
            else:
                self._living[pid] = process
        return process

    def _error(self) -> ForkServerLost:
        self.lost = True
        size = os.fstat(self._output.fileno()).st_size
        return ForkServerLost(os.pread(self._output.fileno(), size, 0).decode(errors="replace").strip()[-4000:])

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while message := self._socket.recv(MESSAGE):
                word, pid, code = json.loads(message)
                if word == "forked":
                    self._forked.put(pid)
                    continue
                with self._lock:
                    process = self._living.pop(pid, None)
                    if process is None:
                        self._early[pid] = code
                if process is not None:
                    process.end(code)
        self.lost = True
        self._forked.put(None)
        with self._lock:  # their statuses are lost with the server
            for process in self._living.values():
                process.end(-signal.SIGKILL)
        self._server.wait()


def serve(control: int) -> None:
    """Forks for the process at the other end of the socket ``control`` until that closes."""
    for module in PRELOADED:
        importlib.import_module(module)
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_inheritable(control, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    with socket.socket(fileno=control) as asker:
        while True:
            ready, _, _ = select.select([control, ended], [], [])
            if control in ready:
                message, files, _, _ = socket.recv_fds(asker, MESSAGE, 8)
                if not message:
                    return  # the asker is gone; each fork sees that for itself
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    asker.close()
                    os.close(ended)
                    os.close(wake)
                    _run(message, files)
                for descriptor in files:
                    os.close(descriptor)
                asker.send(json.dumps(["forked", pid, 0]).encode())
            if ended in ready:
                os.read(ended, 4096)
                _report(asker)


def _report(asker: socket.socket) -> None:
    """Says how each process that has ended did so."""
    with contextlib.suppress(ChildProcessError, OSError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            asker.send(json.dumps(["ended", pid, os.waitstatus_to_exitcode(status)]).encode())


def _run(message: bytes, files: Sequence[int]) -> None:
    """What a fork does. It ends without returning."""
    code = 1
    try:
        pipe, output = files
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.setsid()
        asked = json.loads(message)
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.path[:] = asked["path"]
        os.chdir(asked["folder"])
        module, _, name = asked["function"].partition(":")
        getattr(importlib.import_module(module), name)(pipe, **asked["arguments"])
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
