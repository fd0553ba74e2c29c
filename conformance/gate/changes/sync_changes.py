"""Compares how the code of a case synchronises: what may race or cost time now, and other counts.

A record holds counts alone, which were worked out when the kernel was compiled. What may go wrong is reported where it
was not there before; a kernel that had some keeps them under
:data:`~conformance.user_files.findings.Kind.SYNC_CHANGED`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.gate.changes.status_changes import about, finding
from conformance.record_figures import (
    BARE_COMMITS,
    LATE_WAITS,
    OPEN_LOADS,
    OPEN_STORES,
    PRIORITY,
    ROUND_TRIPS,
    UNAWAITED,
    UNFENCED,
    CodeFigures,
)
from conformance.records import CaseRecord, Check, CheckKind, ExecutorName
from conformance.user_files.findings import Finding, Kind

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


#: What may go wrong: the kind of a finding where none was before.
_FAULTS = {
    ROUND_TRIPS: Kind.ACCUMULATOR_MOVED,
    LATE_WAITS: Kind.WAIT_MOVED,
    OPEN_STORES: Kind.LDS_ACROSS_BARRIER,
    OPEN_LOADS: Kind.LDS_ACROSS_BARRIER,
    BARE_COMMITS: Kind.ORDER_LOST,
    UNFENCED: Kind.ORDER_LOST,
    UNAWAITED: Kind.ORDER_LOST,
}
#: Counts of older records that newer ones do not have, because checks of the case judge the same.
_JUDGED = (UNFENCED, UNAWAITED, OPEN_LOADS, OPEN_STORES)
#: Counts that move with every schedule, so that only a larger change is reported.
_MANY = ("wait", "cache control")
#: Instructions of NVIDIA's machine code that synchronise or that move tensor memory.
_SASS = (
    *("LDTM", "STTM", "SYNCS", "BAR", "DEPBAR", "LDGDEPBAR", "WARPGROUP", "WARPSYNC", "UTCBAR", "MEMBAR", "FENCE"),
    *("ERRBAR", "CCTL"),
)
_IN_SASS = " in SASS"
#: Counts of a case that are listed.
SHOWN_COUNTS = 10
#: What running TTGIR does not show of each count, although all its runs were right.
_BARRIERS, _LDS_WAITS = "barriers between the warps of a block", "waits for LDS"
_UNSEEN = {
    ROUND_TRIPS: "time",
    "tcgen05.ld in loops": "time",
    "tcgen05.st in loops": "time",
    PRIORITY: "time",
    LATE_WAITS: _BARRIERS,
    OPEN_STORES: _LDS_WAITS,
    OPEN_LOADS: _LDS_WAITS,
    BARE_COMMITS: _BARRIERS,
    UNFENCED: "fences behind cp.async",
    "barrier": _BARRIERS,
    "fence": "fences that are added below TTGIR",
    "wait": "waits of AMD's machine code",
    "cache control": "cache control",
    "wgmma fence": "fences of wgmma",
    "tcgen05 wait": "waits for loads from tensor memory",
}
#: Counts of what stands in TTGIR, too: the run shows that the waits there suffice, and not that the code has them.
_LOWERED = "what the compiler makes of the waits of TTGIR"
#: Of several counts that changed the first names the cause.
_FIRST = ("tcgen05.ld in loops", "tcgen05.st in loops", *_FAULTS, PRIORITY)


def fault_findings(after: CaseRecord, was: CodeFigures, now: CodeFigures) -> Iterator[Finding]:
    """Yields findings about what may race or cost time in the code ``now`` and did not in the code it ``was``."""
    for name, count in new_faults(was, now).items():
        counts, executed = (f"{name}: none", f"{name}: {count}"), when_run(after, [name])
        yield finding(_FAULTS[name], after, about(name, after), *counts, detail=executed)


def mended_findings(after: CaseRecord, was: CodeFigures, now: CodeFigures) -> Iterator[Finding]:
    """Yields findings about code that changed from ``was`` to ``now``: what might race, what costs time, and what is
    now better. A count that newer records do not have says nothing where it is missing."""
    if was.sync is None or now.sync is None:
        return
    for name in (name for name in _FAULTS if name not in _judged(after)):
        before, count = was.sync.get(name, 0), now.sync.get(name, 0)
        if count < before and (name not in _JUDGED or name in now.sync):
            cause = f"fewer {name}" if count else f"no {name} any more"
            counts, executed = (f"{name}: {before}", f"{name}: {count or 'none'}"), when_run(after, [name])
            yield finding(Kind.FIXED, after, about(cause, after), *counts, detail=executed)


def new_faults(was: CodeFigures, now: CodeFigures) -> dict[str, int]:
    """Counts by name what may race or cost time in the code ``now`` and did not in the code it ``was``."""
    if was.sync is None or now.sync is None:
        return {}
    before, faults = was.sync, {}
    for name in _FAULTS:
        count = now.sync.get(name, 0)
        scheduled = name == OPEN_LOADS and now.sync.get(PRIORITY, 0) and not before.get(PRIORITY, 0)  # a new ping-pong
        if count and not before.get(name, 0) and not scheduled:
            faults[name] = count
    return faults


def count_findings(after: CaseRecord, was: CodeFigures, now: CodeFigures, share: float) -> Iterator[Finding]:
    """The finding about other counts of synchronising instructions, or of tensor-memory accesses in loops. Counts that
    move with every schedule differ if it is by more than this ``share`` of the smaller one. A count that fell gives the
    finding its cause before one that rose: what waits less often may race. Faults that fell are no part of it: they are
    mended."""
    if was.sync is None or now.sync is None:
        return
    before, counts = _counts(was), _counts(now)
    names = [*_FIRST, *(name for name in {**before, **counts} if name not in _FIRST)]
    mended = {name for name in _FAULTS if counts.get(name, 0) < before.get(name, 0)}
    left_out = {*mended, *_judged(after)}
    changed = [
        name
        for name in names
        if name not in left_out and _differ(name, before.get(name, 0), counts.get(name, 0), share)
    ]
    if not changed:
        return
    shown = _listed(before, changed), _listed(counts, changed)
    fallen = [name for name in changed if counts.get(name, 0) < before.get(name, 0)]
    cause = f"lower count of {fallen[0]}" if fallen else f"higher count of {changed[0]}"
    yield finding(Kind.SYNC_CHANGED, after, about(cause, after), *shown, detail=when_run(after, changed))


def _judged(record: CaseRecord) -> tuple[str, ...]:
    """The counts that the checks of ``record`` judge."""
    return _JUDGED if any(check.startswith("codegen/order/") for check in record.checks) else ()


def when_run(record: CaseRecord, names: Iterable[str]) -> str:
    """Returns the verdict on the TTGIR of the case, for a finding about the counts ``names``. Right TTGIR is no proof
    of what is decided below it, so the text says what of these counts it does not show."""
    ttgir = ttgir_verdict(record)
    if not ttgir.right or ttgir.wrong:
        return str(ttgir)
    unseen = dict.fromkeys(_unseen(name) for name in names)
    return f"{ttgir}; that does not show {', '.join(unseen)}"


def _unseen(name: str) -> str:
    return "machine code" if name.endswith(_IN_SASS) else _UNSEEN.get(name, _LOWERED)


def _listed(counts: Mapping[str, int], names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_COUNTS} other counts" if len(names) > SHOWN_COUNTS else ""
    return ", ".join(f"{name} {counts.get(name, 0)}" for name in names[:SHOWN_COUNTS]) + more


def _counts(code: CodeFigures) -> Mapping[str, int]:
    sass = code.instructions if code.instructions_of == "sass" else {}
    return {**(code.sync or {}), **{name + _IN_SASS: sass[name] for name in _SASS if name in sass}}


def _differ(name: str, was: int, now: int, share: float) -> bool:
    return was != now and (name not in _MANY or abs(now - was) > share * min(was, now))
