"""Each check of the suites about Inductor's tuning, feedback and caches fails where a fault is planted."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from torch._inductor import autotune_process, config, select_algorithm
from torch._inductor.autotune_process import TuningProcess, TuningProcessPool
from torch._inductor.runtime.autotune_cache import AutotuneCache
from torch._inductor.select_algorithm import AlgorithmSelectorCache, GeneratedCodeCache, TritonTemplate

from conformance.inductor.checks import caches, feedback, tuning
from conformance.inductor.tuning import max_autotune, stand_ins, tuning_jobs, tuning_processes
from conformance.inductor.tuning.template_cache import Counted
from conformance.inductor.tuning.tuning_jobs import Job, Reply


def failed(verdicts: list[Any]) -> list[str]:
    return [verdict.check for verdict in verdicts if not verdict.passed]


# --- tuning processes: faults of a stand-in that starts in no time ----------------------------------------------------


class Light:
    """A tuning process whose child is a bare Python, with what the suite uses of Inductor's. Subclasses have faults."""

    def __init__(self, device: int | None = None) -> None:
        self.device = device
        self.start()

    def start(self) -> None:
        visible = {} if self.device is None else {tuning_jobs.VISIBLE_DEVICES: str(self.device)}
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", "import sys; sys.exit(int(sys.stdin.readline() or 0))"],
            stdin=subprocess.PIPE,
            env=os.environ | self.environment(visible),
        )
        self.visible = visible.get(tuning_jobs.VISIBLE_DEVICES, os.environ.get(tuning_jobs.VISIBLE_DEVICES))

    def environment(self, visible: dict[str, str]) -> dict[str, str]:
        return visible

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
    def kill(self) -> None:
        pass


class SaysItLives(Light):
    def alive(self) -> bool:
        return True


class LimitIgnored(Light):
    def wait(self, seconds: float) -> None:
        super().wait(seconds + 2)


class LimitAtOnce(Light):
    def wait(self, seconds: float) -> None:
        pass


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
        self.visible = os.environ.get(tuning_jobs.VISIBLE_DEVICES)


class DeviceLeaks(Light):
    def start(self) -> None:
        super().start()
        os.environ[tuning_jobs.VISIBLE_DEVICES] = str(self.device)


@pytest.mark.parametrize(
    ("process_class", "expected"), [(Light, []), (DeviceIgnored, ["visible"]), (DeviceLeaks, ["restored"])]
)
def test_visible_device_fault(process_class: Any, expected: list[str]) -> None:
    assert failed(tuning.sees_only(process_class, 3, "5")) == expected


def test_inductors_process_whose_kill_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TuningProcess, "kill", TuningProcess.close)
    with tuning_processes.tuning_process() as process:
        assert failed(tuning.is_killed(process)) == ["child ended"]


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


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({}, []),
        ({"lost": 0.0}, ["infinite"]),
        ({"wait": 2}, ["prompt"]),
        ({"value": 1.0}, ["before/values", "after/values"]),
        ({"one_child": True}, ["before/children", "after/children"]),
    ],
)
def test_pool_fault(faults: dict[str, Any], expected: list[str]) -> None:
    assert failed(tuning.loses_only_that_job(Pool([0, 1], **faults), Job(seconds=9.0), limit=0.2)) == expected


@pytest.mark.parametrize(
    ("faults", "expected"),
    [({}, []), ({"visible": "0"}, ["visible"]), ({"one_child": True}, ["device/children", "visible"])],
)
def test_pool_that_does_not_spread(faults: dict[str, Any], expected: list[str]) -> None:
    assert failed(tuning.spreads(Pool([0, 1], **faults), [0, 1])) == expected


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (TuningProcessPool.get_device_list, []),
        (lambda: [None], ["devices/environment", "devices/all"]),
        (lambda: [0, 1, 2, 3], ["devices/single", "devices/environment"]),
    ],
    ids=["inductor", "never-several", "environment-ignored"],
)
def test_device_list_fault(listed: Any, expected: list[str]) -> None:
    assert failed(tuning.device_lists(SimpleNamespace(get_device_list=listed))) == expected


