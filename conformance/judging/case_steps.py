"""Steps that cases share whatever they judge: verdicts into the record, and an end where a device is needed."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.harness import Harness
from conformance.records import Reason, ReasonCode, Verdict


def record(recorder: CaseRecorder, verdicts: Iterable[Verdict], prefix: str = "") -> None:
    """Adds ``verdicts`` to the case, which fails at its end if one of them failed."""
    for verdict in verdicts:
        recorder.verdict(prefix + verdict.check, verdict.passed, verdict.text, **verdict.details)


def need_device(harness: Harness, recorder: CaseRecorder, what: str) -> None:
    """Ends the case as not run where ``what`` cannot be done on a device: there is none, or nothing is to be run."""
    if not harness.settings.has_gpu or harness.settings.compile_only:
        recorder.not_run(Reason(ReasonCode.NO_DEVICE, "device", f"{what}: a GPU is required and none is used here"))
