"""Plans, compiles, runs and judges one case of a kernel, and records what it saw."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from conformance import codegen_checks
from conformance.codegen_checks import Feature
from conformance.execution.compile import kernel_figures
from conformance.execution.compile.compilation import Artefact, CompileRequest, Task
from conformance.execution.compile.kernel_figures import near_limits, over_limits, over_memory
from conformance.execution.interpreter.executor import InterpreterUnsupported, reason_if_compiled
from conformance.execution.trial.trial import Trial
from conformance.heuristics.configs import AnyConfig
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.code_faults import fault_verdicts, order_verdicts, unknown_orders
from conformance.judging.harness import Harness, faults_explained, needed, record_edges
from conformance.judging.plan_code import descriptor_features, plan_verdicts
from conformance.judging.plan_rules import expected_grid, overlooked
from conformance.judging.undefined_lanes import judged_lanes, lanes_of_code
from conformance.kernels import carveout
from conformance.kernels.catalogue import is_own, meta_launch
from conformance.kernels.kernel import Features, Kernel, NotApplicable, Plan, Variant
from conformance.kernels.launch import Launch
from conformance.kernels.refusal_rules import objection
from conformance.machine.environment_faults import cache_suspect
from conformance.problems import Problem
from conformance.records import (
    Check,
    CheckKind,
    CompileFailure,
    ConformanceFailure,
    ExecutorName,
    Fault,
    Reason,
    ReasonCode,
    Status,
    Verdict,
)
from conformance.targets import Target
from conformance.ttgir.verdict import Executed

if TYPE_CHECKING:
    from conformance.judging.case_reproducers import Reproducers

Inspection = Callable[[Artefact], Verdict]


@dataclass
class CaseRun:
    """One plan that was judged. ``artefact`` is None if nothing was compiled, because its grid is empty."""

    plan: Plan
    trial: Trial
    artefact: Artefact | None
    _recorder: CaseRecorder

    def requires(self, *features: Feature) -> None:
        """Asserts that the compiled code has ``features``."""
        self._check(Features(required=frozenset(features)))

    def forbids(self, *features: Feature) -> None:
        """Asserts that the compiled code has none of ``features``."""
        self._check(Features(forbidden=frozenset(features)))

    def _check(self, features: Features) -> None:
        if self.artefact is None:
            raise ConformanceFailure(f"nothing was compiled for {self.plan.problem.id}: it has no code to check")
        verdicts = _codegen_verdicts(self.artefact, self.plan.target, features)
        self._recorder.add(*verdicts)
        _raise_if_failed(verdicts)


def conform(
    harness: Harness,
    recorder: CaseRecorder,
    kernel: Kernel,
    problem: Problem,
    *,
    config: AnyConfig,
    target: Target,
    fills: tuple[str, ...] | None = None,
    inspect: Inspection | None = None,
    reproducers: Reproducers | None = None,
    variant: Variant | None = None,
    gauge: Problem | None = None,
    **fields: Any,
) -> CaseRun:
    """Judges ``kernel`` on ``problem`` in full and returns the run; ``fields`` change fields of ``variant``, which is
    the kernel's usual one unless given.

    Numbers, memory, repeatability and grid are judged on the device, or in the interpreter if there is none. The code
    compiled for ``target`` must have the features that the kernel declares and stay within the target's limits.
    ``fills`` restricts the fills, for a topic that is not about numbers. ``inspect`` adds a check of what was compiled.
    Code that needs more memory than the target has is not applicable, as the compiled code says. ``gauge`` is a
    small problem with the same config. If the kernel estimates that the config does not fit, the gauge is compiled
    first; if it does not fit, the case ends as not applicable. One compilation then serves all shapes.

    Raises ConformanceFailure or CompileFailure if a check fails or the kernel takes what it must refuse. Raises
    CaseEnded if the kernel refuses the problem, the code needs too much memory or nothing can run it. ``reproducers``,
    if given, then knows what was judged last.
    """
    variant = dataclasses.replace(kernel.usual_variant if variant is None else variant, **fields)
    recorder.set(kernel=kernel, problem=problem, config=config, target=target, options={"variant": variant.id})
    recorder.run_created(kernel.name)
    try:
        plan = kernel.plan(problem, config, target, variant, estimated=False)
    except NotApplicable as refusal:
        recorder.run_judged(kernel.name)
        refused(recorder, kernel, kernel.draft(problem, config, target, variant), refusal.reason)
    if text := overlooked(kernel, plan):
        recorder.run_judged(kernel.name)
        _wrong_refusal(recorder, text)
    with contextlib.nullcontext() if reproducers is None else reproducers.judging(kernel, plan, fills):
        if measured := gauge_plan(kernel, plan, gauge):
            CaseJudge(harness, recorder, kernel, measured).gauge()
        run = CaseJudge(harness, recorder, kernel, plan, fills).judge(inspect)
    recorder.run_judged(kernel.name)
    return run


def refused(recorder: CaseRecorder, kernel: Kernel, draft: Plan, reason: Reason) -> NoReturn:
    """Ends a case that ``kernel`` refuses for ``reason``: not applicable. Raises ConformanceFailure if the kernel
    states its limits and no rule of its family says that it must refuse ``draft``."""
    if text := objection(kernel, draft, reason):
        _wrong_refusal(recorder, text)
    recorder.not_applicable(reason)


def _wrong_refusal(recorder: CaseRecorder, text: str) -> NoReturn:
    recorder.verdict("refusal", False, text)
    raise ConformanceFailure(f"refusal: {text}")


#: Elements of all tensors, gaps included, up to which the TTGIR of a kernel that failed is run.
EXPLAINED = 1 << 22


@dataclass
class CaseJudge:
    """Judges ``plan`` of ``kernel`` with ``fills`` (None: all of them) and records what it sees. ``compiled`` is None
    until the plan was compiled, and if its grid is empty."""

    harness: Harness
    recorder: CaseRecorder
    kernel: Kernel
    plan: Plan
    fills: tuple[str, ...] | None = None
    compiled: CompiledPlan | None = None

    def judge(self, inspect: Inspection | None = None) -> CaseRun:
        """Returns the run. Raises ConformanceFailure or CompileFailure if a check fails, ``inspect`` included, and
        CaseEnded if the code needs too much memory or nothing can run the plan."""
        recorder, settings = self.recorder, self.harness.settings
        trial = self._compile_and_run()
        trial, lanes = self._with_lanes_of_code(trial)
        executor = None if isinstance(trial, Reason) else trial.executor
        verdicts = [*trial.verdicts, *lanes] if isinstance(trial, Trial) else []
        verdicts += self.grid_verdicts()
        diagnosis = trial.diagnosis if isinstance(trial, Trial) else ""
        causes = [f" | CAUSE {verdict.text}" for verdict in lanes if not verdict.passed]
        if causes:
            first, *rest = (diagnosis or f"FAIL {lanes[0].check}").split("\n")
            diagnosis = "\n".join([first + causes[0], *rest])
        right = all(verdict.passed for verdict in verdicts)
        if self.compiled is not None and not right and settings.explains:
            diagnosis = f"{diagnosis}\n{self.explain(self.compiled, verdicts)}".lstrip()
        if self.compiled is not None and right and settings.executes:
            trial, of_code = self.execute(self.compiled, trial)
            verdicts += of_code
            if any(verdict.passed for verdict in of_code) and executor is not ExecutorName.DEVICE:
                executor = ExecutorName.TTGIR
        recorder.judged_by(executor)
        if self.compiled is not None:
            with recorder.timed("check"):
                verdicts += self._code_verdicts(self.compiled, inspect)
                if isinstance(trial, Trial) and trial.compiled is not None:
                    verdicts.append(_identity_verdict(self.compiled.main, trial.compiled))
            self._record_code(self.compiled.main)
            if unknown := unknown_orders((self.compiled.main, *self.compiled.others.values())):
                recorder.set(observed={"order": {"unknown": unknown}})
            if self.kernel.persistent:
                recorder.set(observed={"persistent": True})
        recorder.add(*verdicts)
        _raise_if_failed(verdicts, diagnosis)
        if isinstance(trial, Reason):
            recorder.not_run(trial)
        return CaseRun(self.plan, trial, self.compiled.main if self.compiled is not None else None, recorder)

    def gauge(self) -> None:
        """Ends the test as not applicable if the plan, compiled in place of the case's own, needs too much memory."""
        with contextlib.suppress(CompileFailure):  # then the case's own compilation tells
            self.compiled = self._compiled(self._compilations())
            self.pass_over(f"as measured for {self.plan.problem.id}")

    def _compilations(self) -> dict[str, Any]:
        return {name: self.harness.pool.submit(*launch) for name, launch in launches_to_compile(self.plan).items()}

    def _compiled(self, compilations: Mapping[str, Any]) -> CompiledPlan | None:
        compiled = compile_plan(self.recorder, compilations)
        if compiled is not None:
            self.recorder.cache_checks.append(lambda: cache_fault(self.harness, self.plan, compiled))
        return compiled

    def _compile_and_run(self) -> Trial | Reason:
        """Compiles the plan and runs it. Ends the test if its code needs too much memory."""
        compilations = self._compilations()
        # First the code: a compiler that dies takes no device with it, and what may not fit is not interpreted.
        first = self.harness.settings.has_gpu or self.kernel.estimated_refusal(self.plan) is not None
        if first:
            self.compiled = self._compiled(compilations)
            self.pass_over()
        try:
            trial = self._run()  # while the pool compiles
        except Exception as error:
            trial = self._reason_if_compiled(error, compilations)
        if not first:
            self.compiled = self.compiled or self._compiled(compilations)
            if not isinstance(trial, Trial) or trial.passed:
                self.pass_over()
        return trial

    def _with_lanes_of_code(self, trial: Trial | Reason) -> tuple[Trial | Reason, list[Verdict]]:
        """Returns the trial with the values that the code gives to undefined lanes, and the verdict about them. The
        record has what that trial gave."""
        if not isinstance(trial, Trial) or self.compiled is None:
            return trial, []
        llir = self.compiled.texts("llir") or ()
        again, verdicts = judged_lanes(self.harness, self.kernel, self.plan, self.fills, trial, llir)
        if again is not trial:
            record_trial(self.recorder, again)
        return again, verdicts

    def _reason_if_compiled(self, error: Exception, compilations: dict[str, Any]) -> Reason:
        """Returns the reason why the source was not run if the interpreter raised ``error`` for a kernel that the
        compiler accepts; else raises ``error``."""
        reason = None if self.harness.settings.has_gpu else reason_if_compiled(error)
        if reason is None:
            raise error
        try:
            self.compiled = self.compiled or self._compiled(compilations)
        except CompileFailure:
            raise error from error.__cause__
        if self.compiled is None:
            raise error
        return self._not_interpreted(reason)

    def _not_interpreted(self, reason: Reason) -> Reason:
        """Writes into the record that the source was not run for ``reason``, and returns it."""
        self.recorder.set(executor=None, observed={"source": f"not run: {reason.detail}"})
        return reason

    def _run(self) -> Trial | Reason:
        """Runs the plan with each fill and judges the numbers, or says why nothing can run it."""
        executor = self.harness.executor_for(self.plan.problem)
        if isinstance(executor, Reason):
            self.recorder.set(executor=None)
            return executor
        self.recorder.set(executor=executor.name)
        explained = faults_explained(self.harness, self.recorder, self.kernel, self.plan, self.fills)
        try:
            with self.recorder.timed("run"), explained:
                trial = self.harness.run(
                    lambda: self.harness.trial(self.kernel, self.plan, self.fills), needed(self.plan.problem)
                )
        except InterpreterUnsupported as error:
            return self._not_interpreted(error.reason)
        record_trial(self.recorder, trial)
        record_edges(self.recorder, trial)
        return trial

    def pass_over(self, how: str = "") -> None:
        """Ends the test as not applicable if the code needs more memory than the target has: an autotuner passes over
        such a config, too. The record keeps what it needs; the reason ends with ``how``."""
        if self.compiled is None:
            return
        others = sorted(self.compiled.others.values(), key=lambda each: -each.resources.shared_memory)
        for artefact in (self.compiled.main, *others):
            if excess := over_memory(artefact.resources, self.plan.target):
                self._record_code(artefact)
                self.recorder.run_judged(self.plan.kernel)
                text = "; ".join([*excess, how] if how else excess)
                self.recorder.not_applicable(Reason(ReasonCode.SHARED_MEMORY, self.plan.config.id, text))

    def execute(self, compiled: CompiledPlan, trial: Trial | Reason) -> tuple[Trial | Reason, list[Verdict]]:
        """Runs the TTGIR of ``compiled``. Returns the trial that stands for the case, and what failed or was shown.
        Where nothing else can run the plan, its trial is that of the TTGIR."""
        texts = compiled.texts("ttgir")
        if texts is None:
            _record_execution(self.recorder, Executed(unknown="a kernel without its TTGIR"))
            return trial, []
        lanes: list[Verdict] = []
        if isinstance(trial, Reason) and not is_own(
            self.kernel
        ):  # of ours, the interpreter shows that none reaches one
            severity = self.kernel.contract(self.plan, ExecutorName.TTGIR).undefined_lanes
            stages = [compiled.texts(stage) or () for stage in ("ttir", "llir")]
            unknown, lanes = lanes_of_code(self.plan, severity, *stages)
            if unknown:
                _record_execution(self.recorder, Executed(unknown=unknown))
                return trial, []
        result = self._executed(compiled, texts, anew=isinstance(trial, Reason))
        _record_execution(self.recorder, result)
        verdicts = [*result.verdicts, *lanes]
        if not result.unknown and isinstance(trial, Reason) and result.trial is not None:
            trial = result.trial
            record_trial(self.recorder, trial)
            verdicts += [verdict for verdict in trial.verdicts if verdict.passed]
        return trial, verdicts

    def _executed(self, compiled: CompiledPlan, texts: list[str], *, anew: bool) -> Executed:
        with self.recorder.timed("execute"):
            ptx = compiled.texts("ptx") or ()
            return self.harness.executed(self.kernel, self.plan, texts, self.fills, ptx=ptx, anew=anew)

    def explain(self, compiled: CompiledPlan, verdicts: Iterable[Verdict]) -> str:
        """Runs the TTGIR of a kernel that is wrong on a device, as ``verdicts`` show, and returns a sentence for the
        diagnosis."""
        problem = self.plan.problem
        size = sum(int(tensor.span) for tensor in (*problem.operands, *problem.outputs))
        if size > EXPLAINED:
            return f"its TTGIR was not run: {size} elements are too many"
        texts = compiled.texts("ttgir")
        if texts is None:
            return "its TTGIR was not run: there is none"
        try:
            result = self._executed(compiled, texts, anew=False)
        except Exception as error:  # what explains a failure may not take its place
            return f"its TTGIR was not run: {type(error).__name__}: {error}"
        _record_execution(self.recorder, result)
        wrong = next((verdict for verdict in result.verdicts if not verdict.passed), None)
        if wrong is not None:
            return f"its TTGIR is wrong, too: {wrong.text}"
        if result.unknown:
            return f"its TTGIR was not run: {result.unknown}"
        right = f"its TTGIR is right in {len(set(result.orders))} orders"
        if others := sorted(_wrong_fills(verdicts) - {*result.fills}):
            ran = f"with {', '.join(result.fills)}" if result.fills else "without a fill"
            return f"{right} {ran}, and was not run with {', '.join(others)}: where the fault arises is not known"
        return f"{right}: the fault arises below it, on the device, or in an order that was not run"

    def grid_verdicts(self) -> list[Verdict]:
        """Returns the objections of the suite's own formula to the grid that a kernel of this package planned: none, as
        a rule."""
        kernel, plan = self.kernel, self.plan
        expected = expected_grid(kernel, plan, carveout.current()) if is_own(kernel) else None
        if expected in (None, plan.grid):
            return []
        text = f"{kernel.name} planned the grid {plan.grid}, {expected} is required by the sizes and blocks"
        return [Verdict(str(Check(CheckKind.GRID, "formula")), False, text)]

    def _code_verdicts(self, compiled: CompiledPlan, inspect: Inspection | None) -> list[Verdict]:
        """Returns verdicts on the features that the kernel declares and on the target's limits."""
        kernel, plan, target = self.kernel, self.plan, self.plan.target
        verdicts, launches = _codegen_verdicts(compiled.main, target, kernel.features(plan)), {"": compiled.main}
        launches |= compiled.others
        for name, artefact in launches.items():
            code = f"{kernel.name}, {name}," if name else kernel.name
            verdicts += [*fault_verdicts(code, artefact), *order_verdicts(code, artefact)]
        if is_own(kernel):
            where_made = _codegen_verdicts(compiled.main, target, descriptor_features(kernel, plan))
            verdicts += [verdict for verdict in where_made if not verdict.passed]
            for name, artefact in launches.items():
                verdicts += plan_verdicts(kernel, plan, artefact, name)
        verdicts += [_resource_verdict(name, artefact, target) for name, artefact in launches.items()]
        if inspect is not None:
            verdicts.append(inspect(compiled.main))
        return verdicts

    def _record_code(self, artefact: Artefact) -> None:
        whole = self.harness.settings.whole_tier  # to disassemble would slow the shorter tiers
        observed = {
            "resources": dataclasses.asdict(artefact.resources),
            "compile_s": round(artefact.seconds, 3),
            "compile_cached": artefact.cached,
            "code": kernel_figures.describe(artefact, self.plan.target, disassemble=whole),
        }
        self.recorder.set(artefacts=artefact.stages, observed=observed)


