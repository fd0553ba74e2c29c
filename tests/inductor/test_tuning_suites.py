"""Each check of the suites about Inductor's tuning, feedback and caches fails where a fault is planted."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch._inductor import autotune_process, config, select_algorithm
from torch._inductor.autotune_process import TuningProcess, TuningProcessPool
from torch._inductor.runtime.autotune_cache import AutotuneCache
from torch._inductor.select_algorithm import AlgorithmSelectorCache as Selector
from torch._inductor.select_algorithm import GeneratedCodeCache, TritonTemplate

from conformance.inductor.compile import deviceless_worker, observation, provider
from conformance.inductor.compile.program import Generated, Program, dense, program_of
from conformance.inductor.compile.provider import CompiledProgram
from conformance.inductor.topics import caches, feedback, tuning
from conformance.inductor.topics.caches import Counted, key_is_constant
from conformance.inductor.tuning import child_process, max_autotune, stand_ins, tuning_processes
from conformance.inductor.tuning.tuning_processes import Job, Reply
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.inductor_judge import Inductor
from conformance.records import CompileFailure
from conformance.targets import Target
from tests.execution.sample_kernels import pool
from tests.inductor.planted_code import failed
from tests.inductor.sample_programs import SM90, task

# --- tuning processes: faults of a stand-in that starts in no time ----------------------------------------------------


class Light:
    """A tuning process whose child is a bare Python, with what the suite uses of Inductor's. Subclasses have faults."""

    def __init__(self, device: int | None = None) -> None:
        self.device = device
        self.start()

    def start(self) -> None:
        visible = {} if self.device is None else {tuning_processes.VISIBLE_DEVICES: str(self.device)}
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", "import sys; sys.exit(int(sys.stdin.readline() or 0))"],
            stdin=subprocess.PIPE,
            env=os.environ | visible,
        )
        self.visible = visible.get(tuning_processes.VISIBLE_DEVICES, os.environ.get(tuning_processes.VISIBLE_DEVICES))

    def put(self, job: Job) -> None:
        if self.process.poll() is not None:
            self.start()
        self.job = job

    def get(self, seconds: float) -> Any:
        job = self.job
        if job.seconds > seconds:
            self.wait(seconds)
            self.kill()
            raise TimeoutError("the limit")
        if job.error is not None:
            raise RuntimeError(job.error)
        if job.exit_code is not None:
            assert self.process.stdin is not None
            self.process.stdin.write(f"{job.exit_code}\n".encode())
            self.process.stdin.close()
            self.process.wait()
            raise EOFError
        return Reply(job.value, self.process.pid, self.visible)

    def wait(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()


CHECKS = (tuning.raises_here, tuning.times_out, tuning.crashes, tuning.is_killed)


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "PROMPT_SECONDS", 1.0)
    monkeypatch.setattr(tuning, "LIMIT_SECONDS", 0.2)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_fault(check: Any) -> None:
    with tuning_processes.tuning_process(Light) as process:
        assert failed(check(process)) == []


class KillsNothing(Light):
    kill = staticmethod(lambda: None)


class SaysItLives(Light):
    alive = staticmethod(lambda: True)


class LimitIgnored(Light):
    def wait(self, seconds: float) -> None:
        super().wait(seconds + 2)


class LimitAtOnce(Light):
    wait = staticmethod(lambda seconds: None)


class ErrorReturned(Light):
    def get(self, seconds: float) -> Any:
        try:
            return super().get(seconds)
        except Exception as error:
            return error


class OtherError(Light):
    def get(self, seconds: float) -> Any:
        try:
            return super().get(seconds)
        except Exception as error:
            raise ValueError("something went wrong") from error


class DiesOfErrors(Light):
    def get(self, seconds: float) -> Any:
        try:
            return super().get(seconds)
        except RuntimeError:
            self.kill()
            self.start()
            raise


class NeverRestarts(Light):
    def put(self, job: Job) -> None:
        self.job = job

    def get(self, seconds: float) -> Any:
        if self.process.poll() is not None:
            raise BrokenPipeError
        return super().get(seconds)


