"""Judges kernels in the interpreter, in a child process: ``failures(cases)`` returns the verdicts that failed."""

from __future__ import annotations

from tests.kernels.interpreter_runs import in_interpreter


def failures(cases):
    """One text per failed check of ``cases``, each (kernel name, problem, config, target id, variant, fill names)."""
    return in_interpreter(failures_here, list(cases))


def failures_here(cases):
    from conformance import targets
    from conformance.execution.interpreter.executor import InterpreterExecutor
    from conformance.execution.trial.trial import trial
    from conformance.kernels import catalogue

    executor, texts = InterpreterExecutor(), []
    for name, problem, config, target, variant, fills in cases:
        kernel = catalogue.get(name)
        plan = kernel.plan(problem, config, targets.find(target), variant)
        verdicts = trial(kernel, plan, executor, names=fills).verdicts
        numbers = [verdict for verdict in verdicts if verdict.check.startswith("numerics/")]
        assert len(numbers) >= len(problem.outputs), f"{problem.id}: not every output was judged with {fills}"
        where = f"{name} {problem.id} {config.id} {variant.id}"
        texts += [f"{where}: {verdict.check}: {verdict.text}" for verdict in verdicts if not verdict.passed]
    return texts
