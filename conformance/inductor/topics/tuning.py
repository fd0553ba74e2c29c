"""Checks of tuning processes and of pipelined autotuning: what a job that fails costs, who sees which device, and how
the selector chooses between stand-ins."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch

from conformance.inductor.compile.program import Generated
from conformance.inductor.replay.pinned_programs import config_of, described_config
from conformance.inductor.tuning import child_process, max_autotune, stand_ins
from conformance.inductor.tuning.child_process import START_SECONDS, environment
from conformance.inductor.tuning.prescreened_choices import Pipelined, pipelined
from conformance.inductor.tuning.tuning_processes import (
    VISIBLE_DEVICES,
    Job,
    MakeProcess,
    Reply,
    ask,
    timings,
    tuning_pool,
    tuning_process,
)
from conformance.records import Verdict

#: Seconds of the limit that a job is to exceed, and of the job that exceeds it.
LIMIT_SECONDS, ENDLESS_SECONDS = 1.0, 120.0
#: Seconds after its limit within which a job must have been given up, and a child that was killed be gone.
PROMPT_SECONDS = 15.0

EXIT_CODE = 7


def is_healthy(process: Any, not_pid: int | None = None, check: str = "healthy") -> Verdict:
    """Returns True if a random number makes the round trip through the child that ``process`` says it has, which is
    neither this process nor ``not_pid``."""
    sent = random.random()
    try:
        reply = ask(process, Job(sent))
    except Exception as error:  # whatever it is, the process is not healthy
        return Verdict(check, False, f"{type(error).__name__}: {error}")
    right = isinstance(reply, Reply) and reply.value == sent and reply.pid == process.process.pid
    elsewhere = right and reply.pid not in (os.getpid(), not_pid)
    return Verdict(check, right and elsewhere, f"sent {sent}, got {reply}, child {process.process.pid}")


def times_out(process: Any) -> list[Verdict]:
    """A job beyond its limit: TimeoutError soon after the limit, the child killed, the next job done by another.

    The child is at work before the limit counts: a start that takes longer than the limit would look the same."""
    ready = is_healthy(process, check="ready")
    child = process.process
    started = time.monotonic()
    raised = _raised(lambda: ask(process, Job(seconds=ENDLESS_SECONDS), LIMIT_SECONDS))
    took = time.monotonic() - started
    prompt = LIMIT_SECONDS * 0.9 <= took <= LIMIT_SECONDS + PROMPT_SECONDS
    return [
        ready,
        Verdict("raised", isinstance(raised, TimeoutError), f"{raised!r}, TimeoutError required"),
        Verdict("prompt", prompt, f"after {took:.1f} s, limit {LIMIT_SECONDS:g} s"),
        _ended(child, -signal.SIGKILL),
        is_healthy(process, child.pid),
    ]


def raises_here(process: Any) -> list[Verdict]:
    """An exception in the child is raised here with its type and text, and the child goes on."""
    ready = is_healthy(process, check="ready")
    pid = process.process.pid
    raised = _raised(lambda: ask(process, Job(error="the fault of job 3")))
    same = type(raised) is RuntimeError and str(raised) == "the fault of job 3"
    healthy = is_healthy(process)
    return [
        ready,
        Verdict("raised", same, f"{raised!r}, RuntimeError('the fault of job 3') required"),
        Verdict("same child", process.process.pid == pid, f"child {process.process.pid}, {pid} before"),
        healthy,
    ]


def crashes(process: Any) -> list[Verdict]:
    """A child that ends itself is noticed at once: EOFError, and the next job is done by another."""
    ready = is_healthy(process, check="ready")
    child = process.process
    raised = _raised(lambda: ask(process, Job(exit_code=EXIT_CODE)))
    return [
        ready,
        Verdict("raised", isinstance(raised, EOFError), f"{raised!r}, EOFError required"),
        _ended(child, EXIT_CODE),
        is_healthy(process, child.pid),
    ]


def is_killed(process: Any) -> list[Verdict]:
    """``kill`` ends a child that is at work; the process says so, and the next job is done by another."""
    ready = is_healthy(process, check="ready")
    child = process.process
    process.put(Job(seconds=ENDLESS_SECONDS))
    process.kill()
    ended = _ended(child, -signal.SIGKILL)
    alive = process.alive()
    return [ready, ended, Verdict("says so", not alive, f"alive() is {alive}"), is_healthy(process, child.pid)]


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


def _ended(child: subprocess.Popen[bytes], code: int) -> Verdict:
    try:
        exit_code: int | None = child.wait(PROMPT_SECONDS)
    except subprocess.TimeoutExpired:
        exit_code = None
        child.kill()
    text = "runs on" if exit_code is None else f"ended with {exit_code}"
    return Verdict("child ended", exit_code == code, f"{text}, {code} required")


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
    """Checks that every job got its value, each from its own child."""
    values = [getattr(reply, "value", reply) for reply in replies]
    pids = {reply.pid for reply in replies if isinstance(reply, Reply)} - {os.getpid()}
    return [
        Verdict(f"{name}/values", values == [job.value for job in jobs], f"{values}, {[job.value for job in jobs]}"),
        Verdict(f"{name}/children", len(pids) == len(jobs), f"{len(pids)} for {len(jobs)} jobs"),
    ]


def spreads(pool: Any, devices: Sequence[int]) -> list[Verdict]:
    """Runs as many jobs as there are devices: each gets its own value back, from its own child, which sees one
    device."""
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
    """Checks which devices a pool serves if there are ``count``: none in particular, those that the environment shows,
    or all of them."""
    from torch._inductor import autotune_process, config

    interface = mock.Mock(device_count=lambda: count)
    rows: list[tuple[str, bool, str | None, list[int | None]]] = [
        ("single", False, "2,3", [None]),
        ("environment", True, "2,3", [2, 3]),
        ("all", True, None, list(range(count))),
    ]
    verdicts = []
    for name, several, visible, expected in rows:
        with (
            mock.patch.object(autotune_process, "get_gpu_type", return_value="cuda"),
            mock.patch.object(autotune_process, "get_interface_for_device", return_value=interface),
            environment(**{VISIBLE_DEVICES: visible}),
            config.patch(autotune_multi_device=several),
        ):
            listed = list(pool_class.get_device_list())
        verdicts.append(Verdict(f"devices/{name}", listed == expected, f"{listed}, {expected} required"))
    return verdicts


# --- choices in a spawned process -------------------------------------------------------------------------------------

#: Runs a function in a fresh process: its exit code and what it sent, see ``child_process.spawned``.
Spawn = Callable[..., tuple[int | None, Any]]


class FailingChoice:
    """A choice whose benchmark raises."""

    def benchmark(self, *tensors: Any, out: Any) -> float:
        raise RuntimeError("this choice cannot be timed")


def check_spawned_choice(spawn: Spawn) -> list[Verdict]:
    """The choice is timed in the child, and its numbers come back."""
    tensors = [max_autotune.integers(*size, dtype=torch.float32, seed=seed) for seed, size in enumerate(_SIZES)]
    a, b, c, d = (tensor.long() for tensor in tensors)
    expected = (a @ b + c @ d).tolist()
    code, sent = spawn(child_process.benchmark_there, _extern_choice(), tensors, torch.full((2, 2), float("nan")))
    milliseconds, numbers = sent or (None, None)
    timed = milliseconds is not None and 0 < milliseconds < float("inf")
    return [
        Verdict("exit code", code == 0, f"{code}, 0 required"),
        Verdict("timed", timed, f"{milliseconds} ms"),
        Verdict("numbers", numbers == expected, f"{numbers}, {expected} required"),
    ]


def check_spawned_failure(spawn: Spawn) -> list[Verdict]:
    """A choice that raises ends its process with an error's code and sends nothing."""
    tensors = [max_autotune.integers(*size, dtype=torch.float32) for size in _SIZES]
    code, sent = spawn(child_process.benchmark_there, FailingChoice(), tensors, torch.zeros(2, 2))
    return [
        Verdict("exit code", code not in (0, None) and code > 0, f"{code}, an error's code required"),
        Verdict("nothing sent", sent is None, f"{sent}"),
    ]


