"""The program that runs in a stack's own Python: plans a case, compiles its launches from other compilers' texts, runs
TTGIR.

Requests come as lines of JSON, and each gets a line of JSON as its answer. The work is done in processes that a compile
pool forks, so that a compiler that dies or hangs is an answer, too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.blame.mixed_pipeline import METADATA_FILE, PASSES_FILE, RESPELLED_FILE, CompilationStart, mixed
from conformance.execution.compile.compilation import CompilePool, CompileRequest, Task
from conformance.machine.versions import not_installed
from conformance.records import Status
from conformance.targets import Target

#: Tiers in which a case is looked for; the last one has every config that a heuristic can pick.
TIERS = ("full", "exhaustive")


@dataclass(frozen=True)
class Compilation:
    """One compilation of a launch. Its files go to ``folder``. ``trace`` is the stage whose passes are traced, "" for
    none; ``ptxas`` an assembler in place of the stack's own."""

    request: CompileRequest
    folder: Path
    entry: CompilationStart | None = None
    trace: str = ""
    ptxas: str = ""


def plan(case: str, target: Target) -> list[tuple[CompileRequest, str]]:
    """The launches that ``case`` compiles, each with its function's name. Raises LookupError if there is no such
    case."""
    from conformance.cases.case_table import Selection
    from conformance.cases.lookup import CaseLookup, near_case, smallest_tier
    from conformance.execution.compile.compile_worker import named
    from conformance.judging.planner import plan_case
    from conformance.judging.settings import Settings
    from conformance.machine.gpus import Gpus
    from conformance.targets import compile_targets
    from conformance.user_files.expected_failures import ExpectedFailures

    every = compile_targets()
    targets = tuple(one for one in every if one.id in re.split(r"[\[\]-]", case)) or every
    selection = Selection(targets, TIERS[0])
    try:
        call = CaseLookup(targets)(case)
    except KeyError:
        raise LookupError(f"there is no case {case}; {near_case(case, selection)}") from None
    tier, names = smallest_tier(case, selection), tuple(one.id for one in targets)
    settings = Settings(tier, names, (), (), 0, None, Gpus(), None, 60.0, (), ExpectedFailures())
    requests = dict.fromkeys(pickle.dumps(one.request) for one in plan_case(settings, selection, case, call))
    launches = [pickle.loads(one) for one in requests]
    return [(one, named(one.factory)(one.payload, one.target).function.fn.__name__) for one in launches]


def compiled(asked: Compilation, target: Target) -> dict[str, Any]:
    """The figures of the code that the compilation gave. Its stages stay in Triton's cache in ``asked.folder``."""
    from conformance.execution.compile.compile_worker import Compiler, named
    from conformance.execution.compile.kernel_figures import describe

    with _surroundings(asked), mixed(asked.entry, asked.folder, asked.trace):
        launch = named(asked.request.factory)(asked.request.payload, target)
        artefact = Compiler(None).compile(launch, target, deduplicate=False)
    code = describe(artefact, target, disassemble=True)
    return {
        "resources": dataclasses.asdict(artefact.resources),
        "code": {name: code.get(name) for name in ("features", "bytes", "sha256", "sync", "instructions")},
        "checks": dict(_failing_checks(asked.request.payload, artefact, target)),
    }


@contextmanager
def _surroundings(asked: Compilation) -> Iterator[None]:
    """The variables of one compilation: a cache of its own, and the assembler. What Triton keeps of assemblers that it
    has asked before is forgotten, on either side."""
    variables = {"TRITON_CACHE_DIR": str(asked.folder / "cache")}
    if asked.ptxas:
        variables |= {"TRITON_PTXAS_PATH": asked.ptxas, "TRITON_PTXAS_BLACKWELL_PATH": asked.ptxas}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    _forget_assemblers()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _forget_assemblers()


def _forget_assemblers() -> None:
    import triton.backends.nvidia.compiler as backend

    for value in vars(backend).values():
        getattr(value, "cache_clear", lambda: None)()


def _failing_checks(payload: Any, artefact: Any, target: Target) -> Iterator[tuple[str, str]]:
    """Yields the checks of the code that fail, with their texts: those that a case makes of a launch of its plan."""
    from conformance import codegen_checks
    from conformance.execution.compile.kernel_figures import over_limits
    from conformance.judging.code_faults import fault_verdicts
    from conformance.judging.plan_code import plan_verdicts
    from conformance.kernels.catalogue import get, meta_launch
    from conformance.kernels.kernel import Plan

    for sentence in over_limits(artefact.resources, target):
        yield f"past the limit of {sentence.partition(':')[0]}", sentence
    for verdict in fault_verdicts(artefact.kernel_name, artefact):
        yield verdict.check, verdict.text
    plan, number = payload if isinstance(payload, tuple) else (None, 0)
    if not isinstance(plan, Plan):
        return
    kernel, whole = get(plan.kernel), meta_launch(plan, target)
    if whole.steps[number] is whole:
        name = ""
        features = kernel.features(plan)
        for one in codegen_checks.check(artefact, target, features.required, features.forbidden):
            if not one.passed:
                yield f"codegen/{'requires' if one.required else 'forbids'}/{one.feature.name}", one.text
    else:
        name = artefact.kernel_name
    for verdict in plan_verdicts(kernel, plan, artefact, name):
        yield verdict.check, verdict.text


