"""Checks of feedback: what the selector tells and asks, and how it compiles its choices ahead."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

from conformance.inductor.tuning import child_process, stand_ins
from conformance.records import Verdict

#: Seconds for which a choice compiles that is to miss its limit, and that limit.
SLOW_SECONDS, PRECOMPILE_LIMIT = 3.0, 1


#: Choices, and threads, of the cases about precompilation; seconds within which all threads must be at work.
THREADS, MEET_SECONDS = 10, 20.0


def check_registration() -> list[Verdict]:
    """Two savers are registered one by one, and then cleared."""
    from torch._inductor import select_algorithm

    before = list(stand_ins.selector().feedback_saver_fns)
    counts = []
    with stand_ins.selector_restored() as selector:
        select_algorithm.clear_feedback_savers()
        for added in (saver([]), saver([])):
            select_algorithm.add_feedback_saver(added)
            counts.append(len(selector.feedback_saver_fns))
        select_algorithm.clear_feedback_savers()
        counts.append(len(selector.feedback_saver_fns))
    after = list(stand_ins.selector().feedback_saver_fns)
    return [
        Verdict("counts", counts == [1, 2, 0], f"{counts}, [1, 2, 0] required"),
        Verdict("restored", after == before, f"{len(after)} savers, {len(before)} before"),
    ]


def check_savers(times: Sequence[float] = (3.0, 1.0, 2.0)) -> list[Verdict]:
    """Each of two savers is called once for one selection, with every choice and its time, the inputs and the name."""
    told: list[list[Any]] = [[], []]
    with stand_ins.selecting() as session:
        for calls in told:
            session.selector.add_feedback_saver(saver(calls))
        choices = [session.stand_in(f"choice {index}", value) for index, value in enumerate(times)]
        selected = session.select(choices)
        names = [node.get_name() for node in (session.node("a", 16, 8), session.node("b", 8, 16))]
    verdicts = [
        Verdict("fastest", selected is choices[times.index(min(times))], getattr(selected, "name", repr(selected)))
    ]
    for number, calls in enumerate(told):
        verdicts.append(Verdict(f"calls/{number}", len(calls) == 1, f"{len(calls)}, 1 required"))
        for timings, name, nodes, offered, *_ in calls:
            pairs = {choice.name: value for choice, value in timings.items()}
            expected = {choice.name: choice.milliseconds for choice in choices}
            inputs = [node.get_name() for node in nodes]
            verdicts += [
                Verdict(f"timings/{number}", pairs == expected, f"{pairs}, {expected} required"),
                Verdict(f"choices/{number}", list(offered) == choices, f"{len(offered)} of {len(choices)}"),
                Verdict(f"inputs/{number}", inputs == names, f"{inputs}, {names} required"),
                Verdict(f"name/{number}", name == "mm", f"{name}, mm required"),
            ]
    return verdicts


def saver(calls: list[Any]) -> Callable[..., None]:
    return lambda *told: calls.append(told)


def check_order() -> list[Verdict]:
    """Two functions run in order, each on the result of the one before. The selector chooses from the last result."""
    with stand_ins.selecting() as session:
        fast, slow = session.stand_in("fast", 1.0), session.stand_in("slow", 9.0)
        seen = []

        def drop_fastest(choices: list[Any]) -> list[Any]:
            seen.append(("first", [choice.name for choice in choices]))
            return [choice for choice in choices if choice is not fast]

        def add_another(choices: list[Any]) -> list[Any]:
            seen.append(("second", [choice.name for choice in choices]))
            return [*choices, session.stand_in("added", 5.0)]

        session.selector.add_preprocessing_fn(drop_fastest)
        session.selector.add_preprocessing_fn(add_another)
        selected = session.select([fast, slow])
    expected = [("first", ["fast", "slow"]), ("second", ["slow"])]
    return [
        Verdict("order", seen == expected, f"{seen}, {expected} required"),
        Verdict(
            "taken",
            getattr(selected, "name", None) == "added",
            f"{getattr(selected, 'name', selected)}, added required",
        ),
        Verdict("dropped", fast.measured == 0, f"a dropped choice was measured {fast.measured} times"),
    ]


def check_clearing() -> list[Verdict]:
    """Clearing leaves Inductor's own functions in their order, or none where it is asked to clear those too."""
    with stand_ins.selecting() as session:
        selector = session.selector
        own = list(selector.preprocessing_fns)
        selector.add_preprocessing_fn(lambda choices: choices)
        added = len(selector.preprocessing_fns)
        selector.clear_preprocessing_fns()
        left = list(selector.preprocessing_fns)
        selector.clear_preprocessing_fns(clear_defaults=True)
        none = list(selector.preprocessing_fns)
        selector.clear_preprocessing_fns()
        restored = list(selector.preprocessing_fns)
    return [
        Verdict("own", len(own) > 0, f"{len(own)} of Inductor's own"),
        Verdict("added", added == len(own) + 1, f"{added} after one was added to {len(own)}"),
        Verdict("kept", left == own, f"{len(left)} after clearing, {len(own)} required"),
        Verdict("none", none == [], f"{len(none)} after clearing all"),
        Verdict("restored", restored == own, f"{len(restored)} after clearing again, {len(own)} required"),
    ]


