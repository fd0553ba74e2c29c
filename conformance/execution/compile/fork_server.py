"""A process that has imported what compile processes need and forks one whenever it is asked: imports are paid once.

The server has no GPU, no thread and no state beyond its imports. So a fork of it is like a new process. Each fork gets
the environment, the search path and the folder that its asker has at that moment. The processes of a run may share a
server. It forks a separate server for each of them, and ends when the last of them has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import json
import os
import queue
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from conformance.machine.awake_time import waited
from conformance.machine.descendants import adopted, end_descendants

#: What the server imports: torch, triton, this harness's compile process and its kernels. Functions are called.
PRELOADED = (
    "torch",
    "triton",
    "conformance.execution.compile.compile_worker",
    "conformance.kernels.catalogue",
    "conformance.execution.compile.compile_worker:hash_triton",
)
#: Seconds in which the server must have imported all that; a cold network file system is slow.
START_SECONDS = 180.0
#: Seconds for which a shared server waits for its first fork.
LINGER_SECONDS = 60.0
#: The exit status of the part of a shared server that forked nothing for its asker.
UNUSED = 3
#: The most bytes of one message between server and asker.
MESSAGE = 4096
#: The message with which a fork is asked for. The request lies in a file that comes with it: an environment may be
#: larger than the system takes in one message.
FORK = b"fork"


#: The variable that names the run of a process. Without it, processes with the same parent belong to the same run.
RUN_VARIABLE = "CONFORMANCE_RUN_PROCESS"


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
        """True if its end was not heard of yet."""
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

    def __init__(
        self, environment: Mapping[str, str], preloaded: Sequence[str] = PRELOADED, *, shared: bool = False
    ) -> None:
        """``environment`` is that of the server; a fork replaces it. ``preloaded`` are the modules that the server
        imports, and functions ("package.module:function") that it calls. A ``shared`` one also serves the other
        processes of this run."""
        self._environment = dict(environment)
        self._preloaded = tuple(preloaded)
        self._shared = shared
        self._lock = threading.Lock()
        self._connection: _Connection | None = None

    def start(self) -> None:
        """Starts the server, unless it runs, and does not wait for its imports."""
        with self._lock:
            self._connected()

    def _connected(self) -> _Connection:
        if self._connection is None or self._connection.lost:
            self._connection = _Connection(self._environment, self._preloaded, self._shared)
        return self._connection

    def fork(
        self,
        function: str,
        arguments: Mapping[str, Any],
        pipes: Sequence[int],
        output: int,
        environment: Mapping[str, str],
    ) -> ForkedProcess:
        """A process that calls ``function`` ("package.module:function") with its copies of the descriptors ``pipes``
        and ``arguments``, which are plain data. What it prints goes to the descriptor ``output``. Raises
        :class:`ForkServerLost`."""
        request = {
            "function": function,
            "arguments": dict(arguments),
            "environment": dict(environment),
            "path": [str(entry) for entry in sys.path],
            "folder": os.getcwd(),
        }
        with self._lock, _content(json.dumps(request).encode()) as content:
            return self._connected().fork((content, *pipes, output))


class _Connection:
    """One life of the server, and a thread that hears of the processes that end."""

    def __init__(self, environment: Mapping[str, str], preloaded: Sequence[str], shared: bool) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the server
        self._server: subprocess.Popen[bytes] | None = None
        if shared:
            self._socket = self._joined(environment, preloaded)
        else:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._server = self._started("serve", theirs, environment, preloaded)
        self.lost = False
        self._forked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._living: dict[int, ForkedProcess] = {}
        self._early: dict[int, int] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, name="fork-server", daemon=True).start()

    def _started(
        self, function: str, theirs: socket.socket, environment: Mapping[str, str], preloaded: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        """Returns a process that runs ``function`` of this module with the socket ``theirs``."""
        code = (
            "import json, sys; sys.path[:], preloaded = json.loads(sys.argv[2]); "
            f"from {__name__} import {function} as serve; serve(int(sys.argv[1]), preloaded)"
        )
        imports = json.dumps([[str(entry) for entry in sys.path], list(preloaded)])
        return subprocess.Popen(
            [sys.executable, "-c", code, str(theirs.fileno()), imports],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env=dict(environment),
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )

    def _joined(self, environment: Mapping[str, str], preloaded: Sequence[str]) -> socket.socket:
        """A connection to the server of this run, which is started if there is none. Its name is Linux's, not a file's,
        so that whoever binds it first starts the server, and nothing is left behind. Environments are no part of it:
        workers differ in theirs, and every fork gets its own."""
        run = os.environ.get(RUN_VARIABLE) or os.getppid()
        path = list(dict.fromkeys(map(str, sys.path)))  # a worker has some entries twice
        facts = [str(run), sys.executable, path, list(preloaded)]
        address = "\0conformance-" + hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        while True:
            ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with contextlib.suppress(ConnectionRefusedError):
                ours.connect(address)
                if not _is_ours(ours):
                    raise ForkServerLost("another user's process has the name of the server")
                return ours
            ours.close()
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
                try:
                    listening.bind(address)
                except OSError:  # another worker was quicker: it listens soon
                    time.sleep(0.02)
                    continue
                listening.listen(256)
                self._server = self._started("serve_many", listening, environment, preloaded)

    def fork(self, files: Sequence[int]) -> ForkedProcess:
        """Returns a fork that gets ``files``, the first of which holds the request."""
        try:
            socket.send_fds(self._socket, [FORK], list(files))
        except OSError as error:
            raise self._error(f"the server that forks it cannot be asked: {error}") from None
        answer = waited(self._forked_within, START_SECONDS)
        if answer is None and self._server is not None:
            self._server.kill()
        pid = None if answer is None else answer[0]
        if pid is None:
            raise self._error()
        process = ForkedProcess(pid)
        with self._lock:
            if pid in self._early:
                process.end(self._early.pop(pid))
            else:
                self._living[pid] = process
        return process

    def _forked_within(self, seconds: float) -> tuple[int | None] | None:
        """Returns the number of the next fork, None in it if the server is lost; None if there is no answer yet."""
        try:
            return (self._forked.get(timeout=seconds),)
        except queue.Empty:
            return None

    def _error(self, why: str = "the server that forks it ended") -> ForkServerLost:
        self.lost = True
        size = os.fstat(self._output.fileno()).st_size
        wrote = os.pread(self._output.fileno(), size, 0).decode(errors="replace").strip()[-4000:]
        return ForkServerLost("\n".join(filter(None, (why, wrote))))

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
        if self._server is not None:
            self._server.wait()


@contextlib.contextmanager
def _content(data: bytes) -> Iterator[int]:
    """The descriptor of a file without a name that holds ``data``."""
    descriptor = os.memfd_create("fork-request", os.MFD_CLOEXEC)
    with open(descriptor, "wb", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) or 0 :]
        yield descriptor


def _is_ours(connection: socket.socket) -> bool:
    """True if the process at the other end is of the same user."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.getuid())


