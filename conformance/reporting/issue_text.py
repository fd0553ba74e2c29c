"""The text of an issue about one cause of a comparison, ready to be filed with the makers of the component."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from conformance.gate.verdict.known_findings import signature
from conformance.proof_level import ProofLevel, level_by
from conformance.records import CaseRecord, Check, CheckKind, Status
from conformance.reporting.comparison import summary_line
from conformance.reporting.text import clean, markdown_table, one_line
from conformance.user_files.findings import Comparison, Finding, Group, Kind, KnownDefect, Side

#: Characters of a title, and of one text that a record or a compiler wrote.
TITLE_LIMIT = 150
TEXT_LIMIT = 1500
#: Characters of a script that stands in the text itself: a tracker takes 65,536 in all.
SCRIPT_LIMIT = 40_000
#: Failing checks that are quoted.
CHECKS_SHOWN = 5
#: Parts of a stack that an issue names, and those of the bill of materials.
_STACK = ("triton", "torch", "python")
_BILL = ("Triton commit", "LLVM commit")
#: What a kind of check expects.
_EXPECTED = {
    CheckKind.NUMERICS: "Each element of the output is the exact result, or within a proven bound of it.",
    CheckKind.MEMORY: "Nothing outside the operands is read or written.",
    CheckKind.REPEAT: "Two runs of one input give the same bits.",
    CheckKind.GRID: "The planned programs run, each once.",
    CheckKind.EXECUTED: "The TTGIR gives the right result in every legal order of its asynchronous operations.",
    CheckKind.UNDEFINED_LANES: "No lane that a mask leaves without a value reaches a result.",
    CheckKind.RESOURCES: "The code stays within the limits of its target.",
    CheckKind.SPILLS: "The code spills no more registers than is declared.",
    CheckKind.COMPILE: "The kernel compiles.",
}
_WRONG = {
    CheckKind.NUMERICS: "wrong result",
    CheckKind.MEMORY: "memory access outside the operands",
    CheckKind.REPEAT: "results differ from run to run",
    CheckKind.GRID: "wrong programs run",
    CheckKind.EXECUTED: "wrong TTGIR",
    CheckKind.UNDEFINED_LANES: "undefined lanes of a masked load reach the result",
    CheckKind.RESOURCES: "past a limit of the target",
    CheckKind.SPILLS: "more register spills",
}
_ENDED = {
    Status.COMPILE_ERROR: "does not compile",
    Status.CRASH: "crashes",
    Status.TIMEOUT: "does not end",
    Status.OOM: "runs out of memory",
}
_CODE_CHECKS = (CheckKind.REQUIRES, CheckKind.FORBIDS, CheckKind.CODEGEN, CheckKind.RESOURCES, CheckKind.SPILLS)
#: Findings about compiled code, of which nothing was run.
_OF_CODE = (
    *(Kind.FEATURE_LOST, Kind.LIMIT_CROSSED, Kind.WAIT_MOVED, Kind.LDS_ACROSS_BARRIER, Kind.ORDER_LOST),
    *(Kind.ACCUMULATOR_MOVED, Kind.MORE_SPILLS, Kind.LESS_OCCUPANCY),
)


@dataclass(frozen=True)
class IssueScript:
    """A script that shows the fault with torch and triton alone: the file's name, its text and what it showed."""

    name: str
    text: str
    outcome: str


def title(comparison: Comparison, group: Group, record: CaseRecord | None) -> str:
    """One line that names the release, what is wrong, and where."""
    one = group.findings[0]
    dtype = str(record.options.get("dtype", "")) if record else ""
    where = ", ".join(filter(None, (dtype, one.target)))
    what = f"{one.kernel or one.case.partition('::')[2] or one.case}{f' ({where})' if where else ''}"
    cause = _cause(group, record)
    if group.kind in _OF_CODE:  # its cause is what is wrong
        text = f"{cause.removesuffix(f' on {one.target}')} in {what}"
    else:
        text = f"{_wrong(group, record)} in {what}: {cause}"
    text = one_line(f"{_release(comparison, comparison.candidate)}: {text}")
    return text if len(text) <= TITLE_LIMIT else f"{text[: TITLE_LIMIT - 3].rstrip()}..."


def _cause(group: Group, record: CaseRecord | None) -> str:
    """Returns the cause, with the numbers of the first case where the cause of all has none."""
    failing = _failing(group, record) if record else []
    if failing and re.search(r"\bN\b", group.cause):
        check, text = failing[0]
        return f"{Check.parse(check).name}: {next(iter(text.strip().splitlines()), '')}"
    return group.cause


