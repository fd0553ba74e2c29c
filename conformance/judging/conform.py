"""The ``conform`` fixture: plans, compiles, runs and judges one case in full, and records what it saw."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from conformance import codegen_checks, targets
from conformance.cases.scenarios import parametrize
from conformance.codegen_checks import Feature
from conformance.execution import machine_code
from conformance.execution.compilation import Artefact, CompilePools, CompileRequest
from conformance.execution.observation import Executor
from conformance.execution.resources import over_limits
from conformance.execution.trial import Trial, trial
from conformance.heuristics.configs import AnyConfig
from conformance.judging.case_reproducers import Reproducers
from conformance.kernels.catalogue import meta_launch
from conformance.kernels.kernel import Kernel, NotApplicable, Plan, Variant
from conformance.machine import device_memory
from conformance.machine.gpu_lock import NotAlone, Turns
from conformance.plugin.options import Settings, settings
from conformance.plugin.recording import CaseRecorder
from conformance.problems import Problem, itemsize
from conformance.records import CompileFailure, ConformanceFailure, Reason, ReasonCode, Status, Verdict
from conformance.targets import Target

#: Interpreted trials kept for the targets that follow: they are neighbours in the order of the cases.
SHARED_TRIALS = 64

#: Seconds that one specialisation may take to compile: the slowest config of the tables takes 110 on an idle core.
COMPILE_DEADLINE = 240.0

Result = TypeVar("Result")


def chosen_targets(chosen: Settings) -> tuple[Target, ...]:
    """The targets of this run: as asked, else the device, else every target that can be compiled for."""
    if chosen.targets:
        return tuple(targets.find(spec) for spec in chosen.targets)
    if chosen.has_gpu:
        return targets.devices()[:1]
    return targets.compile_targets()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = settings(metafunc.config)
    parametrize(metafunc, _targets(metafunc.config), chosen.tier, chosen.kernels, compile_only=chosen.compile_only)


_TARGETS = pytest.StashKey[tuple[Target, ...]]()


def _targets(config: pytest.Config) -> tuple[Target, ...]:
    if _TARGETS not in config.stash:
        config.stash[_TARGETS] = chosen_targets(settings(config))
    return config.stash[_TARGETS]


def needed(problem: Problem) -> int:
    """Bytes that the operands and outputs of ``problem`` lie in, gaps between their elements included."""
    return sum(each.span * itemsize(each.dtype) for each in (*problem.operands, *problem.outputs))


class Harness:
    """What the cases of one process share: the executor, the compile pool and the numerics already judged."""

    def __init__(self, chosen: Settings) -> None:
        self.settings = chosen
        self.targets = chosen_targets(chosen)
        self.pool = CompilePools(1, COMPILE_DEADLINE)
        self._trials: dict[object, Trial] = {}

    @functools.cached_property
    def executor(self) -> Executor | Reason:
        """The device, else the interpreter, else the reason why there is neither or neither is wanted."""
        if self.settings.compile_only:
            return Reason(ReasonCode.NO_DEVICE, "compile-only", "nothing was to be run: --compile-only was given")
        if self.settings.has_gpu:
            from conformance.execution.device import DeviceExecutor

            return DeviceExecutor()
        from conformance.execution.interpreter import InterpreterExecutor, InterpreterUnsupported

        try:
            return InterpreterExecutor()
        except InterpreterUnsupported as error:
            return error.reason

    @functools.cached_property
    def turns(self) -> Turns:
        """Turns on the device that this process is bound to."""
        return Turns(os.environ.get(self.settings.gpus.variable, "all"))

    def together(self) -> contextlib.AbstractContextManager[None]:
        """Uses the device, if there is one, beside other workers, but not beside one that times something."""
        return self.turns.together() if self.settings.has_gpu else contextlib.nullcontext()

    def run(self, work: Callable[[], Result], size: int = 0) -> Result:
        """What ``work`` returns, which needs about ``size`` bytes of the device's memory, if there is a device: beside
        other workers, but not beside another one that needs much. If memory runs out, which says something of ``work``
        only if nobody else uses any, it is done once more, alone."""
        if not self.settings.has_gpu:
            return work()
        with self.turns.with_much_memory() if size >= device_memory.MUCH else contextlib.nullcontext():
            try:
                with self.turns.together():
                    return work()
            except Exception as error:
                if not device_memory.ran_out(error):
                    raise
                first = error.with_traceback(None)  # its frames hold on to the tensors
            device_memory.give_back()
            try:
                with self.turns.alone():
                    return work()
            except NotAlone:
                raise first from None

    def executor_for(self, problem: Problem) -> Executor | Reason:
        """The executor, or why it is not one for ``problem``."""
        if isinstance(self.executor, Reason) or not self.executor.on_device:
            return self.executor
        return device_memory.shortage(needed(problem)) or self.executor

    def trial(self, kernel: Kernel, plan: Plan, names: tuple[str, ...] | None) -> Trial:
        """Judges ``plan`` on the executor. The interpreter's numbers are computed once and shared by every target for
        which the launch is the same."""
        assert not isinstance(self.executor, Reason)
        if self.executor.on_device:
            return trial(kernel, plan, self.executor, seed=self.settings.seed, names=names)
        key = (
            kernel.name,
            plan.problem,
            plan.config,
            plan.variant,
            plan.grid,
            kernel.contract(plan, self.executor.name),
            names,
        )
        if key not in self._trials:
            while len(self._trials) >= SHARED_TRIALS:
                self._trials.pop(next(iter(self._trials)))
            self._trials[key] = trial(kernel, plan, self.executor, seed=self.settings.seed, names=names)
        return self._trials[key]

    def first_target(self, kernel: Kernel) -> Target:
        """The first target of this run that has what the kernel needs; the first of all if none has."""
        ready = [target for target in self.targets if not kernel.descriptors or target.capability("tma").available]
        return (ready or list(self.targets))[0]


@pytest.fixture(scope="session")
def harness(pytestconfig: pytest.Config) -> Iterator[Harness]:
    """The session's :class:`Harness`."""
    import torch

    torch.set_num_threads(1)  # the workers share the cores among themselves
    shared = Harness(settings(pytestconfig))
    yield shared
    shared.pool.close()