class StaleReply(Light):
    last = 0.0

    def get(self, seconds: float) -> Any:
        reply = super().get(seconds)
        reply, self.last = dataclasses.replace(reply, value=self.last), reply.value
        return reply


FAULTS = [
    (KillsNothing, tuning.times_out, "child ended"),
    (KillsNothing, tuning.is_killed, "child ended"),
    (SaysItLives, tuning.is_killed, "says so"),
    (LimitIgnored, tuning.times_out, "prompt"),
    (LimitAtOnce, tuning.times_out, "prompt"),
    (ErrorReturned, tuning.raises_here, "raised"),
    (ErrorReturned, tuning.times_out, "raised"),
    (ErrorReturned, tuning.crashes, "raised"),
    (OtherError, tuning.raises_here, "raised"),
    (OtherError, tuning.crashes, "raised"),
    (DiesOfErrors, tuning.raises_here, "same child"),
    (NeverRestarts, tuning.times_out, "healthy"),
    (NeverRestarts, tuning.crashes, "healthy"),
    (NeverRestarts, tuning.is_killed, "healthy"),
    (StaleReply, tuning.raises_here, "ready"),
]


@pytest.mark.parametrize(
    ("process_class", "check", "expected"), FAULTS, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_process_fault(process_class: Any, check: Any, expected: str) -> None:
    with tuning_processes.tuning_process(process_class) as process:
        assert expected in failed(check(process))


def test_child_that_never_was_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with tuning_processes.tuning_process(Light) as process:
        monkeypatch.setattr(process, "get", lambda seconds: Reply(process.job.value, os.getpid(), None))
        assert not tuning.is_healthy(process).passed


class DeviceIgnored(Light):
    def start(self) -> None:
        super().start()
        self.visible = os.environ.get(tuning_processes.VISIBLE_DEVICES)


class DeviceLeaks(Light):
    def start(self) -> None:
        super().start()
        os.environ[tuning_processes.VISIBLE_DEVICES] = str(self.device)


def test_inductors_process_whose_kill_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TuningProcess, "kill", TuningProcess.close)
    with tuning_processes.tuning_process(child_process.make_forked) as process:
        assert failed(tuning.is_killed(process)) == ["child ended"]


def test_forked_child_is_what_inductor_would_start() -> None:
    with tuning_processes.tuning_process(child_process.make_forked, 3) as process:
        assert failed(tuning.crashes(process)) == []
        reply = tuning_processes.ask(process, Job(2.5))
        assert (reply.value, reply.visible) == (2.5, "3")
        command = Path(f"/proc/{process.process.pid}/cmdline").read_text()
        assert "fork_server" in command, command
    assert process.process.poll() == -signal.SIGKILL


def test_pool_that_compilations_share_is_theirs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[object] = []

    class Shared:
        def shutdown(self) -> None:
            ended.append(self)

    monkeypatch.setattr(autotune_process, "get_tuning_process_pool", functools.cache(Shared))
    older = autotune_process.get_tuning_process_pool()
    with max_autotune.shared_pool():
        assert ended == [older]
        shared = autotune_process.get_tuning_process_pool()
        assert shared is autotune_process.get_tuning_process_pool()
    assert ended == [older, shared]
    assert autotune_process.get_tuning_process_pool.cache_info().currsize == 0


# --- the pool ---------------------------------------------------------------------------------------------------------


class Pool:
    """A pool with what the suite uses of Inductor's: its children answer by the devices that they are given."""

    def __init__(self, devices: list[int], **faults: Any) -> None:
        self.processes = [SimpleNamespace(device=device, pid=1000 + device) for device in devices]
        self.faults = faults

    def benchmark(self, choices: list[Any]) -> dict[Any, Any]:
        return {choice: self.answer(choice.bmreq, index) for index, choice in enumerate(choices)}

    def answer(self, job: Job, index: int) -> Any:
        limit = autotune_process.config.max_autotune_subproc_result_timeout_seconds
        if job.error is not None or job.exit_code is not None or job.seconds > limit:
            threading.Event().wait(self.faults.get("wait", 0))
            return self.faults.get("lost", float("inf"))
        child = self.processes[0 if "one_child" in self.faults else index % len(self.processes)]
        return Reply(self.faults.get("value", job.value), child.pid, self.faults.get("visible", str(child.device)))


