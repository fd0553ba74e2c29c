"""Writes a reproducer for a kernel case that failed: which script shows what failed, and where it goes."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from conformance.codegen_checks import SPILL
from conformance.execution.reproducer import Checks, compiling_script, limits_of, numbers_script
from conformance.execution.reproducer_source import NotReproducible
from conformance.execution.reproducer_text import Seen
from conformance.execution.trial import fills_for
from conformance.kernels.kernel import Kernel, Plan
from conformance.records import CompileFailure, Status, Verdict, replace_file

from .options import Settings
from .recording import CaseRecorder

if TYPE_CHECKING:
    from conformance.inputs.fills import Fill

#: Checks of one fill, which is named behind the slash.
NUMBERS = ("numerics", "memory", "repeat")
#: Characters of one failure in the script, and failures.
LINE, LINES = 300, 8


class Reproducing:
    """Follows the plans of one case; :meth:`write` writes the script if the last of them failed."""

    def __init__(self, recorder: CaseRecorder, settings: Settings) -> None:
        self._recorder = recorder
        self._settings = settings
        self._judged: tuple[Kernel, Plan, tuple[str, ...] | None] | None = None
        self._error: Exception | None = None

    @contextlib.contextmanager
    def judging(self, kernel: Kernel, plan: Plan, fills: tuple[str, ...] | None) -> Iterator[None]:
        """The block judges ``plan``, by ``fills`` (None: all of them)."""
        self._judged, self._error = (kernel, plan, fills), None
        try:
            yield
        except Exception as error:
            self._error = error
            raise

    def write(self) -> None:
        """Writes the script of a case that failed into the folder of ``--reproducers``; the record names the file, or
        says why there is none."""
        folder = self._settings.reproducers
        failed = [verdict for verdict in self._recorder.verdicts if not verdict.passed]
        if folder is None or self._judged is None or not (failed or self._error):
            return
        try:
            text = self._script(failed)
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / file_name(self._recorder.case)
            replace_file(file, text)
        except (NotReproducible, OSError) as error:
            self._recorder.set(observed={"reproducer": None, "no_reproducer": str(error)})
        else:
            self._recorder.set(observed={"reproducer": str(file)})

    def _script(self, failed: Sequence[Verdict]) -> str:
        assert self._judged is not None
        kernel, plan, names = self._judged
        if isinstance(self._error, CompileFailure):
            dies = self._error.status in (Status.CRASH, Status.TIMEOUT)
            seen = self._seen([f"{self._error.status.value}: {self._error}"])
            return compiling_script(kernel, plan, Checks(dies=dies), seen)
        seen = self._seen([f"{verdict.check}: {verdict.text}" for verdict in failed] or [_text(self._error)])
        numbers = [verdict for verdict in failed if verdict.check.partition("/")[0] in NUMBERS]
        if numbers or not failed:
            wanted = [verdict.check.split("/")[1] for verdict in numbers]
            return self._numbers(kernel, plan, wanted or names, seen)
        return _compiling(kernel, plan, failed, seen)

    def _numbers(self, kernel: Kernel, plan: Plan, names: Sequence[str] | None, seen: Seen) -> str:
        """Shows the first fill of ``names`` that is small enough."""
        executor = str(self._recorder.record().executor)
        fills: list[Fill] = [
            fill
            for fill in fills_for(plan.problem, kernel.contract(plan, executor), self._settings.seed)
            if names is None or fill.name in names
        ]
        refusal = NotReproducible(f"none of the fills {names} exists for {plan.problem.id}")
        for fill in fills:
            try:
                return numbers_script(kernel, plan, fill, executor, seen)
            except NotReproducible as error:
                refusal = error
        raise refusal

    def _seen(self, failures: Sequence[str]) -> Seen:
        record = self._recorder.record()
        names = ("torch", "triton", "ptxas", "driver")
        stack = ", ".join(f"{name} {record.stack[name]}" for name in names if record.stack.get(name))
        lines = [_shortened(line) for line in failures[:LINES]]
        if len(failures) > LINES:
            lines.append(f"and {len(failures) - LINES} more")
        return Seen(record.case, tuple(lines), stack)


def file_name(case: str) -> str:
    """A name for the script of ``case`` that every file system takes and no other case has."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", case.removeprefix("test_").replace(".py::", "-", 1)).strip("-")[:80]
    return f"{readable}-{hashlib.sha256(case.encode()).hexdigest()[:8]}.py"


def _compiling(kernel: Kernel, plan: Plan, failed: Sequence[Verdict], seen: Seen) -> str:
    """A script about the code: features and limits of the main launch, or the limits of the others."""
    features: dict[str, bool] = {}
    limits: dict[str, int] = {}
    only = None
    for verdict in failed:
        kind, _, rest = verdict.check.partition("/")
        if kind == "spills" or rest.endswith(f"forbids/{SPILL.name}"):
            limits["spills"] = 0
        elif kind == "codegen" and rest.count("/") == 1:
            wish, _, name = rest.partition("/")
            features[name] = wish == "requires"
        elif kind == "resources":
            limits |= limits_of(plan.target)
            only = rest or only
    if not features and not limits:
        checks = ", ".join(verdict.check for verdict in failed)
        raise NotReproducible(f"no script can show what failed: {checks}")
    return compiling_script(kernel, plan, Checks(features, limits), seen, None if features else only)


def _text(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"


def _shortened(text: str) -> str:
    """The first line of ``text``, without the places of files on this machine."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    line = re.sub(r"(?<![\w.])/[^\s:'\"]+/", "", line)
    return line if len(line) <= LINE else line[: LINE - 3] + "..."
