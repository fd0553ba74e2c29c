"""The plans that a tier's cases judge, without their judgement: what mutants are judged by."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

from conformance.cases.case_table import Selection
from conformance.cases.lookup import CaseLookup, case_ids, test_function
from conformance.heuristics.configs import AnyConfig
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.harness import Harness
from conformance.judging.planner import PlanEnds, PlannedRun, ask
from conformance.judging.settings import Settings
from conformance.kernels.catalogue import get, meta_launch
from conformance.kernels.kernel import Kernel, NotApplicable, Plan, Variant
from conformance.machine.gpus import Gpus
from conformance.mutation.functions import DeviceFunction, reachable
from conformance.problems import Problem
from conformance.records import ExecutorName, Reason, ReasonCode
from conformance.user_files.expected_failures import ExpectedFailures


@dataclass(frozen=True)
class TierPlan:
    """A plan that ``case`` judges with ``fills`` (None: with all). ``id`` names both the case and which of its plans it
    is."""

    id: str
    case: str
    plan: Plan
    fills: tuple[str, ...] | None

    @property
    def test(self) -> str:
        """The test of its case."""
        return self.case.partition("[")[0]

    @cached_property
    def functions(self) -> tuple[DeviceFunction, ...]:
        """The device functions that its launches can reach."""
        return tuple(
            reachable(step.function for step in meta_launch(self.plan, self.plan.target).steps if not step.empty)
        )


def tier_plans(selection: Selection, executor: ExecutorName, seed: int = 0) -> list[TierPlan]:
    """Returns the plans of every case of ``selection`` that ``executor`` would run, in the order of the cases. Of plans
    that differ in the target alone, the interpreter runs the first."""
    settings = Settings(
        *(selection.tier, tuple(target.id for target in selection.targets), selection.kernels, (), seed, None, Gpus()),
        *(None, 0.0, (), ExpectedFailures()),
    )
    lookup = CaseLookup(selection.targets)
    harness = Harness(settings)
    harness.pool.close()
    vars(harness).update(pool=_NoPool(), executor=Reason(ReasonCode.NO_DEVICE, "mutants", "nothing is run"))
    plans: dict[object, TierPlan] = {}
    for case in case_ids(selection):
        number = itertools.count()
        for plan, fills in _asked(case, lookup, harness):
            kernel = get(plan.kernel)
            interpreted = executor is ExecutorName.INTERPRETER
            if interpreted and kernel.estimated_refusal(plan) is not None:
                continue  # only the compiled code tells whether it fits
            contract = kernel.contract(plan, executor)
            target = None if interpreted else plan.target
            key = (plan.kernel, plan.problem, plan.config, plan.variant, plan.grid, contract, fills, target)
            if key not in plans and 0 not in plan.grid:
                plans[key] = TierPlan(f"{case}#{next(number)}", case, plan, fills)
    return list(plans.values())


def _asked(case: str, lookup: CaseLookup, harness: Harness) -> list[tuple[Plan, tuple[str, ...] | None]]:
    """Returns the plans for which ``case`` asks ``conform``, up to where its test needs a result."""
    if "conform" not in inspect.signature(test_function(case.partition("[")[0])).parameters:
        return []
    call = lookup(case)
    if call is None:
        return []
    asking = _Asking()
    ask(call, {"conform": asking.conform, "harness": harness, "recorder": CaseRecorder(case)})
    return asking.plans


class _NoPool:
    """Stands for the compile pool: nothing is compiled, and the test ends where it asks for that."""

    def submit(self, *_: object, **__: object) -> NoReturn:
        raise PlanEnds("compile")


class _Asking:
    """Stands for the fixture ``conform``."""

    def __init__(self) -> None:
        self.plans: list[tuple[Plan, tuple[str, ...] | None]] = []

    def conform(
        self,
        kernel: Kernel,
        problem: Problem,
        *,
        config: AnyConfig,
        target: Any,
        variant: Variant | None = None,
        fills: tuple[str, ...] | None = None,
        inspect: object = None,
        gauge: object = None,
        **fields: Any,
    ) -> PlannedRun:
        whole = dataclasses.replace(kernel.usual_variant if variant is None else variant, **fields)
        try:
            plan = kernel.plan(problem, config, target, whole, estimated=False)
        except NotApplicable:
            raise PlanEnds("refused") from None
        self.plans.append((plan, fills))
        return PlannedRun(plan)


def functions_of(plans: Sequence[TierPlan]) -> list[DeviceFunction]:
    """Returns the device functions that ``plans`` can reach, each once, sorted by name."""
    functions = {function.name: function for plan in plans for function in plan.functions}
    return [functions[name] for name in sorted(functions)]
