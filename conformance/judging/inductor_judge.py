"""Judges programs that Inductor compiles, with each choice of a template, or bit by bit."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from conformance import codegen_checks
from conformance.codegen_checks import Feature
from conformance.execution.compile.kernel_figures import over_limits
from conformance.execution.trial.trial import trial
from conformance.heuristics.configs import AnyConfig
from conformance.inductor.compile import provider
from conformance.inductor.compile.observation import has_option
from conformance.inductor.compile.program import (
    Choice,
    Generated,
    GeneratedKernel,
    Launches,
    Program,
    Unsupported,
    program_of,
)
from conformance.inductor.compile.provider import CompiledProgram
from conformance.inductor.replay.exact import exact_verdicts, wide_verdicts
from conformance.inductor.replay.graph_evaluation import NotExact
from conformance.inductor.replay.graph_fills import graph_fills
from conformance.inductor.replay.pinned_programs import (
    CallExecutor,
    PinnedKernel,
    config_of,
    described_config,
    expected_grid,
)
from conformance.inductor.replay.replay import ReplayUnsupported
from conformance.inductor.source import spellings
from conformance.inductor.source.source_checks import exactly, in_source
from conformance.inductor.source.spellings import NoSuchTemplate
from conformance.inductor.topics.attention import list_operands, lists_of
from conformance.inductor.topics.gemm import graph_of
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.conform import record_completeness
from conformance.judging.harness import Harness, faults_explained, need_device, needed, record, record_edges
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Executor
from conformance.machine import device_state
from conformance.machine.environment_faults import fault_of_text
from conformance.problems import Operand, Problem
from conformance.records import (
    Check,
    CheckKind,
    CompileFailure,
    ConformanceFailure,
    Reason,
    ReasonCode,
    Status,
    Verdict,
)
from conformance.targets import Target

#: Choices of each lowering that one case pins, by tier; None: all of them.
CHOICES: Mapping[str, int | None] = {"quick": 1, "default": 2, "full": None, "exhaustive": None}

#: Fills of the quick tier for the further sizes of one compiled function: wrong addresses show in them.
FURTHER_FILLS = ("transparent",)

#: What every program with a pinned choice is compiled with: Triton's templates only, nothing measured, nothing padded.
PINNED_SETTINGS: Mapping[str, Any] = {
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "TRITON",
    "shape_padding": False,
}


Size = TypeVar("Size")


@dataclass
class PinnedRun:
    """One choice that was pinned, compiled, run and judged. What a test checks of it goes into the record, and a
    failed check ends the case when every choice has been judged."""

    choice: Choice
    generated: Generated
    kernel: GeneratedKernel
    config: AnyConfig
    target: Target
    _recorder: CaseRecorder

    @property
    def excess(self) -> str:
        """Returns a text of the target's limits that the kernel exceeds, if any: the autotuner drops such a choice when
        it does not launch."""
        used = self.kernel.artefact.resources if self.kernel.artefact is not None else None
        return "; ".join(over_limits(used, self.target)) if used is not None else ""

    @property
    def module(self) -> str:
        """The generated module that holds the template's kernel."""
        return next(text for text in reversed(self.generated.modules) if self.kernel.name in text)

    def check(self, name: str, passed: bool, text: str = "", **details: Any) -> None:
        """Adds what the check ``name`` said of this choice."""
        check = Check.parse(name)
        check = Check(check.kind, check.subject, self.config.id)
        self._recorder.verdict(str(check), passed, text, **details)

    def record(self, verdicts: Iterable[Verdict]) -> None:
        """Adds ``verdicts`` on this choice."""
        for verdict in verdicts:
            self.check(verdict.check, verdict.passed, verdict.text, **verdict.details)

    def filecheck(self, name: str, directives: str, where: str = "kernel") -> None:
        """Runs FileCheck ``directives`` over the template kernel's source, over the "module" that holds it, or over
        what it was compiled to at a stage."""
        if where in ("kernel", "module"):
            text = self.kernel.source if where == "kernel" else self.module
            verdict = in_source(f"source/{name}", directives, text, where)
        elif self.kernel.artefact is None:
            verdict = Verdict(f"{where}/{name}", False, f"{self.kernel.name} was not compiled: {self.kernel.error}")
        else:
            text = codegen_checks.code(where, self.kernel.artefact.text(where))
            verdict = in_source(f"{where}/{name}", directives, text, where)
        self.record([verdict])

    def exactly(self, count: int, name: str, pattern: str, where: str = "kernel") -> None:
        """Checks that ``pattern`` occurs ``count`` times there: see :meth:`filecheck`."""
        self.filecheck(name, exactly(count, pattern), where)

    def code(self, requires: Sequence[Feature] = (), forbids: Sequence[Feature] = ()) -> None:
        """Checks features of what the template's kernel was compiled to."""
        if self.kernel.artefact is None:
            self.check(
                str(Check(CheckKind.CODEGEN)), False, f"{self.kernel.name} was not compiled: {self.kernel.error}"
            )
            return
        for check in codegen_checks.check(self.kernel.artefact, self.target, requires, forbids):
            kind = CheckKind.REQUIRES if check.required else CheckKind.FORBIDS
            self.check(str(Check(kind, check.feature.name)), check.passed, check.text, stage=check.stage)


