"""Isolated, parallel compilation: a pool of processes, each serving one request at a time.

If the compiler aborts, hangs or raises, that is the result of the request that caused it. The pool replaces the process
and the other requests go on. The processes are forks of a server, never of this process. No child has
``TRITON_INTERPRET`` in its environment, and none touches a GPU: children compile through a stub driver. Triton's cache
keys hold the backend, the architecture and the options, but not the device. So the launch on a device finds in the
cache what a child compiled for its architecture.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import pickle
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from conformance.execution.compile.fork_server import PRELOADED, ForkedProcess, ForkServer, ForkServerLost
from conformance.execution.compile.kernel_figures import KernelResources
from conformance.machine import stacks
from conformance.machine.awake_time import AwakeTime, waited
from conformance.machine.environment_faults import fault_of_signal, fault_of_text, killed, process_fault
from conformance.records import CompileFailure, Fault, Reason, Status
from conformance.targets import Target

#: Seconds in which a child must be ready.
START_SECONDS = 60.0
#: Seconds between the deadline, at which a child writes where it hangs, and the kill.
GRACE_SECONDS = 1.0
#: Seconds between two looks at the memory that a request takes.
WATCH_SECONDS = 0.5
#: Bytes of memory that one request may take, with the processes that it starts.
MEMORY_LIMIT = min(16 * 2**30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 6 // 10)
#: What the C++ library, LLVM, ptxas and the system write when they find no memory.
NO_MEMORY = ("std::bad_alloc", "LLVM ERROR: out of memory", "Memory allocation failure", "Cannot allocate memory")
#: Characters of compiler output that an error keeps.
OUTPUT_LIMIT = 20_000


@dataclass(frozen=True)
class CompileRequest:
    """A launch to compile.

    The child calls ``factory`` ("package.module:function") with ``payload``, which is pickled, and ``target``. It
    returns a :class:`~conformance.kernels.launch.Launch` over tensors without memory. With ``deduplicate`` False the
    child asks Triton even if its prediction says that an earlier compilation serves the launch. ``carried`` is a folder
    of kernels from another machine (see :mod:`~conformance.execution.compile.carried_kernels`) and the edition of the
    toolchain whose kernels are used from it. ``describe``: what the code shows is worked out in the child too, and kept
    with it (see :mod:`~conformance.execution.compile.kernel_figures`), with "sass" from a disassembly.
    """

    factory: str
    payload: Any
    target: Target
    deduplicate: bool = True
    carried: tuple[str, str] | None = None
    describe: Literal["text", "sass"] | None = None


@dataclass(frozen=True)
class Task:
    """A call of ``function`` ("package.module:function") with ``payload`` and ``target`` in the child.

    The result's ``value`` is what the function returns. Payload and value are pickled. ``preloaded`` are the modules
    that a child should have imported before it starts.
    """

    function: str
    payload: Any
    target: Target
    preloaded: tuple[str, ...] = ()


Request = CompileRequest | Task


@dataclass(frozen=True)
class Artefact:
    """One compiled kernel.

    ``stages`` maps "source", "ttir", "ttgir", "llir", "ptx" or "amdgcn", "cubin" or "hsaco" and "json" to files.
    ``key`` is the digest of the specialisation. ``cached``: Triton's cache had the kernel. ``seconds``: processor
    time of the compilation, 0 if it was not measured.
    """

    target_id: str
    kernel_name: str
    key: str
    stages: Mapping[str, Path]
    resources: KernelResources
    metadata: Mapping[str, Any]
    cached: bool
    seconds: float = 0.0

    def text(self, stage: str) -> str:
        """The text of ``stage``; raises KeyError naming the stages there are."""
        if stage not in self.stages:
            raise KeyError(f"{self.kernel_name} for {self.target_id} has no stage {stage!r}: {', '.join(self.stages)}")
        return self.stages[stage].read_text()


@dataclass(frozen=True)
class CompileResult:
    """``status`` is PASS, COMPILE_ERROR, CRASH, TIMEOUT or OOM. ``error`` holds the message and the compiler's output.

    A :class:`CompileRequest` gives an ``artefact``, a :class:`Task` a ``value``. ``reason`` is that of an exception
    which carries one. ``seconds`` is wall time. ``fault`` says that the machine is to blame for the failure. A kernel
    that was carried here and must not be used was compiled; ``refused`` says why.
    """

    status: Status
    artefact: Artefact | None
    error: str
    seconds: float
    value: Any = None
    reason: Reason | None = None
    fault: Fault | None = None
    refused: str = ""

    def failure(self, what: str = "") -> CompileFailure:
        """Returns the exception for a request that failed; ``what`` names it."""
        return CompileFailure(self.status, f"{what}: {self.error}" if what else self.error, self.fault)


class ChildAnswer(NamedTuple):
    """The answer of a child; see :class:`CompileResult`."""

    status: Status
    artefact: Artefact | None = None
    error: str = ""
    value: Any = None
    reason: Reason | None = None
    fault: Fault | None = None
    refused: str = ""


#: What a child writes before the message that is its answer.
ANSWER = b"answer:\n"


class NoAnswer(Exception):
    """Says that a child sent something that is no answer."""


@dataclass
class _CompileJob:
    """A request that was submitted. ``blob`` is the pickled request; it also identifies the job."""

    blob: bytes
    future: concurrent.futures.Future[CompileResult] = field(default_factory=concurrent.futures.Future)


class CompilePool:
    """Compiles requests in at most ``workers`` processes, each request within ``deadline`` seconds.

    A process starts when there is work for it. Equal requests share one compilation and one result. Copies of the stage
    files go to ``artefact_dir``; without it they stay in Triton's cache. ``preloaded`` are further modules that every
    process has imported when it starts. :meth:`submit` returns a future of a
    :class:`CompileResult`. Its ``result()`` raises CancelledError if the pool is closed first, and nothing else.
    """

    def __init__(
        self,
        workers: int,
        deadline: float = 120.0,
        artefact_dir: Path | None = None,
        preloaded: tuple[str, ...] = (),
    ) -> None:
        if workers < 1 or deadline <= 0:
            raise ValueError(f"a compile pool of {workers} workers and {deadline} s: both must be above zero")
        self.deadline = deadline
        self.artefact_dir = artefact_dir
        self.preloaded = preloaded
        self._limit = workers
        self._jobs: queue.SimpleQueue[_CompileJob | None] = queue.SimpleQueue()
        self._known: dict[bytes, _CompileJob] = {}
        self._workers: list[_Worker] = []
        self._waiting = 0  # jobs that no worker has taken yet
        self._idle = 0  # workers that wait for one
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, request: Request) -> concurrent.futures.Future[CompileResult]:
        """Queues ``request``. Raises RuntimeError if the pool is closed and TypeError if it cannot be pickled."""
        called = request.function if isinstance(request, Task) else request.factory
        try:
            blob = pickle.dumps(request)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(
                f"the payload of {called} cannot be pickled ({error}): give plain data such as a frozen "
                "dataclass, and let the function build the rest from it"
            ) from None
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{called} was submitted to a compile pool that is closed")
            if blob in self._known:
                return self._known[blob].future
            job = self._known[blob] = _CompileJob(blob)
            self._waiting += 1
            self._jobs.put(job)
            if self._waiting > self._idle and len(self._workers) < self._limit:
                worker = _Worker(self)
                self._workers.append(worker)
                worker.thread.start()
        return job.future

    def close(self) -> None:
        """Ends the processes. Requests without a result are cancelled. Returns at once, and may be called again."""
        with self._lock:
            self._closed = True
            workers, jobs = list(self._workers), list(self._known.values())
            for job in jobs:
                job.future.cancel()
            for _ in workers:
                self._jobs.put(None)
        for worker in workers:
            worker.end()
        for worker in workers:
            worker.thread.join(timeout=10)

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Called by the workers' threads

    def next_job(self) -> _CompileJob | None:
        """The next job to do, waiting for one; None when the pool closes."""
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
                self._waiting -= job is not None
                if job is None or self._closed:
                    return None
            if job.future.set_running_or_notify_cancel():
                return job

    @property
    def closed(self) -> bool:
        return self._closed


class _Worker:
    """A thread that owns one child process and replaces it when it is lost."""

    def __init__(self, pool: CompilePool) -> None:
        self.pool = pool
        self.thread = threading.Thread(target=self._serve, name="compile-worker", daemon=True)
        self._child: _Child | None = None
        self._lock = threading.Lock()

    def end(self) -> None:
        """Ends the child, which wakes the thread if it waits for an answer."""
        with self._lock:
            if self._child is not None:
                self._child.kill()

    def _serve(self) -> None:
        while (job := self.pool.next_job()) is not None:
            started = time.monotonic()
            try:
                result = self._answer(job)
            except Exception as error:  # a fault of ours must not leave a caller waiting
                result = _not_compiled(f"the compile pool failed: {error!r}", started)
            if self.pool.closed:
                job.future.set_exception(concurrent.futures.CancelledError("the compile pool was closed"))
            else:
                job.future.set_result(result)
        self.end()
        if self._child is not None:
            self._child.end()

    def _answer(self, job: _CompileJob) -> CompileResult:
        started = time.monotonic()
        try:
            child = self._ready_child()
        except ForkServerLost as lost:
            return _not_compiled(f"the compile process did not start: {lost}", started)
        if child is None:
            return _not_compiled("the compile pool was closed", started)
        if not child.started:
            return _not_compiled(f"the compile process did not start: {self._lose(child)}", started)
        started, clock = time.monotonic(), AwakeTime()  # starting the child is no part of compiling
        child.mark()
        used, late = 0, False
        try:
            child.pipe.send_bytes(job.blob)
            used, late = self._wait_for(child, clock)
            if not late and child.pipe.poll(0):
                answer = child.answer()
                error = "" if answer.status is Status.PASS else _joined(answer.error, child.output())
                seconds = time.monotonic() - started
                fault = answer.fault or (fault_of_text(error) if error else None)
                return CompileResult(
                    answer.status, answer.artefact, error, seconds, answer.value, answer.reason, fault, answer.refused
                )
        except NoAnswer as wrong:
            child.kill()
            return _failed(Status.CRASH, f"{wrong}; its process was ended: {self._lose(child)}", started)
        except (EOFError, OSError):
            pass  # the child is gone: its exit status and its output say why
        if used >= MEMORY_LIMIT:
            child.kill()
        ending = self._lose(child)
        if used >= MEMORY_LIMIT:
            text = f"compilation took {used / 2**30:.1f} GiB of memory, {MEMORY_LIMIT / 2**30:.1f} GiB are allowed"
            return _failed(Status.OOM, f"{text}: {ending}", started)
        if late:
            text = f"compilation did not end within {self.pool.deadline:g} s and was stopped: {ending}"
            return _failed(Status.TIMEOUT, text, started)
        if child.code == -signal.SIGKILL:  # not sent from here
            text = "the compiler was killed from outside, as a system does with a process when memory runs out"
            return _failed(Status.OOM, f"{text}: {ending}", started, killed(text))
        status = Status.OOM if any(text in ending for text in NO_MEMORY) else Status.CRASH
        ended = -(child.code or 0)
        fault = fault_of_signal(ended, "the compile process") or (None if ended > 0 else fault_of_text(ending))
        return _failed(status, f"the compiler died: {ending}", started, fault)

    def _wait_for(self, child: _Child, clock: AwakeTime) -> tuple[int, bool]:
        """Waits until ``child`` has answered or is gone, the deadline has passed on the ``clock`` or it takes too much
        memory. Returns the bytes that it took when last seen, and whether it is late. A child that is late writes where
        it hangs; what it answers afterwards does not count, as the request for its stacks may have ended a wait."""
        used = 0
        while used < MEMORY_LIMIT and (left := self.pool.deadline - clock.seconds()) > 0:
            if child.pipe.poll(min(WATCH_SECONDS, left)):
                return used, False
            used = memory_of(child.process.pid)
        if used < MEMORY_LIMIT:
            child.ask_for_stacks()
            child.pipe.poll(GRACE_SECONDS)
        return used, used < MEMORY_LIMIT

    def _lose(self, child: _Child) -> str:
        """Ends ``child``, so that the next job gets a new one, and says how it ended and what it wrote."""
        with self._lock:
            self._child = None
        return child.end()

    def _ready_child(self) -> _Child | None:
        with self._lock:
            if self.pool.closed:
                return None
            if self._child is None:
                self._child = _Child(self.pool.artefact_dir, self.pool.preloaded)
            child = self._child
        child.wait_until_started()
        return child


class _Child:
    """One process in a process group of its own, with a pipe for requests and a file for what it prints."""

    def __init__(self, artefact_dir: Path | None, preloaded: tuple[str, ...]) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._mark = 0
        self.started = False
        self.code: int | None = None  # how it ended by itself
        self.process: ForkedProcess
        self.pipe, theirs = Pipe(duplex=True)
        with contextlib.closing(theirs):  # else this process would keep the child's end open and never see it close
            self.process = fork_server(preloaded).fork(
                "conformance.execution.compile.compile_worker:main",
                {"artefact_dir": str(artefact_dir) if artefact_dir else None},
                (theirs.fileno(),),
                self._output.fileno(),
                child_environment(),
            )

    def wait_until_started(self) -> None:
        """Waits for the child's first word; ``started`` stays False if it died or was not ready in time."""
        if self.started:
            return
        try:
            if waited(self.pipe.poll, START_SECONDS):
                self.pipe.recv_bytes()
                self.started = True
        except (EOFError, OSError):
            pass

    def answer(self) -> ChildAnswer:
        """The answer to the request, once there is something to read. Raises :class:`NoAnswer` for bytes that something
        else wrote into the pipe: their length would be that of a message which never comes."""
        begun = os.read(self.pipe.fileno(), len(ANSWER))
        if not begun:
            raise EOFError
        if begun == ANSWER:
            with contextlib.suppress(pickle.UnpicklingError):
                answer = pickle.loads(self.pipe.recv_bytes())
                assert isinstance(answer, ChildAnswer)
                return answer
        raise NoAnswer(f"something wrote {begun!r} into the pipe of the compiler's answers")

    def mark(self) -> None:
        """From here on :meth:`output` is about the next request."""
        self._mark = os.fstat(self._output.fileno()).st_size

    def output(self) -> str:
        """Returns the text that the child and its own children have written since :meth:`mark`, cut in the middle if it
        is long."""
        size = os.fstat(self._output.fileno()).st_size - self._mark
        text = os.pread(self._output.fileno(), size, self._mark).decode(errors="replace").strip()
        half = OUTPUT_LIMIT // 2
        return text if len(text) <= OUTPUT_LIMIT else f"{text[:half]}\n[...]\n{text[-half:]}"

    def ask_for_stacks(self) -> None:
        """Has the child write where it is."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.process.pid, stacks.ASK)

    def kill(self) -> None:
        """Ends the child and every process it has started, such as ptxas."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.running:  # it may not lead its group yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)

    def end(self) -> str:
        """Ends the child if it still runs; how it ended and what it wrote."""
        try:  # its own end, if it has one: a kill would hide the signal
            code = self.code = self.process.wait(timeout=GRACE_SECONDS)
            ending = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        except subprocess.TimeoutExpired:
            ending = "it was killed"
        self.kill()
        self.process.wait()
        self.pipe.close()
        text = _joined(ending, self.output())
        self._output.close()
        return text


