"""Checks whether the compiled code of a kernel is in order, as verdicts: ``codegen/order/<kind>``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from conformance.codegen_checks import CompiledCode
from conformance.execution import order
from conformance.execution.compile import assembly
from conformance.execution.order.answer import OrderAnswer
from conformance.execution.order.answers import STAGES, order_answers
from conformance.machine.kept_answers import kept_answer, package_digest, source_digest
from conformance.records import Check, CheckKind, Verdict

#: What is required of each kind of order, and what a fault leads to.
_REQUIRED = {
    "fence": (
        "no tensor core or TMA reads what threads wrote without a fence",
        "no fence.proxy.async stands between, so it may read what was there before",
    ),
    "wait": ("every wgmma is waited for", "its sums are read too early, its operands overwritten, or it is cut off"),
    "lds": (
        "no access of LDS is open across a barrier where other waves meet it",
        "nothing waits for it before the barrier",
    ),
}


def order_verdicts(code: str, artefact: CompiledCode) -> Iterator[Verdict]:
    """A verdict for each kind of order in the code of ``artefact``, none where it is not known. ``code`` names
    the kernel, and the launch if it is not the main one."""
    for answer in answers_of(artefact):
        required, consequence = _REQUIRED[answer.subject]
        check = str(Check(CheckKind.CODEGEN, f"order/{answer.subject}"))
        if answer.fault:
            yield Verdict(check, False, f"in {code}, {answer.fault}: {consequence}")
        elif answer.right:
            yield Verdict(check, True, f"in {code}, {required}")


def unknown_orders(artefacts: Iterable[CompiledCode]) -> dict[str, str]:
    """By kind of order, the first place in the code of ``artefacts`` where it is not known."""
    unknown: dict[str, str] = {}
    for artefact in artefacts:
        for answer in answers_of(artefact):
            if answer.unknown:
                unknown.setdefault(answer.subject, answer.unknown)
    return unknown


def answers_of(artefact: CompiledCode) -> list[OrderAnswer]:
    """The answers about the code of ``artefact``, which are kept next to its text."""
    stage = next((stage for stage in STAGES if stage in artefact.stages), None)
    if stage is None:
        return []
    path = artefact.stages[stage]

    def work_out() -> list[dict[str, str]]:
        answers = order_answers(stage, path.read_text())
        return [{"subject": one.subject, "fault": one.fault, "unknown": one.unknown} for one in answers]

    kept = kept_answer([path], "order", source_digest(assembly) + package_digest(order), work_out)
    return [OrderAnswer(**one) for one in kept]
