"""Writes a reproducer for a kernel case: which script shows what failed, or what was asked for, and where it goes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.codegen_checks import SPILL
from conformance.execution.trial.fill_groups import fills_for
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.settings import Settings
from conformance.kernels.kernel import Kernel, Plan
from conformance.records import Check, CheckKind, CompileFailure, ExecutorName, Status, Verdict, replace_file
from conformance.reproducers.definitions import NotReproducible
from conformance.reproducers.kernel_scripts import Checks, compiling_script, limits_of, numbers_script
from conformance.reproducers.script_request import ScriptRequest, file_name
from conformance.reproducers.script_text import SeenFailure, failure_in

if TYPE_CHECKING:
    from conformance.inputs.fills import Fill

#: Checks of one fill, which is named behind the slash.
NUMBERS = (CheckKind.NUMERICS, CheckKind.MEMORY, CheckKind.REPEAT)


class Reproducers:
    """Follows the plans of one case; :meth:`write` writes the script into ``folder`` if the last of them failed.

    A request in the folder for scripts can ask for two more. One is written before each plan is judged, and stays if
    the process dies. The other is for a passing case, about what its code had in another run.
    """

    def __init__(self, recorder: CaseRecorder, settings: Settings, folder: Path) -> None:
        self._recorder = recorder
        self._settings = settings
        self._folder = folder
        self._request = ScriptRequest.read(folder)
        self._judged: tuple[Kernel, Plan, tuple[str, ...] | None] | None = None
        self._error: Exception | None = None

    @contextlib.contextmanager
    def judging(self, kernel: Kernel, plan: Plan, fills: tuple[str, ...] | None) -> Iterator[None]:
        """The block judges ``plan``, by ``fills`` (None: all of them)."""
        self._judged, self._error = (kernel, plan, fills), None
        if self._request.dies:
            with contextlib.suppress(NotReproducible, OSError):  # there is none if the process dies, which is said then
                self._keep(self._foreseen(kernel, plan, fills))
        try:
            yield
        except Exception as error:
            self._error = error
            raise

    def write(self) -> None:
        """Writes the script of a case that failed; the record names the file, or says why there is none."""
        if self._judged is None:
            return
        if self._request.dies:
            (self._folder / file_name(self._recorder.case)).unlink(missing_ok=True)  # the process did not die
        failed = [verdict for verdict in self._recorder.verdicts if not verdict.passed]
        observed: dict[str, str | None] = {}
        try:
            if failed or self._error:
                observed = {"reproducer": str(self._keep(self._script(failed)))}
            elif self._request.about_code:
                observed = {"reproducer": str(self._keep(self._as_before()))}
        except (NotReproducible, OSError) as error:
            observed = {"reproducer": None, "no_reproducer": str(error)}
        self._recorder.set(observed=observed)

    def _keep(self, text: str) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / file_name(self._recorder.case)
        replace_file(file, text)
        return file

    def _foreseen(self, kernel: Kernel, plan: Plan, names: Sequence[str] | None) -> str:
        """The script to keep if judging ``plan`` ends this process. Only the launch can do that: the compiler has a
        process of its own."""
        seen = self._seen(["the process dies, or does not end"])
        if self._settings.compile_only:
            return compiling_script(kernel, plan, Checks(dies=True), seen)
        return self._numbers(kernel, plan, names, seen, dies=True)

    def _as_before(self) -> str:
        """A script for a case that passes, whose code lacks what it had in another run."""
        assert self._judged is not None
        kernel, plan, _ = self._judged
        request, fine = self._request, "the code of the stack on which all is fine"
        losses = [f"{name} was in {fine}" for name in request.features]
        losses += [f"{fine} has none of these: {name}" for name in request.faults]
        if request.spills is not None:
            losses.append(f"{fine} spilled {request.spills}, and not more")
        if request.room:
            losses.append(f"{fine} left room for {request.resident}; the limits are what a block may use for as many")
        limits = {**request.room, **({"spills": request.spills} if request.spills is not None else {})}
        checks = Checks(dict.fromkeys(request.features, True), limits, faults=request.faults)
        return compiling_script(kernel, plan, checks, self._seen(losses))

    def _script(self, failed: Sequence[Verdict]) -> str:
        assert self._judged is not None
        kernel, plan, names = self._judged
        if isinstance(self._error, CompileFailure):
            dies = self._error.status in (Status.CRASH, Status.TIMEOUT)
            seen = self._seen([f"{self._error.status.value}: {self._error}"])
            return compiling_script(kernel, plan, Checks(dies=dies), seen)
        if self._recorder.fault_named:
            raise NotReproducible("no script maps memory between pages that are not: run the case itself")
        seen = self._seen([f"{verdict.check}: {verdict.text}" for verdict in failed] or [_text(self._error)])
        checks = [Check.parse(verdict.check) for verdict in failed]
        fills = [check.subject.partition("/")[0] for check in checks if check.kind in NUMBERS]
        if fills or not failed:
            return self._numbers(kernel, plan, fills or names, seen)
        return _compiling(kernel, plan, failed, seen)

    def _numbers(
        self,
        kernel: Kernel,
        plan: Plan,
        names: Sequence[str] | None,
        seen: SeenFailure,
        *,
        dies: bool = False,
    ) -> str:
        """Shows the first fill of ``names`` that is small enough."""
        executor = ExecutorName.DEVICE if self._settings.has_gpu else ExecutorName.INTERPRETER
        fills: list[Fill] = [
            fill
            for fill in fills_for(plan.problem, kernel.contract(plan, executor), self._settings.seed)
            if names is None or fill.name in names
        ]
        refusal = NotReproducible(f"none of the fills {names} exists for {plan.problem.id}")
        for fill in fills:
            try:
                return numbers_script(kernel, plan, fill, executor, seen, dies=dies)
            except NotReproducible as error:
                refusal = error
        raise refusal

    def _seen(self, failures: Sequence[str]) -> SeenFailure:
        return failure_in(self._recorder.record(), failures)


def _compiling(kernel: Kernel, plan: Plan, failed: Sequence[Verdict], seen: SeenFailure) -> str:
    """Returns a script about the code: features and limits of the main launch, or the limits of the others."""
    features: dict[str, bool] = {}
    limits: dict[str, int] = {}
    only = None
    for verdict in failed:
        check = Check.parse(verdict.check)
        if check.kind is CheckKind.SPILLS or check == Check(CheckKind.FORBIDS, SPILL.name):
            limits["spills"] = 0
        elif check.kind in (CheckKind.REQUIRES, CheckKind.FORBIDS):
            features[check.subject] = check.kind is CheckKind.REQUIRES
        elif check.kind is CheckKind.RESOURCES:
            limits |= limits_of(plan.target)
            only = check.subject or only
    if not features and not limits:
        checks = ", ".join(verdict.check for verdict in failed)
        raise NotReproducible(
            f"no script can show what failed: {checks}; one launches the grid that was planned, and looks at the code "
            "and the numbers of that launch"
        )
    return compiling_script(kernel, plan, Checks(features, limits), seen, None if features else only)


def _text(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"