# --- a choice in a spawned process ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((1, None), ["exit code", "timed", "numbers"]),
        ((0, (float("inf"), None)), ["timed", "numbers"]),
        ((None, (0.1, [[0.0, 0.0], [0.0, 0.0]])), ["exit code", "numbers"]),
    ],
)
def test_spawned_choice_fault(answer: Any, expected: list[str]) -> None:
    assert failed(tuning.check_spawned_choice(lambda *arguments: answer)) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [((1, None), []), ((0, None), ["exit code"]), ((-9, None), ["exit code"]), ((1, (0.1, [])), ["nothing sent"])],
)
def test_spawned_failure_fault(answer: Any, expected: list[str]) -> None:
    assert failed(tuning.check_spawned_failure(lambda *arguments: answer)) == expected


# --- feedback, preprocessing, precompilation --------------------------------------------------------------------------


def test_saver_that_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AlgorithmSelectorCache, "add_feedback_saver", lambda self, saver: None)
    assert failed(feedback.check_registration()) == ["counts"]
    assert failed(feedback.check_savers()) == ["calls/0", "calls/1"]


def test_savers_that_are_not_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AlgorithmSelectorCache, "clear_feedback_savers", lambda self: None)
    assert failed(feedback.check_registration()) == ["counts"]


def _fail_after(change: Any) -> None:
    change()
    raise ZeroDivisionError


def test_savers_are_restored() -> None:
    savers: list[Any] = list(stand_ins.selector().feedback_saver_fns)
    with pytest.raises(ZeroDivisionError), stand_ins.selector_restored() as selector:
        _fail_after(lambda: selector.add_feedback_saver(print))
    assert stand_ins.selector().feedback_saver_fns == savers


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda told: (dict.fromkeys(told[0], 1.0), *told[1:]), "timings/0"),
        (lambda told: (dict(list(told[0].items())[:1]), *told[1:]), "timings/0"),
        (lambda told: (told[0], "bmm", *told[2:]), "name/0"),
        (lambda told: (*told[:2], told[2][:1], *told[3:]), "inputs/0"),
        (lambda told: (*told[:3], told[3][:1], *told[4:]), "choices/0"),
    ],
    ids=["times", "one-time", "name", "inputs", "choices"],
)
def test_saver_that_is_told_something_else(monkeypatch: pytest.MonkeyPatch, change: Any, expected: str) -> None:
    add = AlgorithmSelectorCache.add_feedback_saver
    monkeypatch.setattr(
        AlgorithmSelectorCache,
        "add_feedback_saver",
        lambda self, saver: add(self, lambda *told: saver(*change(told))),
    )
    assert expected in failed(feedback.check_savers())


def test_slowest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select_algorithm, "min", max, raising=False)
    assert failed(feedback.check_savers()) == ["fastest"]


def test_functions_in_the_wrong_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        AlgorithmSelectorCache,
        "add_preprocessing_fn",
        lambda self, function: self.preprocessing_fns.insert(0, function),
    )
    assert "order" in failed(feedback.check_order())


def test_functions_without_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    add = AlgorithmSelectorCache.add_preprocessing_fn
    monkeypatch.setattr(
        AlgorithmSelectorCache,
        "add_preprocessing_fn",
        lambda self, function: add(self, lambda choices: (function(choices), choices)[1]),
    )
    assert failed(feedback.check_order()) == ["order", "taken", "dropped"]
    assert len(failed(feedback.check_filters())) == 4


