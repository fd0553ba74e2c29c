"""The page of a matrix: the answers pair by pair, and how each kernel did from stack to stack. It needs no script."""

from __future__ import annotations

import html
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from conformance.gate.runs.run_reader import ComparedRun
from conformance.gate.shortened_text import first_words
from conformance.record_figures import Figures
from conformance.records import Status
from conformance.reporting.html import stylesheet
from conformance.reporting.html_data import component_name
from conformance.reporting.listed_cases import RANKED
from conformance.reporting.text import clean
from conformance.user_files.thresholds import DEFAULT

#: Shares that lie no further apart read the same.
SAME = 0.005
#: Width and height of a trend's drawing, in CSS pixels.
WIDTH, HEIGHT = 48, 20


class PairAnswer(NamedTuple):
    """The answer about one pair of stacks, and ``why``, its first line; ``report`` is the address of its page, relative
    to this one. ``reach`` says of which part of a tier it is, empty for a whole one; ``answered`` is False if a side
    gives no answer."""

    baseline: str
    candidate: str
    safe: bool
    report: str
    why: str = ""
    reach: str = ""
    answered: bool = True


class Figure(NamedTuple):
    """A figure that is followed over the stacks: less is better. A change by more than the share ``notable`` is
    coloured; ``of`` gives a case's figure, None where it has none."""

    notable: float
    of: Callable[[Figures], float | None]


FIGURES: Mapping[str, Figure] = {
    "registers": Figure(DEFAULT.more_registers.share, lambda of: of.resources.registers if of.resources else None),
    "spills": Figure(DEFAULT.more_spills.share, lambda of: of.resources.spills if of.resources else None),
    "shared memory": Figure(
        DEFAULT.more_shared_memory.share, lambda of: of.resources.shared_memory if of.resources else None
    ),
    "code bytes": Figure(DEFAULT.larger_code.share, lambda of: of.code.bytes if of.code else None),
    "compile time": Figure(DEFAULT.slower_compile.share, lambda of: of.compiled_in),
    "time": Figure(DEFAULT.slower.share, lambda of: median(of.samples) if of.samples else None),
}


def render(stacks: Sequence[ComparedRun], pairs: Sequence[PairAnswer]) -> str:
    """Returns the page. ``stacks`` are the runs of the stacks in the order of their file, which is that of the
    trends."""
    style, policy = stylesheet()
    title = _title(stacks)
    unsafe = sum(not pair.safe for pair in pairs)
    answer = f"{len(pairs) - unsafe} of {len(pairs)} upgrades are safe" if pairs else "No pair was compared"
    reaches = sorted({pair.reach for pair in pairs if pair.reach})
    answer += f" for {'; for '.join(map(_text, reaches))}" if reaches else ""
    parts = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="answer"><strong>{answer}.</strong> {len(stacks)} stacks, in the order of their file.</p>',
        f'<div class="columns">{_section("Upgrades", _pairs(pairs))}{_section("Stacks", _stacks(stacks))}</div>',
        _section("Kernels from stack to stack", _kernels(stacks)),
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}: conformance</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'<header class="top"><p class="title">Conformance <span>matrix</span></p></header>\n'
        f"<main>{''.join(parts)}</main>\n</body>\n</html>\n"
    )


def _text(value: object) -> str:
    return html.escape(clean(first_words(str(value), 300)).replace("\n", " "))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _title(stacks: Sequence[ComparedRun]) -> str:
    """Returns the components that differ, each with its versions: "Triton 3.7.1, 3.8.0, 3.9.0"."""
    parts = []
    for name in _differing(stacks):
        versions = dict.fromkeys(str(stack.stack.get(name) or "none") for stack in stacks)
        parts.append(f"{component_name(name)} {', '.join(versions)}")
    recorded = all(set(stack.stack) - {"harness"} for stack in stacks)
    return "; ".join(parts) or ("The same stack" if recorded else "Stacks that are not recorded")


