"""Plants faults in generated code, for tests that the checks which the fixture ``inductor`` runs catch each of them.

A child process with Triton's interpreter drives the suites' own tests. What they compile is edited in the compile
process before it is compiled to a binary. So source, binary and numbers all have the fault.
"""

from __future__ import annotations

import atexit
import copy
import dataclasses
import functools
import importlib
import json
import os
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.inductor.compile.program import Generated, Program
from conformance.records import Verdict
from conformance.targets import Target

ROOT = Path(__file__).resolve().parents[2]
#: Seconds after which a child process is ended.
PATIENCE = 900


@dataclass(frozen=True)
class Fault:
    """One edit of generated modules: ``pattern`` (a regular expression) becomes ``replacement``, which changes it.

    ``case`` is a key of the ``CASES`` of the tests' module, which drive a suite with ``inductor`` and a target.
    ``caught`` are the beginnings of the names of checks that must fail; "raises X" stands for an exception.
    """

    name: str
    case: str
    pattern: str
    replacement: str
    caught: tuple[str, ...]

    @property
    def shows_in_results(self) -> bool:
        """True if it is enough to run the generated code, and the kernels need not be compiled."""
        return all(check.startswith(("numerics", "memory", "raises")) for check in self.caught)

    def edit(self, module: str) -> str:
        """``module`` with the fault. Raises ValueError if that is what it was."""
        edited = re.sub(self.pattern, self.replacement, module, flags=re.MULTILINE)
        if edited == module:
            raise ValueError(f"{self.name}: {self.pattern!r} changes nothing in the generated module")
        return edited


def suite_test(suite: str, test: str, **parameters: Any) -> Callable[[Any, Target], None]:
    """Runs ``test`` of the suite with ``parameters``. The suite is imported then: pytest would ask for its marks."""

    def run(inductor: Any, target: Target) -> None:
        getattr(importlib.import_module(f"conformance.suites.{suite}"), test)(inductor, target, **parameters)

    return run


def failed(verdicts: Sequence[Verdict]) -> list[str]:
    """The checks of the verdicts that failed."""
    return [verdict.check for verdict in verdicts if not verdict.passed]


# --- in the compile process -------------------------------------------------------------------------------------------


#: What torch did for a program on a target by a worker: its failure, the log, and its counters.
_compilations: dict[tuple[str, Target, str], tuple[Any, dict[str, Any], dict[str, Any]]] = {}
#: What workers generated for programs without a fault.
_healthy: dict[tuple[str, Target, str], Generated] = {}


def generate_edited(payload: tuple[Program, Fault | None, str], target: Target) -> Generated:
    """Returns what a worker, a module's name, generates for the program, its modules edited before their kernels are
    compiled; after that if the fault shows in the results. Faults of one program share what torch generated."""
    from unittest import mock

    from torch._dynamo.utils import counters

    from conformance.inductor.compile import deviceless_worker as module

    program, fault, worker = payload
    key = (repr(program), target, worker)
    if fault is not None and fault.shows_in_results and key in _healthy:
        healthy = _healthy[key]
        return dataclasses.replace(healthy, modules=tuple(map(fault.edit, healthy.modules)))
    compile_all = module.compile_all

    def edited(program: Program, log: Any, device: str) -> Any:
        if key not in _compilations:
            failure = compile_all(program, log, device)
            _compilations[key] = failure, copy.deepcopy(vars(log)), copy.deepcopy(dict(counters))
        failure, fields, counts = _compilations[key]
        vars(log).update(copy.deepcopy(fields))
        counters.update(copy.deepcopy(counts))
        if fault is not None:
            log.modules[:] = [fault.edit(text) for text in log.modules]
        return failure

    with mock.patch.object(module, "compile_all", edited):
        generated: Generated = importlib.import_module(f"conformance.inductor.compile.{worker}").generate(
            program, target
        )
    if fault is None:
        _healthy[key] = generated
    return generated


# --- in the child with the interpreter --------------------------------------------------------------------------------


