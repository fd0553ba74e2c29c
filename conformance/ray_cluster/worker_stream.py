"""The standard streams of a worker on a node, as execnet reads and writes them, and the files that it sends back."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from conformance.ray_cluster.cluster import Cluster, Node
from conformance.ray_cluster.worker_actor import Chunk, FilePart

#: Bytes of files that are sent to a node at a time.
BATCH = 32 << 20
#: Seconds in which Ray must have started an actor: its process imports Ray.
START_S = 60.0
#: Seconds for which a node may be out of reach before its workers are given up.
UNREACHABLE_S = 120.0
#: Seconds in which the cluster knows of a node that its actor died of it.
NEWS_S = 2.0
#: Seconds in which a worker that is killed must be gone, and its actor must answer.
GONE_S = 5.0
#: What a dead actor's process is taken to have died of, where Ray does not know: it was killed.
_KILLED = -9


class WorkerStream:
    """A worker on ``node``, whose ``actor`` has been asked for. ``folder`` is that of the run, which gets the files of
    the worker before it hears of what the worker says after them.

    execnet calls ``read`` in its own thread. The attribute ``popen`` is for whoever kills or waits for the process."""

    def __init__(self, cluster: Cluster, node: Node, actor: Any, worker: str, folder: Path, execmodel: Any) -> None:
        self.node = node
        self.popen = self
        self.execmodel = execmodel
        self.remote_folder = ""
        self.devices: Mapping[str, str] = {}
        #: True if the node died, which says nothing of the worker's case.
        self.lost_with_node = False
        self._cluster = cluster
        self._actor = actor
        self._worker = worker
        self._folder = folder
        self._number = 0
        self._buffer = bytearray()
        self._code: int | None = None
        self._gone = threading.Event()
        self._writer = ThreadPoolExecutor(1, "ray-writer")
        self._writes = 0
        self._failed_write: Exception | None = None

    def begin(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        base: Path,
        folders: Sequence[str],
    ) -> None:
        """Starts the worker; see :meth:`WorkerActor.begin`. Raises OSError if its actor does not start."""
        ray = _ray()
        try:
            self.remote_folder, self.devices = ray.get(
                self._actor.begin.remote(words, environment, str(base), folders), timeout=START_S
            )
        except ray.exceptions.GetTimeoutError:
            self._close()
            resource = "GPUs" if self._cluster.gpus.entries else "CPUs"
            raise OSError(
                f"Ray started no actor on node {self.node.name} within {START_S:g} s: others may hold its {resource}"
            ) from None
        except ray.exceptions.RayError as error:
            self._cluster.is_dead(self.node)
            self._close()
            raise OSError(f"no actor starts on node {self.node.name}: {_first_line(error)}") from None

    # For execnet

    def read(self, size: int) -> bytes:
        """Returns ``size`` bytes of the worker's output. Raises EOFError if it has ended before."""
        while len(self._buffer) < size:
            if self._gone.is_set():
                raise EOFError(f"expected {size} bytes, got {len(self._buffer)}")
            chunk = self._next()
            if chunk is None:
                continue
            for part in chunk.files:
                self._store(part)
            self._buffer += chunk.output
            if chunk.code is not None:
                self._end(chunk.code)
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def write(self, data: bytes) -> None:
        """Sends ``data`` to the worker, in the order of the calls and without waiting. Raises OSError if it has
        ended."""
        if self._gone.is_set() or self._failed_write is not None:
            raise OSError(f"the worker on node {self.node.name} has ended")
        self._writes += 1
        self._writer.submit(self._send, self._writes, data)

    def close_write(self) -> None:
        """Tells the worker that nothing more comes."""
        if not self._gone.is_set():
            self._writer.submit(self._call, "close_input")

    def close_read(self) -> None:
        """Does nothing: the stream ends with the worker."""

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status of the worker, or -n for signal n; 0 if its node died. Raises
        subprocess.TimeoutExpired after ``timeout`` seconds."""
        if not self._gone.wait(timeout):
            raise subprocess.TimeoutExpired(["worker", self._worker], timeout or 0.0)
        return self._code or 0

    def kill(self) -> None:
        """Kills the worker, and returns at once."""
        if not self._gone.is_set():
            threading.Thread(target=self._kill, name="ray-kill", daemon=True).start()

    # Files

    def put(self, name: str, content: Any) -> None:
        """Writes a file into the worker's folder before what is sent after it. ``content`` is bytes, or Ray's reference
        to some."""
        if not self._gone.is_set():
            self._writer.submit(self._call, "put", name, content)

    def complete(self, files: Sequence[Path]) -> bool:
        """Sends those of ``files`` that the node lacks, to the same paths. Returns True if it has all of them now,
        and False if it died. Raises OSError if it cannot write them."""
        ray = _ray()
        sizes = [(str(file), file.stat().st_size) for file in files]
        batch: dict[str, bytes] = {}
        try:
            for path in ray.get(self._actor.missing.remote(sizes)):
                batch[path] = Path(path).read_bytes()
                if sum(map(len, batch.values())) > BATCH:
                    ray.get(self._actor.place.remote(batch))
                    batch = {}
            ray.get(self._actor.place.remote(batch))
        except ray.exceptions.RayTaskError as error:
            why = str(error).strip().splitlines()[-1]
            raise OSError(f"node {self.node.name} cannot take the compiled kernels: {why}") from None
        except ray.exceptions.RayError:
            return False
        return True

    def _store(self, part: FilePart) -> None:
        path = self._folder / part.name
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            rest = memoryview(part.content)
            place = part.start
            while rest:
                count = os.pwrite(file, rest, place)
                rest, place = rest[count:], place + count
            os.ftruncate(file, place)
        finally:
            os.close(file)

    # Ray

    def _next(self) -> Chunk | None:
        """Returns the next chunk; None if the actor or its node has died."""
        ray = _ray()
        since = time.monotonic()
        while True:
            try:
                chunk: Chunk = ray.get(self._actor.read.remote(self._number))
                self._number += 1
                return chunk
            except ray.exceptions.ActorUnavailableError:
                if not self._cluster.is_dead(self.node) and time.monotonic() - since < UNREACHABLE_S:
                    time.sleep(0.2)  # the same chunk is asked for again
                    continue
                self._end(None)
            except ray.exceptions.RayError as error:
                self._end(None if self._died_with_node(error) else _KILLED)
            return None

    def _died_with_node(self, error: Exception) -> bool:
        """Asks the cluster. It may hear of the actor first."""
        if "node has died" in str(error) or "node died" in str(error):
            self._cluster.note_dead(self.node)
        until = time.monotonic() + NEWS_S
        while not self._cluster.is_dead(self.node):
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True

    def _send(self, number: int, data: bytes) -> None:
        self._call("write", number, data)

    def _call(self, method: str, *arguments: Any) -> None:
        ray = _ray()
        until = time.monotonic() + UNREACHABLE_S
        while not self._gone.is_set() and self._failed_write is None:
            try:
                ray.get(getattr(self._actor, method).remote(*arguments))
                return
            except ray.exceptions.ActorUnavailableError as error:
                if time.monotonic() > until:
                    self._failed_write = error
                time.sleep(0.2)
            except ray.exceptions.RayError as error:
                self._failed_write = error

    def _kill(self) -> None:
        ray = _ray()
        try:
            ray.get(self._actor.kill.remote(), timeout=GONE_S)
        except ray.exceptions.RayError:  # also if it does not answer in time
            ray.kill(self._actor)
        if not self._gone.wait(GONE_S):  # no thread reads
            self._end(_KILLED)

    def _end(self, code: int | None) -> None:
        """The worker has ended with ``code``; None if its node is lost."""
        self._code = code
        self.lost_with_node = code is None
        self._close()
        self._gone.set()

    def _close(self) -> None:
        ray = _ray()
        if self._code is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(self._actor.end.remote(), timeout=GONE_S)
        ray.kill(self._actor)
        self._cluster.give_back(self._worker)
        self._writer.shutdown(wait=False)


def _ray() -> Any:
    import ray

    return ray


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
