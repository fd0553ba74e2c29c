"""The main function of a compile process: one request at a time, through a driver that has no device."""

from __future__ import annotations

import dataclasses
import errno
import faulthandler
import importlib
import json
import os
import pickle
import queue
import resource
import shutil
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from conformance.exception_text import causes_of, text_of, traceback_of, with_first_error, words_of
from conformance.execution.compile import cache_entries, carried_kernels, kernel_figures
from conformance.execution.compile.cache_entries import contents
from conformance.execution.compile.compilation import (
    ANSWER,
    NO_MEMORY,
    Artefact,
    ChildAnswer,
    CompileRequest,
    Request,
    Task,
)
from conformance.execution.compile.kernel_figures import read_resources
from conformance.execution.compile.specialisation import bound_arguments, specialisation
from conformance.kernels.launch import Launch
from conformance.machine import stacks
from conformance.machine.environment_faults import cache_suspect, fault_of_error, missing_from_cache
from conformance.records import Reason, Status
from conformance.targets import Target


class StubDriver:
    """Stands in for Triton's driver of a device of ``target``.

    Triton keeps compiled kernels per device index, so each target must have its own ``index``. With a shared one, the
    second target is silently handed the first one's kernel.
    """

    def __init__(self, target: Any, index: int) -> None:
        self.target = target
        self.index = index

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return self.index

    def get_current_stream(self, device: int) -> int:
        return 0


_drivers: dict[tuple[str, int | str, int], StubDriver] = {}


def _driver(target: Target) -> StubDriver:
    """Returns the only driver of ``target`` in this process."""
    from triton.backends.compiler import GPUTarget

    identity = (target.backend, target.arch, target.warp_size)
    if identity not in _drivers:
        _drivers[identity] = StubDriver(GPUTarget(*identity), len(_drivers))
    return _drivers[identity]


def by_triton(launch: Launch, target: Target) -> Any:
    """Returns what Triton compiles for ``launch``, or takes from its cache, for ``target``."""
    from triton.runtime import driver

    stub = _driver(target)
    driver.set_active(stub)
    arguments = bound_arguments(launch.function, launch.arguments)
    kernel = launch.function.warmup(**arguments, grid=launch.grid, **launch.options)
    if kernel.metadata.target != stub.target:
        raise AssertionError(f"compiled for {kernel.metadata.target}, asked for {stub.target}")
    # A compiled kernel holds the text of every stage, and this process lives long; the files are enough.
    _compiled_kernels(launch.function, stub.index).clear()
    return kernel


