"""A comparison of two runs for people: in the terminal, and as the comment of a pull request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from statistics import median

from conformance.gate.runs.bill_of_materials import is_of_backend, is_of_triton, lists_backends
from conformance.gate.shortened_text import first_words
from conformance.gate.verdict.scope import DEVICE
from conformance.reporting.first_line import answer, many, proof
from conformance.reporting.text import clean, log_safe, text_table
from conformance.reporting.text import markdown_literal as _markdown
from conformance.user_files.findings import Comparison, Finding, Group, Kind, Scope, Severity, Side
from conformance.user_files.thresholds import DEFAULT

#: How many cases of a group, and groups of one severity, are shown; JSON has all of them.
CASES_SHOWN = 5
#: Characters of a commit or a digest in a table; run.json has all.
DIGEST_SHOWN = 12
REASONS_SHOWN = 6
#: Characters of a case's id, which is whole wherever somebody may copy it.
ID_LIMIT = 2_000
TARGETS_SHOWN = 20
GROUPS_SHOWN = 40
#: The most objections in a comment.
OBJECTIONS_SHOWN = 20
#: The most characters that GitHub takes in a comment.
COMMENT_LIMIT = 65_536
#: The limits of an answer without a device.
NO_DEVICE = "nothing was run on a device: no time and no result of the hardware was compared"
#: Where all cases are.
WHERE_ALL_IS = (
    "The page (report.html of a gate, --html FILE of a comparison) lists every case, with the code that changed."
)
#: Kinds of which the figure farthest from the baseline's is the best.
_BETTER = {
    Kind.FEWER_SPILLS,
    Kind.MORE_OCCUPANCY,
    Kind.LESS_SHARED_MEMORY,
    Kind.FEWER_REGISTERS,
    Kind.SMALLER_CODE,
    Kind.FASTER_COMPILE,
    Kind.FASTER,
}
_TITLES = {Severity.REGRESSION: "Regressions", Severity.WARNING: "Warnings", Severity.INFO: "For the record"}


def refused(scope: Scope) -> str:
    """Returns the number of cases that neither side takes, with the reasons, in words; empty if there is none."""
    total = sum(scope.refused.values())
    if not total:
        return ""
    reasons = list(scope.refused.items())
    shown = ", ".join(f"{count} {clean(reason)[:60]}" for reason, count in reasons[:REASONS_SHOWN])
    more = f" and {len(reasons) - REASONS_SHOWN} more reasons" if len(reasons) > REASONS_SHOWN else ""
    return f"{total} of {many(scope.cases, 'case')} not applicable on both sides: {shown}{more}"


def render_terminal(comparison: Comparison) -> str:
    """Returns the comparison as text for a terminal."""
    blocks = [answer(comparison), "\n".join(_facts(comparison))]
    if comparison.broken:
        blocks.append("No answer\n" + "\n".join(f"  {_line(text)}" for text in broken_lines(comparison)))
    if comparison.objections:
        blocks.append("Objections\n" + "\n".join(f"  {log_safe(objection)}" for objection in comparison.objections))
    if comparison.warnings:
        blocks.append("\n".join(f"! {_line(warning)}" for warning in comparison.warnings))
    for severity, groups in _by_severity(comparison):
        blocks.append(f"{_TITLES[severity]}\n" + "\n".join(_text_group(group) for group in groups[:GROUPS_SHOWN]))
        if len(groups) > GROUPS_SHOWN:
            kinds = Counter(group.kind.value for group in groups[GROUPS_SHOWN:])
            which = ", ".join(f"{kind} {number}" for kind, number in kinds.items())
            rest = f"{many(len(groups) - GROUPS_SHOWN, 'more group')} of {_TITLES[severity].lower()} ({which})"
            blocks.append(f"... and {rest}: --json has all of them")
    return "\n\n".join([*blocks, *([WHERE_ALL_IS] if comparison.groups else [])])


def broken_lines(comparison: Comparison) -> list[str]:
    """Returns a sentence for each thing for which a side gives no answer."""
    return [_line(f"the {broken.side}'s run: {fault}") for broken in comparison.broken for fault in broken.faults]


def _by_severity(comparison: Comparison) -> Iterator[tuple[Severity, list[Group]]]:
    for severity in Severity:
        groups = [group for group in comparison.groups if group.severity is severity]
        if groups:
            yield severity, groups


def _line(text: str) -> str:
    """On one line, safe to print."""
    return log_safe(text.replace("\n", " ").replace("\t", " "))


def _facts(comparison: Comparison) -> list[str]:
    rows = [[_line(cell) for cell in row] for row in _fact_rows(comparison, "  ")]
    return [
        text_table(rows),
        f"compared {comparison.compared}, unchanged {comparison.unchanged}",
        *_reach(comparison),
        *threshold_lines(comparison),
    ]


def _reach(comparison: Comparison) -> list[str]:
    """Returns lines about the reach of the answer: what the cases prove, which the answer "safe" itself says; what
    earlier answers and further runs of the baseline show; that no device took part, if none did, or that another one
    timed cases; what neither side takes; and, if the answer is not safe, which of several targets regressed, and from
    what on spills and occupancy are regressions."""
    scope = comparison.scope
    proven = [] if comparison.safe else ["; ".join(proof(scope))]
    no_device = NO_DEVICE if scope.judged and DEVICE not in scope.levels else ""
    by_target = _by_target(comparison)
    facts = [
        no_device,
        _other_device(comparison),
        refused(scope),
        by_target,
        _rules(comparison),
        _newly_failing(comparison),
    ]
    return [*proven, *map(_line, comparison.history), *filter(None, facts)]


def _other_device(comparison: Comparison) -> str:
    scope = comparison.scope
    if not scope.other_device or not comparison.thresholds:
        return ""
    share = max(comparison.thresholds[name] for name in ("time", "time on another device"))
    which = f"{scope.other_device} of {many(scope.timed, 'timed case')}"
    return f"another device of the same kind timed {which}: there only more than {share:.0%} is a difference"


def _rules(comparison: Comparison) -> str:
    """From what on there is a regression, of the kinds here of which few or little only warns."""
    limits, kinds = comparison.thresholds, {group.kind for group in comparison.groups}
    rules = {
        Kind.MORE_SPILLS: "MORE_SPILLS of at least {spills as a regression, at least bytes:g} bytes per thread (AMD: "
        "{spills as a regression, at least registers:g} registers) and {spills as a regression:.0%}",
        Kind.LESS_OCCUPANCY: "LESS_OCCUPANCY of at least {occupancy as a regression:.0%}",
    }
    texts = [rule.format(**limits) for kind, rule in rules.items() if kind in kinds and limits]
    return f"a regression is {' or '.join(texts)}; what is less warns" if texts else ""


def _newly_failing(comparison: Comparison) -> str:
    """Names the cases that fail newly although what they fail by only warns; empty if there is none."""
    failing = [
        f"{clean(finding.case)} ({group.kind.value})"
        for group in comparison.groups
        if group.severity is Severity.WARNING
        for finding in group.findings
        if finding.newly_fails
    ]
    if not failing:
        return ""
    more = f" and {len(failing) - CASES_SHOWN} more" if len(failing) > CASES_SHOWN else ""
    return f"newly failing by what only warns: {', '.join(failing[:CASES_SHOWN])}{more}"


def _by_target(comparison: Comparison) -> str:
    """Counts the cases of each target that regressed, and names the targets without any; empty unless there are several
    targets."""
    judged = comparison.scope.targets
    if comparison.safe or len(judged) < 2:
        return ""
    cases = {name: set[str]() for name in judged}
    for group in comparison.regressions:
        for finding in group.findings:
            if finding.target is not None:
                cases.setdefault(finding.target, set()).add(finding.case)
    worst = sorted(cases, key=lambda name: (-len(cases[name]), name))
    shown = [f"{clean(name)[:40]} {len(cases[name])} of {judged.get(name, 0)}" for name in worst if cases[name]]
    rest = [f"{clean(name)[:40]} (of {judged[name]})" for name in worst if not cases[name]]
    lines = [f"cases with a regression: {', '.join(shown[:TARGETS_SHOWN]) or 'none that names its target'}"]
    lines += [f"none on {', '.join(rest[:TARGETS_SHOWN])}"] if rest else []
    return "; ".join(lines)


def threshold_lines(comparison: Comparison) -> list[str]:
    """Returns a line for each threshold that is not the usual one: those that the user's file moved, then those that
    kernels declare."""
    usual = DEFAULT.named()
    moved = {name: value for name, value in comparison.thresholds.items() if value != usual.get(name)}
    lines = [f"thresholds of your file: {_thresholds(moved, usual)}"] if moved else []
    for kernel, own in list(comparison.own_thresholds.items())[:20]:
        values = _thresholds(own.values, comparison.thresholds)
        lines.append(_line(f"thresholds of {kernel[:80]}, declared by {own.by[:200]}: {values}"))
    return lines


def _thresholds(values: Mapping[str, float], others: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g} (not {others.get(name, 0):g})" for name, value in values.items())


def _fact_rows(comparison: Comparison, indent: str = "") -> list[tuple[str, str, str]]:
    """Returns a header, and a row for all that differs between the two runs as a whole."""
    before, after = comparison.baseline, comparison.candidate
    rows = [("", "baseline", "candidate"), ("run", before.name[:200], after.name[:200])]
    rows += [
        *stack_changes(before, after)[:20],
        *assembler_rows(comparison)[:20],
        ("cases", str(before.cases), str(after.cases)),
    ]
    for status in sorted({*before.statuses, *after.statuses}):
        rows.append((indent + status, str(before.statuses.get(status, 0)), str(after.statuses.get(status, 0))))
    return rows


def stack_changes(baseline: Side, candidate: Side) -> list[tuple[str, str, str]]:
    """Name, old and new version of what differs between the two stacks, and of what else makes code if both runs say
    it."""
    was, now = dict(baseline.stack), dict(candidate.stack)
    if baseline.bill and candidate.bill:
        other = {name for name in (*was, *now) if was.get(name) != now.get(name)}
        bills = [side.bill for side in (baseline, candidate)]
        if not all(map(lists_backends, bills)):  # an older run does not say which backends it had
            bills = [{name: value for name, value in bill.items() if not is_of_backend(name)} for bill in bills]
        was, now = (
            {**_beside(bill, other), **side.stack} for bill, side in zip(bills, (baseline, candidate), strict=True)
        )
    names = dict.fromkeys([*baseline.stack, *candidate.stack, *was, *now])
    pairs = [(name, was.get(name), now.get(name)) for name in names]
    return [(str(name), _version(was), _version(now)) for name, was, now in pairs if was != now]


def assembler_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Returns the assemblers of the targets in the baseline and in the candidate: a row for all with the same pair."""
    targets: dict[tuple[str, str], list[str]] = {}
    for target, pair in comparison.assemblers.items():
        targets.setdefault(pair, []).append(target)
    return [(f"assembler of {', '.join(names)}", *pair) for pair, names in targets.items()]