@dataclass
class Run:
    """One case that was judged. ``trial`` is None if nothing could run it, ``artefact`` if nothing was compiled."""

    plan: Plan
    trial: Trial | None
    artefact: Artefact | None
    _recorder: CaseRecorder

    def requires(self, *features: Feature) -> None:
        """Asserts that the compiled code has ``features``."""
        self._check(features, ())

    def forbids(self, *features: Feature) -> None:
        """Asserts that the compiled code has none of ``features``."""
        self._check((), features)

    def _check(self, required: Iterable[Feature], forbidden: Iterable[Feature]) -> None:
        if self.artefact is None:
            raise ConformanceFailure(f"nothing was compiled for {self.plan.problem.id}: it has no code to check")
        found = _codegen_verdicts(self.artefact, self.plan.target, required, forbidden)
        for verdict in found:
            self._recorder.verdict(verdict.check, verdict.passed, verdict.text, **verdict.details)
        _raise_if_failed(found, "")


Conform = Callable[..., Run]
Inspection = Callable[[Artefact], Verdict]


@pytest.fixture
def conform(harness: Harness, recorder: CaseRecorder) -> Iterator[Conform]:
    """``conform(kernel, problem, config=..., target=..., **variant fields)`` judges a case in full and returns its run.

    ``fills`` restricts the fills, for a topic that is not about numbers, ``inspect`` adds a check of what was compiled.
    The case ends as not-applicable if the kernel refuses it. Numbers, memory, repeatability and grid are judged on the
    device, or in the interpreter if there is none; the code compiled for the target must have the features that the
    kernel declares and stay within the target's limits.
    """
    reproducing = Reproducers(recorder, harness.settings)

    def judge(
        kernel: Kernel,
        problem: Problem,
        *,
        config: AnyConfig,
        target: Target,
        fills: tuple[str, ...] | None = None,
        inspect: Inspection | None = None,
        **fields: Any,
    ) -> Run:
        variant = Variant(**fields)
        recorder.set(kernel=kernel, problem=problem, config=config, target=target, options={"variant": variant.id})
        recorder.run_created(kernel.name)
        try:
            plan = kernel.plan(problem, config, target, variant)
        except NotApplicable as refusal:
            recorder.run_judged(kernel.name)
            recorder.not_applicable(refusal.reason)
        with reproducing.judging(kernel, plan, fills):
            run = _judged(harness, recorder, kernel, plan, fills, inspect)
        recorder.run_judged(kernel.name)
        return run

    yield judge
    reproducing.write()


@dataclass(frozen=True)
class _Compiling:
    """What is being compiled for one plan: the main launch, and by function name those before and after it."""

    main: Any
    others: Mapping[str, Any]

    @classmethod
    def submit(cls, pool: CompilePools, plan: Plan) -> _Compiling:
        launch = meta_launch(plan, plan.target)
        factory = "conformance.kernels.catalogue:meta_step"
        main, others = None, {}
        for number, step in enumerate(launch.steps):
            if step.empty:
                continue
            handle = pool.submit(CompileRequest(factory, (plan, number), plan.target))
            if step is launch:
                main = handle
            else:
                others[step.function.fn.__name__] = handle
        return cls(main, others)


