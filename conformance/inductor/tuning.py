"""Inductor's autotuning machinery as a system under test: its processes, its selector and what both are given.

Nothing here needs a device. A :class:`Job` is what a tuning process is asked to do, a stand-in choice is what the
selector chooses among; both do exactly what they are told, so that what is judged is the machinery around them.
Inductor itself is imported when it is needed, because its import takes seconds.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from conformance.execution.compile_worker import named
from conformance.problems import DTYPES, Operand
from conformance.records import Verdict
from conformance.targets import Target

from .program import Program

#: Seconds that a child may take to start, to import torch and to answer.
START_SECONDS = 120.0
#: Seconds of the limit that a job is to exceed, and of the job that exceeds it.
LIMIT_SECONDS, ENDLESS_SECONDS = 1.0, 120.0
#: Seconds after its limit within which a job must have been given up, and a child that was killed be gone.
PROMPT_SECONDS = 15.0

EXIT_CODE = 7
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


# --- what a child is asked --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """What a job returns: its value, the child that ran it and the devices that this child's environment shows."""

    value: float
    pid: int
    visible: str | None


@dataclass(frozen=True)
class Job:
    """Sleeps for ``seconds``, raises RuntimeError(``error``) or ends the process with ``exit_code`` if it is told so,
    and replies with ``value`` otherwise. Also a benchmark request of a tuning pool."""

    value: float = 0.0
    seconds: float = 0.0
    error: str | None = None
    exit_code: int | None = None

    def __call__(self) -> Reply:
        time.sleep(self.seconds)
        if self.error is not None:
            raise RuntimeError(self.error)
        if self.exit_code is not None:
            sys.exit(self.exit_code)
        return Reply(self.value, os.getpid(), os.environ.get(VISIBLE_DEVICES))

    def benchmark(self) -> Reply:
        return self()


@dataclass(frozen=True)
class PoolChoice:
    """A choice as a tuning pool sees it: something to hash that has a benchmark request."""

    bmreq: Job


# --- one tuning process -----------------------------------------------------------------------------------------------

#: Makes a process that sees the given device, or what this process sees: Inductor's TuningProcess unless a test plants
#: a fault.
MakeProcess = Callable[[int | None], Any]


def make_process(device: int | None) -> Any:
    from torch._inductor.autotune_process import TuningProcess

    return TuningProcess(device)


@contextlib.contextmanager
def tuning_process(make: MakeProcess = make_process, device: int | None = None) -> Iterator[Any]:
    """A tuning process, ended on exit whatever became of it."""
    process = make(device)
    try:
        yield process
    finally:
        end(process)


def end(process: Any) -> None:
    """Kills the child that ``process`` has at present, if it still runs, and waits for it."""
    child: subprocess.Popen[bytes] = process.process
    if child.poll() is None:
        child.kill()
    child.wait(PROMPT_SECONDS)
    process.close()


def ask(process: Any, job: Job, seconds: float = START_SECONDS) -> Any:
    """The reply to ``job``; raises what the process raises."""
    process.put(job)
    return process.get(seconds)


def is_healthy(process: Any, not_pid: int | None = None) -> Verdict:
    """Whether a random number makes the round trip through the child that ``process`` says it has, which is neither
    this process nor ``not_pid``."""
    sent = random.random()
    try:
        reply = ask(process, Job(sent))
    except Exception as error:  # whatever it is, the process is not healthy
        return Verdict("healthy", False, f"{type(error).__name__}: {error}")
    right = isinstance(reply, Reply) and reply.value == sent and reply.pid == process.process.pid
    elsewhere = right and reply.pid not in (os.getpid(), not_pid)
    return Verdict("healthy", right and elsewhere, f"sent {sent}, got {reply}, child {process.process.pid}")


def times_out(process: Any) -> list[Verdict]:
    """A job beyond its limit: TimeoutError soon after the limit, the child killed, the next job done by another.

    The child is at work before the limit counts: a start that takes longer than the limit would look the same."""
    found = [_named("ready", is_healthy(process))]
    child = process.process
    started = time.monotonic()
    raised = _raised(lambda: ask(process, Job(seconds=ENDLESS_SECONDS), LIMIT_SECONDS))
    took = time.monotonic() - started
    prompt = LIMIT_SECONDS * 0.9 <= took <= LIMIT_SECONDS + PROMPT_SECONDS
    return [
        *found,
        Verdict("raised", isinstance(raised, TimeoutError), f"{raised!r}, TimeoutError required"),
        Verdict("prompt", prompt, f"after {took:.1f} s, limit {LIMIT_SECONDS:g} s"),
        _ended(child, -signal.SIGKILL),
        is_healthy(process, child.pid),
    ]


