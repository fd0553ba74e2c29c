"""A session of mutants: the plans of a tier, their baselines, and judging in several processes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import random
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.cases.case_table import Selection
from conformance.mutation.compile_process import CompileProcess
from conformance.mutation.forked import told
from conformance.mutation.functions import DeviceFunction
from conformance.mutation.judge import Baseline, Judge, assumed, baseline
from conformance.mutation.line_coverage import LineCoverage, unreached
from conformance.mutation.mutants import Mutant, mutants_of_all
from conformance.mutation.results import Lines, MutantOutcome, Result, plan_key, still_holds
from conformance.mutation.tier_plans import TierPlan, functions_of, tier_plans
from conformance.records import ExecutorName
from conformance.targets import Target, compile_targets, devices

_NUMBER = struct.Struct("<q")


@dataclass
class Session:
    """Mutants that are judged by ``plans`` on ``where``, with results in ``folder``. ``seed`` picks the fills' values;
    ``causes``: failures are diagnosed; ``compiles``: what nothing kills is compiled."""

    folder: Path
    plans: list[TierPlan]
    executor: ExecutorName
    where: str
    seed: int
    workers: int
    causes: bool
    compiles: bool

    @classmethod
    def of_tier(cls, folder: Path, tier: str, kernels: tuple[str, ...], *, device: bool, **fields: Any) -> Session:
        """The session with the plans of a tier, of all kernels or of ``kernels``; ``fields`` are the others of it."""
        folder.mkdir(parents=True, exist_ok=True)
        targets = (_device(),) if device else compile_targets()
        executor = ExecutorName.DEVICE if device else ExecutorName.INTERPRETER
        selection = Selection(targets, tier, kernels, has_gpu=device)
        where = f"{tier} {targets[0].id if device else 'interpreter'} {fields['seed']}"
        return cls(folder, tier_plans(selection, executor, fields["seed"]), executor, where, **fields)

    @functools.cached_property
    def functions(self) -> list[DeviceFunction]:
        """The device functions that the plans can reach."""
        return functions_of(self.plans)

    def mutants(self, kinds: Sequence[str] = (), functions: Sequence[str] = ()) -> list[Mutant]:
        """The mutants of these classes and of functions whose name contains one of ``functions``; empty: all."""
        chosen = [each for each in self.functions if not functions or any(text in each.name for text in functions)]
        return mutants_of_all(chosen, kinds)

    def make_executor(self) -> Any:
        """Returns the executor of this process."""
        return _executor(self.executor)

    def baselines(self) -> dict[str, Baseline]:
        """Returns the baseline of every plan, from the folder or by running it; on a device an assumed one."""
        if self.executor is not ExecutorName.INTERPRETER:
            return {plan.id: assumed(plan) for plan in self.plans}
        file = Lines(self.folder / "baselines.jsonl")
        kept = {line["key"]: line for line in map(json.loads, file)}
        keys = {plan.id: plan_key(plan, self.where) for plan in self.plans}
        missing = [plan for plan in self.plans if keys[plan.id] not in kept]

        @contextlib.contextmanager
        def running() -> Iterator[Callable[[TierPlan], None]]:
            coverage = LineCoverage(self.functions)

            def run(plan: TierPlan) -> None:
                result = baseline(plan, self.make_executor, self.seed, coverage)
                file.add(json.dumps({"key": keys[plan.id], **dataclasses.asdict(result)}))

            yield run

        in_processes(missing, self.workers, running)
        kept = {line.pop("key"): line for line in map(json.loads, file)}
        return {name: Baseline(**kept[key]) for name, key in keys.items() if key in kept}

    def unreached(self) -> dict[str, str]:
        """Returns the statements of device functions that no plan reaches, by their id; none on a device, which does
        not tell."""
        lines = [each.lines for each in self.baselines().values() if each.lines is not None]
        return unreached(self.functions, lines) if self.executor is ExecutorName.INTERPRETER else {}

    def results(self, mutants: Sequence[Mutant], say: Callable[[Result], None]) -> list[Result]:
        """The result of every mutant, from the folder or by judging it; ``say`` is told of each that was judged, in the
        process that did."""
        file = Lines(self.folder / "results.jsonl")
        interprets = self.executor is ExecutorName.INTERPRETER
        judge = Judge(
            *(self.plans, self.baselines(), self.make_executor, self.where, self.seed),
            interprets=interprets,
            causes=self.causes,
        )
        kept = self._kept(file, judge, mutants)
        missing = [mutant for mutant in mutants if mutant.id not in kept]

        @contextlib.contextmanager
        def judging() -> Iterator[Callable[[Mutant], None]]:
            with contextlib.ExitStack() as stack:
                if self.compiles:
                    judge.compiler = stack.enter_context(contextlib.closing(CompileProcess()))
                yield lambda mutant: _judge_one(judge, mutant, file, say)

        in_processes(missing, self.workers, judging)
        kept = self._kept(file, judge, mutants)
        return [kept[mutant.id] for mutant in mutants if mutant.id in kept]

    def _kept(self, file: Lines, judge: Judge, mutants: Sequence[Mutant]) -> dict[str, Result]:
        """Returns the results in ``file`` that hold today, by the id of their mutant."""
        by_key: dict[str, list[Result]] = {}
        for result in map(Result.from_json, file):
            by_key.setdefault(result.key, []).append(result)
        kept = {}
        for mutant in mutants:
            for result in by_key.get(judge.key(mutant), ()):
                complete = result.outcome is not MutantOutcome.SURVIVED or result.compiled or not self.compiles
                if complete and still_holds(result, judge.reaching(mutant.function)):
                    kept[mutant.id] = result
        return kept


def _judge_one(judge: Judge, mutant: Mutant, file: Lines, say: Callable[[Result], None]) -> None:
    result = judge.judge(mutant)
    file.add(result.to_json())
    say(result)


def sample(mutants: Sequence[Mutant], seed: int, count: int) -> list[Mutant]:
    """Returns ``count`` of ``mutants``, or all if there are fewer, drawn by ``seed``. They are drawn from each function
    and class by turns, so that small ones have their share."""
    generator = random.Random(seed)
    groups: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in mutants:
        groups.setdefault((mutant.function.name, mutant.kind), []).append(mutant)
    ordered = sorted(groups)
    generator.shuffle(ordered)
    for name in ordered:
        generator.shuffle(groups[name])
    turns = (groups[name][turn] for turn in itertools.count() for name in ordered if turn < len(groups[name]))
    return list(itertools.islice(turns, min(count, len(mutants))))


@functools.cache
def _executor(name: ExecutorName) -> Any:
    if name is ExecutorName.INTERPRETER:
        from conformance.execution.interpreter.executor import InterpreterExecutor

        return InterpreterExecutor()
    from conformance.execution.device.executor import DeviceExecutor

    return DeviceExecutor()


def _device() -> Target:
    """The target of the first device, asked for in a fork: a process that has used a device cannot be forked."""
    (target,) = told(lambda tell: tell(devices()[0]), 300.0, limit_memory=False)
    return target  # type: ignore[no-any-return]


def in_processes(
    work: Sequence[Any], processes: int, worker: Callable[[], contextlib.AbstractContextManager[Callable[[Any], None]]]
) -> None:
    """Does all of ``work`` in forks of this process, ``processes`` at most. Each fork calls what ``worker`` enters for
    one piece of work after another. Raises RuntimeError if a fork ended before its time."""
    if not work:
        return
    reading, writing = os.pipe()
    children = [_forked(work, worker, reading, writing) for _ in range(min(processes, len(work)))]
    os.close(reading)
    with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "wb", buffering=0) as queue:
        for number in range(len(work)):
            queue.write(_NUMBER.pack(number))
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(children)} processes ended before their work was done")


def _forked(work: Sequence[Any], worker: Callable[[], Any], reading: int, writing: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.close(writing)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with worker() as do:
            while number := os.read(reading, _NUMBER.size):
                do(work[_NUMBER.unpack(number)[0]])
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def unknown(survivors: Iterable[Result], explained: Iterable[str]) -> list[Result]:
    """The survivors that are not known."""
    expected = set(explained)
    return [result for result in survivors if result.outcome == "survived" and result.mutant not in expected]