def loses(**faults: Any) -> Any:
    """The check that a pool with ``faults`` loses only the job that exceeds its limit."""
    return lambda: tuning.loses_only_that_job(Pool([0, 1], **faults), Job(seconds=9.0), limit=0.2)


def lists(listed: Callable[[], list[int | None]]) -> Any:
    """The check of a pool that serves the devices ``listed``."""
    return lambda: tuning.device_lists(SimpleNamespace(get_device_list=listed))


# --- answers that are wrong ------------------------------------------------------------------------------------------

RIGHT_KEY, WRONG_KEY = Counted(4, 4, 4), Counted(4, 4, 4, f"AssertionError: {caches.WRONG_OUTPUT}")


def spawned(check: Any, exit_code: int | None, sent: Any) -> Any:
    """``check`` of a choice in a spawned process that ends with ``exit_code`` and sends ``sent``."""
    return functools.partial(check, lambda *arguments: (exit_code, sent))


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (lambda: tuning.sees_only(Light, 3, "5"), []),
        (lambda: tuning.sees_only(DeviceIgnored, 3, "5"), ["visible"]),
        (lambda: tuning.sees_only(DeviceLeaks, 3, "5"), ["restored"]),
        (loses(), []),
        (loses(lost=0.0), ["infinite"]),
        (loses(wait=2), ["prompt"]),
        (loses(value=1.0), ["before/values", "after/values"]),
        (loses(one_child=True), ["before/children", "after/children"]),
        (lambda: tuning.spreads(Pool([0, 1]), [0, 1]), []),
        (lambda: tuning.spreads(Pool([0, 1], visible="0"), [0, 1]), ["visible"]),
        (lambda: tuning.spreads(Pool([0, 1], one_child=True), [0, 1]), ["device/children", "visible"]),
        (lists(TuningProcessPool.get_device_list), []),
        (lists(lambda: [None]), ["devices/environment", "devices/all"]),
        (lists(lambda: [0, 1, 2, 3]), ["devices/single", "devices/environment"]),
        (spawned(tuning.check_spawned_choice, 1, None), ["exit code", "timed", "numbers"]),
        (spawned(tuning.check_spawned_choice, 0, (float("inf"), None)), ["timed", "numbers"]),
        (spawned(tuning.check_spawned_choice, None, (0.1, [[0.0, 0.0], [0.0, 0.0]])), ["exit code", "numbers"]),
        (spawned(tuning.check_spawned_failure, 1, None), []),
        (spawned(tuning.check_spawned_failure, 0, None), ["exit code"]),
        (spawned(tuning.check_spawned_failure, -9, None), ["exit code"]),
        (spawned(tuning.check_spawned_failure, 1, (0.1, [])), ["nothing sent"]),
        (lambda: feedback.check_rule(False, (3, 11, 8)), []),
        (lambda: feedback.check_rule(True, (3, 11, 8)), ["rule"]),
        (lambda: feedback.check_rule(True, (3, 11, 9)), []),
        (lambda: feedback.check_rule(False, (3, 12, 0)), ["rule"]),
        (lambda: caches.check_repeated(Counted(4, 36, 4), 9), []),
        (lambda: caches.check_repeated(Counted(4, 32, 8), 9), ["misses", "hits"]),
        (lambda: caches.check_repeated(Counted(4, 0, 0), 9), ["misses", "hits"]),
        (lambda: caches.check_repeated(Counted(0, 0, 0), 9), ["templates"]),
        (lambda: caches.check_repeated(Counted(4, 36, 4, "stopped"), 9), ["compiled"]),
        (lambda: caches.check_different(Counted(4, 0, 8)), []),
        (lambda: caches.check_different(Counted(4, 4, 4)), ["hits", "misses"]),
        (lambda: caches.check_different(Counted(4, 0, 0)), ["misses"]),
        (lambda: caches.check_wrong_key(RIGHT_KEY, WRONG_KEY), []),
        (lambda: caches.check_wrong_key(WRONG_KEY, WRONG_KEY), ["right key"]),
        (lambda: caches.check_wrong_key(RIGHT_KEY, RIGHT_KEY), ["wrong key"]),
    ],
)
def test_wrong_answer(check: Any, expected: list[str]) -> None:
    assert failed(check()) == expected