def _beside(bill: Mapping[str, str], changed: Collection[str]) -> dict[str, str]:
    """``bill`` without the digests of what has another version anyway, which ``changed`` names."""
    of = {f"{name} sha256": name for name in changed} | ({"libtriton sha256": "triton"} if "triton" in changed else {})
    other_triton = "triton" in changed
    return {name: value for name, value in bill.items() if name not in of and not (other_triton and is_of_triton(name))}


def _version(value: object) -> str:
    text = "none" if value is None else str(value)[:100]
    return f"{text[:DIGEST_SHOWN]}..." if re.fullmatch(r"[0-9a-f]{40,64}", text) else text


def summary_line(group: Group) -> str:
    """Returns a line about the group: how many cases, those of each kernel, the targets, the typical ratio and the
    farthest."""
    kernels = Counter(finding.kernel or "(no kernel)" for finding in group.findings)
    most = sorted(kernels.items(), key=lambda item: (-item[1], item[0]))
    more = f" and {len(most) - 4} more kernels" if len(most) > 4 else ""
    cases = len({finding.case for finding in group.findings})
    parts = [f"{many(cases, 'case')}: {', '.join(f'{name} {count}' for name, count in most[:4])}{more}"]
    targets = sorted({finding.target for finding in group.findings if finding.target})
    if targets:
        parts.append(f"on {', '.join(targets[:6])}")
    ratios = [finding.ratio for finding in group.findings if finding.ratio]
    if ratios:
        end = max(ratios, key=lambda ratio: max(ratio, 1 / ratio))
        which = "best" if group.kind in _BETTER else "worst"
        parts.append(f"median x{median(ratios):.3g}, {which} x{end:.3g}" if cases > 1 else f"x{end:.3g}")
    from_zero = sum(finding.from_zero > 0 for finding in group.findings)
    if from_zero:
        parts.append(f"{from_zero} from none")
    return "; ".join(parts)