def _differing(stacks: Sequence[ComparedRun]) -> list[str]:
    names = dict.fromkeys(name for stack in stacks for name in stack.stack if name != "harness")
    return [name for name in names if len({str(stack.stack.get(name)) for stack in stacks}) > 1]


def _table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML; the first of a row is its header. A cell says its column's name in a narrow window."""
    head = "".join(f'<th scope="col">{name}</th>' for name in header)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(f'<td data-name="{name}">{cell}</td>' for name, cell in zip(header[1:], row[1:], strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table class="named stacks">'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _badge(text: str, group: str) -> str:
    return f'<span class="status {group}">{text}</span>'


def _pairs(pairs: Sequence[PairAnswer]) -> str:
    rows = [
        [
            f"{_text(pair.baseline)} to {_text(pair.candidate)}",
            _badge("safe", "good") if pair.safe else _badge("not safe" if pair.answered else "no answer", "bad"),
            _text(pair.why),
            f'<a href="{html.escape(str(pair.report))}">what changed</a>',
        ]
        for pair in pairs
    ]
    return _table("May the second replace the first?", ["Upgrade", "Answer", "Why", "Report"], rows)


def _stacks(stacks: Sequence[ComparedRun]) -> str:
    names = _differing(stacks)
    statuses = [status for status in Status if any(stack.counts[status] for stack in stacks)]
    rows = [
        [
            _text(stack.name),
            *(_text(stack.stack.get(name) or "none") for name in names),
            *(str(stack.counts[status]) for status in statuses),
        ]
        for stack in stacks
    ]
    header = ["Stack", *map(_text, names), *(status.value for status in statuses)]
    return _table("Versions that differ, and cases by status", header, rows)


def _kernels(stacks: Sequence[ComparedRun]) -> str:
    """Returns the failures and changes over the stacks, kernel by kernel, those that failed first; kernels without any
    are folded."""
    kernels: dict[str, set[str]] = defaultdict(set)
    for stack in stacks:
        for case, record in stack.records.items():
            kernels[record.kernel or "(none)"].add(case)
    shares = {
        kernel: {name: _shares(stacks, cases, figure.of) for name, figure in FIGURES.items()}
        for kernel, cases in kernels.items()
    }
    grown = {
        kernel: {name for name, figure in FIGURES.items() if _grew_from_zero(stacks, cases, figure.of)}
        for kernel, cases in kernels.items()
    }
    names = [
        name
        for name in FIGURES
        if any(_change(shares[kernel][name]) is not None for kernel in kernels)
        or any(name in of_kernel for of_kernel in grown.values())
    ]
    notable: list[tuple[bool, list[str]]] = []
    rest: list[list[str]] = []
    compared = 0
    for kernel, cases in sorted(kernels.items()):
        groups = [Counter(RANKED[s.records[case].status] for case in cases if case in s.records) for s in stacks]
        failed = any(group["bad"] or group["expected"] for group in groups)
        lost = any(
            before["good"] > after["good"] or before.total() > after.total()
            for before, after in itertools.pairwise(groups)
        )
        comparable = [name for name in names if _change(shares[kernel][name]) is not None]
        moved = bool(grown[kernel]) or any(
            abs(_change(shares[kernel][name]) or 0) > FIGURES[name].notable for name in comparable
        )
        cells = [_cell(shares[kernel][name], FIGURES[name].notable, name in grown[kernel]) for name in names]
        quiet = not (failed or lost or moved)
        compared += quiet and bool(comparable)
        row = [_text(kernel), *map(_counts, groups), *cells]
        if quiet:
            rest.append(row)
        else:
            notable.append((not failed, row))
    header = ["Kernel", *(_text(stack.name) for stack in stacks), *names]
    caption = "Cases by stack; figures of the code in per cent of the first stack, the median over the cases of both"
    notable.sort(key=lambda entry: entry[0])
    parts = [_table(caption, header, [row for _, row in notable])] if notable else []
    if rest:
        folded = f"{len(rest)} more that did not fail and were not lost"
        folded += f"; no figure of the {compared} with figures changed by more than a threshold" if compared else ""
        parts.append(
            f'<details class="folded"><summary>{folded}</summary>{_table("All others", header, rest)}</details>'
        )
    if not names:
        parts.append(
            '<p class="how">Figures of code and time are missing: no case was compiled in two of the stacks. To fill '
            "them: <code>conformance matrix FILE --suite config_space</code></p>"
        )
    return "".join(parts)


def _counts(groups: Counter[str]) -> str:
    if not groups:
        return '<span class="quiet">no case</span>'
    failed = f" {_badge(str(groups['bad']) + ' failed', 'bad')}" if groups["bad"] else ""
    names = {"expected": "expected to fail", "unproven": "not run"}
    others = "".join(f", {groups[group]} {name}" for group, name in names.items() if groups[group])
    return f"{groups['good']} passed{others}{failed}"


def _shares(
    stacks: Sequence[ComparedRun], cases: set[str], figure: Callable[[Figures], float | None]
) -> list[float | None]:
    """Returns the median of each stack's figures over those of the first stack that has some. What failed has no
    figures: a wrong kernel may be small and fast."""
    sides = []
    for stack in stacks:
        values = _figures(stack, cases, figure)
        sides.append({case: value for case, value in values.items() if value})
    first = next((side for side in sides if side), {})
    ratios = [[side[case] / first[case] for case in side if case in first] for side in sides]
    return [median(ratio) if ratio else None for ratio in ratios]


def _figures(stack: ComparedRun, cases: set[str], figure: Callable[[Figures], float | None]) -> dict[str, float | None]:
    records = {case: stack.records[case] for case in cases if case in stack.records}
    return {case: figure(record.figures) for case, record in records.items() if RANKED[record.status] != "bad"}


def _grew_from_zero(stacks: Sequence[ComparedRun], cases: set[str], figure: Callable[[Figures], float | None]) -> bool:
    """Returns True if a figure of a case is 0 with one stack and more with the next one. Such a growth is no share of
    the first figure."""
    sides = [_figures(stack, cases, figure) for stack in stacks]
    return any(
        before.get(case) == 0 and bool(value)
        for before, after in itertools.pairwise(sides)
        for case, value in after.items()
    )


def _change(shares: Sequence[float | None]) -> float | None:
    """The last share against the first; None where there are not two."""
    present = [share for share in shares if share is not None]
    return present[-1] / present[0] - 1 if len(present) > 1 else None


def _cell(shares: Sequence[float | None], notable: float, grown: bool) -> str:
    """The cell of one figure; ``grown``: it was 0 in a case and is more with a later stack."""
    if grown:
        return _badge("from 0", "bad")
    change = _change(shares)
    if change is None:
        return ""
    present = [share for share in shares if share is not None]
    if max(present) - min(present) < SAME:
        return '<span class="quiet">same</span>'
    group = "bad" if change > notable else "good" if change < -notable else "outside"
    text = " → ".join("–" if share is None else f"{100 * share:.0f}" for share in shares)
    return f'{_drawn(shares)} {_badge(f"{100 * change:+.1f} %", group)}<div class="quiet">{text}</div>'


def _drawn(values: Sequence[float | None]) -> str:
    """Returns a line through the values, from 0 to their largest; the text next to it says the same."""
    present = [value for value in values if value is not None]
    if len(present) < 2:
        return ""
    top, step = max(*present, 1e-9), (WIDTH - 8) / max(len(values) - 1, 1)
    points = [
        (4 + step * at, HEIGHT - 4 - (HEIGHT - 8) * value / top) for at, value in enumerate(values) if value is not None
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="currentColor"/>' for x, y in points)
    return (
        f'<svg class="trend" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/>{dots}</svg>'
    )
