"""The answer of a screen as health events of NVSentinel.

The fields are those of ``HealthEvents`` and ``HealthEvent`` in ``data-models/protobufs/health_event.proto`` of
github.com/NVIDIA/NVSentinel, commit 264bfab85e3c, in protobuf's JSON form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.screening.answers import GpuAnswer
from conformance.screening.findings import Verdict

AGENT, CHECK = "triton-conformance", "GpuExactProducts"
_VERSION = 1
#: Verdicts of which an event can be said, and then whether it is fatal, the action, the strategy, and an error code.
_EVENTS: dict[Verdict, tuple[bool, str, str, str]] = {
    Verdict.CLEAN: (False, "NONE", "EXECUTE_REMEDIATION", ""),
    Verdict.SUSPECT: (True, "RUN_DCGMEUD", "EXECUTE_REMEDIATION", "WRONG_PRODUCTS"),
    # the compiler is more likely: no node is to be drained for it
    Verdict.ALIKE: (False, "CONTACT_SUPPORT", "STORE_ONLY", "WRONG_PRODUCTS_ON_EVERY_SM"),
    Verdict.CRASHED: (True, "CONTACT_SUPPORT", "EXECUTE_REMEDIATION", "SCREEN_CRASHED"),
    Verdict.HUNG: (True, "CONTACT_SUPPORT", "EXECUTE_REMEDIATION", "SCREEN_HUNG"),
}


def health_events(answers: Sequence[GpuAnswer], node: str, moment: str) -> dict[str, Any]:
    """Returns a ``HealthEvents`` with an event for each GPU that has an answer. A GPU that was not screened, or not
    all of it, has none: an event says healthy or not. ``moment`` is a time as RFC 3339 writes it."""
    events = [_event(one, node, moment) for one in answers if one.verdict in _EVENTS]
    return {"version": _VERSION, "events": events}


def _event(answer: GpuAnswer, node: str, moment: str) -> dict[str, Any]:
    fatal, action, strategy, code = _EVENTS[answer.verdict]
    entities = [("GPU", answer.gpu), ("PCI", answer.about.get("pci", "")), ("GPU_UUID", answer.about.get("uuid", ""))]
    return {
        "version": _VERSION,
        "agent": AGENT,
        "componentClass": "GPU",
        "checkName": CHECK,
        "isFatal": fatal,
        "isHealthy": answer.verdict is Verdict.CLEAN,
        "message": answer.why,
        "recommendedAction": action,
        "errorCode": [code] if code else [],
        "entitiesImpacted": [{"entityType": kind, "entityValue": value} for kind, value in entities if value],
        "metadata": _metadata(answer),
        "generatedTimestamp": moment,
        "nodeName": node,
        "processingStrategy": strategy,
    }


def _metadata(answer: GpuAnswer) -> dict[str, str]:
    """Returns the SMs that were wrong, the worst first, and the wrong kinds of products."""
    if answer.seen is None or not answer.seen.offenders:
        return {}
    ranking = answer.seen.ranking
    units = sorted({name for one in ranking for name in one.units})
    places = {"sms": ",".join(str(one.place) for one in ranking[:16])} if answer.seen.how else {}
    return {**places, "products": ",".join(units)}