def raises_here(process: Any) -> list[Verdict]:
    """An exception in the child is raised here with its type and text, and the child goes on."""
    found = [_named("ready", is_healthy(process))]
    pid = process.process.pid
    raised = _raised(lambda: ask(process, Job(error="the fault of job 3")))
    same = type(raised) is RuntimeError and str(raised) == "the fault of job 3"
    healthy = is_healthy(process)
    return [
        *found,
        Verdict("raised", same, f"{raised!r}, RuntimeError('the fault of job 3') required"),
        Verdict("same child", process.process.pid == pid, f"child {process.process.pid}, {pid} before"),
        healthy,
    ]


def crashes(process: Any) -> list[Verdict]:
    """A child that ends itself is noticed at once: EOFError, and the next job is done by another."""
    found = [_named("ready", is_healthy(process))]
    child = process.process
    raised = _raised(lambda: ask(process, Job(exit_code=EXIT_CODE)))
    return [
        *found,
        Verdict("raised", isinstance(raised, EOFError), f"{raised!r}, EOFError required"),
        _ended(child, EXIT_CODE),
        is_healthy(process, child.pid),
    ]


def is_killed(process: Any) -> list[Verdict]:
    """``kill`` ends a child that is at work; the process says so, and the next job is done by another."""
    found = [_named("ready", is_healthy(process))]
    child = process.process
    process.put(Job(seconds=ENDLESS_SECONDS))
    process.kill()
    ended = _ended(child, -signal.SIGKILL)
    alive = process.alive()
    return [
        *found,
        ended,
        Verdict("says so", not alive, f"alive() is {alive}"),
        is_healthy(process, child.pid),
    ]


def sees_only(make: MakeProcess, device: int | None, around: str) -> list[Verdict]:
    """The child's environment shows ``device`` alone, or what is around it if that is None; ours is as it was."""
    with mock.patch.dict(os.environ, {VISIBLE_DEVICES: around}):
        with tuning_process(make, device) as process:
            reply = ask(process, Job())
        after = os.environ[VISIBLE_DEVICES]
    expected = around if device is None else str(device)
    seen = getattr(reply, "visible", None)
    return [
        Verdict("visible", seen == expected, f"{VISIBLE_DEVICES} is {seen} in the child, {expected} required"),
        Verdict("restored", after == around, f"{VISIBLE_DEVICES} is {after} here, {around} before"),
    ]


def _raised(act: Callable[[], Any]) -> BaseException | None:
    try:
        act()
    except Exception as error:  # which one it is, is judged
        return error
    return None


def _named(name: str, verdict: Verdict) -> Verdict:
    return Verdict(name, verdict.passed, verdict.text)


def _ended(child: subprocess.Popen[bytes], code: int) -> Verdict:
    try:
        found: int | None = child.wait(PROMPT_SECONDS)
    except subprocess.TimeoutExpired:
        found = None
        child.kill()
    text = "runs on" if found is None else f"ended with {found}"
    return Verdict("child ended", found == code, f"{text}, {code} required")


# --- the pool of tuning processes -------------------------------------------------------------------------------------


def make_pool() -> Any:
    from torch._inductor.autotune_process import TuningProcessPool

    return TuningProcessPool()


@contextlib.contextmanager
def tuning_pool(devices: Sequence[int | None] | None, make: Callable[[], Any] = make_pool) -> Iterator[Any]:
    """A pool with one child for each of ``devices`` (those that Inductor finds if None), ended on exit."""
    from torch._inductor.autotune_process import TuningProcessPool

    given = mock.patch.object(TuningProcessPool, "get_device_list", staticmethod(lambda: devices))
    with given if devices is not None else contextlib.nullcontext():
        pool = make()
    try:
        yield pool
    finally:
        pool.executor.shutdown()
        for process in pool.processes:
            end(process)


LIMIT_SETTING = "max_autotune_subproc_result_timeout_seconds"