@functools.cache
def fork_server(preloaded: tuple[str, ...]) -> ForkServer:
    """Returns the server that forks the children of all pools of this run with ``preloaded`` modules. Whoever knows
    that it will be needed may start it early."""
    return ForkServer(child_environment(), (*PRELOADED, *preloaded), shared=True)


def child_environment() -> dict[str, str]:
    """Returns the environment of a child: never interpreted, no GPU in sight, one thread of its own for torch."""
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    hidden = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "")
    return {**inherited, **hidden, "OMP_NUM_THREADS": "1"}


def memory_of(pid: int) -> int:
    """Bytes of memory of the process ``pid`` and of all that it has started; 0 for one that is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(memory_of(int(child)) for child in children)


def _joined(message: str, output: str) -> str:
    return f"{message}\n--- the compiler wrote ---\n{output}" if output else message


def _failed(status: Status, error: str, started: float, fault: Fault | None = None) -> CompileResult:
    return CompileResult(status, None, error, time.monotonic() - started, fault=fault)


def _not_compiled(error: str, started: float) -> CompileResult:
    """The result of a request that no process took: that is no fault of the compiler."""
    return _failed(Status.CRASH, error, started, process_fault(error))


def process_group(target: Target) -> str:
    """Returns the name of the targets that may share a compiler process with ``target``.

    Up to Triton 3.6 a process chooses the code of its fp8 conversions once, for its first architecture of a vendor. It
    uses that code for all others. The next architecture may lack these instructions, or have better ones. So NVIDIA's
    architectures get processes in three groups: without instructions for e4m3, with them, and with conversions between
    bf16 and fp16 too (sm_90 and later). Each architecture of another vendor has its own processes.
    """
    if target.vendor != "nvidia":
        return f"{target.vendor} {target.arch}"
    if not target.capability("e4m3").available:
        return "nvidia without fp8"
    return "nvidia with fp8" if int(target.arch) >= 90 else "nvidia with fp8, no bf16 conversions"


class CompilePools:
    """A :class:`CompilePool` for each group of requests that may share a process; each starts when it is needed."""

    def __init__(self, workers: int, deadline: float) -> None:
        self._workers, self._deadline = workers, deadline
        self._pools: dict[tuple[str, tuple[str, ...]], CompilePool] = {}

    def submit(self, request: Request) -> concurrent.futures.Future[CompileResult]:
        """Queues ``request`` where its target belongs; see :meth:`CompilePool.submit`."""
        preloaded = request.preloaded if isinstance(request, Task) else ()
        group = process_group(request.target), preloaded
        if group not in self._pools:
            self._pools[group] = CompilePool(self._workers, self._deadline, preloaded=preloaded)
        return self._pools[group].submit(request)

    def close(self) -> None:
        """Closes every pool."""
        for pool in self._pools.values():
            pool.close()