@pytest.mark.parametrize(
    ("clear", "expected"),
    [
        (lambda self, clear_defaults=False: None, ["kept", "none", "restored"]),
        (lambda self, clear_defaults=False: self.preprocessing_fns.clear(), ["kept", "restored"]),
    ],
    ids=["nothing", "everything"],
)
def test_clearing_that_clears(monkeypatch: pytest.MonkeyPatch, clear: Any, expected: list[str]) -> None:
    monkeypatch.setattr(AlgorithmSelectorCache, "clear_preprocessing_fns", clear)
    assert failed(feedback.check_clearing()) == expected


class _OtherPython:
    """The module sys of a Python on which Inductor compiles ahead."""

    version_info = SimpleNamespace(major=3, minor=12, micro=0)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


JUDGES = (
    feedback.check_threads,
    feedback.check_failure,
    feedback.check_timeout,
    feedback.check_no_exceptions,
    feedback.check_cached,
)


@pytest.fixture
def _ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select_algorithm, "sys", _OtherPython())


@pytest.mark.usefixtures("_ahead")
@pytest.mark.parametrize("judge", JUDGES, ids=lambda judge: judge.__name__)
def test_compiled_ahead(judge: Any) -> None:
    assert failed(judge()) == []


def _nothing_ahead(self: Any, *arguments: Any, **options: Any) -> Any:
    return dict


def _here(self: Any, choices: Any, *arguments: Any, **options: Any) -> Any:
    def compile_all() -> dict[Any, float]:
        for choice in choices:
            with contextlib.suppress(threading.BrokenBarrierError):
                choice.precompile()
        return {}

    return compile_all


@pytest.mark.parametrize(
    ("judge", "expected"),
    [
        (feedback.check_threads, ["each once", "at once", "counted"]),
        (feedback.check_failure, ["counted", "left out", "marked", "taken"]),
        (feedback.check_timeout, ["left out", "marked", "taken"]),
        (feedback.check_cached, ["compiled once"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nothing_compiled_ahead(monkeypatch: pytest.MonkeyPatch, judge: Any, expected: list[str]) -> None:
    monkeypatch.setattr(AlgorithmSelectorCache, "make_precompile_fn", _nothing_ahead)
    assert failed(judge()) == expected


def test_compiled_on_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AlgorithmSelectorCache, "make_precompile_fn", _here)
    monkeypatch.setattr(feedback, "MEET_SECONDS", 0.05)
    assert failed(feedback.check_threads()) == ["elsewhere", "at once", "counted"]


@pytest.mark.usefixtures("_ahead")
def test_exceptions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(choice: Any) -> None:
        raise RuntimeError("this choice does not compile")

    monkeypatch.setattr(stand_ins.choice_class(), "precompile", fail)
    with pytest.raises(select_algorithm.NoValidChoicesError):
        feedback.check_no_exceptions()


@pytest.mark.usefixtures("_ahead")
def test_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AlgorithmSelectorCache, "get_local_cache", lambda self: {})
    assert failed(feedback.check_cached()) == ["not again"]


# --- caches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        (Counted(4, 36, 4), []),
        (Counted(4, 32, 8), ["misses", "hits"]),
        (Counted(4, 0, 0), ["misses", "hits"]),
        (Counted(0, 0, 0), ["templates"]),
        (Counted(4, 36, 4, "stopped"), ["compiled"]),
    ],
)
def test_repeated_lowering_fault(counted: Counted, expected: list[str]) -> None:
    assert failed(caches.check_repeated(counted, 9)) == expected


@pytest.mark.parametrize(
    ("counted", "expected"),
    [(Counted(4, 0, 8), []), (Counted(4, 4, 4), ["hits", "misses"]), (Counted(4, 0, 0), ["misses"])],
)
def test_different_lowering_fault(counted: Counted, expected: list[str]) -> None:
    assert failed(caches.check_different(counted)) == expected


def test_wrong_key_fault() -> None:
    right, wrong = Counted(4, 4, 4), Counted(4, 4, 4, f"AssertionError: {caches.WRONG_OUTPUT}")
    assert failed(caches.check_wrong_key(right, wrong)) == []
    assert failed(caches.check_wrong_key(wrong, wrong)) == ["right key"]
    assert failed(caches.check_wrong_key(right, right)) == ["wrong key"]