def _judged(
    harness: Harness,
    recorder: CaseRecorder,
    kernel: Kernel,
    plan: Plan,
    names: tuple[str, ...] | None,
    inspect: Inspection | None,
) -> Run:
    """Compiles and runs ``plan`` and raises ConformanceFailure or CompileFailure if a check fails."""
    found: list[Verdict] = []
    compiled: dict[str, Artefact] | None = None
    compiling = None if 0 in plan.grid else _Compiling.submit(harness.pool, plan)
    if harness.settings.has_gpu and compiling is not None:
        compiled = _compiled(recorder, compiling)  # before the launch: a compiler that dies takes nothing with it
    judged: Trial | None = None
    executor = harness.executor_for(plan.problem)
    if isinstance(executor, Reason):
        recorder.set(executor=None)
    else:
        recorder.set(executor=executor.name)
        judged = _run(harness, recorder, kernel, plan, names)
        found += judged.verdicts
    if compiling is not None and compiled is None:
        compiled = _compiled(recorder, compiling)
    artefact = compiled.pop("") if compiled is not None else None
    if artefact is not None and compiled is not None:
        with recorder.timed("check"):
            found += _codegen_verdicts(artefact, plan.target, *kernel.features(plan))
            found.append(_resource_verdict("resources", artefact, plan.target))
            found += [_resource_verdict(f"resources/{name}", other, plan.target) for name, other in compiled.items()]
            found += [inspect(artefact)] if inspect is not None else []
            if judged is not None and judged.compiled is not None:
                found.append(_identity_verdict(artefact, judged.compiled))
        observed: dict[str, Any] = {"resources": dataclasses.asdict(artefact.resources)}
        observed |= {"compile_s": round(artefact.seconds, 3), "compile_cached": artefact.cached}
        whole = harness.settings.tier in ("full", "exhaustive")  # to disassemble would slow the shorter tiers
        observed["code"] = machine_code.describe(artefact, plan.target, disassemble=whole)
        recorder.set(artefacts=artefact.stages, observed=observed)
    for verdict in found:
        recorder.verdict(verdict.check, verdict.passed, verdict.text, **verdict.details)
    _raise_if_failed(found, judged.diagnosis if judged else "")
    if isinstance(executor, Reason):
        recorder.not_run(executor)
    return Run(plan, judged, artefact, recorder)


def _run(harness: Harness, recorder: CaseRecorder, kernel: Kernel, plan: Plan, names: tuple[str, ...] | None) -> Trial:
    with recorder.timed("run"):
        judged = harness.run(lambda: harness.trial(kernel, plan, names), needed(plan.problem))
    observed = {"grid": judged.grid, "programs": judged.programs, "outputs": judged.digests}
    recorder.set(observed=observed)
    record_completeness(recorder, judged)
    return judged


def record_completeness(recorder: CaseRecorder, judged: Trial) -> None:
    """Writes into the record whether every fill was judged, and over how many tiles. If the case has several trials,
    the most complete one counts, and of these the one with the most tiles in the direction that has the fewest."""
    before = recorder.record().observed
    if (judged.complete, min(judged.tiles)) > (before.get("complete", False), min(before.get("tiles", (-1,)))):
        recorder.set(observed={"complete": judged.complete, "tiles": judged.tiles})


def _compiled(recorder: CaseRecorder, compiling: _Compiling) -> dict[str, Artefact]:
    """The artefact of the main launch under "", those of the others by name."""
    with recorder.timed("compile"):
        results = {name: handle.result() for name, handle in {"": compiling.main, **compiling.others}.items()}
    artefacts: dict[str, Artefact] = {}
    for name, result in results.items():
        if result.status is not Status.PASS or result.artefact is None:
            raise CompileFailure(result.status, f"{name}: {result.error}" if name else result.error)
        artefacts[name] = result.artefact
    return artefacts


def _codegen_verdicts(
    artefact: Artefact, target: Target, required: Iterable[Feature], forbidden: Iterable[Feature]
) -> list[Verdict]:
    return [
        Verdict(
            f"codegen/{'requires' if found.required else 'forbids'}/{found.feature.name}",
            found.passed,
            found.text,
            {"stage": found.stage} if found.passed else {"stage": found.stage, "path": str(found.path)},
        )
        for found in codegen_checks.check(artefact, target, required, forbidden)
    ]


def _resource_verdict(check: str, artefact: Artefact, target: Target) -> Verdict:
    excess = over_limits(artefact.resources, target)
    return Verdict(check, not excess, "; ".join(excess) or "within the target's limits")


def _identity_verdict(artefact: Artefact, launched: Any) -> Verdict:
    """Whether the code that was checked is the code that ran: both bear Triton's hash of source and options."""
    same = artefact.metadata["hash"] == launched.hash
    return Verdict("codegen/judged-is-launched", same, f"judged {artefact.metadata['hash']}, launched {launched.hash}")


def _raise_if_failed(verdicts: Iterable[Verdict], diagnosis: str) -> None:
    failed = [verdict for verdict in verdicts if not verdict.passed]
    if failed:
        lines = [f"{verdict.check}: {verdict.text}" for verdict in failed]
        raise ConformanceFailure("\n".join([diagnosis, *lines] if diagnosis else lines))