class _Limited:
    """Inductor's settings with another limit, for every thread."""

    def __init__(self, settings: Any, limit: float) -> None:
        self.settings, self.limit = settings, limit

    def __getattr__(self, name: str) -> Any:
        return self.limit if name == LIMIT_SETTING else getattr(self.settings, name)


def timings(pool: Any, *jobs: Job, limit: float = START_SECONDS) -> list[Any]:
    """What the pool says of each job, within ``limit`` seconds each. The warnings it gives are not shown."""
    from torch._inductor import autotune_process, config

    choices = [PoolChoice(job) for job in jobs]
    limited = _Limited(config, limit)  # a setting may not reach the pool's threads
    with mock.patch.object(autotune_process, "config", limited), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pool.benchmark(choices)
    return [found[choice] for choice in choices]


def limit_in_threads(pool: Any, limit: float) -> float:
    """The limit that the pool's threads see if it is set to ``limit`` where a compilation runs."""
    from torch._inductor import config

    with config.patch({LIMIT_SETTING: limit}):
        return float(pool.executor.submit(lambda: getattr(config, LIMIT_SETTING)).result())


def loses_only_that_job(pool: Any, job: Job, limit: float = START_SECONDS) -> list[Verdict]:
    """``job`` is timed as infinite, soon; before and after it each child returns the value that it was given."""
    before = timings(pool, *_one_each(pool, 2.5))
    started = time.monotonic()
    lost = timings(pool, job, limit=limit)
    took = time.monotonic() - started
    after = timings(pool, *_one_each(pool, 3.14))
    prompt = took <= min(limit, LIMIT_SECONDS) + PROMPT_SECONDS
    return [
        *_values("before", before, _one_each(pool, 2.5)),
        Verdict("infinite", lost == [float("inf")], f"{lost[0]}, inf required"),
        Verdict("prompt", prompt, f"after {took:.1f} s"),
        *_values("after", after, _one_each(pool, 3.14)),
    ]


def _one_each(pool: Any, value: float) -> list[Job]:
    """As many jobs as the pool has children, which take turns."""
    return [Job(value + index) for index in range(len(pool.processes))]


def _values(name: str, replies: Sequence[Any], jobs: Sequence[Job]) -> list[Verdict]:
    """Whether every job got its value, each from a child of its own."""
    found = [getattr(reply, "value", reply) for reply in replies]
    pids = {reply.pid for reply in replies if isinstance(reply, Reply)} - {os.getpid()}
    return [
        Verdict(f"{name}/values", found == [job.value for job in jobs], f"{found}, {[job.value for job in jobs]}"),
        Verdict(f"{name}/children", len(pids) == len(jobs), f"{len(pids)} for {len(jobs)} jobs"),
    ]


def spreads(pool: Any, devices: Sequence[int]) -> list[Verdict]:
    """As many jobs as devices: each gets its own value back, from a child of its own that sees one device."""
    jobs = [Job(3.14 / (1 + index)) for index in range(len(devices))]
    replies = timings(pool, *jobs)
    seen = sorted(str(getattr(reply, "visible", None)) for reply in replies)
    return [
        *_values("device", replies, jobs),
        Verdict("visible", seen == sorted(map(str, devices)), f"{seen}, {list(devices)} required"),
    ]


def device_lists(pool_class: Any, count: int = 4) -> list[Verdict]:
    """Which devices a pool serves if there are ``count``: none in particular, those that the environment shows, or
    all of them."""
    from torch._inductor import autotune_process, config

    interface = mock.Mock(device_count=lambda: count)
    rows: list[tuple[str, bool, str | None, list[int | None]]] = [
        ("single", False, "2,3", [None]),
        ("environment", True, "2,3", [2, 3]),
        ("all", True, None, list(range(count))),
    ]
    found = []
    for name, several, visible, expected in rows:
        with (
            mock.patch.object(autotune_process, "get_gpu_type", return_value="cuda"),
            mock.patch.object(autotune_process, "get_interface_for_device", return_value=interface),
            environment(**{VISIBLE_DEVICES: visible}),
            config.patch(autotune_multi_device=several),
        ):
            listed = list(pool_class.get_device_list())
        found.append(Verdict(f"devices/{name}", listed == expected, f"{listed}, {expected} required"))
    return found


@contextlib.contextmanager
def environment(**values: str | None) -> Iterator[None]:
    """Sets variables of the environment, or removes those that are None, until exit."""
    with mock.patch.dict(os.environ):
        for name, value in values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        yield