def ran(asked: tuple[Any, Mapping[str, str]], target: Target) -> str:
    """Runs the TTGIR of a plan's kernels in each order of asynchronous operations, and returns the fault of the first
    order that is not right; "" if all are right. Raises UnknownOperation for TTGIR that the executor cannot run."""
    from conformance.kernels.catalogue import get, meta_launch
    from conformance.ttgir.arithmetic import UnknownOperation
    from conformance.ttgir.verdict import executed

    (plan, _), files = asked
    main = meta_launch(plan, target).function.fn.__name__
    names = sorted(files, key=lambda name: name != main)  # the main launch first
    result = executed(get(plan.kernel), plan, [Path(files[name]).read_text() for name in names])
    if result.unknown:
        raise UnknownOperation(result.unknown)
    return next((verdict.text for verdict in result.verdicts if not verdict.passed), "")


def _left_in(folder: Path) -> dict[str, Any]:
    """Returns the results of a compilation in ``folder``, also if it failed. They are the ``stages`` that it reached (a
    file by stage), the ``metadata`` by stage and the ``passes`` of a traced stage. ``respelled`` says whether the other
    compiler's text was changed."""
    names, notes = folder / PASSES_FILE, folder / METADATA_FILE
    return {
        "stages": {file.suffix[1:]: str(file) for file in folder.glob("cache/*/*.*")},
        "metadata": json.loads(notes.read_text()) if notes.exists() else {},
        "respelled": (folder / RESPELLED_FILE).exists(),
        "passes": names.read_text().split("\n") if names.exists() else [],
    }


class Server:
    """Answers requests. A request is done within ``deadline`` seconds, or its answer says that it was not."""

    def __init__(self, deadline: float) -> None:
        self._pool = CompilePool(1, deadline)  # its process compiles for one target: see StubDriver
        self._launches: list[tuple[CompileRequest, str]] = []

    def close(self) -> None:
        self._pool.close()

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return getattr(self, f"_{request['do']}")(request)  # type: ignore[no-any-return]

    def _plan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from conformance.targets import assembler, compile_targets

        self._pool.close()
        self._pool = CompilePool(1, self._pool.deadline)
        answer = self._done("plan", request["case"], compile_targets()[0])
        if "value" not in answer:
            return answer
        self._launches = answer.pop("value")
        target = self._launches[0][0].target if self._launches else None
        tool = assembler(int(target.arch)) if target is not None and target.vendor == "nvidia" else None
        functions = [function for _, function in self._launches]
        named = {"functions": functions, "plans": self._plan_numbers()}
        return {**answer, **named, "target": target and target.id, "ptxas": tool and str(tool)}

    def _plan_numbers(self) -> list[int]:
        """Returns for each launch the number of its plan. A launch without a plan gets an unused number."""
        plans: list[Any] = []
        numbers = []
        for request, _ in self._launches:
            plan = request.payload[0] if isinstance(request.payload, tuple) else request.payload
            if plan not in plans:
                plans.append(plan)
            numbers.append(plans.index(plan))
        return numbers

    def _compile(self, request: Mapping[str, Any]) -> dict[str, Any]:
        launch, _ = self._launches[request["launch"]]
        entry = request.get("entry")
        if entry is not None:
            module = Path(entry["module"]) if entry["module"] else None
            files = {name: Path(file) for name, file in entry["files"].items()}
            entry = CompilationStart(entry["stage"], files, entry["metadata"], module, entry["passes"])
        folder = Path(request["folder"])
        folder.mkdir(parents=True)
        asked = Compilation(launch, folder, entry, request.get("trace", ""), request.get("ptxas", ""))
        answer = self._done("compiled", asked, launch.target)
        return {**answer.pop("value", {}), **answer, **_left_in(folder)}

    def _orders(self, request: Mapping[str, Any]) -> dict[str, Any]:
        launch, _ = self._launches[request["launch"]]
        answer = self._done("ran", (launch.payload, request["files"]), launch.target)
        return {**answer, "said": answer.pop("value", None)}

    def _done(self, function: str, payload: Any, target: Target) -> dict[str, Any]:
        result = self._pool.submit(Task(f"{__name__}:{function}", payload, target)).result()
        if result.status is not Status.PASS:
            return {"status": result.status.value, "error": result.error}
        return {"status": Status.PASS.value, "error": "", "value": result.value}


def main() -> None:
    """Serves the requests of standard input until it ends. What Triton prints goes to standard error."""
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)
    if (missing := not_installed()) is not None:
        sys.exit(f"it needs torch and triton: {missing}")
    server = Server(float(sys.argv[1]))
    try:
        for line in sys.stdin:
            print(json.dumps(server.answer(json.loads(line))), file=answers, flush=True)
    finally:
        server.close()
