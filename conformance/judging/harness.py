"""Parts that the cases of one process share: targets, executor, compile pool, device locks and judged numbers.

The steps that cases share whatever they judge, and the verdicts of executed TTGIR that are kept, are here too.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from conformance import targets
from conformance.execution.compile.compiled_index import IndexedPools
from conformance.execution.device.fault_search import fault_of
from conformance.execution.order.answers import fenced
from conformance.execution.trial.fill_groups import GROUPS
from conformance.execution.trial.repeated_trials import repeated
from conformance.execution.trial.trial import Trial, trial
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.settings import Settings
from conformance.kernels.catalogue import is_own
from conformance.kernels.kernel import Kernel, Plan
from conformance.kernels.launch import Executor
from conformance.machine import device_state
from conformance.machine.device_state import device_fault
from conformance.machine.gpus import NotAlone, Turns, device_node
from conformance.machine.kept_answers import code_digest, default_cache
from conformance.problems import Problem, itemsize
from conformance.records import ConformanceFailure, Reason, ReasonCode, Verdict
from conformance.targets import Target
from conformance.ttgir.verdict import Executed, executed

_digest = functools.cache(code_digest)


def kept(plan: Plan, texts: Iterable[str], fills: object, seed: int, execute: Callable[[], Executed]) -> Executed:
    """The verdict of an earlier run of the same, or that of ``execute``, which is kept if it passed.

    A verdict is kept for the ``texts`` and the ``plan``, the ``fills`` and their ``seed``. It also depends on every
    file of this package, and on the releases of NumPy and torch. It is not for kernels of others, whose files are not
    known here.
    """
    parts = [_digest(), np.__version__, torch.__version__, repr(plan), repr(fills), repr(seed), *texts]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    path = default_cache() / "executed" / key[:2] / key
    if (earlier := _read(path)) is not None:
        return earlier
    result = execute()
    if result.passed:
        _write(path, result)
    return result


def _read(path: Path) -> Executed | None:
    """Returns the kept result; None if there is none that can be used."""
    try:
        data = json.loads(path.read_text())
        verdicts = tuple(Verdict(*fields) for fields in data["verdicts"])
        return Executed(verdicts, "", tuple(data["orders"]), tuple(data["fills"]), layouts=data["layouts"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, result: Executed) -> None:
    fields = [[each.check, each.passed, each.text, dict(each.details)] for each in result.verdicts]
    text = json.dumps({"verdicts": fields, "orders": result.orders, "fills": result.fills, "layouts": result.layouts})
    with contextlib.suppress(OSError):  # a folder that cannot be written keeps nothing
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_text(text)
        new.replace(path)


#: Interpreted trials kept for the targets that follow: they are neighbours in the order of the cases.
SHARED_TRIALS = 64

#: Seconds that one specialisation may take to compile: the slowest config of the tables takes 110 on an idle core.
COMPILE_DEADLINE = 240.0

Result = TypeVar("Result")


def chosen_targets(chosen: Settings) -> tuple[Target, ...]:
    """The targets of this run: those that the user named, else the device, else every target that can be compiled
    for."""
    if chosen.targets:
        return tuple(targets.find(spec) for spec in chosen.targets)
    if chosen.has_gpu:
        return targets.devices()[:1]
    return targets.compile_targets()


def needed(problem: Problem) -> int:
    """Bytes that the operands and outputs of ``problem`` lie in, gaps between their elements included."""
    return sum(tensor.span * itemsize(tensor.dtype) for tensor in (*problem.operands, *problem.outputs))


class Harness:
    """The parts that the cases of one process share: the executor, the compile pool and the numerics already judged."""

    def __init__(self, chosen: Settings, folder: Path | None = None, worker: str = "main") -> None:
        """``folder`` is that of the run, in which its compile stage left what it compiled; ``worker`` names this
        process in it."""
        self.settings = chosen
        self.targets = chosen_targets(chosen)
        self.pool = IndexedPools(1, COMPILE_DEADLINE, folder, worker)
        self._trials: dict[object, Trial] = {}

    @functools.cached_property
    def executor(self) -> Executor | Reason:
        """The device, else the interpreter, else the reason why there is neither or neither is wanted."""
        if self.settings.compile_only:
            return Reason(ReasonCode.NO_DEVICE, "compile-only", "nothing was to be run: --compile-only was given")
        if self.settings.has_gpu:
            from conformance.execution.device.executor import DeviceExecutor

            return DeviceExecutor()
        from conformance.execution.interpreter.executor import InterpreterExecutor, InterpreterUnsupported

        try:
            return InterpreterExecutor()
        except InterpreterUnsupported as error:
            return error.reason

    @functools.cached_property
    def turns(self) -> Turns:
        """The turns in which processes use this process's device."""
        variable = self.settings.gpus.variable
        entry = os.environ.get(variable, "all")
        return Turns(entry, node=device_node(variable, entry))

    def together(self) -> contextlib.AbstractContextManager[None]:
        """Uses the device, if there is one, together with other workers, but not with one that times something."""
        return self.turns.together() if self.settings.has_gpu else contextlib.nullcontext()

    def run(self, work: Callable[[], Result], size: int = 0) -> Result:
        """Returns the result of ``work``, which needs about ``size`` bytes of device memory. On a device it runs
        together with other workers, but not with another that needs much memory. If memory runs out, it runs once more,
        alone: only then is the shortage its own fault."""
        if not self.settings.has_gpu:
            return work()
        with self.turns.with_much_memory() if size >= device_state.MUCH else contextlib.nullcontext():
            try:
                with self.turns.together():
                    return work()
            except Exception as error:
                if not device_state.ran_out(error):
                    raise
                first = error.with_traceback(None)  # its frames hold on to the tensors
            GROUPS.forget()
            device_state.give_back()
            try:
                with self.turns.alone():
                    return work()
            except NotAlone:
                raise first from None

    def executor_for(self, problem: Problem) -> Executor | Reason:
        """Returns the executor, or the Reason why it cannot run ``problem``."""
        if isinstance(self.executor, Reason) or not self.executor.on_device:
            return self.executor
        return device_state.shortage(needed(problem)) or self.executor

    def trial(
        self,
        kernel: Kernel,
        plan: Plan,
        names: tuple[str, ...] | None,
        zero_lanes: frozenset[str] = frozenset(),
    ) -> Trial:
        """Judges ``plan`` on the executor. The interpreter's numbers are computed once and shared by every target for
        which the launch is the same, and ``zero_lanes``."""
        assert not isinstance(self.executor, Reason)
        executor = self.executor

        def judge() -> Trial:
            return trial(kernel, plan, executor, seed=self.settings.seed, names=names, zero_lanes=zero_lanes)

        if executor.on_device:
            return self.repeated(judge)
        key = (
            kernel.name,
            plan.problem,
            plan.config,
            plan.variant,
            plan.grid,
            kernel.contract(plan, self.executor.name),
            names,
            zero_lanes,
        )
        if key not in self._trials:
            while len(self._trials) >= SHARED_TRIALS:
                self._trials.pop(next(iter(self._trials)))
            self._trials[key] = self.repeated(judge)
        return self._trials[key]

    def repeated(self, judge: Callable[[], Trial]) -> Trial:
        """Returns the trial that stands for all that this run makes of a case, each by ``judge``."""
        return judge() if self.settings.repeats == 1 else repeated(judge, self.settings.repeats)

    def executed(
        self,
        kernel: Kernel,
        plan: Plan,
        texts: Sequence[str],
        names: tuple[str, ...] | None,
        *,
        ptx: Sequence[str] = (),
        anew: bool,
    ) -> Executed:
        """Runs the launches of ``plan``, whose TTGIR is in ``texts``. ``anew``: whatever earlier runs kept. No fence is
        missing that their ``ptx`` has: from 3.5 on Triton adds some behind TTGIR."""

        def execute() -> Executed:
            result = executed(kernel, plan, texts, seed=self.settings.seed, names=names)
            if result.unfenced and ptx and all(map(fenced, ptx)):
                result = executed(kernel, plan, texts, seed=self.settings.seed, names=names, fences=False)
            return result

        if anew or not is_own(kernel):
            return execute()
        return kept(plan, [*texts, *ptx], names, self.settings.seed, execute)

    def first_target(self, kernel: Kernel) -> Target:
        """The first target of this run that has what the kernel needs; the first of all if none has."""
        ready = [target for target in self.targets if not kernel.descriptors or target.capability("tma").available]
        return (ready or list(self.targets))[0]


