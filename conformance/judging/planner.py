"""Finds the launches that a case compiles: its test runs up to them. Nothing is compiled, run or judged."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from conformance.cases.case_table import Selection
from conformance.cases.lookup import CaseCall, CaseLookup, test_function
from conformance.cases.unrolled import multiply_adds, unrolled_product
from conformance.execution.compile.compilation import CompileRequest, Request
from conformance.execution.compile.compile_worker import named
from conformance.execution.compile.compiled_index import identity
from conformance.execution.compile.specialisation import specialisation
from conformance.heuristics.configs import AnyConfig
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.conform import gauge_plan, launches_to_compile
from conformance.judging.harness import Harness
from conformance.judging.settings import Settings
from conformance.kernels.catalogue import get
from conformance.kernels.kernel import Kernel, NotApplicable, Plan, Variant
from conformance.kernels.launch import Launch
from conformance.problems import Problem
from conformance.records import Reason, ReasonCode
from conformance.targets import Target

#: What a multiply-add of a matrix unit takes to compile, where an unrolled one takes 1.
MATRIX_UNIT_SHARE = 1 / 8


@dataclass(frozen=True)
class PlannedLaunch:
    """A launch that a case compiles. ``identity`` is that of :mod:`~conformance.execution.compile.compiled_index`,
    ``key`` that
    of its specialisation; ``work`` grows with the time that it may take to compile. It is needed only if the launch of
    identity ``unless_past`` fits its target; None: in any case."""

    identity: str
    key: str
    work: float
    request: CompileRequest
    unless_past: str | None = None


class PlanEnds(BaseException):
    """Ends a test where it asks for what only a compilation or a run can tell. A judge cannot catch it by mistake."""


@dataclass(frozen=True)
class PlannedRun:
    """Stands for the run of a case that is only planned."""

    plan: Plan

    def requires(self, *features: object) -> None:
        """Nothing was compiled that could be checked."""

    forbids = requires

    def __getattr__(self, name: str) -> NoReturn:
        raise PlanEnds(name)


def plan_cases(chosen: tuple[Settings, Selection, tuple[str, ...]], target: Target) -> dict[str, list[PlannedLaunch]]:
    """The launches of each case that settings, a selection and case ids choose: a ``Task`` for a compile process.
    Cases that follow one another are planned fastest if they are of one test and one kernel."""
    settings, selection, cases = chosen
    lookup = CaseLookup(selection.targets)
    return {case: plan_case(settings, selection, case, _call(lookup, case)) for case in cases}


def kernel_keys(chosen: tuple[Settings, Selection, tuple[str, ...]], target: Target) -> dict[str, tuple[str, ...]]:
    """The keys of the kernels that each case compiles, as :func:`plan_cases` finds them."""
    plans = plan_cases(chosen, target)
    return {case: tuple(sorted({launch.key for launch in plan})) for case, plan in plans.items()}


def _call(lookup: CaseLookup, case: str) -> CaseCall | None:
    """The call of ``case``; None for one of a suite that is not this package's, which has no ``conform``."""
    try:
        test_function(case.partition("[")[0])
    except KeyError:
        return None
    return lookup(case)


def plan_case(settings: Settings, selection: Selection, case: str, call: CaseCall | None) -> list[PlannedLaunch]:
    """The launches that ``case`` compiles, as far as its test says before it needs a result. None for a test that takes
    other fixtures than ``conform``, ``harness`` and ``recorder``."""
    if call is None:
        return []
    planner = _Planner(settings, selection, case)
    ask(call, {"conform": planner.conform, "harness": planner.harness, "recorder": planner.recorder})
    return planner.launches


def ask(call: CaseCall, fixtures: Mapping[str, Any]) -> None:
    """Calls the test with ``fixtures`` up to where it needs a result. A test that takes others is not called."""
    names = inspect.signature(call.test).parameters.keys() - call.values.keys()
    if not names <= fixtures.keys():
        return
    try:
        call.test(**call.values, **{name: fixtures[name] for name in names})
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # a missing result, a skip, an error: that shows when the case runs
        pass


class _PlannedRecorder(CaseRecorder):
    """The recorder of a planned test, which runs nothing."""

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        if stage == "run":
            raise PlanEnds(stage)
        with super().timed(stage):
            yield


class _Planner:
    """Stands in for the fixtures of a planned test, and collects the launches that it asked for."""

    def __init__(self, settings: Settings, selection: Selection, case: str) -> None:
        self.launches: list[PlannedLaunch] = []
        self.recorder = _PlannedRecorder(case)
        named_targets = dataclasses.replace(settings, targets=tuple(target.id for target in selection.targets))
        self.harness = Harness(named_targets)  # no process looks for devices here: none is in sight
        vars(self.harness).update(pool=self, executor=Reason(ReasonCode.NO_DEVICE, "planner", "nothing is run"))

    def conform(
        self,
        kernel: Kernel,
        problem: Problem,
        *,
        config: AnyConfig,
        target: Target,
        variant: Variant | None = None,
        fills: object = None,
        inspect: object = None,
        gauge: Problem | None = None,
        **fields: Any,
    ) -> PlannedRun:
        """Notes what :func:`conformance.judging.conform.conform` compiles."""
        try:
            whole = dataclasses.replace(kernel.usual_variant if variant is None else variant, **fields)
            plan = kernel.plan(problem, config, target, whole, estimated=False)
        except NotApplicable as refusal:
            self.recorder.not_applicable(refusal.reason)
        unless_past = None
        if measured := gauge_plan(kernel, plan, gauge):
            first = len(self.launches)
            for request, launch in launches_to_compile(measured).values():
                self.submit(request, launch)
            unless_past = self.launches[first].identity if len(self.launches) > first else None
        first = len(self.launches)
        for request, launch in launches_to_compile(plan).values():
            self.submit(request, launch)
        self.launches[first:] = [dataclasses.replace(each, unless_past=unless_past) for each in self.launches[first:]]
        return PlannedRun(plan)

    def submit(self, request: Request, launch: Launch | None = None) -> Any:
        """Stands for the pool's: notes the request. Its result ends the test."""
        if not isinstance(request, CompileRequest):
            raise PlanEnds("a task has only a result")
        launch = launch or named(request.factory)(request.payload, request.target)
        key = specialisation(launch, request.target).key
        launch_id = identity(launch, request.target, exact=not request.deduplicate)
        self.launches.append(PlannedLaunch(launch_id, key, _work(request.payload), request))
        return _NoResult()


class _NoResult:
    def result(self) -> NoReturn:
        raise PlanEnds("result")


def _work(payload: Any) -> float:
    """Multiply-adds of one thread in a step of the main loop, of which matrix units have fewer to compile; 0 for a
    payload that is no plan."""
    plan = payload[0] if isinstance(payload, tuple) else payload
    if not isinstance(plan, Plan):
        return 0.0
    share = 1 if unrolled_product(plan.problem) else MATRIX_UNIT_SHARE
    return multiply_adds(get(plan.kernel), plan.problem, plan.config) * share
