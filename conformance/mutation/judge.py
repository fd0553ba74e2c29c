"""Judges mutants by the plans of a tier: the likeliest to fail first, up to the first that fails.

What no plan kills is compiled: see :mod:`conformance.mutation.compile_process`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from conformance.exception_text import raised_by_kernel
from conformance.execution.interpreter.executor import InterpreterUnsupported
from conformance.execution.trial import trial as trials
from conformance.execution.trial.fill_groups import fills_for
from conformance.execution.trial.trial import trial
from conformance.inputs.fills import applicable_fills
from conformance.judging.harness import needed
from conformance.kernels.catalogue import get
from conformance.machine import device_state
from conformance.machine.gpus import Turns
from conformance.mutation.compile_process import CompileProcess
from conformance.mutation.forked import ForkEnded, TooLong, limit_processor, told
from conformance.mutation.functions import DeviceFunction
from conformance.mutation.line_coverage import LineCoverage
from conformance.mutation.mutants import Mutant, plant
from conformance.mutation.results import MutantOutcome, Result, mutant_key, plan_digest, plans_digest
from conformance.mutation.tier_plans import TierPlan

#: Plans after which the compiler is asked in which others the fault changes any code; on a device, where running a plan
#: takes longer than asking.
BEFORE_COMPILING, BEFORE_COMPILING_ON_DEVICE = 10, 4
#: How many times as many plans it is asked about the next time.
MORE_PLANS = 4
#: Wall seconds without a verdict after which a mutant hangs; on a device, where a plan is compiled first, and waits for
#: others that need much memory.
SILENCE, DEVICE_SILENCE = 300.0, 180.0


def _not_explained(*_: object) -> str:
    """In the place of a diagnosis, which takes longer than the verdict."""
    return ""


@dataclass(frozen=True)
class Baseline:
    """The unchanged kernel on one plan: whether it ``passed``, in about how many processor ``seconds``, and the
    ``lines`` of each device function that ran; None if nothing says which. A plan that fails kills no mutant."""

    passed: bool
    seconds: float
    lines: Mapping[str, list[int]] | None
    text: str = ""


@dataclass(frozen=True)
class KillingFailure:
    """The failure that killed a mutant."""

    check: str
    text: str = ""
    cause: str = ""


def baseline(plan: TierPlan, executor: Callable[[], Any], seed: int, coverage: LineCoverage) -> Baseline:
    """Returns the baseline of ``plan``, by the first of its fills. ``coverage`` tells the lines that it reaches."""
    where = executor()
    kernel = get(plan.plan.kernel)
    fills = fills_of(plan, where)
    before = time.process_time()
    coverage.forget()
    try:
        result = trial(kernel, plan.plan, where, seed=seed, names=fills[:1])
    except Exception as error:
        return Baseline(False, time.process_time() - before, None, f"{type(error).__name__}: {error}"[:300])
    failed = [f"{verdict.check}: {verdict.text}" for verdict in result.verdicts if not verdict.passed]
    seconds = (time.process_time() - before) * len(fills)
    return Baseline(not failed, seconds, coverage.lines(), "; ".join(failed)[:300])


def assumed(plan: TierPlan) -> Baseline:
    """A baseline on a device without running it: there the plans of a tier are many, and a sample of mutants needs few.
    A plan that kills is tried with the unchanged kernel anyway. Its seconds are those of its bytes."""
    return Baseline(True, needed(plan.plan.problem) / 2**30, None)


def fills_of(plan: TierPlan, executor: Any) -> tuple[str, ...]:
    """Returns the fills that the case of ``plan`` has on ``executor``."""
    contract = get(plan.plan.kernel).contract(plan.plan, executor.name)
    return tuple(applicable_fills(plan.plan.problem, contract, plan.fills))


class Judge:
    """Judges mutants one after the other. ``executor`` makes the executor where it is first needed: that of a device
    must not be made before a fork."""

    def __init__(
        self,
        plans: Sequence[TierPlan],
        baselines: Mapping[str, Baseline],
        executor: Callable[[], Any],
        where: str,
        seed: int,
        *,
        interprets: bool,
        causes: bool = False,
    ) -> None:
        """``interprets``: the executor is the interpreter. ``causes``: the diagnosis says what it takes for the cause
        of each kill, which takes seconds."""
        self._plans = [plan for plan in plans if plan.id in baselines and baselines[plan.id].passed]
        self._all = plans
        self._baselines, self._executor, self._where, self._seed = baselines, executor, where, seed
        self._interprets, self._causes = interprets, causes
        #: tells equivalent mutants; without it none is found
        self.compiler: CompileProcess | None = None
        self._kills: dict[str, Counter[str]] = {}
        self._kills_by_test: Counter[str] = Counter()
        self._warm: set[str] = set()
        self._sound: dict[str, bool] = {}
        self._reaching: dict[str, list[TierPlan]] = {}

    def reaching(self, function: DeviceFunction) -> list[TierPlan]:
        """Returns the plans that can reach ``function``."""
        if function.name not in self._reaching:
            self._reaching[function.name] = [plan for plan in self._all if function in plan.functions]
        return self._reaching[function.name]

    def key(self, mutant: Mutant) -> str:
        """Returns the key under which the result of ``mutant`` is kept."""
        return mutant_key(mutant, self.reaching(mutant.function), self._where)

    def order(self, mutant: Mutant) -> list[TierPlan]:
        """Returns the plans that reach the fault. First come those that killed others of its function, then the
        quickest of each kernel and test by turns. Tests that killed most have their turn first."""
        kills = self._kills.setdefault(mutant.function.name, Counter())
        seconds = {plan.id: self._baselines[plan.id].seconds + 0.02 for plan in self._plans}
        reaching = sorted(
            (plan for plan in self._plans if self._reaches(plan, mutant)), key=lambda each: seconds[each.id]
        )
        turns: Counter[tuple[str, str]] = Counter()
        ranks = {}
        for plan in reaching:
            turn = plan.plan.kernel, plan.test
            turns[turn] += 1
            ranks[plan.id] = -kills[plan.id] / seconds[plan.id], turns[turn], -self._kills_by_test[plan.test]
        return sorted(reaching, key=lambda plan: ranks[plan.id])

    def _reaches(self, plan: TierPlan, mutant: Mutant) -> bool:
        if mutant.function not in plan.functions:
            return False
        lines = self._baselines[plan.id].lines
        first, last = mutant.lines
        return lines is None or any(first <= line <= last for line in lines.get(mutant.function.name, ()))

    def judge(self, mutant: Mutant) -> Result:
        """Runs the plans that reach ``mutant`` and returns its result."""
        started = time.monotonic()
        plans = self.order(mutant)
        compiled = self.compiler is not None
        result = Result(
            *(self.key(mutant), mutant.id, mutant.kind, mutant.function.name, MutantOutcome.SURVIVED),
            diff=tuple(mutant.diff),
            compiled=compiled,
        )
        if not plans:
            result = dataclasses.replace(result, text="no case of the tier reaches it")
        else:
            result = self._judge(mutant, plans, result)
        if not result.judged_by:
            result = dataclasses.replace(result, judged_by=plans_digest(self.reaching(mutant.function)))
        return dataclasses.replace(result, seconds=round(time.monotonic() - started, 3))

    def _judge(self, mutant: Mutant, plans: list[TierPlan], result: Result) -> Result:
        if self.compiler is None:
            return self._run(mutant, plans, result)[0]
        size = BEFORE_COMPILING if self._interprets else BEFORE_COMPILING_ON_DEVICE
        result, failure = self._run(mutant, plans[:size], result)
        end, asked, differing, codes, errors = size, 0, set[str](), set[str](), set[str]()
        while failure is None and asked < len(plans):
            compared = self.compiler.compare(mutant, plans[asked : end * MORE_PLANS])
            differing |= compared.differing
            codes |= compared.codes
            errors.add(compared.error)
            batch = [plan for plan in plans[end : end * MORE_PLANS] if plan.id in compared.differing]
            asked = end = end * MORE_PLANS
            result, failure = self._run(mutant, batch, result)
        if failure is not None:
            return result
        if "" not in errors:
            return dataclasses.replace(result, outcome=MutantOutcome.COMPILE_ERROR, check="compile", text=min(errors))
        if not differing:
            same = self.compiler.same_in_random(mutant, plans)
            if same is None:  # the tier's plans cannot kill it, and others might: no equivalent
                return result
            text = f"the same code in {len(plans)} plans of the tier ({len(codes)} distinct) and {same} random ones"
            return dataclasses.replace(result, outcome=MutantOutcome.EQUIVALENT, text=text)
        if unmet := self.compiler.check(mutant, frozenset(differing), plans):
            check, text = unmet
            return dataclasses.replace(result, outcome=MutantOutcome.KILLED, check=check, text=text)
        return result

    def _run(self, mutant: Mutant, plans: list[TierPlan], result: Result) -> tuple[Result, KillingFailure | None]:
        """``result`` after ``plans`` ran, up to the first that failed, and that failure."""
        for plan in plans[:3]:
            self._make_fills(plan)
        ran = 0
        latest: TierPlan | None = None
        failure: KillingFailure | None = None
        try:
            silence = SILENCE if self._interprets else DEVICE_SILENCE
            for event in told(functools.partial(self._work, mutant, plans), silence, limit_memory=self._interprets):
                if isinstance(event, int):
                    ran, latest = ran + 1, plans[event]
                else:
                    failure = event
        except ForkEnded as ended:
            failure = KillingFailure(ended.how)
        result = dataclasses.replace(result, plans=result.plans + ran)
        if failure is None or latest is None:
            return result, failure
        if self._unchanged_fails(latest):
            self._plans.remove(latest)
            return self._run(mutant, plans[plans.index(latest) + 1 :], result)
        self._kills[mutant.function.name][latest.id] += 1
        self._kills_by_test[latest.test] += 1
        result = dataclasses.replace(
            result, outcome=MutantOutcome.KILLED, plan=latest.id, judged_by=plan_digest(latest)
        )
        return dataclasses.replace(result, check=failure.check, text=failure.text, cause=failure.cause), failure

    def _make_fills(self, plan: TierPlan) -> None:
        """Makes the fills of ``plan`` in this process, which its forks then share."""
        if plan.id not in self._warm and self._interprets:
            self._warm.add(plan.id)
            executor = self._executor()
            contract = get(plan.plan.kernel).contract(plan.plan, executor.name)
            fills_for(plan.plan.problem, contract, self._seed, fills_of(plan, executor)[:1])

    def _work(self, mutant: Mutant, plans: Sequence[TierPlan], tell: Callable[[Any], None]) -> None:
        """In a fork: tells the number of each plan before it runs, and the failure of the first that fails."""
        executor = self._executor()
        plant(mutant)
        for number, plan in enumerate(plans):
            tell(number)
            limit_processor(20 * self._baselines[plan.id].seconds + 5 if self._interprets else 0)
            failure = self._failure(plan, executor)
            if failure is not None:
                limit_processor(0)
                tell(failure)
                return
        limit_processor(0)

    def _failure(self, plan: TierPlan, executor: Any) -> KillingFailure | None:
        """Returns the first failure of a fill of ``plan``; None if all pass. On a device that has too little memory for
        it nothing does, and processes that need much of it take turns."""
        much = not self._interprets and needed(plan.plan.problem) >= device_state.MUCH
        if much and device_state.shortage(needed(plan.plan.problem)) is not None:
            return None
        with Turns("mutants").with_much_memory() if much else contextlib.nullcontext():
            return self._first_failure(plan, executor)

    def _first_failure(self, plan: TierPlan, executor: Any) -> KillingFailure | None:
        for number, fill in enumerate(fills_of(plan, executor)):
            kernel = get(plan.plan.kernel)
            try:
                with mock.patch.object(trials, "explain", _not_explained):
                    result = trial(kernel, plan.plan, executor, seed=self._seed, names=(fill,), place_in_case=number)
            except TooLong as error:
                return KillingFailure("too many steps", cause=raised_by_kernel(error) if self._causes else "")
            except InterpreterUnsupported:
                return None
            except Exception as error:
                cause = raised_by_kernel(error) if self._causes else ""
                return KillingFailure("exception", f"{type(error).__name__}: {error}"[:300], cause)
            failed = [verdict for verdict in result.verdicts if not verdict.passed]
            if failed:
                return KillingFailure(failed[0].check, failed[0].text[:300], self._cause(plan, executor))
        return None

    def _cause(self, plan: TierPlan, executor: Any) -> str:
        """Returns the cause that a case names, which sees all fills; empty without a diagnosis."""
        if not self._causes:
            return ""
        limit_processor(0)  # a diagnosis is none of the kernel's steps
        names = fills_of(plan, executor)
        diagnosis = trial(get(plan.plan.kernel), plan.plan, executor, seed=self._seed, names=names).diagnosis
        first = diagnosis.split("\n")[0].split(" | ")
        return "; ".join(part.removeprefix("CAUSE ") for part in first if part.startswith("CAUSE "))

    def _unchanged_fails(self, plan: TierPlan) -> bool:
        """True if the unchanged kernel fails on ``plan``; asked when a plan kills for the first time."""
        if plan.id not in self._sound:
            unchanged = told(
                lambda tell: tell(self._failure(plan, self._executor())), SILENCE, limit_memory=self._interprets
            )
            try:
                self._sound[plan.id] = list(unchanged) == [None]
            except ForkEnded:
                self._sound[plan.id] = False
        return not self._sound[plan.id]