def record(recorder: CaseRecorder, verdicts: Iterable[Verdict], prefix: str = "") -> None:
    """Adds ``verdicts`` to the case, which fails at its end if one of them failed."""
    for verdict in verdicts:
        recorder.verdict(prefix + verdict.check, verdict.passed, verdict.text, **verdict.details)


def need_device(harness: Harness, recorder: CaseRecorder, what: str) -> None:
    """Ends the case as not run where ``what`` cannot be done on a device: there is none, or nothing is to be run."""
    if not harness.settings.has_gpu or harness.settings.compile_only:
        recorder.not_run(Reason(ReasonCode.NO_DEVICE, "device", f"{what}: a GPU is required and none is used here"))


@contextlib.contextmanager
def faults_explained(
    harness: Harness, recorder: CaseRecorder, kernel: Kernel | None, plan: Plan, fills: Sequence[str] | None
) -> Iterator[None]:
    """Inside, a fault of the device by the launches of ``plan`` over ``fills`` (None: all) raises ConformanceFailure.
    Another process looks for the operand, and the case has a verdict that names it or says that none was found.
    ``kernel`` is one of the catalogue; None for a compiled function, which no other process can launch."""
    try:
        yield
    except Exception as error:
        if device_fault() is None:
            raise
        text = f"{type(error).__name__}: {error}"
    else:
        return
    # outside of the handler, whose frames hold on to tensors; after the fault this process asks nothing of the device
    with recorder.timed("check"), harness.together():
        fault = fault_of(kernel, plan, fills, harness.settings.seed, text)
    recorder.add(fault.verdict)
    recorder.fault_named = fault.named
    raise ConformanceFailure(f"{fault.verdict.check}: {fault.verdict.text}") from None


def record_edges(recorder: CaseRecorder, judged: Trial) -> None:
    """Writes into the record with which fill operands lay at unmapped pages, or why there was none. If the case has
    several trials, one without such a fill counts."""
    before = recorder.record().observed.get("unmapped_pages", "")
    if judged.at_edges and not before.startswith("none"):
        recorder.set(observed={"unmapped_pages": judged.at_edges})
