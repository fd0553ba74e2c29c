"""Asks a compiler about mutants in a separate process: a process that interprets cannot compile.

Two questions are answered. Does the fault change the code of any plan? Code is compared after Triton's first passes
(TTIR), without locations and with its values renumbered: where it is the same, so is all that follows. And has the
compiled code what the kernel declares, within the target's limits?
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.execution.compile.specialisation import specialisation
from conformance.kernels.catalogue import get, meta_launch, own_kernels
from conformance.kernels.kernel import Kernel, NotApplicable, Plan
from conformance.kernels.launch import Launch
from conformance.mutation.forked import ForkEnded, told
from conformance.mutation.functions import DeviceFunction, reachable
from conformance.mutation.mutants import Mutant, replace
from conformance.mutation.tier_plans import TierPlan

#: Random plans of each kernel by which code is compared in addition to those of the tier.
RANDOM_PLANS = 12
#: Plans of which a mutant's code is compiled to the end.
COMPILED = 8
#: Wall seconds that one question may take.
SILENCE = 600.0


@dataclass(frozen=True)
class Compared:
    """``differing``: ids of the plans whose code the fault changes. ``error``: what the compiler said if it takes the
    fault in none of them. ``codes``: digests of the unchanged code."""

    differing: frozenset[str]
    error: str
    codes: frozenset[str]


@dataclass(frozen=True)
class _Question:
    """Asked of the process: about ``plans`` with the ``source`` of a function (None: unchanged). ``whole``: compile to
    the end, and check."""

    function: str
    source: str | None
    plans: tuple[Plan, ...]
    whole: bool


class CompileProcess:
    """The process, started when it is first asked. Close it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._codes: dict[Plan, str] = {}
        self._unchanged: dict[Plan, str] = {}  # the check that the unchanged code of a plan fails; empty: none

    def compare(self, mutant: Mutant, plans: Sequence[TierPlan]) -> Compared:
        """Compares the code of the mutant with that of the unchanged kernel for ``plans``, which reach the fault."""
        distinct = list(dict.fromkeys(plan.plan for plan in plans))
        original, changed = self._codes_of(mutant, distinct)
        errors = [answer.removeprefix("error ") for answer in changed if answer.startswith("error ")]
        differs = {plan for plan, *pair in zip(distinct, original, changed, strict=True) if len(set(pair)) > 1}
        return Compared(
            frozenset(plan.id for plan in plans if plan.plan in differs),
            errors[0] if len(errors) == len(changed) else "",
            frozenset(original),
        )

    def same_in_random(self, mutant: Mutant, plans: Sequence[TierPlan]) -> int | None:
        """Of how many random plans of the kernels of ``plans`` the code is the same; None if it differs in any."""
        more = _random_plans(mutant.function.name, plans)
        original, changed = self._codes_of(mutant, more)
        return len(more) if original == changed else None

    def check(self, mutant: Mutant, differing: frozenset[str], plans: Sequence[TierPlan]) -> tuple[str, str] | None:
        """The first check of compiled code that fails, and its text; None if none does. Asked of a few of the plans
        that differ: one of each dtype and precision first, then of other kernels and variants. A plan of which a check
        of the unchanged code fails, as the expected failure of a release does, says nothing of the fault."""
        chosen: dict[object, Plan] = {}
        kinds: dict[object, Plan] = {}
        for plan in (plan.plan for plan in plans if plan.id in differing):
            problem = plan.problem
            chosen.setdefault((problem.dtype, getattr(problem, "precision", None)), plan)
            kinds.setdefault((plan.kernel, plan.variant.id), plan)
        chosen.update(kinds)
        asked = tuple(dict.fromkeys(chosen.values()))[:COMPILED]
        answers = self._ask(_Question(mutant.function.name, mutant.source, asked, True))
        for plan, answer in zip(asked, answers, strict=True):
            if answer and not self._fails_unchanged(mutant.function.name, plan):
                check, _, text = answer.partition(": ")
                return check, text
        return None

    def _fails_unchanged(self, function: str, plan: Plan) -> bool:
        if plan not in self._unchanged:
            (self._unchanged[plan],) = self._ask(_Question(function, None, (plan,), True))
        return bool(self._unchanged[plan])

    def _codes_of(self, mutant: Mutant, plans: Sequence[Plan]) -> tuple[list[str], list[str]]:
        """Digests of the unchanged code of each plan, and of the code with the fault."""
        function = mutant.function.name
        missing = tuple(plan for plan in plans if plan not in self._codes)
        self._codes.update(zip(missing, self._ask(_Question(function, None, missing, False)), strict=True))
        changed = self._ask(_Question(function, mutant.source, tuple(plans), False))
        return [self._codes[plan] for plan in plans], changed

    def _ask(self, question: _Question) -> list[str]:
        if not question.plans:
            return []
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        pickle.dump(question, process.stdin)
        process.stdin.flush()
        answer = pickle.load(process.stdout)
        if isinstance(answer, ForkEnded):
            return ["error " + answer.how] * len(question.plans)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        command = [sys.executable, "-m", "conformance.mutation.compile_process"]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def close(self) -> None:
        """Ends the process, if it was started."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()


def _random_plans(function: str, plans: Sequence[TierPlan]) -> list[Plan]:
    """Random plans of the kernels of ``plans`` that reach ``function``."""
    from conformance.cases.random_problems import random_plan

    kernels = {plan.plan.kernel: plan.plan.target for plan in plans}
    return [plan for name, target in kernels.items() for plan in _random_plans_of(name, target, random_plan)]


@functools.cache
def _random_plans_of(name: str, target: Any, random_plan: Callable[..., Plan]) -> tuple[Plan, ...]:
    plans = []
    for number in range(RANDOM_PLANS):
        try:
            plans.append(random_plan(get(name), number, target, large=False))
        except NotApplicable:
            break
    return tuple(plan for plan in dict.fromkeys(plans) if 0 not in plan.grid)


# In the process.


class _Stopped(Exception):
    """Holds what Triton has made of a kernel when its first stage is done."""


def _stop_after_first_stage() -> None:
    """Has every backend of Triton stop with :class:`_Stopped`."""
    from triton.backends import backends

    for backend in backends.values():
        compiler = backend.compiler

        def add_stages(self: Any, stages: dict[str, Any], *more: Any, original: Any = compiler.add_stages) -> Any:
            original(self, stages, *more)
            for name in list(stages)[1:]:
                stages[name] = _stop

        compiler.add_stages = add_stages


def _stop(module: Any, metadata: Any) -> None:
    raise _Stopped(str(module))


def without_names(code: str) -> str:
    """Returns the TTIR without locations, its values numbered in the order in which they occur. Constants replace their
    names, because they stand at the top in the order in which the source needed them.

    >>> without_names("%5 = arith.addi %3, %4 : i32 loc(#loc1)")
    '%0 = arith.addi %1, %2 : i32'
    """
    code = re.sub(r"^#loc.*$|\s*loc\([^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*\)", "", code, flags=re.MULTILINE)
    constants: dict[str, str] = {}

    def constant(line: re.Match[str]) -> str:
        constants[line[1]] = f"<{line[2]}>"
        return ""

    code = re.sub(r"^\s*(%[\w.$-]+) = arith\.constant (.*)$", constant, code, flags=re.MULTILINE)
    code = re.sub(r"%[\w.$-]+", lambda match: constants.get(match[0], match[0]), code)
    numbers: dict[str, str] = {}
    code = re.sub(r"%[\w.$-]+", lambda match: numbers.setdefault(match[0], f"%{len(numbers)}"), code)
    return "\n".join(line.strip() for line in code.splitlines() if line.strip())


def _functions(plans: Sequence[Plan]) -> Iterator[DeviceFunction]:
    for plan in plans:
        yield from reachable(step.function for step in meta_launch(plan, plan.target).steps if not step.empty)


def _answer(question: _Question, tell: Callable[[Any], None]) -> None:
    """In a fork: tells an answer for each plan."""
    from conformance.execution.compile.compile_worker import Compiler

    os.environ["TRITON_CACHE_DIR"] = folder = tempfile.mkdtemp()
    if question.source is not None:
        function = next(each for each in _functions(question.plans) if each.name == question.function)
        replace(function, question.source, "mutant")
    if not question.whole:
        _stop_after_first_stage()
    compiler, texts = Compiler(None), dict[object, str]()
    try:
        for plan in question.plans:
            tell(_checked(compiler, plan) if question.whole else _code(compiler, plan, texts))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _code(compiler: Any, plan: Plan, texts: dict[object, str]) -> str:
    """Returns a digest of the code of every launch of ``plan``, or "error " and what the compiler said. ``texts`` holds
    the code of launches by what it depends on."""
    digest = hashlib.sha256()
    for step in meta_launch(plan, plan.target).steps:
        if step.empty:
            continue
        what = specialisation(step, plan.target, by_name=True)
        key = (what.name, what.arguments, what.options)
        if key not in texts:
            texts[key] = _first_stage(compiler, step, plan)
        if texts[key].startswith("error "):
            return texts[key]
        digest.update(texts[key].encode())
    return digest.hexdigest()


def _first_stage(compiler: Any, step: Launch, plan: Plan) -> str:
    try:
        compiler.compile(step, plan.target, deduplicate=False)
    except _Stopped as stopped:
        return without_names(str(stopped))
    except Exception as error:
        return f"error {_innermost(error)}"
    raise AssertionError("the compiler did not stop after its first stage")


def _innermost(error: BaseException) -> str:
    """Returns the error that Triton's own hide, and the last line of what it says."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {('', *str(error).strip().splitlines())[-1]}"[:300]