# --- a choice in a spawned process ------------------------------------------------------------------------------------


def spawned(target: Callable[..., None], *arguments: Any) -> tuple[int | None, Any]:
    """Runs ``target(connection, *arguments)`` in a fresh process without the interpreter's environment: its exit code,
    and the object that it sent, None without one. A process that does not end in time is killed and has no code."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    with environment(TRITON_INTERPRET=None, OMP_NUM_THREADS="1"):
        process.start()
    theirs.close()
    sent = None
    try:
        if ours.poll(START_SECONDS):
            with contextlib.suppress(EOFError):
                sent = ours.recv()
        process.join(PROMPT_SECONDS)
        return process.exitcode, sent
    finally:
        process.kill()
        process.join()
        ours.close()


def square_on_second_device(connection: Any, x: Tensor) -> None:
    """In the child: ``x @ x``, tuned and run on the second device while the first is current. Sends the product's
    device, the device that is current afterwards and the product."""
    from torch._inductor import config

    with config.patch(max_autotune_gemm=True), torch.cuda.device(0):
        found = torch.compile(_square)(x.to("cuda:1"))
        current = torch.cuda.current_device()
    connection.send((str(found.device), current, found.cpu().tolist()))


def _square(x: Tensor) -> Tensor:
    return x @ x


def benchmark_there(connection: Any, choice: Any, tensors: Sequence[Tensor], out: Tensor) -> None:
    """In the child: times ``choice`` and sends the milliseconds and what it computed."""
    torch.set_num_threads(1)
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    there = out.to(device)
    milliseconds = choice.benchmark(*(tensor.to(device) for tensor in tensors), out=there)
    connection.send((float(milliseconds), there.cpu().tolist()))


# --- the selector and its choices -------------------------------------------------------------------------------------


@functools.cache
def choice_class() -> Any:
    """A choice of Inductor's that is what it is told to be, see :func:`stand_in`."""
    from torch._inductor.ir import ChoiceCaller

    class StandIn(ChoiceCaller):
        def __init__(self, name: str, nodes: Any, layout: Any, milliseconds: float, description: str) -> None:
            super().__init__(name, nodes, layout, description)
            self.milliseconds = milliseconds
            self.prepare: Callable[[], None] = lambda: None
            self.measured = 0
            self.threads: list[threading.Thread] = []

        def benchmark(self, *tensors: Any, out: Any = None) -> float:
            self.measured += 1
            return self.milliseconds

        def precompile(self) -> None:
            self.threads.append(threading.current_thread())
            self.prepare()

        def hash_key(self) -> str:
            return self.name

        def call_name(self) -> str:
            return self.name

        def output_node(self) -> Any:
            return self

    return StandIn


@dataclass
class Selecting:
    """A selector with an empty graph around it. ``counters`` are Inductor's own, counted from zero."""

    selector: Any
    graph: Any
    counters: Mapping[str, int]
    _buffers: dict[str, Any] = field(default_factory=dict)

    def node(self, name: str, *size: int) -> Any:
        """A contiguous float32 input of the graph."""
        from torch._inductor import ir

        if name not in self._buffers:
            self._buffers[name] = ir.Buffer(name=name, layout=_layout(size))
            self.graph.name_to_buffer[name] = self._buffers[name]
        return self._buffers[name]

    def stand_in(self, name: str, milliseconds: float, description: str = "") -> Any:
        """A choice for the product of a 16 x 8 and an 8 x 16 matrix that is timed at ``milliseconds``."""
        nodes = [self.node("a", 16, 8), self.node("b", 8, 16)]
        return choice_class()(name, nodes, _layout((16, 16)), milliseconds, description)

    def select(self, choices: Sequence[Any], *, name: str = "mm", nodes: Sequence[Any] = (), **options: Any) -> Any:
        """The choice that the selector takes; raises what it raises."""
        inputs = list(nodes or [self.node("a", 16, 8), self.node("b", 8, 16)])
        found = self.selector(name, list(choices), inputs, _layout((16, 16)), **options)
        return found[0] if isinstance(found, tuple) else found  # releases differ in what comes with the node


def _layout(size: Sequence[int]) -> Any:
    from torch._inductor import ir

    return ir.FixedLayout(torch.device("cpu"), torch.float32, list(size), [size[1], 1])