# --- faults of Inductor's own classes ---------------------------------------------------------------------------------


@pytest.fixture
def _ahead() -> Iterator[None]:
    with feedback.on_any_python():
        yield


@pytest.mark.usefixtures("_ahead")
@pytest.mark.parametrize(
    "check",
    [
        feedback.check_threads,
        feedback.check_failure,
        feedback.check_timeout,
        feedback.check_no_exceptions,
        feedback.check_cached,
        caches.check_remote_configs,
    ],
    ids=lambda check: check.__name__,
)
def test_inductor_has_no_fault(check: Any) -> None:
    assert failed(check()) == []


def _compile_here(self: Any, choices: Any, *arguments: Any, **options: Any) -> Any:
    def compile_all() -> dict[Any, float]:
        for choice in choices:
            with contextlib.suppress(threading.BrokenBarrierError):
                choice.precompile()
        return {}

    return compile_all


ADD_SAVER, ADD_FUNCTION = Selector.add_feedback_saver, Selector.add_preprocessing_fn
SAVE = AutotuneCache.save

#: name of a fault -> the class or module that has it, its attribute, and what stands in the attribute's place
REPLACED: dict[str, tuple[Any, str, Any]] = {
    "no saver added": (Selector, "add_feedback_saver", lambda self, saver: None),
    "no saver cleared": (Selector, "clear_feedback_savers", lambda self: None),
    "slowest taken": (select_algorithm, "min", max),
    "wrong order": (Selector, "add_preprocessing_fn", lambda self, added: self.preprocessing_fns.insert(0, added)),
    "no effect": (
        Selector,
        "add_preprocessing_fn",
        lambda self, function: ADD_FUNCTION(self, lambda choices: (function(choices), choices)[1]),
    ),
    "nothing cleared": (Selector, "clear_preprocessing_fns", lambda self, **_: None),
    "everything cleared": (Selector, "clear_preprocessing_fns", lambda self, **_: self.preprocessing_fns.clear()),
    "nothing ahead": (Selector, "make_precompile_fn", lambda self, *arguments, **options: dict),
    "on this thread": (Selector, "make_precompile_fn", _compile_here),
    "forgets": (Selector, "get_local_cache", lambda self: {}),
    "confuses": (select_algorithm, "create_inputs_key", lambda nodes: "the same for all"),
    "one key": (AutotuneCache, "_prepare_key", staticmethod(lambda filename: "the same for all")),
    "nothing saved": (AutotuneCache, "save", lambda self, *arguments, **options: None),
    "another saved": (
        AutotuneCache,
        "save",
        lambda self, config, time: SAVE(self, type(config)({"XBLOCK": 64}, num_warps=2), time),
    ),
}
FILTERS = ("autotune_choice_name_regex", "autotune_choice_desc_regex")


