"""All that went wrong in a run, by class, and the exit status that follows.

The cases that are proven by less than ``--require`` asks for are found here too.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from conformance.faults import Fault, FaultClass, FaultKind, deciding
from conformance.machine.environment_faults import fault_of_error
from conformance.proof_level import ProofLevel, proof_level, proof_limit
from conformance.records import CaseRecord, ReasonCode, Status, first_of

#: The exit status of a run that its machine or environment broke: EX_TEMPFAIL of sysexits.h, "try again". The numbers
#: after 5 are no choice: pytest has begun to take them (6 says that there were more warnings than are allowed).
INFRASTRUCTURE = os.EX_TEMPFAIL
#: How the sentence begins with which an error of the machine ends a run outside its cases.
MACHINE_ENDED = "the machine ended the run"
#: Exit statuses of pytest that stay, whatever became of the cases: an internal error and a wrong command line.
_OF_PYTEST = (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR)
_STATUSES = {
    FaultClass.REGRESSION: int(pytest.ExitCode.TESTS_FAILED),
    FaultClass.INFRASTRUCTURE: INFRASTRUCTURE,
    FaultClass.UNFINISHED: int(pytest.ExitCode.INTERRUPTED),
}


class MachineErrors:
    """Ends a run with a sentence if an error of the machine, such as a full disk, ends it outside the cases. pytest
    would print a traceback."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if (fault := fault_of_error(excinfo.value)) is not None:
            pytest.exit(f"{MACHINE_ENDED}: {fault.text}", returncode=INFRASTRUCTURE)


class RunFaults:
    """Collects the faults of a run: those of its cases, counted by kind, and those of the run as a whole.
    ``compile_only``: what the run judges is code. ``is_part``: other runs have the other cases, so that this one may
    judge none."""

    def __init__(self, compile_only: bool = False, is_part: bool = False) -> None:
        self._compile_only = compile_only
        self._is_part = is_part
        self._of_run: list[Fault] = []
        self.forget_cases()

    def forget_cases(self) -> None:
        """Begins to count cases again."""
        self._first: dict[tuple[FaultClass, str], tuple[str, str]] = {}
        self._counts: Counter[tuple[FaultClass, str]] = Counter()
        self._skipped: Counter[str] = Counter()
        self._judged = False

    def add(self, kind: FaultKind, text: str) -> None:
        """Adds a fault of the run as a whole, once."""
        fault = Fault.of(kind, text)
        if fault not in self._of_run:
            self._of_run.append(fault)

    def add_case(self, record: CaseRecord) -> None:
        """Counts what went wrong in a case."""
        self._judged |= record.is_judged(self._compile_only)
        if record.status in (Status.NOT_APPLICABLE, Status.NOT_RUN):
            self._skipped[f"{record.status.value} {record.reason.code.value if record.reason else ''}".strip()] += 1
        if record.fault_class is None:
            return
        kind = record.fault.kind if record.fault else FaultKind.FAILED.value
        text = record.fault.text if record.fault else record.status.value
        key = record.fault_class, kind
        self._counts[key] += 1
        if key not in self._first or record.case < self._first[key][0]:
            self._first[key] = record.case, text

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every fault, the class that decides first."""
        of_cases = [
            Fault(fault_class, kind, f"{_cases(count)}, first {case}: {text}")
            for (fault_class, kind), count in self._counts.items()
            for case, text in [self._first[fault_class, kind]]
        ]
        order = list(FaultClass)
        return tuple(sorted([*of_cases, *self._of_run], key=lambda fault: order.index(fault.fault_class)))

    @property
    def ended_early(self) -> bool:
        """Returns True if the run was ended before its last case, so that cases are missing. It goes on without a GPU
        that is suspect."""
        return any(
            fault.fault_class is not FaultClass.REGRESSION and fault.kind != FaultKind.DEVICE_SUSPECT
            for fault in self._of_run
        )

    @property
    def unjudged(self) -> str:
        """A sentence if the run has cases and judged none of them; else empty."""
        if self._judged or not self._skipped:
            return ""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self._skipped.most_common())
        return f"no case was judged: {reasons}"

    def exit_status(self, pytests: int, interrupted: bool) -> int:
        """The status of the run where pytest itself ends with ``pytests``; ``interrupted``: by the user.

        pytest's own statuses keep their meaning. Such a status says that the user interrupted the run, that pytest
        broke or that it was called wrongly. The status of a test's pytest.exit is kept, too. Else the first class that
        occurs decides: a regression stays one, however much else is broken, and what infrastructure broke need not be
        complete.
        """
        if interrupted or pytests in _OF_PYTEST or pytests not in {*pytest.ExitCode}:
            return pytests
        decides = deciding(self.faults)
        if decides is not None:
            return _STATUSES[decides]
        if pytests == pytest.ExitCode.OK and self.unjudged and not self._is_part:
            return int(pytest.ExitCode.NO_TESTS_COLLECTED)
        return pytests


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"


#: The levels by the names that the option takes.
REQUIRED = {
    "interpreted": ProofLevel.INTERPRETED,
    "executed": ProofLevel.EXECUTED,
    "device": ProofLevel.DEVICE,
}
#: Ids that a sentence names.
NAMED = 3
#: Subjects of "no-device" that say that a device is here, and that there are too few or that it is too small.
_TOO_SMALL = ("memory", "second device", "devices")


class RequiredProof:
    """Collects the cases that lack proof of the level ``required``; None asks for none."""

    def __init__(self, required: str | None) -> None:
        self.required = required
        self._cases: list[str] = []

    def forget_cases(self) -> None:
        """Begins again."""
        self._cases = []

    def add(self, record: CaseRecord) -> None:
        """Looks at a case."""
        if self.required is not None and lacks(record, REQUIRED[self.required]):
            self._cases.append(record.case)

    @property
    def sentence(self) -> str:
        """Says how many cases are proven by less and names the first; empty if none is."""
        if not self._cases:
            return ""
        what = "1 case is" if len(self._cases) == 1 else f"{len(self._cases)} cases are"
        return f"--require {self.required}: {what} proven by less: {first_of(sorted(self._cases), NAMED)}"


def lacks(record: CaseRecord, required: ProofLevel) -> bool:
    """Returns True if ``record`` is proven by less than ``required`` without a typed reason. Such a reason is a
    failure, a refusal of the kernel, a missing device or interpreter, or a suite that proves less."""
    if record.status not in (Status.PASS, Status.NOT_RUN):
        return False
    if proof_level(record) >= min(required, proof_limit(record, required is ProofLevel.DEVICE)):
        return False
    reason = record.reason
    if record.status is Status.PASS or reason is None:
        return True
    if reason.code is ReasonCode.NO_DEVICE:
        return required is ProofLevel.DEVICE and reason.subject not in _TOO_SMALL
    return reason.code is ReasonCode.NO_INTERPRETER and required is not ProofLevel.INTERPRETED
