"""Describes what a record says of running the TTGIR of its kernels: the executor's verdict, never only that there is
one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.records import CaseRecord, Check, CheckKind, ExecutorName

#: The check of whole runs. A check that failed in a run has a name below it.
TTGIR = Check(CheckKind.EXECUTED, "ttgir").name
#: The check of layouts, which are compared and not run.
LAYOUTS = Check(CheckKind.EXECUTED, "layouts").name
#: Characters of a text that are kept.
TEXT_LIMIT = 300


@dataclass(frozen=True)
class TtgirVerdict:
    """The executor's verdict on a case. ``wrong`` is the text of the first check that failed, "" if none did. ``right``
    is the text of what passed, "" without that. ``whole``: every plan of the case was run. ``unknown`` names what the
    executor cannot run. ``ran``: something was run, perhaps without a verdict in the record."""

    wrong: str = ""
    right: str = ""
    whole: bool = False
    unknown: str = ""
    ran: bool = False

    @property
    def passed(self) -> bool:
        """True if every plan was run and all was right."""
        return bool(self.right) and self.whole and not self.wrong

    def __str__(self) -> str:
        """The verdict in words, such as "its TTGIR is right in 12 runs, in 7 orders"."""
        if self.wrong:
            return f"its TTGIR is wrong: {self.wrong}"
        if self.right and not self.whole:
            return f"its TTGIR is {self.right}, and part of it was not run" + (f": {self.unknown}" * bool(self.unknown))
        if self.right:
            return f"its TTGIR is {self.right}"
        if self.unknown:
            return f"its TTGIR was not run: {self.unknown}"
        return "its TTGIR was run, and the record lacks the verdict" if self.ran else "its TTGIR was not run"


def ttgir_verdict(record: CaseRecord) -> TtgirVerdict:
    """Returns the executor's verdict on the case of ``record``."""
    observed, executor = record.figures.ttgir, record.executor
    figures = observed if isinstance(observed, Mapping) else {}
    executed = [verdict for verdict in record.verdicts if verdict.check.startswith((TTGIR, LAYOUTS))]
    about = [(Check.parse(each.check).name, each.passed, _text(each.text) or each.check) for each in executed]
    wrong = [text for _, passed, text in about if not passed]
    right = [text for name, passed, text in about if passed and name == TTGIR]
    if not about and figures.get("passed") is True:  # it was run to explain what is wrong on a device
        right = [f"right in {figures.get('orders')} orders"]
    return TtgirVerdict(
        wrong=next(iter(wrong), _text(figures.get("wrong"))),
        right=next(iter(right), ""),
        whole=executor in (ExecutorName.TTGIR.value, ExecutorName.DEVICE.value) and not figures.get("unknown"),
        unknown=_text(figures.get("unknown")),
        ran=bool(about) or bool(figures.get("orders")),
    )


def _text(value: object) -> str:
    return value[:TEXT_LIMIT] if isinstance(value, str) else ""