def _wrong_fills(verdicts: Iterable[Verdict]) -> set[str]:
    """The names of the fills with which a check failed."""
    failed = (Check.parse(verdict.check) for verdict in verdicts if not verdict.passed)
    by_fill = (CheckKind.NUMERICS, CheckKind.MEMORY, CheckKind.REPEAT)
    return {check.subject.partition("/")[0] for check in failed if check.kind in by_fill and check.subject}


def _record_execution(recorder: CaseRecorder, result: Executed) -> None:
    """Writes into the record what running the TTGIR of one plan showed. If one of several plans is wrong or could not
    be run, the record keeps that. Otherwise it would say that all are right."""
    earlier = recorder.record().observed.get("ttgir", {})
    kept = {name: earlier[name] for name in ("wrong", "unknown") if name in earlier}
    recorder.set(observed={"ttgir": {**result.observed, **kept, "passed": result.passed and not kept}})


def gauge_plan(kernel: Kernel, plan: Plan, gauge: Problem | None) -> Plan | None:
    """Returns the plan that tells whether the config of ``plan`` fits; None if that of ``plan`` is to tell. It is made
    in the variant of examples, if it is another plan and the kernel estimates that the config does not fit."""
    usual = plan.config.in_variant(kernel.example_variant())
    own = gauge is not None and gauge.id == plan.problem.id and plan.variant == usual
    if gauge is None or own or kernel.estimated_refusal(plan) is None:
        return None
    try:
        return kernel.plan(gauge, plan.config, plan.target, usual, estimated=False)
    except NotApplicable:
        return None


