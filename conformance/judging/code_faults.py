"""What the code of no kernel may have, whatever its plan asks for: faults of the compiler that its own text shows."""

from __future__ import annotations

from collections.abc import Iterator

from conformance import codegen_checks
from conformance.codegen_checks import CompiledCode
from conformance.execution.code_structure import structure
from conformance.gate.runs.record_figures import OPEN_LOADS, PRIORITY, UNAWAITED
from conformance.judging.operand_slots import overwritten_operands
from conformance.judging.repeated_depths import repeated_depths
from conformance.records import Check, CheckKind, Verdict


def fault_verdicts(code: str, artefact: CompiledCode) -> Iterator[Verdict]:
    """A failing verdict for each fault in ``artefact``, none if it has none or lacks the stage that shows them.
    ``code`` names the kernel, and the launch if it is not the main one."""
    yield from _below_ttgir(code, artefact)
    if "ttgir" not in artefact.stages:
        return
    ttgir = codegen_checks.code_of(artefact.stages["ttgir"], "ttgir")
    for operand in sorted(overwritten_operands(ttgir)):
        text = f"{code} keeps {operand.slots} of the tiles {operand.allocation} in shared memory (ttgir)"
        yield _verdict("operand-slots", f"{text}: its loop copies the next tile into a slot before wgmma has read it")
    for depth, width in sorted(repeated_depths(ttgir)):
        text = f"{code} multiplies tiles of {depth} k in a layout of kWidth {width} (ttgir)"
        yield _verdict("repeated-k", f"{text}: its registers repeat some k, which are added twice, and lack others")


def _below_ttgir(code: str, artefact: CompiledCode) -> Iterator[Verdict]:
    """What the assembly shows: the ping-pong schedule of AMD that passes a barrier with its loads of LDS open (triton
    #11696), and a wgmma whose results nothing waits for."""
    for stage, mark in (("amdgcn", "s_setprio"), ("ptx", "wgmma.mma_async")):
        text = artefact.stages[stage].read_text() if stage in artefact.stages else ""
        counts = structure(stage, text) if mark in text else {}
        if counts.get(PRIORITY) and (count := counts.get(OPEN_LOADS)):
            text = f"{code} has {count} loads of LDS open at a barrier of its ping-pong schedule (amdgcn)"
            yield _verdict("lds-across-barrier", f"{text}: other waves overwrite the tile before they have ended")
        if count := counts.get(UNAWAITED):
            text = f"{code} ends after {count} wgmma for which nothing waits (ptx)"
            yield _verdict("wgmma-wait", f"{text}: their sums are read too early, or never")


def _verdict(subject: str, text: str) -> Verdict:
    return Verdict(str(Check(CheckKind.CODEGEN, subject)), False, text)