class Inductor:
    """Compiles programs where this run can, and judges them."""

    def __init__(self, harness: Harness, recorder: CaseRecorder) -> None:
        self.harness = harness
        self.recorder = recorder
        why = "what Inductor generates is replayed by the interpreter, and its TTGIR is not run"
        recorder.proves_at_most("interpreted", why, without_device=True)

    def compile(self, program: Program, target: Target) -> CompiledProgram:
        """Returns the program compiled on the device, or for ``target`` without one. The case ends as not-run where
        Inductor cannot generate code for ``target``."""
        self.recorder.set(target=target, options={"program": program})
        if not target.is_device and target.architecture.multiprocessors != target.multiprocessors:
            self.recorder.set(observed={"assumed": f"{target.multiprocessors} multiprocessors"})
        try:
            with self.recorder.timed("compile"), self.harness.together():
                return provider.compile_program(program, target, self.harness.pool)
        except Unsupported as error:
            self.recorder.not_run(error.reason)

    def compiled(self, program: Program, target: Target) -> CompiledProgram:
        """:meth:`compile`, and the record names the graph. Raises CompileFailure if the program does not compile."""
        self.recorder.set(kernel=f"inductor/{program.graph.rpartition(':')[2]}")
        compiled = self.compile(program, target)
        if compiled.generated.failure is not None:
            raise _not_generated(str(compiled.generated.failure))
        return compiled

    def record(self, verdicts: Iterable[Verdict], prefix: str = "") -> None:
        """Adds ``verdicts`` to the case, which fails at its end if one of them failed."""
        record(self.recorder, verdicts, prefix)

    def conclude(self) -> None:
        """Ends a case of which a verdict has failed so far: raises ConformanceFailure."""
        failed = [verdict for verdict in self.recorder.verdicts if not verdict.passed]
        if failed:
            raise ConformanceFailure("\n".join(f"{verdict.check}: {verdict.text}" for verdict in failed))

    def need_device(self, what: str, target: Target) -> None:
        """Ends the case as not run where ``what`` cannot be done on ``target``. That is so if nothing is run on a
        device, or if code is only compiled for that target."""
        need_device(self.harness, self.recorder, what)
        if not target.is_device:
            detail = f"{what}: a GPU is required, and for {target.id} code is only compiled"
            self.recorder.not_run(Reason(ReasonCode.NO_DEVICE, "device", detail))

    def need_option(self, *names: str) -> None:
        """Ends the case as not-applicable without one of the options ``names`` of torch._inductor.config."""
        for name in names:
            if not has_option(name):
                detail = f"torch {torch.__version__} has no option torch._inductor.config.{name}"
                self.recorder.not_applicable(Reason(ReasonCode.CAPABILITY, name, detail))

    def sized(self, large: Size, small: Size) -> Size:
        """Returns ``large`` on a device; ``small`` without one, where all is interpreted."""
        return large if self.harness.settings.has_gpu else small

    def executor(self) -> Executor:
        """Returns the executor of this case's code; ends the case as not run if there is none."""
        executor = self.harness.executor
        if isinstance(executor, Reason):
            self.recorder.not_run(executor)
        self.recorder.set(executor=executor.name)
        return executor

    def require(self, target: Target, *capabilities: str) -> None:
        """Ends the case as not-applicable if ``target`` lacks one of ``capabilities``."""
        for name in capabilities:
            capability = target.capability(name)
            if not capability.available:
                self.recorder.not_applicable(Reason(ReasonCode.CAPABILITY, name, capability.why))

    def template(self, kind: str) -> str:
        """The name of the installed torch's template of ``kind``, a key of ``spellings.TEMPLATES``; ends the case as
        not-applicable where it has none."""
        try:
            return spellings.template(kind)
        except NoSuchTemplate as error:
            self.recorder.not_applicable(error.reason)

    def choices_of(self, kind: str) -> str:
        """The expression for the names of choices of the template of ``kind``, see :meth:`template`."""
        return spellings.only(self.template(kind))

    def refused(self, problem: Problem, target: Target, template: str, error: str, **fields: Any) -> None:
        """Checks that compiling ``problem`` with only ``template``'s choices fails with the exception ``error``."""
        self.recorder.set(kernel=f"inductor/{template}", problem=problem)
        failure = self.compile(_program(problem, template, **fields), target).generated.failure
        seen = failure or "it was compiled"
        named = failure is not None and (error in failure.types or error in failure.message)
        self.recorder.verdict(f"refused/{problem.id}", named, f"{error} is required, seen: {seen}")

    def pinned(
        self,
        problem: Problem,
        target: Target,
        template: str,
        *,
        persistent: bool = False,
        also: Sequence[Problem] = (),
        fills: tuple[str, ...] | None = None,
        choices: int | None = None,
        **program: Any,
    ) -> Iterator[PinnedRun]:
        """Pins choices of ``template`` one by one: ``choices`` of them, or as many as the tier asks for. Judges the
        numbers, memory and grid of each, and yields it for the test's own checks. A choice past the target's limits is
        left out, as by the autotuner, and named in the record. The case ends as not run on a device with too little
        memory.

        ``persistent``: the grid is one program per SM. ``also``: problems that differ from ``problem`` in the sizes of
        marked dimensions, computed by the same compiled function. ``program`` holds further fields of a
        :class:`Program`, and ``out=True`` if the graph writes into the output that it is given.
        """
        calls = tuple(_operands(other) for other in also)
        unpinned = _program(problem, template, calls=calls, **program)
        self.recorder.set(kernel=f"inductor/{template}", problem=problem)
        if target.is_device and (shortage := device_state.shortage(needed(problem))) is not None:
            self.recorder.not_run(shortage)
        self.recorder.run_created(template)
        first = zlib.crc32(self.recorder.case.encode()) % 997
        most = choices or CHOICES[self.harness.settings.tier]
        judged, tried, matching = 0, 0, 1
        unjudged: Reason | None = None
        excess: list[str] = []
        try:
            while tried < matching and (most is None or judged < most):
                compiled = self.compile(replace(unpinned, pick=first + tried), target)
                tried += 1
                matching = max((lowering.matching for lowering in compiled.generated.lowerings), default=0)
                failure = compiled.generated.failure
                if failure is not None and "OutOfResources" in failure.message:
                    excess.append(failure.message)
                    continue
                run = self._generated(compiled, target, template)
                if run.excess:
                    excess.append(f"{run.config.id}: {run.excess}")
                    continue
                unjudged = self._judged(run, compiled, (problem, *also), persistent, fills) or unjudged
                judged += 1
                yield run
        except GeneratorExit:  # the caller has seen enough: what was judged until then counts
            self.recorder.run_judged(template)
            if unjudged is not None:
                self.recorder.leave_unjudged(unjudged)
            raise
        self.recorder.run_judged(template)
        self.recorder.set(observed={"choices": judged, "past the limits": excess})
        self.conclude()
        if not judged:
            self.recorder.not_applicable(Reason(ReasonCode.SHARED_MEMORY, template, "; ".join(excess)))
        if unjudged is not None:
            self.recorder.not_run(unjudged)

    def choices(self, problem: Problem, target: Target, template: str, **program: Any) -> Iterator[Generated]:
        """Yields the results of one choice of ``template`` after another, as many as the tier asks for. Nothing of it
        is judged. ``program`` holds further fields of a :class:`Program`."""
        unpinned = _program(problem, template, **program)
        self.recorder.set(kernel=f"inductor/{template}", problem=problem)
        first = zlib.crc32(self.recorder.case.encode()) % 997
        most = CHOICES[self.harness.settings.tier]
        number, matching = 0, 1
        while number < matching and (most is None or number < most):
            generated = self.compile(replace(unpinned, pick=first + number), target).generated
            number += 1
            matching = max((lowering.matching for lowering in generated.lowerings), default=0)
            yield generated

    def _generated(self, compiled: CompiledProgram, target: Target, template: str) -> PinnedRun:
        """The run of the one kernel of ``template`` that was generated. Raises CompileFailure or ConformanceFailure if
        there is none."""
        generated = compiled.generated
        if generated.failure is not None:
            raise _not_generated(f"{template} was not generated: {generated.failure}")
        templates = [kernel for kernel in generated.kernels if kernel.kind == "template"]
        if len(templates) != 1 or not generated.left:
            names = ", ".join(kernel.name for kernel in generated.kernels)
            raise ConformanceFailure(f"one kernel of {template} is required, generated were: {names or 'none'}")
        kernel = templates[0]
        return PinnedRun(generated.left[0], generated, kernel, config_of(kernel.source), target, self.recorder)

    def _judged(
        self,
        run: PinnedRun,
        compiled: CompiledProgram,
        problems: Sequence[Problem],
        persistent: bool,
        fills: tuple[str, ...] | None,
    ) -> Reason | None:
        """Judges code and numbers. Returns the reason if the numbers cannot be judged."""
        self.recorder.set(config=run.config, observed={"choice": run.choice.description})
        described = described_config(run.choice)
        run.check("forced", described == run.config, f"chosen was {described}, generated {run.config}")
        for kernel in run.generated.kernels:
            text = f"{kernel.name}: {kernel.error}" if kernel.error else f"{kernel.name} compiled"
            run.check(str(Check(CheckKind.COMPILE, kernel.kind)), kernel.artefact is not None, text)
        if run.kernel.artefact is not None:
            used = run.kernel.artefact.resources
            self.recorder.set(artefacts=run.kernel.artefact.stages, observed={"resources": asdict(used)})
        sms = (run.target.limits.multiprocessors or 0) - (compiled.program.carveout or 0) if persistent else None
        for number, problem in enumerate(problems):
            grid = expected_grid(problem, run.config, run.target, sms, run.kernel.source)
            plan = Plan(run.choice.name, problem, run.config, Variant(), run.target, grid)
            quick = self.harness.settings.tier == "quick"
            names = FURTHER_FILLS if number and fills is None and quick else fills
            reason = self._judge_numbers(run, compiled, number, plan, names)
            if reason is not None:
                return reason
        return None

    def _judge_numbers(
        self, run: PinnedRun, compiled: CompiledProgram, number: int, plan: Plan, fills: tuple[str, ...] | None
    ) -> Reason | None:
        """Judges call ``number`` of the compiled function. Returns the reason if it cannot."""
        executor = self.harness.executor
        if isinstance(executor, Reason):
            return executor
        self.recorder.set(executor=executor.name)
        out = any(operand.name == plan.problem.output.name for operand in compiled.program.operands)
        caller = CallExecutor(executor, out=out)

        def call(tensors: Sequence[Tensor], observe: bool) -> tuple[tuple[Tensor, ...], Launches]:
            more = lists_of(plan.problem, tensors)
            return compiled.call([*tensors, *more], executor, number=number, observe=observe)

        pinned = PinnedKernel(call)
        try:
            with self.recorder.timed("run"):
                settings = self.harness.settings
                judge = functools.partial(trial, pinned, plan, caller, seed=settings.seed, names=fills)
                with faults_explained(self.harness, self.recorder, None, plan, fills):
                    result = self.harness.run(lambda: self.harness.repeated(judge), needed(plan.problem))
        except ReplayUnsupported as error:
            return error.reason
        record_completeness(self.recorder, result)
        record_edges(self.recorder, result)
        suffix = f"/{plan.problem.id}" if number else ""
        for verdict in result.verdicts:
            run.check(f"{verdict.check}{suffix}", verdict.passed, verdict.text, **verdict.details)
        if result.diagnosis:
            run.check(str(Check(CheckKind.DIAGNOSIS)), False, result.diagnosis)
        return None

    def exact(
        self,
        graph: str,
        operands: Sequence[Operand],
        target: Target,
        *,
        values: Mapping[str, Tensor] | None = None,
        reference: str | None = None,
        **program: Any,
    ) -> CompiledProgram:
        """Compiles any ``graph`` ("package.module:function") and judges its numbers bit by bit, for the fills of
        :func:`graph_fills`. Where it has none, operands are small integers, and the record says why; the reference is
        the same function in fp64 on the CPU, or ``reference`` in its place. ``values`` are those of some operands.

        What is wrong with the numbers fails the case at its end, so that the test can still judge the code. With small
        integers the test must see to it that no sum leaves the integers that fp32 holds; a result that the output's
        dtype cannot hold raises ValueError. A program that does not compile raises CompileFailure. ``program`` holds
        further fields of a :class:`Program`; what it does not set is as without autotuning.
        """
        settings = {"shape_padding": False, **dict(program.pop("settings", {}))}
        compiled = self.compiled(program_of(graph, operands, settings, **program), target)
        for kernel in compiled.generated.kernels:
            check = str(Check(CheckKind.COMPILE, kernel.name))
            self.recorder.verdict(check, kernel.artefact is not None, kernel.error or "compiled")
        self.record(self._exact(compiled, values or {}, reference))
        return compiled

    def generated_for_xpu(self, program: Program) -> CompiledProgram:
        """Returns the program generated for a GPU of Intel's, its numbers judged bit by bit in the interpreter. It is
        not compiled, and the record says so. Raises CompileFailure if it is not generated."""
        executor = self.executor()
        if executor.name != "interpreter":
            detail = "kernels for Intel's GPUs run here in the interpreter alone: use --no-gpu"
            self.recorder.proves_at_most("nothing", detail)
            self.recorder.not_run(Reason(ReasonCode.NO_INTERPRETER, "xpu", detail))
        self.recorder.set(
            kernel=f"inductor/{program.graph.rpartition(':')[2]}",
            options={"program": program},
            observed={"not compiled": "the installed Triton has no backend for Intel's GPUs"},
        )
        try:
            with self.recorder.timed("compile"), self.harness.together():
                compiled = provider.generate_for_xpu(program, self.harness.targets[0], self.harness.pool)
        except Unsupported as error:
            self.recorder.not_run(error.reason)
        if compiled.generated.failure is not None:
            raise _not_generated(str(compiled.generated.failure))
        self.record(self._exact(compiled, {}))
        return compiled

    def second_call(self, compiled: CompiledProgram, values: Mapping[str, Tensor] | None = None) -> list[Verdict]:
        """Verdicts on the numbers of the compiled function for the first of its program's further calls."""
        return self._exact(as_called(compiled, 1), values or {})

    def further_calls(self, compiled: CompiledProgram) -> Iterator[tuple[CompiledProgram, list[Verdict]]]:
        """For each of its program's further calls: the compiled function as if that were its only one, and verdicts on
        its numbers."""
        for number in range(1, len(compiled.program.calls) + 1):
            called = as_called(compiled, number)
            yield called, self._exact(called, {})

    def _exact(
        self, compiled: CompiledProgram, values: Mapping[str, Tensor], reference: str | None = None
    ) -> list[Verdict]:
        executor, seed = self.executor(), self.harness.settings.seed
        try:
            if reference is not None:
                raise NotExact("reference", "another function says what is right")
            fills = graph_fills(compiled.program, compiled.generated.modules, seed, values)
        except NotExact as narrow:
            fills = []
            self.recorder.set(observed={"small integers": str(narrow.reason)})
        try:
            with self.recorder.timed("run"):
                if fills:
                    return wide_verdicts(compiled, executor, fills)
                return exact_verdicts(compiled, executor, seed, values, reference)
        except ReplayUnsupported as error:
            self.recorder.not_run(error.reason)