@pytest.mark.usefixtures("_ahead")
@pytest.mark.parametrize(
    ("fault", "check", "expected"),
    [
        ("no saver added", feedback.check_registration, ["counts"]),
        ("no saver added", feedback.check_savers, ["calls/0", "calls/1"]),
        ("no saver cleared", feedback.check_registration, ["counts"]),
        ("slowest taken", feedback.check_savers, ["fastest"]),
        ("wrong order", feedback.check_order, ["order"]),
        ("no effect", feedback.check_order, ["order", "taken", "dropped"]),
        ("no effect", feedback.check_filters, [f"{name}{part}" for name in FILTERS for part in ("", "/measured")]),
        ("nothing cleared", feedback.check_clearing, ["kept", "none", "restored"]),
        ("everything cleared", feedback.check_clearing, ["kept", "restored"]),
        ("nothing ahead", feedback.check_threads, ["each once", "at once", "counted"]),
        ("nothing ahead", feedback.check_failure, ["counted", "left out", "marked", "taken"]),
        ("nothing ahead", feedback.check_timeout, ["left out", "marked", "taken"]),
        ("nothing ahead", feedback.check_cached, ["compiled once"]),
        ("on this thread", feedback.check_threads, ["elsewhere", "at once", "counted"]),
        ("forgets", feedback.check_cached, ["not again"]),
        ("forgets", caches.check_times_are_kept, ["again", "as at first"]),
        ("confuses", caches.check_times_are_kept, ["other input"]),
        ("one key", caches.check_remote_configs, ["statistics", "known"]),
        ("nothing saved", caches.check_remote_configs, ["statistics", "known"]),
        ("another saved", caches.check_remote_configs, ["config"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_fault_of_inductor(monkeypatch: pytest.MonkeyPatch, fault: str, check: Any, expected: list[str]) -> None:
    monkeypatch.setattr(*REPLACED[fault], raising=False)
    monkeypatch.setattr(feedback, "MEET_SECONDS", 0.05)
    assert failed(check()) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda told: (dict.fromkeys(told[0], 1.0), *told[1:]), "timings"),
        (lambda told: (dict(list(told[0].items())[:1]), *told[1:]), "timings"),
        (lambda told: (told[0], "bmm", *told[2:]), "name"),
        (lambda told: (*told[:2], told[2][:1], *told[3:]), "inputs"),
        (lambda told: (*told[:3], told[3][:1], *told[4:]), "choices"),
    ],
)
def test_saver_that_is_told_something_else(monkeypatch: pytest.MonkeyPatch, change: Any, expected: str) -> None:
    def add_saver(self: Any, saver: Any) -> None:
        ADD_SAVER(self, lambda *told: saver(*change(told)))

    monkeypatch.setattr(Selector, "add_feedback_saver", add_saver)
    assert failed(feedback.check_savers()) == [f"{expected}/0", f"{expected}/1"]


@pytest.mark.usefixtures("_ahead")
def test_exceptions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(choice: Any) -> None:
        raise RuntimeError("this choice does not compile")

    monkeypatch.setattr(stand_ins.choice_class(), "precompile", fail)
    with pytest.raises(select_algorithm.NoValidChoicesError):
        feedback.check_no_exceptions()


# --- the key of a generated template ----------------------------------------------------------------------------------


def key_maker(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Any]:
    """The cache's function for keys, with a ``change`` of its arguments."""
    right = GeneratedCodeCache().make_key

    @functools.wraps(right)
    def key(**arguments: Any) -> Any:
        return right(**change(arguments))

    return key


@pytest.mark.parametrize("name", ["input_nodes", "layout", "kwargs", "num_warps", "call_sizes", "epilogue_fn_hash"])
def test_key_that_ignores_an_argument(name: str) -> None:
    def ignore(arguments: dict[str, Any]) -> dict[str, Any]:
        if name == "epilogue_fn_hash" and arguments[name] is None:
            return arguments
        return arguments | {name: caches.KEY_VALUES[name][0]}

    assert failed(caches.check_key(key_maker(ignore), TritonTemplate.generate_and_load)) == [f"distinct/{name}"]


def generating(self: Any, input_nodes: Any, something_else: Any) -> None:
    """Takes an argument that the key does not."""


@pytest.mark.parametrize(
    ("change", "generate", "expected"),
    [
        ({}, TritonTemplate.generate_and_load, []),
        ({}, generating, ["complete"]),
        ({"workspace_arg": None}, TritonTemplate.generate_and_load, ["not kept/workspace_arg"]),
    ],
)
def test_key_fault(change: dict[str, Any], generate: Any, expected: list[str]) -> None:
    assert failed(caches.check_key(key_maker(lambda arguments: arguments | change), generate)) == expected


def options() -> tuple[Any, ...]:
    """Texts that a template may hold."""
    from torch._inductor import config

    return config.max_autotune, config.triton.store_cubin


def test_options_outside_the_key() -> None:
    usual = GeneratedCodeCache().make_key
    with_options = functools.wraps(usual)(lambda **arguments: f"{usual(**arguments)} {options()}")
    assert failed(caches.check_options(with_options, options)) == []
    expected = [f"distinct/{option}" for option in caches.OPTIONS_IN_THE_TEXT]
    assert failed(caches.check_options(functools.wraps(usual)(lambda **arguments: "one"), options)) == expected
    assert failed(caches.check_options(usual, lambda: "the same text")) == []


def generate_confused(program: Program, target: Target) -> Generated:
    """In a compile process: what is generated with a cache that takes every template for the same."""
    with key_is_constant():
        return deviceless_worker.generate(program, target)


@pytest.mark.parametrize("function", ["generate", "generate_confused"])
def test_any_suite_notices_a_template_that_is_taken_for_another(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """The cache tests itself in a suite that is not about it: here one that writes several configs of a template."""
    suite = importlib.import_module("conformance.suites.test_inductor_choices")
    harness: Any = SimpleNamespace(together=contextlib.nullcontext, pool=pool())
    inductor = Inductor(harness, CaseRecorder("a case"))
    operands, arguments = suite.operation_of("mm")
    program = program_of(f"{suite.GRAPHS}:mm", operands, suite.autotuned(True), arguments=arguments)

    def compile_program(program: Program, target: Target, pool: Any) -> CompiledProgram:
        module = __name__ if function == "generate_confused" else deviceless_worker.__name__
        return CompiledProgram(program, pool.submit(task(function, program, target, module)).result().value)

    monkeypatch.setattr(provider, "compile_program", compile_program)
    if function == "generate":
        assert inductor.compiled(program, SM90).generated.counters["generated_module_cache_miss"] == suite.MOST
        return
    with pytest.raises(CompileFailure, match=caches.WRONG_OUTPUT):
        inductor.compiled(program, SM90)


def test_the_cache_tests_itself_where_a_suite_compiles_in_its_own_process() -> None:
    with max_autotune.compiling():
        assert TritonTemplate.test_cache
    assert not TritonTemplate.test_cache


# --- what is restored -------------------------------------------------------------------------------------------------


def _fail_after(change: Any) -> None:
    change()
    raise ZeroDivisionError


def test_savers_are_restored() -> None:
    savers: list[Any] = list(stand_ins.selector().feedback_saver_fns)
    with pytest.raises(ZeroDivisionError), stand_ins.selector_restored() as selector:
        _fail_after(lambda: selector.add_feedback_saver(print))
    assert stand_ins.selector().feedback_saver_fns == savers


def test_everything_is_restored() -> None:
    from torch._dynamo.utils import counters

    def state() -> tuple[Any, ...]:
        return dict(os.environ), config.max_autotune, config.autotune_local_cache, config.autotune_remote_cache

    counters["inductor"]["a counter"] = 3
    figures, before = dict(counters["inductor"]), state()
    with (
        pytest.raises(ZeroDivisionError),
        max_autotune.compiling(),
        stand_ins.selecting(),
        caches.remote_cache(),
    ):
        _fail_after(lambda: counters["inductor"].update(another=1))
    assert state() == before
    assert dict(counters.pop("inductor")) == figures


def test_a_compilation_begins_without_templates_of_the_one_before() -> None:
    cache = TritonTemplate.all_templates["mm"]._generated_code_cache
    program = program_of("conformance.inductor.topics.gemm:mm", [dense("a", 8, 8), dense("b", 8, 8)], {})
    cache.put_entry("of other options", "code", "extra", [])
    try:
        with observation.compiling(program, {}):
            assert cache.get_entry("of other options") is None
    finally:
        cache.cache_clear()
