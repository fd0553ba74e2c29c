"""Compares the code of a case: features, limits, spills, occupancy, sizes, structure and instructions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from conformance.gate.changes.limit_changes import crossed, needed
from conformance.gate.changes.occupancy import occupancy, shared_memory_text
from conformance.gate.changes.status_changes import about, finding
from conformance.gate.changes.sync_changes import count_findings, fault_findings, mended_findings
from conformance.gate.shortened_text import first_words
from conformance.record_figures import CodeFigures, Resources
from conformance.records import CaseRecord, Check, CheckKind, Status
from conformance.user_files.findings import Finding, Kind
from conformance.user_files.thresholds import DEFAULT, SpillThresholds, Thresholds

#: The features that outdo another one: code that loses the key and gains one of its values got better.
_BETTER = {
    "POINTER_LOAD": {"ASYNC_COPY", "TMA_LOAD"},
    "ASYNC_COPY": {"TMA_LOAD"},
    "POINTER_STORE": {"TMA_STORE"},
    "MMA": {"WGMMA", "TCGEN05"},
    "WGMMA": {"TCGEN05"},
}
#: Findings that explain other counts of synchronising instructions.
_EXPLAINING = (
    *(Kind.FEATURE_LOST, Kind.FEATURE_GAINED, Kind.WAIT_MOVED, Kind.LDS_ACROSS_BARRIER, Kind.ORDER_LOST),
    Kind.ACCUMULATOR_MOVED,
)
#: How many instructions of a changed mix are shown.
SHOWN_INSTRUCTIONS = 4
#: The feature for spills. Not compared as a feature: spills are counted.
SPILL = "SPILL"
_KINDS_OF_CHECKS = {
    CheckKind.REQUIRES: Kind.FEATURE_LOST,
    CheckKind.SPILLS: Kind.MORE_SPILLS,
    CheckKind.RESOURCES: Kind.LIMIT_CROSSED,
}
_KINDS_OF_SUBJECTS = {
    "order/fence": Kind.ORDER_LOST,
    "order/wait": Kind.ORDER_LOST,
    "order/lds": Kind.LDS_ACROSS_BARRIER,
}
#: What a crossed limit explains.
_WITHIN_LIMITS = (Kind.MORE_SHARED_MEMORY, Kind.MORE_REGISTERS, Kind.LESS_OCCUPANCY)
#: What code that spills more has for it, which is no gain.
_BOUGHT = (Kind.FEWER_REGISTERS, Kind.MORE_OCCUPANCY)
#: Why less occupancy costs a persistent kernel nothing by itself.
_ONE_BLOCK = "a persistent kernel: one block runs on each multiprocessor, whatever fits"
#: Instructions for whose sake a kernel is chosen: patterns of their names on NVIDIA and AMD.
_INSTRUCTIONS = {
    "tensor core": re.compile(r"MMA|MFMA|SMFMAC", re.IGNORECASE),
    "TMA": re.compile(r"^(?:UTMA|UBLKCP)|^tensor_(?:load|store)", re.IGNORECASE),
}
#: NVIDIA's packed instructions, each with the scalar one of which it replaces two.
PACKED = {"FADD2": "FADD", "FFMA2": "FFMA", "FMUL2": "FMUL"}


def code_findings(before: CaseRecord, after: CaseRecord, thresholds: Thresholds = DEFAULT) -> list[Finding]:
    """Findings about the code of one case. None where one side was not compiled, or both hold the same machine code
    and nothing fails."""
    identical = _identical(before, after)
    if identical and not after.failing:
        return []
    findings = [*_limits(before, after)]
    if before.figures.resources is not None and after.figures.resources is not None and not identical:
        findings += _sizes(after, before.figures.resources, after.figures.resources, thresholds)
        findings += _occupancies(after, before.figures.resources, after.figures.resources, thresholds)
        findings = _beside_spills(findings)
    if before.figures.code is not None and after.figures.code is not None and not identical:
        findings += _features(after, before.figures.code, after.figures.code)
        findings += fault_findings(after, before.figures.code, after.figures.code)
        findings += mended_findings(after, before.figures.code, after.figures.code)
        if not any(one.kind in _EXPLAINING for one in findings):
            findings += count_findings(after, before.figures.code, after.figures.code, thresholds.sync_changed.share)
        if before.figures.code.bytes and after.figures.code.bytes:
            size = _CodeFigure(Kind.LARGER_CODE, Kind.SMALLER_CODE, "bytes", thresholds.larger_code.share, 1)
            findings += size.changes(after, before.figures.code.bytes, after.figures.code.bytes)
        kinds, share = [one.kind for one in findings], thresholds.other_instructions.share
        findings += _instructions(after, before.figures.code, after.figures.code, kinds, share)
    if any(one.kind is Kind.LIMIT_CROSSED for one in findings):  # whose text says what crossed the limit
        findings = [one for one in findings if one.kind not in _WITHIN_LIMITS]
    expected = _expected_checks(before, after)
    return [one for one in findings if not any(_repeats(one, check) for check in expected)]


def _beside_spills(findings: list[Finding]) -> list[Finding]:
    """``findings`` of one case. If it spills more, the finding about its spills names what it gained for that."""
    bought = [one for one in findings if one.kind in _BOUGHT]
    if not bought or all(one.kind is not Kind.MORE_SPILLS for one in findings):
        return findings
    text = "; ".join(f"{one.before} -> {one.after}" for one in bought)
    rest = [one for one in findings if one.kind not in _BOUGHT]
    return [replace(one, detail=text) if one.kind is Kind.MORE_SPILLS else one for one in rest]


def _expected_checks(before: CaseRecord, after: CaseRecord) -> list[str]:
    """Returns the failing checks that an expected failure covers. If the case failed as expected in the baseline too,
    these are the checks that failed there."""
    if after.status is not Status.EXPECTED_FAIL:
        return []
    earlier = {check for check, _ in before.failing}
    return [check for check, _ in after.failing if before.status is not Status.EXPECTED_FAIL or check in earlier]


def _repeats(finding: Finding, check: str) -> bool:
    """True if the failing ``check`` says the same as a ``finding`` about the code."""
    kind = kind_of_check(check)
    return kind is finding.kind and (
        kind is not Kind.FEATURE_LOST or finding.cause.startswith(f"{Check.parse(check).subject} lost")
    )


def kind_of_check(text: str) -> Kind | None:
    """The kind under which a failing check about code is reported; None for the other checks.

    >>> kind_of_check("codegen/requires/TMA_LOAD").value
    'FEATURE_LOST'
    """
    check = Check.parse(text)
    if check.kind is CheckKind.FORBIDS and check.subject == SPILL:
        return Kind.MORE_SPILLS
    if check.kind is CheckKind.CODEGEN:
        return _KINDS_OF_SUBJECTS.get(check.subject)
    return _KINDS_OF_CHECKS.get(check.kind)


def explained(failing: Sequence[tuple[str, str]], findings: Iterable[Finding]) -> bool:
    """True if every failing check only repeats a finding about the code. A forbidden feature that appeared repeats the
    loss of the one whose place it took."""
    kinds = {finding.kind for finding in findings}
    forbidden = {check for check, _ in failing if Check.parse(check).kind is CheckKind.FORBIDS}
    repeated = [kind_of_check(check) or (Kind.FEATURE_LOST if check in forbidden else None) for check, _ in failing]
    return bool(repeated) and kinds.issuperset(repeated)


def verdict_findings(
    before: CaseRecord | None,
    after: CaseRecord,
    others: Iterable[Finding],
    thresholds: Thresholds = DEFAULT,
) -> list[Finding]:
    """Returns findings for the failing checks about code that the ``others`` lack: older records hold no figures, and a
    difference may be below the thresholds."""
    earlier = {check for check, _ in before.failing} if before else set()
    causes = {(one.kind, one.cause) for one in others}
    kinds = {kind for kind, _ in causes}
    findings = []
    for name, text in after.failing:
        kind, check = kind_of_check(name), Check.parse(name)
        if kind is None or name in earlier or (kind is not Kind.FEATURE_LOST and kind in kinds):
            continue
        what = check.name if check.kind is CheckKind.CODEGEN else check.group
        cause = about(f"{check.subject} lost" if kind is Kind.FEATURE_LOST else what, after)
        if (kind, cause) not in causes:
            causes.add((kind, cause))
            kinds.add(kind)
            was = "pass" if before and name in before.checks else "not checked"
            failed = finding(kind, after, cause, was, "fail", detail=first_words(text, 500))
            minor = kind is Kind.MORE_SPILLS and _few_more(before, after, thresholds.more_spills)
            findings.append(replace(failed, minor=minor))
    return findings


def _few_more(before: CaseRecord | None, after: CaseRecord, limits: SpillThresholds) -> bool:
    """True if the figures say that a few more registers are spilled. Where they say nothing, or that none is, another
    launch of the case may be the one that spills."""
    was, now = before.figures.resources if before else None, after.figures.resources
    if was is None or now is None or not (was.registers and now.registers) or was.spill_unit != now.spill_unit:
        return False
    return was.spills < now.spills and _small(was, now, limits)


def _identical(before: CaseRecord, after: CaseRecord) -> bool:
    was, now = before.figures.code, after.figures.code
    return was is not None and now is not None and was.sha256 is not None and was.sha256 == now.sha256


def _limits(before: CaseRecord, after: CaseRecord) -> Iterator[Finding]:
    earlier = {check for check, _ in before.failing}
    failing = [(check, text) for check, text in after.failing if kind_of_check(check) is Kind.LIMIT_CROSSED]
    new = [(check, text) for check, text in failing if check not in earlier]
    if new and before.figures.resources is not None:
        text = "; ".join(text for _, text in new)
        which = crossed(text)
        cause = about(f"past the limit of {', '.join(which) or 'the target'}", after)
        # the figures are those of the main launch, and a check with a subject is about another one
        beside = any(Check.parse(check).subject for check, _ in new)
        within = "within the target's limits" if all(check in before.checks for check, _ in new) else "not checked"
        was = within if beside or not which else needed(before, which)
        yield finding(Kind.LIMIT_CROSSED, after, cause, was, first_words(text, 300))


@dataclass(frozen=True)
class _CodeFigure:
    """A figure of a kernel, with the kinds of findings if it grows and if it shrinks. A change is reported if it is
    more than ``share`` of the smaller value and at least ``least`` units."""

    more: Kind
    less: Kind
    unit: str
    share: float
    least: float

    def changes(
        self, after: CaseRecord, was: int, now: int, text: Callable[[int], str] | None = None
    ) -> Iterator[Finding]:
        """Yields the finding if the figure changed enough. ``text`` gives a value in words, by default with its
        unit."""
        if abs(now - was) < self.least or abs(now - was) <= self.share * min(was, now):
            return
        kind = self.more if now > was else self.less
        cause = about(kind.value.lower().replace("_", " "), after)
        shown = (text(was), text(now)) if text else (f"{was} {self.unit}", f"{now} {self.unit}")
        grown = finding(kind, after, cause, *shown, ratio=now / was if was else None)
        yield grown if was else replace(grown, from_zero=now)


def _sizes(after: CaseRecord, was: Resources, now: Resources, thresholds: Thresholds) -> Iterator[Finding]:
    registers, shared_memory = thresholds.more_registers, thresholds.more_shared_memory
    readable = was.registers and now.registers  # 0: the binary could not be read
    if readable:
        yield from _spills(after, was, now, thresholds.more_spills)
    memory = _CodeFigure(
        *(Kind.MORE_SHARED_MEMORY, Kind.LESS_SHARED_MEMORY, "bytes"),
        *(shared_memory.share, shared_memory.bytes),
    )
    in_words = functools.partial(shared_memory_text, after.target)
    yield from memory.changes(after, was.shared_memory, now.shared_memory, in_words)
    if readable:
        figure = _CodeFigure(
            *(Kind.MORE_REGISTERS, Kind.FEWER_REGISTERS, "registers"),
            *(registers.share, registers.registers),
        )
        yield from figure.changes(after, was.registers, now.registers)


def _spills(after: CaseRecord, was: Resources, now: Resources, limits: SpillThresholds) -> Iterator[Finding]:
    unit, both = now.spill_unit or was.spill_unit, was.spills and now.spills
    if was.spills == now.spills or (both and was.spill_unit != unit):
        return
    usual = limits.bytes if unit == "bytes" else limits.registers
    least = usual if both else min(1, usual)  # the first one is another code
    figure = _CodeFigure(Kind.MORE_SPILLS, Kind.FEWER_SPILLS, f"{unit or ''} spilled".strip(), limits.share, least)
    for one in figure.changes(after, was.spills, now.spills):
        yield replace(one, minor=_small(was, now, limits))


def _small(was: Resources, now: Resources, limits: SpillThresholds) -> bool:
    """True if the spills that came are too few for a regression."""
    unit, more = now.spill_unit or was.spill_unit, now.spills - was.spills
    least = limits.regression_bytes if unit == "bytes" else limits.regression_registers
    return more < least or more < limits.regression_share * was.spills


def _occupancies(after: CaseRecord, was: Resources, now: Resources, thresholds: Thresholds) -> Iterator[Finding]:
    """The finding about the blocks or waves that are resident; none where they are not known."""
    before, current = occupancy(after.target, was), occupancy(after.target, now)
    if before is None or current is None or before.resident == current.resident:
        return
    less = before.resident - current.resident
    kind = Kind.LESS_OCCUPANCY if less > 0 else Kind.MORE_OCCUPANCY
    cause = f"less occupancy for {current.limit}" if less > 0 else "more occupancy"
    ratio = current.resident / before.resident if before.resident else None
    one = finding(kind, after, about(cause, after), str(before), str(current), ratio=ratio)
    if after.figures.persistent and current.blocks:
        yield replace(one, minor=True, detail=_ONE_BLOCK)
    else:
        yield replace(one, minor=less < thresholds.less_occupancy.regression_share * before.resident)


def _features(after: CaseRecord, was: CodeFigures, now: CodeFigures) -> Iterator[Finding]:
    if was.features == now.features:
        return
    had, has = (set(code.features) - {SPILL} for code in (was, now))
    lost, gained = had - has, has - had
    outdone = {feature for feature in lost if _BETTER.get(feature, set()) & gained}
    fallback = {feature for feature in gained if _BETTER.get(feature, set()) & lost}
    kept = ", ".join(sorted(had & has)) or "no other"
    for feature in sorted(lost - outdone):
        instead = f"instead: {', '.join(sorted(fallback))}" if fallback else f"still there: {kept}"
        yield finding(
            Kind.FEATURE_LOST, after, about(f"{feature} lost", after), feature, f"no {feature}", detail=instead
        )
    for feature in sorted(gained - fallback):
        yield finding(Kind.FEATURE_GAINED, after, about(f"{feature} gained", after), f"no {feature}", feature)


def _instructions(
    after: CaseRecord, before: CodeFigures, code: CodeFigures, kinds: list[Kind], share: float
) -> Iterator[Finding]:
    """Findings about the mix of instructions; none where a lost or gained feature already says what changed."""
    was, now = before.instructions, code.instructions
    alike = before.instructions_of == code.instructions_of
    if not was or not now or was == now or not alike or Kind.FEATURE_LOST in kinds or Kind.FEATURE_GAINED in kinds:
        return
    gone = [name for name, count in was.items() if count and not now.get(name)]
    vanished: list[str] = []
    for what, pattern in _INSTRUCTIONS.items():
        lost = [name for name in gone if pattern.search(name)]
        if lost and not any(count and pattern.search(name) for name, count in now.items()):
            cause = about(f"no {what} instruction left", after)
            yield finding(Kind.FEATURE_LOST, after, cause, _counts(was, lost), "none")
            return
        vanished += sorted(lost)
    moves = _moves(was, now)
    distance = sum(abs(move) for move in moves.values()) / 2
    if not vanished and distance <= share:
        return
    split = [name for name in PACKED if _is_split(name, was, now)]
    if split:
        names = {*split, *(PACKED[name] for name in split)}
        cause = about(f"packed {', '.join(split)} became scalar instructions", after)
        yield finding(Kind.FEATURE_LOST, after, cause, _counts(was, names), _counts(now, names))
        return
    cause = f"{', '.join(vanished)} vanished" if vanished else "another mix of instructions"
    most = sorted(moves, key=lambda name: (-abs(moves[name]), name))[:SHOWN_INSTRUCTIONS]
    names = {*vanished, *most}
    detail = f"{distance:.0%} of the instructions are others"
    yield finding(
        Kind.OTHER_INSTRUCTIONS,
        after,
        about(first_words(cause, 200), after),
        _counts(was, names),
        _counts(now, names),
        detail=detail,
    )


def _is_split(packed: str, was: Mapping[str, float], now: Mapping[str, float]) -> bool:
    """True if more than half of the ``packed`` instructions are gone and scalar ones took their place. Two scalar ones
    replace a packed one; 1.5 suffice here, because other things may have changed too."""
    lost = was.get(packed, 0) - now.get(packed, 0)
    gained = now.get(PACKED[packed], 0) - was.get(PACKED[packed], 0)
    return 2 * lost > was.get(packed, 0) and gained >= 1.5 * lost


def _moves(was: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """By how much the share of each instruction changed."""
    totals = sum(was.values()) or 1, sum(now.values()) or 1
    return {name: now.get(name, 0) / totals[1] - was.get(name, 0) / totals[0] for name in {**was, **now}}


def _counts(mix: Mapping[str, float], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {mix.get(name, 0):g}" for name in sorted(names))[:200]
