"""Collects what happens to one case while it runs, and makes its record. Needs no pytest.

A judge reports through :class:`CaseRecorder`; whoever runs the case writes :meth:`CaseRecorder.record` at its end.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter  # the function itself: a case may replace that of the module
from typing import Any, NoReturn

from conformance.proof_level import PROOF_LIMIT, ProofLevel
from conformance.records import CaseRecord, ExecutorName, Fault, Reason, Status, Verdict, jsonable

_NAMED = {"kernel": "name", "target": "id"}  # fields that take an object and keep the attribute that names it
_WHOLE = ("problem", "config")  # objects kept with their id and all their fields
_MERGED = ("options", "observed")  # mappings that grow
#: Names of NumPy's type, in its versions 1 and 2.
_BOOLS_OF_NUMPY = (("numpy", "bool_"), ("numpy", "bool"))
_EXECUTORS = (None, *(name.value for name in ExecutorName))  # a later one shows more


class CaseEnded(BaseException):
    """Ends a case that cannot be judged here: ``status`` is not-applicable or not-run, ``reason`` says why.

    It is no Exception, so that a judge that catches whatever a kernel raises does not catch it.
    """

    def __init__(self, status: Status, reason: Reason) -> None:
        super().__init__(f"{status.value}: {reason}")
        self.status = status
        self.reason = reason


class CaseRecorder:
    """Collects the record of one case.

    ``status`` is the case's status so far. A run that was announced with :meth:`run_created` must be followed by
    :meth:`run_judged`, and a case that passes must have a :meth:`verdict`. Else the case fails when it is torn down.
    ``on_change`` is called after each change, so that what is known outlives the process. ``ending`` is the exception
    that ends a case early; a framework can set a class that is its own skip as well. ``phases`` are those parts of the
    case that a framework has seen to their end. ``fault_named``: the case cost its process the device, and a verdict
    names the cause, so that it is no crash. ``fault`` says that not what is tested is to blame for the failure.
    ``cache_checks`` look at the kernels of the case that came from a cache; each gives the fault of the cache.
    """

    def __init__(self, case: str, suite: str = "", base: Path | None = None, **fixed: Any) -> None:
        self.case = case
        self.status = Status.PASS
        self.reason: Reason | None = None
        self.diagnosis = ""
        self.outcome = ""
        self.unjudged: Reason | None = None
        self.stage: str | None = None
        self.durations: dict[str, float] = {}
        self.verdicts: list[Verdict] = []
        self.phases: set[str] = set()
        self.fault_named = False
        self.fault: Fault | None = None
        self.cache_checks: list[Callable[[], Fault | None]] = []
        self.on_change: Callable[[], None] = lambda: None
        self.ending: type[CaseEnded] = CaseEnded
        self._base = base
        self._fields: dict[str, Any] = {"suite": suite, "options": {}, "observed": {}, "artefacts": {}, **fixed}
        self._judged_by: list[str | None] = []
        self._created: Counter[str] = Counter()
        self._judged: Counter[str] = Counter()
        self._started = perf_counter()

    def set(self, **fields: Any) -> None:
        """Says what the case is. ``kernel`` and ``target`` are a name or id, or an object with one; ``executor`` is the
        value of an ExecutorName. ``options`` and ``observed`` are mappings, merged into what was set before, as are
        ``artefacts`` (stage to path). Raises TypeError for other names."""
        fields_of_records = {*_NAMED, *_WHOLE, *_MERGED, "executor", "artefacts"}
        unknown = fields.keys() - fields_of_records
        if unknown:
            raise TypeError(f"a record has no field {sorted(unknown)}: set {', '.join(sorted(fields_of_records))}")
        if fields.get("executor") not in _EXECUTORS:
            raise ValueError(f"executor {fields['executor']!r}: one of {_EXECUTORS} is required")
        for name, value in fields.items():
            if name in _NAMED and value is not None:
                self._fields[name] = str(getattr(value, _NAMED[name], value))
            elif name in _WHOLE and value is not None:
                plain = jsonable(value)
                self._fields[name] = plain if isinstance(plain, dict) else {"id": str(plain)}
            elif name in _MERGED:
                self._fields[name].update(jsonable(value))
            elif name == "artefacts":
                self._fields[name].update({stage: self._relative(Path(path)) for stage, path in value.items()})
            else:
                self._fields[name] = value
        self.on_change()

    def _relative(self, path: Path) -> str:
        """Relative to the run's folder where it lies there, so that the folder can be moved."""
        if self._base is not None and path.is_relative_to(self._base):
            path = path.relative_to(self._base)
        return path.as_posix()

    def keep_artefacts(self) -> None:
        """Copies the artefacts that lie elsewhere, such as in a compile cache, into the run's folder."""
        if self._base is None:
            return
        name = hashlib.sha256(self.case.encode()).hexdigest()[:16]
        for stage, path in self._fields["artefacts"].items():
            source, copy = Path(path), self._base / "artefacts" / name / Path(path).name
            if source.is_absolute() and source.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)
                self._fields["artefacts"][stage] = self._relative(copy)

    def verdict(self, check: str, passed: bool, text: str = "", /, **details: Any) -> None:
        """Adds a verdict. If it failed, so does the case, even if nothing is raised. ``details`` may have any name:
        the other arguments are positional. Raises TypeError if ``passed`` is no bool, Python's or NumPy's: a ratio or a
        text would always pass."""
        self.add(Verdict(check, passed, text, details))

    def add(self, *verdicts: Verdict) -> None:
        """Adds ``verdicts``, as :meth:`verdict` does."""
        for verdict in verdicts:
            name: object = verdict.check
            text: object = verdict.text
            passed: object = verdict.passed
            if not isinstance(passed, bool) and (type(passed).__module__, type(passed).__name__) not in _BOOLS_OF_NUMPY:
                got = f"{jsonable(passed)!r:.80} of type {type(passed).__name__}"
                raise TypeError(f"verdict {name!r:.80}: True or False is required, got {got}; compare it first")
            if not isinstance(name, str) or not isinstance(text, str):
                got = f"{type(name).__name__} and {type(text).__name__}"
                raise TypeError(f"a verdict needs the name of its check and a text, both of type str, got {got}")
        self.verdicts += [
            Verdict(str.__str__(each.check), bool(each.passed), str.__str__(each.text), jsonable(each.details))
            for each in verdicts
        ]

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds the seconds of the block to ``stage``: "compile", "run" or "check"."""
        outer, self.stage = self.stage, stage
        self.on_change()
        start = perf_counter()
        try:
            yield
        finally:
            self.durations[stage] = self.durations.get(stage, 0.0) + perf_counter() - start
            self.stage = outer

    def judged_by(self, executor: str | None) -> None:
        """Notes what judged one plan of the case. The record has what shows least of those of all its plans."""
        self._judged_by.append(None if executor is None else str(executor))
        self.set(executor=min(self._judged_by, key=_EXECUTORS.index))

    def run_created(self, name: str) -> None:
        self._created[name] += 1

    def run_judged(self, name: str) -> None:
        self._judged[name] += 1

    @property
    def judged(self) -> bool:
        """True if anything was judged."""
        return bool(self.verdicts)

    def not_applicable(self, reason: Reason) -> NoReturn:
        """Ends the test: kernel or target cannot take this case, for a typed reason."""
        raise self.ending(Status.NOT_APPLICABLE, reason)

    def not_run(self, reason: Reason) -> NoReturn:
        """Ends the test: what is left of it cannot be run here, for a typed reason."""
        raise self.ending(Status.NOT_RUN, reason)

    def leave_unjudged(self, reason: Reason) -> None:
        """Notes why the case was not judged in full. If the test then returns and has not failed, the case ends as
        not run. For a judge whose caller may stop early."""
        self.unjudged = reason

    def proves_at_most(self, level: str, why: str, *, without_device: bool = False) -> None:
        """Says that this case can be proven by no more than ``level``, so ``--require`` asks it for no more. It is the
        name of a :class:`~conformance.proof_level.ProofLevel`, such as "nothing" where no kernel is run. ``why`` is the
        reason. ``without_device``: a device proves more. Raises ValueError for another level."""
        levels = [each.name.lower() for each in ProofLevel]
        if level not in levels:
            raise ValueError(f"{level!r} is no level of proof: one of {', '.join(levels)} is required")
        limits = self._fields["observed"].get(PROOF_LIMIT, {})
        for key in ("without a device",) if without_device else ("on a device", "without a device"):
            limits = {**limits, key: min(level, limits.get(key, "device"), key=levels.index)}
        self.set(observed={PROOF_LIMIT: {**limits, "why": why}})

    def conclude(
        self, status: Status, diagnosis: str = "", reason: Reason | None = None, fault: Fault | None = None
    ) -> None:
        """Sets the status. A failure stays, with its ``fault``; a skip or an expected failure may become one. Diagnoses
        are joined."""
        if self.status is Status.PASS or (self.reason and status not in (Status.NOT_APPLICABLE, Status.NOT_RUN)):
            self.status, self.reason, self.fault = status, reason, fault
        self.diagnosis = "\n".join(text for text in (self.diagnosis, diagnosis) if text)

    def cache_fault(self) -> Fault | None:
        """Returns the fault of a cache from which a kernel of the case came; None if none is known. Takes as long as
        to compile the kernels, so it is for a case that has failed."""
        checks = reversed(self.cache_checks)  # the last kernel is the one that failed
        return next((fault for check in checks if (fault := check()) is not None), None)

    def objection(self) -> str | None:
        """The reason to fail a case that has not failed: a failed verdict or nothing judged; else None."""
        if self.status not in (Status.PASS, Status.NOT_APPLICABLE, Status.NOT_RUN):
            return None
        failed = [verdict for verdict in self.verdicts if not verdict.passed]
        if failed:
            return f"check {failed[0].check} failed, but the test did not: {failed[0].text}"
        if self.status is not Status.PASS:
            return None
        unjudged = sorted((self._created - self._judged).elements())
        if unjudged:
            return f"run {', '.join(unjudged)} was created and never judged"
        if not self.judged:
            return "the test passed without judging anything: use conform(...) or recorder.verdict(...)"
        return None

    def record(self, status: Status | None = None, diagnosis: str | None = None) -> CaseRecord:
        """Returns the record as of now; ``status`` and ``diagnosis`` stand in for those so far."""
        total = perf_counter() - self._started
        return CaseRecord(
            case=self.case,
            status=status or self.status,
            reason=None if status else self.reason,
            durations={stage: round(s, 6) for stage, s in {**self.durations, "total": total}.items()},
            verdicts=tuple(self.verdicts),
            outcome=self.outcome,
            diagnosis=self.diagnosis if diagnosis is None else diagnosis,
            fault=self.fault,
            **self._fields,
        )