def key_maker(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Any]:
    """The cache's function for keys, with a ``change`` of its arguments."""
    right = GeneratedCodeCache().make_key

    @functools.wraps(right)
    def key(**arguments: Any) -> Any:
        return right(**change(arguments))

    return key


def test_key_without_fault() -> None:
    assert failed(caches.check_key(GeneratedCodeCache().make_key, TritonTemplate.generate_and_load)) == []


@pytest.mark.parametrize("name", ["input_nodes", "layout", "kwargs", "num_warps", "call_sizes", "epilogue_fn_hash"])
def test_key_that_ignores_an_argument(name: str) -> None:
    def ignore(arguments: dict[str, Any]) -> dict[str, Any]:
        if name == "epilogue_fn_hash" and arguments[name] is None:
            return arguments
        return arguments | {name: caches.KEY_VALUES[name][0]}

    assert failed(caches.check_key(key_maker(ignore), TritonTemplate.generate_and_load)) == [f"distinct/{name}"]


def test_key_that_lacks_an_argument() -> None:
    def generating(self: Any, input_nodes: Any, something_else: Any) -> None:
        """Takes an argument that the key does not."""

    assert failed(caches.check_key(GeneratedCodeCache().make_key, generating)) == ["complete"]


def test_key_for_what_is_not_kept() -> None:
    keeping = key_maker(lambda arguments: arguments | {"workspace_arg": None})
    assert failed(caches.check_key(keeping, TritonTemplate.generate_and_load)) == ["not kept/workspace_arg"]


@pytest.mark.parametrize(
    ("expected", "fault"),
    [
        (["again", "as at first"], (AlgorithmSelectorCache, "get_local_cache", lambda self: {})),
        (["other input"], (select_algorithm, "create_inputs_key", lambda nodes: "the same for all")),
    ],
    ids=["forgets", "confuses"],
)
def test_times_fault(monkeypatch: pytest.MonkeyPatch, expected: list[str], fault: tuple[Any, str, Any]) -> None:
    monkeypatch.setattr(*fault)
    assert failed(caches.check_times_are_kept()) == expected


def test_remote_configs_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failed(caches.check_remote_configs()) == []
    save = AutotuneCache.save
    monkeypatch.setattr(AutotuneCache, "_prepare_key", staticmethod(lambda filename: "the same for all"))
    assert failed(caches.check_remote_configs()) == ["statistics", "known"]
    monkeypatch.undo()
    monkeypatch.setattr(AutotuneCache, "save", lambda self, *arguments, **options: None)
    assert failed(caches.check_remote_configs()) == ["statistics", "known"]
    monkeypatch.undo()
    other = SimpleNamespace(kwargs={"XBLOCK": 64}, num_warps=2)
    monkeypatch.setattr(AutotuneCache, "save", lambda self, config, time: save(self, _disguised(config, other), time))
    assert failed(caches.check_remote_configs()) == ["config"]


def _disguised(config: Any, other: Any) -> Any:
    """``config`` with the block and warps of ``other``."""
    return type(config)(dict(other.kwargs), num_warps=other.num_warps)


# --- what is restored -------------------------------------------------------------------------------------------------


def test_everything_is_restored() -> None:
    from torch._dynamo.utils import counters

    def state() -> tuple[Any, ...]:
        return dict(os.environ), config.max_autotune, config.autotune_local_cache, config.autotune_remote_cache

    counters["inductor"]["a counter"] = 3
    before = state()
    with (
        pytest.raises(ZeroDivisionError),
        max_autotune.compiling(),
        stand_ins.selecting(),
        caches.remote_cache(),
    ):
        _fail_after(lambda: counters["inductor"].update(another=1))
    assert state() == before
    assert dict(counters.pop("inductor")) == {"a counter": 3}