def check_filters() -> list[Verdict]:
    """Inductor's own functions: a pattern found anywhere in a choice's name, or in its description, keeps it."""
    verdicts = []
    for setting, pattern in (
        ("test_configs.autotune_choice_name_regex", "_second"),
        ("test_configs.autotune_choice_desc_regex", "BLOCK_M=64"),
    ):
        with stand_ins.selecting(**{setting: pattern}) as session:
            fast = session.stand_in("the_first", 1.0, "num_warps=4, BLOCK_M=32")
            rest = [
                session.stand_in(f"{name}_second", ms, "num_warps=4, BLOCK_M=64") for name, ms in (("a", 3), ("b", 2))
            ]
            selected = session.select([fast, *rest])
            measured = [fast.measured, *(choice.measured for choice in rest)]
        check = setting.rpartition(".")[2]
        verdicts.append(
            Verdict(check, selected is rest[1], f"took {getattr(selected, 'name', selected)}, b_second required")
        )
        verdicts.append(Verdict(f"{check}/measured", measured == [0, 1, 1], f"{measured}, [0, 1, 1] required"))
    return verdicts


def precompiles(session: stand_ins.Selecting) -> bool:
    """True if the selector compiles choices ahead of their timing on this Python."""
    choices = [session.stand_in(f"probe {index}", 1.0 + index) for index in range(2)]
    session.select(choices, name="probe")
    return all(choice.threads for choice in choices)


@contextlib.contextmanager
def on_any_python() -> Iterator[None]:
    """Until exit the selector compiles ahead on this Python, too: it is told of a later one.

    Torch compiles nothing ahead on Python 3.11.0 to 3.11.8, where parsing in several threads can raise a SystemError
    (github.com/python/cpython/issues/106905). The stand-ins parse nothing."""
    from torch._inductor import select_algorithm

    later = {**vars(sys), "version_info": SimpleNamespace(major=3, minor=12, micro=0)}
    module: Any = select_algorithm
    with mock.patch.object(module, "sys", SimpleNamespace(**later)):
        yield


def check_rule(ahead: bool, version: tuple[int, ...]) -> list[Verdict]:
    """Choices are compiled ``ahead``, except on the Pythons of :func:`on_any_python`."""
    excepted = (3, 11, 0) <= version[:3] <= (3, 11, 8)
    text = f"compiled ahead: {ahead}, on Python {'.'.join(map(str, version[:3]))}"
    return [Verdict("rule", ahead != excepted, text)]


def check_threads() -> list[Verdict]:
    """As many choices as threads compile at once, each once, and none on the thread that waits for them."""
    barrier = threading.Barrier(THREADS)
    met = []

    def meet() -> None:
        barrier.wait(MEET_SECONDS)
        met.append(threading.get_ident())

    with precompiling() as session:
        choices = [session.stand_in(f"choice {index}", 1.0 + index) for index in range(THREADS)]
        for choice in choices:
            choice.prepare = meet
        session.select(choices)
        waits = session.counters["inductor"]["select_algorithm_precompile"]
    here = threading.main_thread()
    times = [len(choice.threads) for choice in choices]
    return [
        Verdict("each once", times == [1] * THREADS, f"{times}"),
        Verdict("elsewhere", all(here not in choice.threads for choice in choices), "not on the main thread"),
        Verdict("at once", len(set(met)) == THREADS, f"{len(set(met))} threads at once, {THREADS} required"),
        Verdict("counted", waits == 1, f"{waits} waits were counted, 1 required"),
    ]