class Compiler:
    """Compiles launches and remembers what it has compiled, by specialisation."""

    def __init__(self, artefact_dir: Path | None) -> None:
        self._artefact_dir = artefact_dir
        self._done: dict[str, Artefact] = {}

    def answer(self, request: Request) -> ChildAnswer:
        """The answer to ``request``; never raises."""
        try:
            if isinstance(request, Task):
                return ChildAnswer(Status.PASS, value=named(request.function)(request.payload, request.target))
            launch = named(request.factory)(request.payload, request.target)
            if request.carried is not None:
                answer = self._carried(launch, request.target, *request.carried)
            else:
                answer = self._checked(launch, request.target, request.deduplicate)
            if request.describe is not None and answer.artefact is not None:
                kernel_figures.describe(answer.artefact, request.target, disassemble=request.describe == "sass")
            return answer
        except Exception as error:  # whatever the compiler raises is this request's result
            return _failed(error)

    def compile(self, launch: Launch, target: Target, deduplicate: bool = True) -> Artefact:
        """Returns the artefact of ``launch`` for ``target``."""
        started = processor_seconds()
        key = specialisation(launch, target).key
        if key not in self._done or not deduplicate:
            compiled = self._compile(launch, target, key)
            self._done[key] = dataclasses.replace(compiled, seconds=processor_seconds() - started)
        return self._done[key]

    def _checked(self, launch: Launch, target: Target, deduplicate: bool = True) -> ChildAnswer:
        """Returns the artefact of ``launch``. A kernel from Triton's cache that cannot be loaded is compiled in an
        empty folder. So is one whose files contradict each other, or are gone before they were read. If that succeeds,
        the cache is to blame."""
        with cache_entries.reads_noted() as folders:
            try:
                artefact = self.compile(launch, target, deduplicate)
                fault = _fault_of_entry(contents(artefact.stages), target, folders[-1]) if folders else ""
                answer = ChildAnswer(Status.PASS, artefact)
            except Exception as error:
                answer = _failed(error)
                if not folders and answer.fault is None and (lost := missing_from_cache(error)):
                    folders.append(os.path.dirname(lost))  # Triton has just written it there
                if not folders:
                    return answer
                fault = with_first_error(error)
        if not fault:
            return answer
        try:
            with cache_entries.empty_cache():
                compiled = Compiler(None).compile(launch, target)
                if cache_entries.contradiction(contents(compiled.stages), target):
                    return answer  # so the compiler makes them
        except Exception:  # so it does not compile anywhere
            return answer
        self._done.pop(specialisation(launch, target).key, None)
        text = f"{folders[-1]} has a damaged kernel: {fault}; in an empty folder it compiles"
        return ChildAnswer(Status.COMPILE_ERROR, error=text, fault=cache_suspect(text))

    def _carried(self, launch: Launch, target: Target, folder: str, edition: str) -> ChildAnswer:
        """Returns the kernels that another machine made of ``launch``; compiles here what it lacks and what must not be
        used."""
        refused = ""
        files: dict[str, bytes] = {}
        try:
            kernel = carried_kernels.carried(folder).get(specialisation(launch, target).key, edition)
            status, error, files = kernel or (Status.PASS, "", files)
            if status is not Status.PASS:
                return ChildAnswer(status, error=f"on the machine where it was compiled: {error}")
            stages = {name.rpartition(".")[2]: content for name, content in files.items()}
            refused = cache_entries.contradiction(stages, target) if files else ""
        except (carried_kernels.Unusable, sqlite3.Error, OSError) as unusable:
            refused = str(unusable) or type(unusable).__name__
        with carried_kernels.offered({} if refused else files) as opened:
            answer = self._checked(launch, target, deduplicate=False)
        if answer.artefact is not None and opened:
            answer = answer._replace(artefact=dataclasses.replace(answer.artefact, cached=True))
        return answer._replace(refused=refused)

    def _compile(self, launch: Launch, target: Target, key: str) -> Artefact:
        before = time.time()
        kernel = by_triton(launch, target)
        artefact = artefact_of(kernel, target, key, before)
        return dataclasses.replace(artefact, stages=self._kept(artefact, target))

    def _kept(self, artefact: Artefact, target: Target) -> Mapping[str, Path]:
        if self._artefact_dir is None:
            return artefact.stages
        folder = self._artefact_dir / target.id / f"{artefact.kernel_name}-{artefact.key[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        return {stage: Path(shutil.copy2(path, folder / path.name)) for stage, path in artefact.stages.items()}


def _fault_of_entry(files: Mapping[str, bytes], target: Target, folder: str) -> str:
    """Returns why ``files``, which Triton took from ``folder`` of its cache, are not one kernel; empty if they are."""
    return cache_entries.contradiction(files, target) or cache_entries.misplaced(files["json"], folder)


def _compiled_kernels(function: Any, device: int) -> Any:
    """Returns the cache in which ``function`` keeps the kernels that were compiled for ``device``, by key."""
    if hasattr(function, "device_caches"):
        return function.device_caches[device][0]
    return function.cache[device]  # as Triton 3.2 has it


def hash_triton() -> None:
    """Has Triton hash its installed files, once for all forks of this process: the keys of its cache hold that."""
    from triton.compiler import compiler
    from triton.runtime import cache

    for module in (cache, compiler):  # releases differ in who has it
        getattr(module, "triton_key", lambda: None)()


def named(function: str) -> Callable[..., Any]:
    """The function that "package.module:function" names; raises ImportError or AttributeError if there is none."""
    module, _, name = function.partition(":")
    value: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return value