def empty_graph() -> Any:
    """A graph of Inductor's in which choices can be made."""
    from torch._inductor.graph import GraphLowering

    graph = torch.fx.Graph()
    graph.output(())
    return GraphLowering(torch.fx.GraphModule({}, graph))


@contextlib.contextmanager
def selecting(**settings: Any) -> Iterator[Selecting]:
    """A selector of its own with empty caches, under ``settings`` of torch._inductor.config; all is restored."""
    from torch._inductor import config, select_algorithm
    from torch._inductor.virtualized import V

    graph = empty_graph()
    given = {"max_autotune": True, "autotune_local_cache": True, "autotune_in_subproc": False, "deterministic": False}
    known = {name: value for name, value in given.items() if hasattr(config, name)}
    with (
        config.patch(known | settings),
        fresh_caches(),
        fresh_counters() as counters,
        V.set_graph_handler(graph),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        made: Any = select_algorithm.AlgorithmSelectorCache()
        made.log_results = lambda *arguments, **options: None  # wants a compilation's debug handler
        yield Selecting(made, graph, counters)


@contextlib.contextmanager
def fresh_caches() -> Iterator[None]:
    """Inductor's caches, on disk and in memory, empty until exit."""
    from torch._inductor import utils

    make = getattr(utils, "fresh_cache", None) or utils.fresh_inductor_cache
    with tempfile.TemporaryDirectory() as folder, make(dir=folder, delete=False):
        yield


class InductorCounters(Mapping[str, int]):
    """Inductor's counters as they are when asked: its first compilation in a process puts another object in place of
    the one that holds them. One that was not counted is 0."""

    def __getitem__(self, name: str) -> int:
        from torch._dynamo.utils import counters

        return int(counters["inductor"][name])

    def __iter__(self) -> Iterator[str]:
        from torch._dynamo.utils import counters

        return iter(counters["inductor"])

    def __len__(self) -> int:
        from torch._dynamo.utils import counters

        return len(counters["inductor"])


@contextlib.contextmanager
def fresh_counters() -> Iterator[Mapping[str, int]]:
    """Inductor's counters from zero; the figures of before come back on exit."""
    from torch._dynamo.utils import counters

    before = dict(counters["inductor"])
    counters["inductor"].clear()
    try:
        yield InductorCounters()
    finally:
        counters["inductor"].clear()
        counters["inductor"].update(before)


def selector() -> Any:
    """The selector that compilations use."""
    from torch._inductor import select_algorithm

    if hasattr(select_algorithm, "get_algorithm_selector_cache"):
        return select_algorithm.get_algorithm_selector_cache()
    if select_algorithm._ALGORITHM_SELECTOR_CACHE is None:
        select_algorithm._ALGORITHM_SELECTOR_CACHE = select_algorithm.AlgorithmSelectorCache()
    return select_algorithm._ALGORITHM_SELECTOR_CACHE


@contextlib.contextmanager
def selector_restored() -> Iterator[Any]:
    """The selector that compilations use; its savers and preprocessing functions are as before on exit."""
    found = selector()
    kept = {
        name: list(getattr(found, name)) for name in ("feedback_saver_fns", "preprocessing_fns") if hasattr(found, name)
    }
    try:
        yield found
    finally:
        for name, functions in kept.items():
            setattr(found, name, functions)


# --- compilation on a device ------------------------------------------------------------------------------------------


def integers(*size: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> Tensor:
    """Whole numbers from -4 to 4: sums of a few hundred products are exact in float32, and below 2048 in fp16 too."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, size, generator=generator).to(dtype)


@contextlib.contextmanager
def compiling(**settings: Any) -> Iterator[Mapping[str, int]]:
    """Compilation in this process with max-autotune, empty caches, few configs and counters from zero."""
    from torch._inductor import config

    given: dict[str, Any] = {"max_autotune": True, "compile_threads": 1}
    if hasattr(config.test_configs, "max_mm_configs"):
        given["test_configs.max_mm_configs"] = 4
    with config.patch(given | settings), fresh_caches(), fresh_counters() as counters, fresh_dynamo():
        yield counters


@contextlib.contextmanager
def fresh_dynamo() -> Iterator[None]:
    """Nothing compiled before is reused inside, and nothing compiled inside afterwards."""
    import torch._dynamo

    torch._dynamo.reset()
    try:
        yield
    finally:
        torch._dynamo.reset()


@contextlib.contextmanager
def pools_watched() -> Iterator[list[float]]:
    """Collects what tuning pools time. The pool that compilations share is ended on exit."""
    from torch._inductor import autotune_process

    timed: list[float] = []
    original = autotune_process.TuningProcessPool.benchmark

    def benchmark(pool: Any, choices: Any) -> Any:
        found = original(pool, choices)
        timed.extend(found.values())
        return found

    autotune_process.get_tuning_process_pool.cache_clear()
    with mock.patch.object(autotune_process.TuningProcessPool, "benchmark", benchmark):
        try:
            yield timed
        finally:
            if autotune_process.get_tuning_process_pool.cache_info().currsize:
                autotune_process.get_tuning_process_pool().shutdown()
            autotune_process.get_tuning_process_pool.cache_clear()


# --- the cache of generated templates ---------------------------------------------------------------------------------


def two_products(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    return a @ b, c @ d


def product_and_twice(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A product, and one of twice the rows."""
    return a @ b, torch.cat((a, a)) @ b


def ten_products(*operands: Tensor) -> list[Tensor]:
    """The product of each of ten pairs."""
    return [a @ b for a, b in zip(operands[::2], operands[1::2], strict=True)]


def two_sums_of_products(*operands: Tensor) -> list[Tensor]:
    """a @ b + c @ d of each of two fours."""
    return [a @ b + c @ d for a, b, c, d in zip(*[iter(operands)] * 4, strict=True)]


@dataclass(frozen=True)
class Counted:
    """What one compilation counted: choices of the first lowering that are Triton templates, hits and misses of the
    cache of generated templates, and the text of what stopped it."""

    templates: int
    hits: int
    misses: int
    failure: str = ""


@contextlib.contextmanager
def cache_tested(constant_key: bool) -> Iterator[None]:
    """Inductor compares every template that its cache has with one that is generated again. With ``constant_key`` the
    cache takes every call for the same."""
    from torch._inductor.select_algorithm import GeneratedCodeCache, TritonTemplate

    key = mock.patch.object(GeneratedCodeCache, "make_key", return_value="the same for all")
    with mock.patch.object(TritonTemplate, "test_cache", True), key if constant_key else contextlib.nullcontext():
        yield


def count_generated(given: tuple[Program, bool | None], target: Target) -> Counted:
    """In a compile process: what generating a program's code counts. The second of ``given`` says whether the cache
    tests itself, and if so whether its key is wrong; None leaves it alone."""
    from .generate import generate

    program, constant_key = given
    with cache_tested(constant_key) if constant_key is not None else contextlib.nullcontext():
        generated = generate(program, target)
    offered = generated.selections[0].offered if generated.selections else ()
    failure = generated.failure.message if generated.failure else ""
    return _counted(sum(choice.kind == "triton" for choice in offered), generated.counters, failure)


def count_compiled(program: Program, constant_key: bool | None) -> Counted:
    """On a device: what compiling a program and calling it counts."""
    from torch._inductor.ir import TritonTemplateCallerBase

    offered: list[int] = []

    def watch(choices: list[Any]) -> list[Any]:
        offered.append(sum(isinstance(choice, TritonTemplateCallerBase) for choice in choices))
        return choices

    failure = ""
    with contextlib.ExitStack() as stack:
        if constant_key is not None:
            stack.enter_context(cache_tested(constant_key))
        # padding is decided by timing, and what is padded has a layout that the cache does not take
        counters = stack.enter_context(compiling(**{"shape_padding": False, **dict(program.settings)}))
        torch._dynamo.reset()
        stack.enter_context(selector_restored()).add_preprocessing_fn(watch)
        try:
            torch.compile(named(program.graph), dynamic=program.dynamic)(*map(_on_device, program.operands))
        except Exception as error:  # what stopped it is judged
            failure = str(error)
        return _counted(offered[0] if offered else 0, counters, failure)


def _on_device(operand: Operand) -> Tensor:
    storage = torch.zeros(operand.span, dtype=DTYPES[operand.dtype], device=torch.accelerator.current_accelerator())
    return storage.as_strided(operand.shape, operand.strides)


def _counted(templates: int, counters: Mapping[str, int], failure: str) -> Counted:
    hits, misses = (counters.get(f"generated_module_cache_{name}", 0) for name in ("hit", "miss"))
    return Counted(templates, hits, misses, failure)