def launches_to_compile(plan: Plan) -> dict[str, tuple[CompileRequest, Launch]]:
    """Returns the request that compiles each launch of ``plan``, and that launch over tensors without memory. The main
    launch comes first and is called "", the others have the name of their function. Launches with an empty grid are
    left out; so is everything if that of the main launch is."""
    if 0 in plan.grid:
        return {}
    main = meta_launch(plan, plan.target)
    factory = "conformance.kernels.catalogue:meta_step"
    steps = [(CompileRequest(factory, (plan, number), plan.target), step) for number, step in enumerate(main.steps)]
    steps.sort(key=lambda pair: pair[1] is not main)
    return {
        "" if step is main else step.function.fn.__name__: (request, step) for request, step in steps if not step.empty
    }


@dataclass(frozen=True)
class CompiledPlan:
    """The compiled launches of one plan: its main launch, and by function name those before and after it."""

    main: Artefact
    others: Mapping[str, Artefact]

    def texts(self, stage: str) -> list[str] | None:
        """The text of each at ``stage``, the main one first; None if one has none, as a kernel that was compiled
        elsewhere may."""
        artefacts = (self.main, *self.others.values())
        lacking = any(stage not in artefact.stages for artefact in artefacts)
        return None if lacking else [artefact.text(stage) for artefact in artefacts]