def failed_checks(fault: Fault | None, case: str, tests: Any, pool: Any) -> list[str]:
    """The checks that fail, without the config in their names, where ``case`` of the module ``tests`` meets the
    fault. A case with a fault is judged by the fills that ``caught`` names, or by the first, and no cause is searched;
    without a fault by all fills."""
    from unittest import mock

    from conformance.execution.compile.compilation import Task
    from conformance.execution.trial import trial
    from conformance.inductor.compile import provider
    from conformance.inputs.fills import applicable_fills
    from conformance.judging.case_recorder import CaseEnded, CaseRecorder
    from conformance.judging.harness import Harness
    from conformance.judging.inductor_judge import Inductor
    from conformance.records import ConformanceFailure
    from conformance.targets import find

    def planted(
        program: Program, target: Target, pool: Any, worker: str = "deviceless_worker"
    ) -> provider.CompiledProgram:
        task = Task(f"{__name__}:generate_edited", (program, fault, worker), target)
        result = pool.submit(task).result()
        if result.value is None:
            raise RuntimeError(f"{result.status}: {result.reason}: {result.error}")
        return provider.CompiledProgram(program, result.value)

    def needed_fills(problem: Any, contract: Any, names: Any = None) -> list[str]:
        fills = applicable_fills(problem, contract, names)
        named = {part for check in fault.caught for part in check.split("/")} if fault is not None else fills
        return [fill for fill in fills if fill in named] or fills[:1]

    chosen: Any = SimpleNamespace(
        tier="quick", targets=("sm_90",), has_gpu=False, compile_only=False, seed=0, repeats=1
    )
    harness, recorder = Harness(chosen), CaseRecorder(f"planted::{case}")
    harness.pool = pool
    raised = []
    with (
        mock.patch.object(provider, "compile_program", planted),
        mock.patch.object(provider, "generate_for_xpu", functools.partial(planted, worker="xpu")),
        mock.patch.object(trial, "applicable_fills", needed_fills),
        mock.patch.object(trial, "explain", return_value=""),
    ):
        try:
            tests.CASES[case](Inductor(harness, recorder), find("sm_90"))
        except ConformanceFailure:
            pass  # its verdicts are in the record
        except CaseEnded as skip:
            raised = [f"skipped {skip.reason}"]
        except Exception as error:
            traceback.print_exc()
            raised = [f"raises {type(error).__name__}"]
    failed = [verdict.check.partition("@")[0] for verdict in recorder.verdicts if not verdict.passed]
    assert recorder.verdicts or raised, f"{case} judged nothing"
    return list(dict.fromkeys([*failed, *raised]))


@functools.cache
def compile_pool() -> Any:
    """One process that compiles what every table needs."""
    import torch

    from conformance.execution.compile.compilation import CompilePools

    torch.set_num_threads(1)
    return CompilePools(1, 120.0)


def table(name: str) -> dict[str, list[str]]:
    """Fault or healthy case -> the checks that fail, for the tests' module ``name``."""
    tests = importlib.import_module(name)
    failures = {
        case: failed_checks(None, case, tests, compile_pool()) for case in sorted({f.case for f in tests.FAULTS})
    }
    return failures | {fault.name: failed_checks(fault, fault.case, tests, compile_pool()) for fault in tests.FAULTS}


def serve() -> None:
    """Reads programs, one a line as JSON, and runs each. Prints what it called ``result``, or how it failed, as JSON
    behind an @."""
    for line in sys.stdin:
        namespace: dict[str, Any] = {}
        try:
            exec(json.loads(line), namespace)
            answer = {"result": namespace.get("result")}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print("@" + json.dumps(answer), flush=True)
    if compile_pool.cache_info().currsize:
        compile_pool().close()


# --- in the test ------------------------------------------------------------------------------------------------------


def _environment(*, interpret: bool = True) -> dict[str, str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    return environment | {
        "TRITON_INTERPRET": str(int(interpret)),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }


def child(code: str, *, interpret: bool = True) -> str:
    """Returns the output of ``code`` in a separate process: the interpreter is chosen when Triton is imported."""
    command = [sys.executable, "-c", code]
    environment = _environment(interpret=interpret)
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
    return process.stdout


def missed(faults: Sequence[Fault], failures: Mapping[str, Sequence[str]]) -> str:
    """A table of the faults, each with the checks that caught it, if one of them was not caught as it must be."""
    rows, wrong = [], False
    for fault in faults:
        lacking = [name for name in fault.caught if not any(check.startswith(name) for check in failures[fault.name])]
        wrong |= bool(lacking)
        rows.append(
            f"| {fault.name} | {', '.join(failures[fault.name]) or 'passes'} | "
            f"{'lacks ' + ', '.join(lacking) if lacking else ''} |"
        )
    return "\n".join(["", "| fault | caught by | |", "|---|---|---|", *rows]) if wrong else ""


@functools.cache
def _kept_process() -> subprocess.Popen[str]:
    """A process with the interpreter that :func:`serve` runs in. It is kept, because torch's compiler takes long to
    import, there and in the process that compiles for it; it ends when its input does."""
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process: subprocess.Popen[str] = subprocess.Popen(command, env=_environment(), **pipes)  # type: ignore[call-overload]
    atexit.register(process.communicate, timeout=PATIENCE)  # its input ends
    return process


def in_kept_process(code: str) -> Any:
    """Returns what ``code`` calls ``result`` in a process that knows from its start that kernels are interpreted, and
    that other tests use too."""
    process = _kept_process()
    assert process.stdin is not None
    assert process.stdout is not None
    limit = threading.Timer(PATIENCE, process.kill)
    limit.start()
    try:
        process.stdin.write(json.dumps(code) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("@"):
                answer = json.loads(line[1:])
                assert "error" not in answer, answer["error"]
                return answer["result"]
    finally:
        limit.cancel()
    _kept_process.cache_clear()
    raise AssertionError(f"the process ended with {process.wait()}: see its stderr")


class PlantedFaults:
    """The test of a module's ``FAULTS``: a subclass there, ``TestFaults``, runs it."""

    def test_healthy_code_passes_and_every_fault_is_caught(self, request: pytest.FixtureRequest) -> None:
        failures = in_kept_process(f"from {__name__} import table; result = table({request.module.__name__!r})")
        healthy = {fault.case: failures[fault.case] for fault in request.module.FAULTS}
        assert healthy == {case: [] for case in healthy}
        text = missed(request.module.FAULTS, failures)
        assert not text, text