#: Sizes of the four operands of mm_plus_mm.
_SIZES = [(2, 3), (3, 2), (2, 3), (3, 2)]


def _extern_choice() -> Any:
    """Inductor's choice that computes a @ b + c @ d by torch."""
    from torch._inductor import ir
    from torch._inductor.kernel.mm_plus_mm import aten_mm_plus_mm
    from torch._inductor.virtualized import V

    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    layouts = [ir.FixedLayout(device, torch.float32, list(size), [size[1], 1]) for size in [*_SIZES, (2, 2)]]
    graph = stand_ins.empty_graph()
    with V.set_graph_handler(graph):
        nodes = [ir.Buffer(name=name, layout=layout) for name, layout in zip("abcd", layouts, strict=False)]
        return aten_mm_plus_mm.bind(nodes, layouts[-1])


def _answers(run: Pipelined, selected: Any) -> tuple[dict[str, float], str]:
    """The time of each choice and the name of the fastest, or what the selector raises in the place of a name."""
    run.pool.gate.set()
    try:
        timings = {choice.name: time for choice, time in selected.choice_timings().items()}
    except Exception as error:  # whatever the selector raises is the result
        return {}, f"raises {type(error).__name__}: {error}"
    return timings, min(timings, key=timings.__getitem__)


def check_pipelined() -> list[Verdict]:
    """The selector does not wait for what times; each choice is timed once, the library's is submitted first, and the
    fastest wins."""
    with pipelined() as run:
        choices = [run.triton("slow", 3.0), run.extern("library", 2.0), run.triton("fast", 1.0)]
        selected = run.select(choices)
        early = [request.name for request in run.pool.submitted]
        timings, fastest = _answers(run, selected)
        submitted = [request.name for request in run.pool.submitted]
    times = {"slow": 3.0, "library": 2.0, "fast": 1.0}
    return [
        Verdict("library first", early[:1] == ["library"], f"submitted while it selects: {early}"),
        Verdict("once", sorted(submitted) == sorted(times), f"{submitted}"),
        Verdict("times", timings == times, f"{timings}, {times} required"),
        Verdict("chosen", fastest == "fast", fastest),
    ]


