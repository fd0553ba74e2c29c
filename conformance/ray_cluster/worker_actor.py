"""Code that Ray runs on a node of the cluster. It is sent there as it is, so it imports the standard library alone.

An actor is the parent of one worker of the run. It carries the bytes of the worker's standard streams, and sends back
what the worker writes into its folder. So a record is on its way before the run hears that its case has ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Runs the words that follow in place of this process, which the system kills when the thread that started it ends.
#: Ray keeps the threads of an actor as long as its process lives.
LAUNCH = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
#: Waits in the background for the end of the process that started it, and removes the folder. Ray kills children and
#: its process group.
REMOVE = 'exec 3<&0; (cat <&3; rm -rf "$0") >/dev/null 2>&1 &'
#: Seconds for which a call waits for output before it looks at the worker's files.
LOOK_S = 0.5
#: Seconds in which the program that says what is installed on a node must answer: it reads files from a cold disk.
FACTS_S = 120.0
#: Seconds between two looks whether the node's own process lives.
NODE_S = 1.0
#: Variables of Ray's own processes, which a worker does not get.
_OF_RAY = ("RAY_", "OMP_NUM_THREADS")
#: The files of a task to compile: what it is to compile, and what it has compiled.
PAYLOAD_FILE, RESULT_FILE = "task.pickle", "kernels.sqlite"
#: Files that only processes of this node use.
_KEPT_HERE = (".lock", ".tmp", ".sqlite")


@dataclass(frozen=True)
class FilePart:
    """``content`` of the file ``name`` in the worker's folder, from the byte ``start`` on."""

    name: str
    start: int
    content: bytes


@dataclass(frozen=True)
class Chunk:
    """Holds what a worker has written since the chunk before. ``code`` is its exit status, or -n for signal n, in the
    last chunk; None before."""

    output: bytes
    files: tuple[FilePart, ...]
    code: int | None


