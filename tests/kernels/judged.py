"""Judges kernels in the interpreter, in a child process: ``failures(cases)`` returns the verdicts that failed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def failures(cases):
    """One text per failed check of ``cases``, each (kernel name, problem, config, target id, variant, fill names)."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    command = [sys.executable, __file__]
    done = subprocess.run(command, input=pickle.dumps(list(cases)), env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def child():
    import torch

    from conformance import targets
    from conformance.execution.interpreter import InterpreterExecutor
    from conformance.execution.trial import trial
    from conformance.kernels import catalogue

    torch.set_num_threads(1)
    executor, found = InterpreterExecutor(), []
    for name, problem, config, target, variant, fills in pickle.loads(sys.stdin.buffer.read()):
        kernel = catalogue.get(name)
        plan = kernel.plan(problem, config, targets.find(target), variant)
        verdicts = trial(kernel, plan, executor, names=fills).verdicts
        assert len(verdicts) > 2, f"{problem.id} has none of the fills {fills}"
        where = f"{name} {problem.id} {config.id} {variant.id}"
        found += [f"{where}: {verdict.check}: {verdict.text}" for verdict in verdicts if not verdict.passed]
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    child()