def check_failing_benchmark() -> list[Verdict]:
    """A choice whose benchmark raises is infinitely slow, and the others keep their times."""
    with pipelined() as run:
        choices = [run.triton("raises", RuntimeError("planted")), run.triton("slow", 3.0), run.extern("library", 2.0)]
        timings, fastest = _answers(run, run.select(choices))
    return [
        Verdict("infinite", timings.get("raises") == math.inf, f"{timings}"),
        Verdict("chosen", fastest == "library", fastest),
    ]


def check_failing_compilation(*, all_of_them: bool) -> list[Verdict]:
    """A choice that does not compile is left out, or, if none of Triton's does, all of them: the library's wins."""
    with pipelined() as run:
        choices = [
            run.triton("broken", 1.0, compiles=False),
            run.triton("slow", 3.0, compiles=not all_of_them),
            run.extern("library", 4.0),
        ]
        timings, fastest = _answers(run, run.select(choices))
        submitted = [request.name for request in run.pool.submitted]
    required = "library" if all_of_them else "slow"
    return [
        Verdict("not timed", "broken" not in submitted and "broken" not in timings, f"{submitted}"),
        Verdict("chosen", fastest == required, f"{fastest}; {required} required"),
    ]


def check_product(usual: Generated, pipelined: Generated) -> list[Verdict]:
    """Checks ``Decision.SELECTION_IS_PIPELINED``: the usual choices are offered, and each is timed once. The last is
    the fastest, and it is generated."""
    offered = [[choice.description for choice in one.left] for one in (usual, pipelined)]
    kernels = [kernel for kernel in pipelined.kernels if kernel.kind == "template"]
    config = config_of(kernels[0].source) if len(kernels) == 1 else None
    last = pipelined.notes[-1] if pipelined.notes else None
    required = next((described_config(choice) for choice in pipelined.left if choice.name == last), None)
    names = sorted(choice.name for choice in pipelined.left)
    return [
        Verdict("offered", offered[0] == offered[1] and len(offered[0]) > 1, f"{len(offered[0])}, {len(offered[1])}"),
        Verdict("timed", sorted(pipelined.notes) == names, f"{len(pipelined.notes)} requests, {len(names)} choices"),
        Verdict("chosen", config is not None and config == required, f"{config}, {required} required"),
    ]