def _cases(group: Group) -> Iterator[tuple[str, str, str]]:
    """The cases of a group that are shown: id, change, and the detail unless it is that of the case before."""
    shown = ""
    for finding in group.findings[:CASES_SHOWN]:
        yield finding.case, _change(finding), first_words(finding.detail, 400) if finding.detail != shown else ""
        shown = finding.detail


def _text_group(group: Group) -> str:
    lines = [f"  {group.kind.value}  {_line(group.cause)}", f"    {_line(summary_line(group))}"]
    lines += [f"    {_line(note)}" for note in group.notes]
    if group.kind is Kind.AMBIGUOUS:
        return "\n".join(lines)
    for case, change, detail in _cases(group):
        lines.append(f"      {_line(case)}  {_line(change)}".rstrip())
        if detail:
            lines.append(f"        {_line(detail)}")
    if len(group.findings) > CASES_SHOWN:
        lines.append(f"      ... and {len(group.findings) - CASES_SHOWN} more")
    return "\n".join(lines)


def _change(finding: Finding) -> str:
    if not (finding.before or finding.after):
        return ""
    before, after = (first_words(text, 200) for text in (finding.before, finding.after))
    return f"{before} -> {after}" if before else after


def render_markdown(comparison: Comparison, limit: int = COMMENT_LIMIT) -> str:
    """The comparison as Markdown of at most ``limit`` characters; groups that do not fit are counted."""
    head = [f"## {_markdown(answer(comparison))}", _markdown_facts(comparison)]
    if comparison.broken:
        head.append("\n".join(f"- {_markdown(first_words(text, 2000))}" for text in broken_lines(comparison)))
    if comparison.objections:
        objections = (first_words(objection, 2000) for objection in comparison.objections[:OBJECTIONS_SHOWN])
        head.append("\n".join(f"- {_markdown(objection)}" for objection in objections))
    if len(comparison.objections) > OBJECTIONS_SHOWN:
        head.append(f"and {len(comparison.objections) - OBJECTIONS_SHOWN} more objections")
    shown = comparison.warnings[:10]
    head += [f"> {_markdown(first_words(warning, 500))}" for warning in shown]
    if len(comparison.warnings) > len(shown):
        head.append(f"> and {len(comparison.warnings) - len(shown)} more warnings")
    text = "\n\n".join(head) + "\n"
    room = limit - 400  # for the sentences at the end
    left_out = 0
    for severity, groups in _by_severity(comparison):
        title = f"\n### {_TITLES[severity]}\n"
        for number, group in enumerate(groups):
            block = (title if number == 0 else "") + "\n" + _markdown_group(group, severity is Severity.REGRESSION)
            if left_out or len(text) + len(block) > room:
                left_out += 1
                continue
            text += block
    scripts = "".join(f"\n- {_markdown(first_words(script, 1000))}" for script in comparison.scripts)
    if scripts and not left_out and len(text) + len(scripts) < room:
        text += f"\n### What was tried with both stacks\n{scripts}\n"
    if left_out:
        text += f"\n{many(left_out, 'more group')} left out here to fit the limit of {limit} characters.\n"
    if comparison.groups:
        text += f"\n{_markdown(WHERE_ALL_IS)}\n"
    return first_words(text, limit - 4)