class WorkerActor:
    """Starts one worker and carries its bytes. Calls may come twice: Ray does not know whether a lost one was run."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self._sent: tuple[int, Chunk] = (-1, Chunk(b"", (), None))
        self._received = -1
        self._output: list[bytes] = []
        self._code: int | None = None
        self._arrived = threading.Condition()
        self._lives = -1
        self._seen: dict[str, tuple[int, int]] = {}  # size and time of each file when it was sent
        self._lengths: dict[str, int] = {}  # bytes of each file of lines that were sent

    def begin(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        base: str,
        folders: Sequence[str],
    ) -> tuple[str, dict[str, str]]:
        """Starts the interpreter with ``words`` in the folder ``base``, or in its own one if that is not here. Makes
        the ``folders``, and a folder for the run. Returns the path of the latter, and the variables by which Ray shows
        devices."""
        here = {name: value for name, value in os.environ.items() if not name.startswith(_OF_RAY)}
        devices = {name: value for name, value in here.items() if name.endswith("_VISIBLE_DEVICES")}
        self._folder = Path(tempfile.mkdtemp(prefix="conformance-ray-"))
        end, self._lives = os.pipe()  # the latter is open as long as this process lives
        subprocess.run(["sh", "-c", REMOVE, self._folder], stdin=end, check=False, start_new_session=True)
        os.close(end)
        for folder in folders:
            with contextlib.suppress(OSError):
                Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=base if os.path.isdir(base) else self._folder,
            env={**here, **environment, **devices},
        )
        threading.Thread(target=self._take_output, name="output", daemon=True).start()
        threading.Thread(target=self._end_with_node, name="node", daemon=True).start()
        return str(self._folder), devices

    def _end_with_node(self) -> None:
        """Ends this process, and with it the worker, when the process of the node ends, which is its parent. Ray does
        so, too, but not while that is a zombie."""
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(NODE_S)
        os._exit(1)

    def _take_output(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while data := os.read(self._process.stdout.fileno(), 1 << 20):
            with self._arrived:
                self._output.append(data)
                self._arrived.notify_all()
        code = self._process.wait()
        with self._arrived:
            self._code = code
            self._arrived.notify_all()

    def read(self, number: int) -> Chunk:
        """Returns the chunk of this ``number``. It is empty if the worker wrote nothing for :data:`LOOK_S` seconds."""
        if number == self._sent[0]:
            return self._sent[1]
        with self._arrived:
            self._arrived.wait_for(lambda: self._output or self._code is not None, LOOK_S)
            output, code = b"".join(self._output), self._code
            self._output.clear()
        self._sent = number, Chunk(output, tuple(self._changes()), code)  # files after output: none is older than it
        return self._sent[1]

    def write(self, number: int, data: bytes) -> None:
        """Hands ``data`` to the worker, once for each ``number``. Nothing happens if it has ended."""
        if number <= self._received or self._process is None or self._process.stdin is None:
            return
        self._received = number
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def close_input(self) -> None:
        """Says to the worker that nothing more comes."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.close()

    def put(self, name: str, content: bytes) -> None:
        """Writes a file into the worker's folder, whole at once."""
        scratch = self._folder / f"{name}.tmp"
        scratch.write_bytes(content)
        self._seen[name] = _facts(scratch)
        self._lengths[name] = len(content)
        os.replace(scratch, self._folder / name)

    def missing(self, files: Sequence[tuple[str, int]]) -> list[str]:
        """Returns the paths of those ``files``, with their sizes, that are not on this node."""
        return [path for path, size in files if not os.path.isfile(path) or os.path.getsize(path) != size]

    def place(self, files: Mapping[str, bytes]) -> None:
        """Writes ``files``, by path, each whole at once. Raises OSError."""
        for path, content in files.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            scratch = f"{path}.{os.getpid()}.tmp"
            Path(scratch).write_bytes(content)
            os.replace(scratch, path)

    def kill(self) -> None:
        """Kills the worker."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """Removes the worker's folder, after its last chunk."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _changes(self) -> Iterator[FilePart]:
        for path in _files(self._folder):
            name = str(path.relative_to(self._folder))
            with contextlib.suppress(FileNotFoundError):
                facts = _facts(path)
                if facts != self._seen.get(name):
                    yield self._part(name, path)
                    self._seen[name] = facts

    def _part(self, name: str, path: Path) -> FilePart:
        """Returns the whole lines that a file of lines has in addition, and all of another file."""
        if path.suffix != ".jsonl":
            return FilePart(name, 0, path.read_bytes())
        start = self._lengths.get(name, 0)
        start = start if path.stat().st_size >= start else 0  # it was emptied
        with path.open("rb") as file:
            file.seek(start)
            content = file.read()
        content = content[: content.rfind(b"\n") + 1]
        self._lengths[name] = start + len(content)
        return FilePart(name, start, content)


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in sorted(names) if not name.endswith(_KEPT_HERE))


def _facts(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns


def compiled(words: Sequence[str], environment: Mapping[str, str], payload: bytes) -> tuple[bytes, str]:
    """Returns the content of the file that a program leaves next to its task ``payload``, and what it says of an error.
    The program is Python with ``words`` and the folder of both."""
    folder = Path(tempfile.mkdtemp(prefix="conformance-compile-"))
    try:
        (folder / PAYLOAD_FILE).write_bytes(payload)
        _, error = printed([*words, str(folder)], environment, None)
        return b"" if error else (folder / RESULT_FILE).read_bytes(), error
    except OSError as error:
        return b"", str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def printed(words: Sequence[str], environment: Mapping[str, str], seconds: float | None = FACTS_S) -> tuple[str, str]:
    """Returns what Python prints that is started with ``words``, and what it says of an error; one of them is empty.
    It is ended after ``seconds``."""
    here = {name: value for name, value in os.environ.items() if not name.startswith(_OF_RAY)}
    here = {name: value for name, value in here.items() if not name.endswith("_VISIBLE_DEVICES")}
    try:
        done = subprocess.run(
            [sys.executable, "-c", LAUNCH, *words],
            env={**here, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    return ("", done.stderr.strip() or f"exit status {done.returncode}") if done.returncode else (done.stdout, "")