def _checked(compiler: Any, plan: Plan) -> str:
    """The first check of the compiled code of ``plan`` that fails, with its text; empty if none does."""
    from conformance import codegen_checks
    from conformance.execution.compile.kernel_figures import over_limits
    from conformance.judging.code_faults import fault_verdicts
    from conformance.judging.plan_code import descriptor_features, plan_verdicts

    kernel: Kernel = get(plan.kernel)
    launch = meta_launch(plan, plan.target)
    for step in launch.steps:
        if step.empty:
            continue
        try:
            artefact = compiler.compile(step, plan.target)
        except Exception as error:
            return f"compile: {_innermost(error)}"
        if excess := over_limits(artefact.resources, plan.target):
            return f"resources: {'; '.join(excess)}"
        own = plan.kernel in own_kernels()  # the rules of the suites are about these alone
        name = "" if step is launch else step.function.fn.__name__
        for verdict in (*fault_verdicts(name, artefact), *(plan_verdicts(kernel, plan, artefact, name) if own else ())):
            return f"{verdict.check}: {verdict.text}"
        if step is launch:
            for features in (kernel.features(plan), *([descriptor_features(kernel, plan)] if own else [])):
                for result in codegen_checks.check(artefact, plan.target, features.required, features.forbidden):
                    if not result.passed:
                        kind = "requires" if result.required else "forbids"
                        return f"codegen/{kind}/{result.feature.name}: {result.text}"
    return ""


def main() -> None:
    """Answers pickled questions on standard input until it ends."""
    from conformance.execution.compile.compile_worker import hash_triton

    hash_triton()
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            question: _Question = pickle.load(questions)
        except EOFError:
            return
        answer: Any
        try:
            answer = list(told(functools.partial(_answer, question), SILENCE, limit_memory=False))
        except (ForkEnded, RuntimeError) as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    # by its name, so that what it unpickles is what it asks for
    from conformance.mutation.compile_process import main as named_main

    named_main()