def _markdown_facts(comparison: Comparison) -> str:
    lines = ["| " + " | ".join(map(_markdown, row)) + " |" for row in _fact_rows(comparison)]
    lines.insert(1, "|---|---|---|")
    counts = [f"{comparison.compared} cases compared, {comparison.unchanged} unchanged", *_reach(comparison)]
    counts += threshold_lines(comparison)
    return "\n".join([*lines, "", f"{_markdown('; '.join(counts))}."])


def _markdown_group(group: Group, is_open: bool) -> str:
    cause, counts = first_words(group.cause, 300), first_words(summary_line(group), 400)
    title = f"<b>{group.kind.value}</b> {_markdown(cause)}: {_markdown(counts)}"
    lines = [f"<details{' open' if is_open else ''}><summary>{title}</summary>", ""]
    lines += [f"- {_markdown(first_words(note, 300))}" for note in group.notes]
    for case, change, detail in _cases(group):
        lines.append(f"- <code>{_markdown(first_words(case, ID_LIMIT))}</code> {_markdown(change)}".rstrip())
        if detail:
            lines.append(f"  <br>{_markdown(detail)}")
    if len(group.findings) > CASES_SHOWN:
        lines.append(f"- and {len(group.findings) - CASES_SHOWN} more")
    return "\n".join([*lines, "", "</details>", ""])