def compile_plan(recorder: CaseRecorder, compilations: Mapping[str, Any]) -> CompiledPlan | None:
    """Waits for ``compilations``, handles by the names of :func:`launches_to_compile`. Raises CompileFailure if a
    launch does not compile; None if there is nothing to do."""
    artefacts: dict[str, Artefact] = {}
    with recorder.timed("compile"):
        for name, handle in compilations.items():
            result = handle.result()
            if result.status is not Status.PASS or result.artefact is None:
                raise result.failure(name)
            artefacts[name] = result.artefact
    if not artefacts:
        return None
    return CompiledPlan(artefacts.pop(""), artefacts)


#: Seconds that a failed case waits for its kernel to be compiled in an empty folder.
CACHE_CHECK_SECONDS = 60.0


def cache_fault(harness: Harness, plan: Plan, compiled: CompiledPlan) -> Fault | None:
    """Returns the fault of Triton's cache if it holds other kernels of ``plan`` than compilations in an empty folder
    make. A file that it has lost is such a fault, too. Returns None if there is none, or it cannot be compared. A
    device takes each kernel from the cache."""
    for artefact in (compiled.main, *compiled.others.values()):
        if lost := [path for path in artefact.stages.values() if not path.exists()]:
            return cache_suspect(f"{lost[0]} was removed after it had been compiled: end what removes files there")
    requests = launches_to_compile(plan)
    with contextlib.suppress(Exception):  # what explains a failure may not take its place
        for name, artefact in {"": compiled.main, **compiled.others}.items():
            if not artefact.cached and not harness.settings.has_gpu:
                continue
            payload = (requests[name][0], artefact.stages)
            task = Task("conformance.execution.compile.compile_worker:suspicion", payload, plan.target)
            if text := harness.pool.submit(task).result(CACHE_CHECK_SECONDS).value:
                return cache_suspect(text)
    return None


