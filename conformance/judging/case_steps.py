"""Steps that cases share whatever they judge. They put verdicts into the record, end a case that needs a device, and
describe a launch that costs the process its device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from conformance.execution.device.fault_search import fault_of
from conformance.execution.trial.trial import Trial
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.harness import Harness
from conformance.kernels.kernel import Kernel, Plan
from conformance.machine.device_state import device_fault
from conformance.records import ConformanceFailure, Reason, ReasonCode, Verdict


def record(recorder: CaseRecorder, verdicts: Iterable[Verdict], prefix: str = "") -> None:
    """Adds ``verdicts`` to the case, which fails at its end if one of them failed."""
    for verdict in verdicts:
        recorder.verdict(prefix + verdict.check, verdict.passed, verdict.text, **verdict.details)


def need_device(harness: Harness, recorder: CaseRecorder, what: str) -> None:
    """Ends the case as not run where ``what`` cannot be done on a device: there is none, or nothing is to be run."""
    if not harness.settings.has_gpu or harness.settings.compile_only:
        recorder.not_run(Reason(ReasonCode.NO_DEVICE, "device", f"{what}: a GPU is required and none is used here"))


@contextlib.contextmanager
def faults_explained(
    harness: Harness, recorder: CaseRecorder, kernel: Kernel | None, plan: Plan, fills: Sequence[str] | None
) -> Iterator[None]:
    """Inside, a fault of the device by the launches of ``plan`` over ``fills`` (None: all) raises ConformanceFailure.
    Another process looks for the operand, and the case has a verdict that names it or says that none was found.
    ``kernel`` is one of the catalogue; None for a compiled function, which no other process can launch."""
    try:
        yield
    except Exception as error:
        if device_fault() is None:
            raise
        text = f"{type(error).__name__}: {error}"
    else:
        return
    # outside of the handler, whose frames hold on to tensors; after the fault this process asks nothing of the device
    with recorder.timed("check"), harness.together():
        fault = fault_of(kernel, plan, fills, harness.settings.seed, text)
    recorder.add(fault.verdict)
    recorder.fault_named = fault.named
    raise ConformanceFailure(f"{fault.verdict.check}: {fault.verdict.text}") from None


def record_edges(recorder: CaseRecorder, judged: Trial) -> None:
    """Writes into the record with which fill operands lay at unmapped pages, or why there was none. If the case has
    several trials, one without such a fill counts."""
    before = recorder.record().observed.get("unmapped_pages", "")
    if judged.at_edges and not before.startswith("none"):
        recorder.set(observed={"unmapped_pages": judged.at_edges})