def processor_seconds() -> float:
    """Processor seconds of this process and of its ended children, such as an assembler. Time that other processes use
    does not count, so a busy machine does not look like a slow compiler."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def artefact_of(kernel: Any, target: Target, key: str, before: float) -> Artefact:
    """Returns the artefact of ``kernel``, which Triton has compiled since ``before`` on the file system's clock."""
    files = {Path(path).suffix[1:]: Path(path) for path in stage_files(kernel)}
    metadata = json.loads(files["json"].read_text())
    return Artefact(
        target_id=target.id,
        kernel_name=kernel.metadata.name,
        key=key,
        stages=files,
        resources=read_resources(files, metadata),
        metadata=metadata,
        # the record of a kernel is written last, when it is compiled
        cached=files["json"].stat().st_mtime < before,
    )


def stage_files(kernel: Any) -> list[str]:
    """Returns the files of Triton's cache that hold the stages of ``kernel``; releases that do not say are asked for
    the kernel's hash."""
    if hasattr(kernel, "metadata_group"):
        return list(kernel.metadata_group.values())
    from triton.runtime.cache import get_cache_manager

    longest = 150  # Triton cuts the names of its files here
    group = get_cache_manager(kernel.hash).get_group(f"{kernel.metadata.name[:longest]}.json")
    return list((group or {}).values())


def main(pipe: int, artefact_dir: str | None) -> None:
    """Serves pickled requests from the connection with descriptor ``pipe`` until it closes."""
    faulthandler.enable()
    stacks.answer_in(sys.stderr)  # the parent asks at the deadline
    stacks.end_with_parent()
    os.set_inheritable(pipe, False)  # Triton starts ptxas with every inheritable descriptor open
    connection = Connection(pipe)
    connection.send_bytes(b"ready")
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    compiler = Compiler(Path(artefact_dir) if artefact_dir else None)
    while True:
        blob = requests.get()
        answer = _answer(compiler, blob)
        os.write(pipe, ANSWER)
        connection.send_bytes(answer)


def _answer(compiler: Compiler, blob: bytes) -> bytes:
    try:
        return pickle.dumps(compiler.answer(pickle.loads(blob)))
    except Exception as error:  # an import that the payload needs and that fails, a result that cannot be pickled
        return pickle.dumps(ChildAnswer(_status(error), error=text_of(error), fault=fault_of_error(error)))


def _failed(error: Exception) -> ChildAnswer:
    where = "".join(traceback.format_tb(traceback_of(error))[-3:])
    reason = getattr(error, "reason", None)
    return ChildAnswer(
        _status(error),
        error=f"{with_first_error(error)}\n{where}".strip(),
        reason=reason if isinstance(reason, Reason) else None,
        fault=fault_of_error(error),
    )


def suspicion(payload: tuple[CompileRequest, Mapping[str, Path]], target: Target) -> str:
    """A ``Task``: says how the files of a compiled kernel differ from those of a compilation in an empty folder; empty
    if they do not. A compiler that gives no file twice alike is not the cache's fault. ``payload`` is the request that
    compiled it, and the file of each stage."""
    request, stages = payload
    launch = named(request.factory)(request.payload, target)
    compiled = []
    for _ in range(2):
        with cache_entries.empty_cache():
            artefact = Compiler(None).compile(launch, target)
            compiled.append(contents(artefact.stages))
        differing = cache_entries.differing(contents(stages), compiled[-1])
        if not differing or cache_entries.differing(compiled[0], compiled[-1]):
            return ""
    folder = next(iter(stages.values())).parent
    return f"{folder} has another {', '.join(differing)} than two compilations in an empty folder"


def _status(error: BaseException) -> Status:
    """Returns the status of a request that raised ``error``: OOM if it or one of its causes reports a lack of memory.
    Triton wraps an exception of its code generator."""
    for cause in causes_of(error, lambda context: True):
        short = isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM)
        if short or any(text in words_of(cause) for text in NO_MEMORY):
            return Status.OOM
    return Status.COMPILE_ERROR


def _receive(connection: Connection, requests: queue.SimpleQueue[bytes]) -> None:
    """Passes requests on; when the parent is gone, ends this process and whatever it has started, at any moment."""
    try:
        while True:
            requests.put(connection.recv_bytes())
    except (EOFError, OSError):
        os.killpg(os.getpid(), signal.SIGKILL)
