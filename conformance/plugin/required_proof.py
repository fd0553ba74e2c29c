"""Finds the cases of a run that are proven by less than ``--require`` asks for, although they can be proven so."""

from __future__ import annotations

from conformance.proof_level import ProofLevel, proof_level, proof_limit
from conformance.records import CaseRecord, ReasonCode, Status, first_of

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