def _preload(names: Sequence[str]) -> None:
    """Imports each module of ``names`` and calls each function."""
    for name in names:
        module, _, function = name.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()


def serve_many(listening: int, preloaded: Sequence[str]) -> None:
    """Forks a separate server for each process that connects to the socket ``listening``. Once one of these has been
    asked to fork, it ends with the last process, and so do those that it has started. Their asker may have been killed.
    """
    _preload(preloaded)
    servers: set[int] = set()
    idle_until = time.monotonic() + LINGER_SECONDS
    with adopted(), socket.socket(fileno=listening) as listener:
        listener.settimeout(0.5)
        while servers or time.monotonic() < idle_until:
            with contextlib.suppress(TimeoutError):
                asker, _ = listener.accept()
                with asker:
                    if not _is_ours(asker):
                        continue
                    server = os.fork()
                    if server == 0:
                        listener.close()
                        os._exit(0 if serve(asker.detach(), preloaded) else UNUSED)
                servers.add(server)
            while servers and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in servers:
                    servers.discard(ended[0])
                    idle_until = idle_until if os.waitstatus_to_exitcode(ended[1]) == UNUSED else 0.0
    end_descendants(set())


def serve(control: int, preloaded: Sequence[str]) -> bool:
    """Forks for the process at the other end of the socket ``control`` until that closes. Returns whether it was asked
    to."""
    _preload(preloaded)
    used = False
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
                    return used  # the asker is gone; each fork sees that for itself
                used = True
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    asker.close()
                    os.close(ended)
                    os.close(wake)
                    _run(files)
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


def _run(files: Sequence[int]) -> None:
    """Runs a fork's work and ends the fork. It ends without returning."""
    code = 1
    try:
        content, *pipes, output = files
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.setsid()
        with open(content, "rb") as file:
            file.seek(0)
            request = json.loads(file.read())
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path[:] = request["path"]
        os.chdir(request["folder"])
        module, _, name = request["function"].partition(":")
        getattr(importlib.import_module(module), name)(*pipes, **request["arguments"])
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def interpret(stdin: int, stdout: int, *, code: str) -> None:
    """Runs ``code`` in a fork as a new interpreter does with the option ``-c code``, but with the server's imports.

    ``stdin`` and ``stdout`` are its descriptors. It is killed when its server ends, that is, when the asker does.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115  # as long as it lives
    sys.argv[:] = ["-c"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "conformance"]:
        del sys.modules[name]  # pytest rewrites their asserts when they are imported
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(code, vars(main))


_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
