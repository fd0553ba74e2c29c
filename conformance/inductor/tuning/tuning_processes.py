"""Inductor's tuning processes, one by one and in a pool, as a system under test. Nothing here needs a device.

Inductor itself is imported when it is needed, because its import takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from conformance.inductor.tuning.child_process import START_SECONDS, environment
from conformance.inductor.tuning.tuning_jobs import VISIBLE_DEVICES, Job, PoolChoice, Reply
from conformance.records import Verdict

#: Seconds of the limit that a job is to exceed, and of the job that exceeds it.
LIMIT_SECONDS, ENDLESS_SECONDS = 1.0, 120.0
#: Seconds after its limit within which a job must have been given up, and a child that was killed be gone.
PROMPT_SECONDS = 15.0

EXIT_CODE = 7


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


def spread_over_visible(connection: Any, devices: Sequence[int]) -> None:
    """In a child that sees ``devices``: the verdicts on a pool that shares out those that it finds."""
    from torch._inductor import config

    with config.patch(autotune_multi_device=True), tuning_pool(None) as pool:
        connection.send(spreads(pool, devices))


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