def _release(comparison: Comparison, side: Side) -> str:
    """Returns the component that differs, with its version on one ``side``; the side's name if no version differs. A
    name may hold a path of this machine, which is no use elsewhere."""
    was, now = comparison.baseline.stack, comparison.candidate.stack
    differ = [name for name in ("triton", "torch", "ptxas") if was.get(name) != now.get(name) and side.stack.get(name)]
    name = next(iter(differ), None)
    return f"{'Triton' if name == 'triton' else name} {side.stack[name]}" if name else side.name


def _wrong(group: Group, record: CaseRecord | None) -> str:
    """Returns the failure in a few words."""
    if record is None:
        return group.kind.value.lower().replace("_", " ")
    failing = _failing(group, record)
    if not failing:
        return _ENDED.get(record.status, group.kind.value.lower().replace("_", " "))
    check = Check.parse(failing[0][0])
    if check.kind is CheckKind.REQUIRES:
        return f"{check.subject} is not used any more"
    if check.kind is CheckKind.FORBIDS:
        return f"{check.subject} is used"
    return _WRONG.get(check.kind, _ENDED.get(record.status, f"{check.name} fails"))


def _failing(group: Group, record: CaseRecord) -> list[tuple[str, str]]:
    """Returns the failing checks of ``record``, the one that the cause of ``group`` names first."""
    return sorted(record.failing, key=lambda pair: not group.cause.startswith(Check.parse(pair[0]).name))


def render(
    comparison: Comparison,
    group: Group,
    record: CaseRecord | None,
    script: IssueScript | None,
    why_no_script: str,
    stage: str,
) -> str:
    """Returns the issue as Markdown. ``record`` is that of the first case with the candidate, None if it left none.
    ``why_no_script`` stands where there is no ``script``. ``stage`` names the guilty stage of the compiler, or says
    that it was not asked for."""
    one = group.findings[0]
    blocks = [f"# {title(comparison, group, record)}", group.meaning, _fenced(group.cause)]
    blocks += ["## Versions", markdown_table(_versions(comparison, group, record))]
    blocks += ["## How it was judged", _judge(group, record).value]
    blocks += ["## Case", _fenced(one.case), *([f"Target: {one.target}"] if one.target else [])]
    blocks += [
        "## Expected",
        _expected(group, record),
        _with(comparison, comparison.baseline, one.before or "no such fault"),
    ]
    seen = _with(comparison, comparison.candidate, one.after or group.cause)
    blocks += ["## Seen", seen, *_seen(group, record)]
    if one.defect is not None:
        blocks += ["## Already reported", _fenced(_reported(one.defect))]
    blocks += ["## How old it is", f"{group.age.text[:1].upper()}{group.age.text[1:]}." if group.age else "Not asked."]
    blocks += ["## Guilty stage", _fenced(stage)]
    blocks += ["## How to show it", *_shown_by(comparison, one, record, script, why_no_script)]
    more = len({each.case for each in group.findings}) - 1
    blocks += [f"## Scope\n\n{summary_line(group)}" if more else ""]
    blocks += [f"Signature: `{signature(group.kind, group.cause)}`"]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _reported(defect: KnownDefect) -> str:
    fixed = f"fixed in {defect.fixed_in}" if defect.fixed_in else "no release is known to fix it"
    return f"{defect.link or 'no link is known'}\n{defect.id}; {fixed}"


def _fenced(text: str, language: str = "") -> str:
    """``text`` as a block of code, whatever it holds."""
    ticks = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}{language}\n{clean(text).rstrip()}\n{fence}"


def _with(comparison: Comparison, side: Side, text: str) -> str:
    return f"With {one_line(_release(comparison, side))}:\n\n{_fenced(text[:TEXT_LIMIT])}"


def _versions(comparison: Comparison, group: Group, record: CaseRecord | None) -> list[list[str]]:
    """Returns the rows of the table of versions, its header first."""
    sides, target = (comparison.baseline, comparison.candidate), group.findings[0].target or ""
    bill = [*_BILL, *(["LLVM commit for AMD"] if target.startswith("gfx") else [])]
    rows: list[list[object]] = [["", "good", "bad"]]
    rows += [[name, *(side.stack.get(name) or "none" for side in sides)] for name in _STACK]
    rows += [[name, *(side.bill.get(name, "unknown") for side in sides)] for name in bill]
    if target in comparison.assemblers:
        rows.append([f"assembler of {target}", *comparison.assemblers[target]])
    if _judge(group, record) is _Basis.DEVICE:
        rows.append(["device", *(side.stack.get("device") or "unknown" for side in sides)])
        rows.append(["driver", *(side.bill.get("driver", "unknown") for side in sides)])
    return [[one_line(str(cell)) for cell in row] for row in rows]