def check_failure() -> list[Verdict]:
    """A choice that does not compile is counted, is not timed, and costs no other choice."""

    def fail() -> None:
        raise RuntimeError("this choice does not compile")

    exceptions, verdicts = _one_left_out(fail)
    return [Verdict("counted", exceptions == 1, f"{exceptions} exceptions were counted, 1 required"), *verdicts]


def check_timeout() -> list[Verdict]:
    """A choice that takes longer than its limit to compile is not timed, and costs no other choice."""
    exceptions, verdicts = _one_left_out(
        lambda: time.sleep(SLOW_SECONDS), precompilation_timeout_seconds=PRECOMPILE_LIMIT
    )
    return [Verdict("no exception", exceptions == 0, f"{exceptions} exceptions were counted, 0 required"), *verdicts]


def _one_left_out(prepare: Callable[[], None], **options: Any) -> tuple[int, list[Verdict]]:
    """Selects among three choices, of which ``prepare`` compiles the fastest. Returns the exceptions that were counted,
    and verdicts on whether this choice alone is left out."""
    with precompiling() as session:
        left_out, good, slow = (session.stand_in(f"choice {index}", 1.0 + index) for index in range(3))
        left_out.prepare = prepare
        selected = session.select([left_out, good, slow], **options)
        exceptions = session.counters["inductor"]["select_algorithm_num_precompilation_exceptions"]
    return exceptions, [
        Verdict("left out", left_out.measured == 0, f"{left_out.name} was timed {left_out.measured} times"),
        Verdict("marked", bool(getattr(left_out, "failed", True)), f"{left_out.name} is marked as failed"),
        Verdict("taken", selected is good, f"took {getattr(selected, 'name', selected)}, {good.name} required"),
    ]


def check_no_exceptions() -> list[Verdict]:
    """Choices that all compile count no exception."""
    with precompiling() as session:
        choices = [session.stand_in(f"choice {index}", 1.0 + index) for index in range(3)]
        selected = session.select(choices)
        exceptions = session.counters["inductor"]["select_algorithm_num_precompilation_exceptions"]
    return [
        Verdict("no exception", exceptions == 0, f"{exceptions} exceptions were counted, 0 required"),
        Verdict("taken", selected is choices[0], f"took {getattr(selected, 'name', selected)}"),
    ]


def check_cached() -> list[Verdict]:
    """Choices whose times are all known are not compiled again."""
    with precompiling() as session:
        first = [session.stand_in(f"choice {index}", 1.0 + index) for index in range(3)]
        again = [session.stand_in(f"choice {index}", 1.0 + index) for index in range(3)]
        session.select(first)
        before = session.counters["inductor"]["select_algorithm_precompile"]
        session.selector.cache_clear()  # else the same function would serve both
        selected = session.select(again)
        after = session.counters["inductor"]["select_algorithm_precompile"]
    compiled = [len(choice.threads) for choice in again]
    return [
        Verdict("compiled once", before == 1, f"{before} waits were counted at first, 1 required"),
        Verdict("not again", after == before and compiled == [0, 0, 0], f"{after - before} waits more, {compiled}"),
        Verdict("taken", selected is again[0], f"took {getattr(selected, 'name', selected)}"),
    ]


@contextlib.contextmanager
def precompiling() -> Iterator[stand_ins.Selecting]:
    """A session of :func:`~.stand_ins.selecting` in which Inductor precompiles choices in :data:`THREADS` threads."""
    from torch._inductor import select_algorithm

    forget = getattr(select_algorithm.get_num_workers, "cache_clear", lambda: None)
    with child_process.environment(TORCHINDUCTOR_COMPILE_THREADS=str(THREADS)), stand_ins.selecting() as session:
        forget()
        try:
            yield session
        finally:
            forget()
