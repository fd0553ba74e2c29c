"""Faults of the compiler that the code's own text shows: no kernel's code may have them, whatever its plan asks for."""

from __future__ import annotations

from collections.abc import Iterator

from conformance import codegen_checks
from conformance.codegen_checks import CompiledCode
from conformance.judging.operand_slots import overwritten_operands
from conformance.judging.repeated_depths import repeated_depths
from conformance.records import Check, CheckKind, Verdict


def fault_verdicts(code: str, artefact: CompiledCode) -> Iterator[Verdict]:
    """A failing verdict for each fault in ``artefact``, none if it has none or lacks the stage that shows them.
    ``code`` names the kernel, and the launch if it is not the main one."""
    if "ttgir" not in artefact.stages:
        return
    ttgir = codegen_checks.code_of(artefact.stages["ttgir"], "ttgir")
    for operand in sorted(overwritten_operands(ttgir)):
        text = f"{code} keeps {operand.slots} of the tiles {operand.allocation} in shared memory (ttgir)"
        yield _verdict("operand-slots", f"{text}: its loop copies the next tile into a slot before wgmma has read it")
    for depth, width in sorted(repeated_depths(ttgir)):
        text = f"{code} multiplies tiles of {depth} k in a layout of kWidth {width} (ttgir)"
        yield _verdict("repeated-k", f"{text}: its registers repeat some k, which are added twice, and lack others")


def _verdict(subject: str, text: str) -> Verdict:
    return Verdict(str(Check(CheckKind.CODEGEN, subject)), False, text)