class _Basis(Enum):
    """Says what a finding rests on, in a sentence."""

    DEVICE = "The kernel was run on a device, which the table names."
    TTGIR = "The TTGIR of the compiled kernel was run on a CPU; no GPU took part in it."
    INTERPRETER = (
        "Triton's interpreter computed it from the source on a CPU: no GPU took part in it, nor compiled code."
    )
    CODE = "The compiled code was read; the finding does not rest on running it."
    COMPILER = "The kernel was to be compiled; the finding does not rest on running it."
    LESS = "The case was judged by less than with the good stack."
    NOTHING = "The case ended before any verdict."


def _judge(group: Group, record: CaseRecord | None) -> _Basis:
    """Returns the check on which the finding rests, and what ran it."""
    if record is None:
        return _Basis.NOTHING
    if group.kind is Kind.LOST_COVERAGE and record.checks:
        return _Basis.LESS
    if group.kind in _OF_CODE:
        return _Basis.CODE
    if group.kind is Kind.SLOWER:
        return _Basis.DEVICE if record.figures.samples else _Basis.NOTHING
    failing = _failing(group, record)
    kind = Check.parse(failing[0][0]).kind if failing else None
    if kind is CheckKind.COMPILE or (kind is None and record.status is Status.COMPILE_ERROR):
        return _Basis.COMPILER
    if kind is CheckKind.EXECUTED:
        return _Basis.TTGIR
    if kind in _CODE_CHECKS:
        return _Basis.CODE
    if kind is None:
        return _Basis.NOTHING
    on_device = level_by(record.executor, record.checks) is ProofLevel.DEVICE
    return _Basis.DEVICE if on_device else _Basis.INTERPRETER


def _expected(group: Group, record: CaseRecord | None) -> str:
    failing = _failing(group, record) if record else []
    if group.kind in _OF_CODE or not failing:
        return "The case passes, and its code is no worse than before."
    check = Check.parse(failing[0][0])
    if check.kind is CheckKind.REQUIRES:
        return f"The code uses {check.subject}."
    if check.kind is CheckKind.FORBIDS:
        return f"The code does not use {check.subject}."
    return _EXPECTED.get(check.kind, f"The check {check.name} passes.")


def _seen(group: Group, record: CaseRecord | None) -> Iterator[str]:
    """Yields the failure as the record has it: the failing checks, or else the diagnosis."""
    if record is None:
        return
    for check, text in _failing(group, record)[:CHECKS_SHOWN]:
        yield _fenced(f"{check}: {text}"[:TEXT_LIMIT])
    if not record.failing and record.diagnosis:
        yield _fenced(record.diagnosis[:TEXT_LIMIT])


def _shown_by(
    comparison: Comparison,
    one: Finding,
    record: CaseRecord | None,
    script: IssueScript | None,
    why_no_script: str,
) -> Iterator[str]:
    words = ["conformance", "run", f"--conformance-case={one.case}"]
    words += [f"--tier={comparison.candidate.tier}"] if comparison.candidate.tier else []
    words += [f"--target={one.target}"] if one.target else []
    words += [] if record is not None and record.executor == "device" else ["--no-gpu"]
    if script is None:
        yield f"{one_line(why_no_script)} With triton-conformance and the bad stack installed:"
    else:
        yield f"The script `{script.name}` needs torch and triton alone: {one_line(script.outcome)}"
        if len(script.text) <= SCRIPT_LIMIT:
            yield f"<details><summary>{script.name}</summary>\n\n{_fenced(script.text, 'python')}\n\n</details>"
        yield "The same with triton-conformance and the bad stack installed:"
    yield _fenced(shlex.join(words), "sh")


def names(groups: Sequence[Group]) -> list[str]:
    """A file name without its ending for the issue of each group: its signature, with a number where another group has
    the same."""
    uses: dict[str, int] = {}
    result = []
    for group in groups:
        name = signature(group.kind, group.cause)
        uses[name] = uses.get(name, 0) + 1
        result.append(name if uses[name] == 1 else f"{name}-{uses[name]}")
    return result