def _not_generated(failure: str) -> CompileFailure:
    """The exception for a program that Inductor did not compile because of ``failure``."""
    return CompileFailure(Status.COMPILE_ERROR, failure, fault_of_text(failure))


def as_called(compiled: CompiledProgram, number: int) -> CompiledProgram:
    """``compiled`` as if call ``number`` of its program were the only one."""
    program = replace(compiled.program, operands=compiled.program.calls[number - 1], calls=())
    generated = replace(compiled.generated, invocations=compiled.generated.invocations[number:])
    return replace(compiled, program=program, generated=generated)


def _operands(problem: Problem) -> tuple[Operand, ...]:
    """Returns the arguments of the graph of ``problem``: its operands, and for attention the lists of blocks."""
    return (*problem.operands, *list_operands(problem))


def _program(problem: Problem, template: str, *, out: bool = False, **fields: Any) -> Program:
    """The program that computes ``problem`` with choices of ``template`` only."""
    settings = {**PINNED_SETTINGS, **dict(fields.pop("settings", {}))}
    graph, arguments = graph_of(problem)
    arguments += tuple(fields.pop("arguments", ()))
    operands = (*_operands(problem), *(problem.outputs if out else ()))
    return program_of(graph, operands, settings, arguments=arguments, templates=spellings.only(template), **fields)