def record_trial(recorder: CaseRecorder, trial: Trial) -> None:
    """Writes into the record what ran, and how much of it."""
    recorder.set(observed={"grid": trial.grid, "programs": trial.programs, "outputs": trial.digests})
    record_completeness(recorder, trial)


def record_completeness(recorder: CaseRecorder, judged: Trial) -> None:
    """Writes into the record whether every fill was judged, and over how many tiles. If the case has several trials,
    the most complete one counts. Of these it is the one with the most tiles in the direction that has the fewest."""
    before = recorder.record().observed
    if (judged.complete, min(judged.tiles)) > (before.get("complete", False), min(before.get("tiles", (-1,)))):
        recorder.set(observed={"complete": judged.complete, "tiles": judged.tiles})


def _codegen_verdicts(artefact: Artefact, target: Target, features: Features) -> list[Verdict]:
    return [
        Verdict(
            str(Check(CheckKind.REQUIRES if feature.required else CheckKind.FORBIDS, feature.feature.name)),
            feature.passed,
            feature.text,
            {"stage": feature.stage} if feature.passed else {"stage": feature.stage, "path": str(feature.path)},
        )
        for feature in codegen_checks.check(artefact, target, features.required, features.forbidden)
    ]


def _resource_verdict(launch: str, artefact: Artefact, target: Target) -> Verdict:
    """The check of the target's limits. ``launch`` names a launch other than the main one, which is ""."""
    excess = over_limits(artefact.resources, target)
    within = "; ".join(["within the target's limits", *near_limits(artefact.resources, target)])
    return Verdict(str(Check(CheckKind.RESOURCES, launch)), not excess, "; ".join(excess) or within)


def _identity_verdict(artefact: Artefact, launched: Any) -> Verdict:
    """Checks that the code that was checked is the code that ran: both bear Triton's hash of source and options."""
    same = artefact.metadata["hash"] == launched.hash
    text = f"judged {artefact.metadata['hash']}, launched {launched.hash}"
    return Verdict(str(Check(CheckKind.CODEGEN, "judged-is-launched")), same, text)


def _raise_if_failed(verdicts: Iterable[Verdict], diagnosis: str = "") -> None:
    failed = [f"{verdict.check}: {verdict.text}" for verdict in verdicts if not verdict.passed]
    if failed:
        raise ConformanceFailure("\n".join([diagnosis, *failed] if diagnosis else failed))
