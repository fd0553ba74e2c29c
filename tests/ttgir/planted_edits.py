"""Plants single edits into the TTGIR of the catalogue's kernels, and writes which of them the executor sees.

    python -m tests.ttgir.planted_edits --most 1 --output reports/published/planted-ttgir.md

compiles one plan of every kernel for every target, and tries ``--most`` edits of each class in each text. Several
processes share the work with ``--share 1/4`` and so on, each with an ``--output`` that ends in .jsonl, which ``--from``
makes into one table.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from conformance import targets
from conformance.execution.compile.compilation import CompilePool
from conformance.judging.conform import launches_to_compile
from conformance.kernels.catalogue import get, own_kernels
from conformance.kernels.kernel import Kernel, NotApplicable, Plan
from conformance.ttgir.formats import type_of
from conformance.ttgir.layout_check import verified
from conformance.ttgir.layouts import layout_of
from conformance.ttgir.machine import SCHEDULES, Schedule
from conformance.ttgir.register_maps import register_map
from conformance.ttgir.text import parse, split_outside
from tests.ttgir.edits import CLASSES, Edit, edits_of
from tests.ttgir.equivalent import reason
from tests.ttgir.judged_texts import Prepared, Seen, first_wrong, orders_of_all, other_fills, prepared

TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950", "gfx1250")
#: A type of a tile in registers or on the chip.
_TYPE = re.compile(r"(?:tensor|!ttg\.memdesc)<[^<>]*(?:<[^<>]*(?:<[^<>]*>[^<>]*)*>[^<>]*)*>")
#: What it took to see an edit, easiest first.
WAYS = ("layouts", "eager", "late", "starved", "random", "sizes", "fills")


@dataclass(frozen=True)
class Outcome:
    """One edit: where it was, how it was seen ("" if it was not), and why it changes nothing if a rule says so."""

    kernel: str
    family: str
    target: str
    kind: str
    line: int
    operation: str
    what: str
    how: str
    text: str
    reason: str


def plan_of(kernel: Kernel, target: targets.Target) -> Plan | None:
    """The plan with the smallest tiles that has a pipeline, in a floating type that is multiplied as it is; None if
    the kernel takes none on ``target``."""
    names = [name for name in kernel.dtype_names() if name != "fp32"] or kernel.dtype_names()
    for config in sorted(kernel.configs, key=lambda config: (config.num_stages < 2, math.prod(config.tile))):
        way = kernel.fitted(names[0], config, target)
        for shape in ("many-k-blocks", way.usual_shape) if way is not None else ():
            try:
                problem = way.example(names[0], config, shape)
                return kernel.plan(problem, config, target, config.in_variant(way.example_variant()))
            except NotApplicable:
                continue
    return None


def compiled(pool: CompilePool, plans: Sequence[Plan]) -> Iterator[tuple[Plan, dict[str, str]]]:
    """Each plan with the TTGIR of its launches by the name of their function; one that does not compile is left
    out."""
    waiting = [
        (plan, [(step.function.fn.__name__, pool.submit(request)) for request, step in launches.values()])
        for plan in plans
        if (launches := launches_to_compile(plan))
    ]
    for plan, handles in waiting:
        artefacts = {name: handle.result().artefact for name, handle in handles}
        if None not in artefacts.values():
            yield plan, {name: artefact.text("ttgir") for name, artefact in artefacts.items() if artefact}


def chosen_edits(texts: Mapping[str, str], most: int, seed: str) -> list[tuple[str, Edit]]:
    """At most ``most`` edits of each class, drawn with ``seed``, with the function whose text each is in."""
    edits = [(function, edit) for function, text in texts.items() for edit in edits_of(text)]
    random.Random(seed).shuffle(edits)
    counts, chosen = Counter[str](), []
    for function, edit in edits:
        counts[edit.kind] += 1
        if counts[edit.kind] <= most:
            chosen.append((function, edit))
    return chosen


def outcome(
    plan: Plan,
    texts: Mapping[str, str],
    function: str,
    edit: Edit,
    problems: Sequence[Prepared],
    orders: Sequence[Schedule],
) -> Outcome:
    """The outcome of one edit."""
    edited = {**texts, function: edit.text}
    if edit.kind == "layout changed":
        seen, why = judged_layouts(texts[function], edit)
    else:
        seen = first_wrong(problems, edited, orders)
        why = "" if seen else reason(edit, function, texts, problems, orders)
    if not seen and not why and (other := first_wrong(other_fills(plan), edited, SCHEDULES[:1])):
        seen = Seen(-1, other.order, other.text)
    kernel = get(plan.kernel)
    return Outcome(
        kernel.name, kernel.family, plan.target.id, edit.kind, edit.line, edit.operation, edit.what,
        seen.how if seen else "", seen.text if seen else "", why,
    )  # fmt: skip


def judged_layouts(text: str, edit: Edit) -> tuple[Seen | None, str]:
    """Returns the faults of the layouts of the edited ``text``, and the reason if there are none: both layouts are one
    map."""
    before = verified(parse(text)).faults
    if new := [fault for fault in verified(parse(edit.text)).faults if fault not in before]:
        return Seen(0, "layouts", new[0]), ""
    aliases = parse(text).layouts
    maps = [
        [_map(kind, aliases) for kind in _TYPE.findall(whole.splitlines()[edit.line].split(" loc(")[0])]
        for whole in (text, edit.text)
    ]
    return None, "both layouts put each element of the tile in one place" if maps[0] == maps[1] else ""


def _map(text: str, aliases: Mapping[str, str]) -> object:
    kind = type_of(text)
    layout = layout_of(split_outside(kind.layout)[0], aliases) if kind.layout else None
    if layout is None or kind.kind != "tensor":
        return text
    return register_map(layout, kind.shape).without_zero_registers


def outcomes(plan: Plan, texts: Mapping[str, str], most: int, seed: str) -> Iterator[Outcome]:
    """The outcomes of the chosen edits of one plan. Raises AssertionError if the unedited text alarms, which it must
    not; a text that the executor does not know has none."""
    problems, orders = prepared(plan), orders_of_all(texts)
    alarm = first_wrong(problems, texts, orders)
    if alarm and alarm.text.startswith("unknown: "):
        print(f"{plan.kernel} {plan.target.id}: {alarm.text}", file=sys.stderr)
        return
    assert alarm is None, f"{plan.kernel} {plan.target.id}, not edited, {alarm}"
    for function, edit in chosen_edits(texts, most, f"{seed} {plan.kernel} {plan.target.id}"):
        yield outcome(plan, texts, function, edit, problems, orders)


def table(rows: Sequence[Outcome]) -> str:
    """The report, as Markdown."""
    killed, equal = [row for row in rows if row.how], [row for row in rows if not row.how and row.reason]
    others = [row for row in rows if not row.how and not row.reason]
    share = len(killed) / max(len(killed) + len(others), 1)
    lines = [
        "# Faults planted into compiled kernels",
        "",
        f"Single edits of the TTGIR that Triton {version('triton')} makes of the catalogue's kernels, each of which "
        "the executor must see. `python -m tests.ttgir.planted_edits` makes this table.",
        "",
        f"{len(rows)} edits of {len({(row.kernel, row.target) for row in rows})} compiled kernels: {len(killed)} seen, "
        f"{len(equal)} change nothing, each by a rule, {len(others)} not seen. "
        f"**{share:.1%}** of those that change something are seen. No unedited text alarms.",
        "",
        *_by("class", rows, lambda row: row.kind, CLASSES),
        *_by("family", rows, lambda row: row.family, dict.fromkeys(row.family for row in rows)),
        *_by("target", rows, lambda row: row.target, TARGETS),
        "## Why an edit changes nothing", "", "| reason | edits |", "|---|---|",
        *(f"| {why} | {count} |" for why, count in Counter(row.reason for row in equal).most_common()),
        "", "## Not seen", "", "| kernel | target | class | line | what |", "|---|---|---|---|---|",
        *(f"| {it.kernel} | {it.target} | {it.kind} | {it.line}, `{it.operation}` | {it.what} |" for it in others),
    ]  # fmt: skip
    return "\n".join([*lines, ""])


def _by(title: str, rows: Sequence[Outcome], key: object, order: object) -> list[str]:
    heads = [title, "edits", *WAYS, "equivalent", "not seen"]
    lines = [f"## By {title}", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name in order:
        own = [row for row in rows if key(row) == name]
        ways = Counter(row.how for row in own)
        equal = sum(not row.how and bool(row.reason) for row in own)
        cells = [name, len(own), *(ways[way] for way in WAYS), equal, ways[""] - equal]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", nargs="*", help="their names; all unless given")
    parser.add_argument("--targets", nargs="*", default=TARGETS)
    parser.add_argument("--most", type=int, default=1, help="edits of each class in each text")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--share", default="1/1", help="which part of the kernels, such as 2/4")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--from", dest="sources", nargs="*", type=Path, help="files of outcomes to make a table of")
    parser.add_argument("--output", type=Path, required=True, help="FILE.md, or FILE.jsonl for outcomes")
    options = parser.parse_args()
    if options.sources:
        rows = [Outcome(**json.loads(line)) for source in options.sources for line in source.open()]
        options.output.write_text(table(rows))
        return
    part, parts = map(int, options.share.split("/"))
    target_ids = {target.id for target in targets.compile_targets()}
    plans = [
        plan
        for kernel in own_kernels().values()
        if not options.kernels or kernel.name in options.kernels
        for target in options.targets
        if target in target_ids and (plan := plan_of(kernel, targets.find(target))) is not None
    ]
    random.Random(options.seed).shuffle(plans)
    ends, rows = time.monotonic() + 60 * options.minutes, []
    lines = options.output.open("w") if options.output.suffix == ".jsonl" else None
    with CompilePool(2, 240) as pool:
        for plan, texts in compiled(pool, plans[part - 1 :: parts]):
            if time.monotonic() > ends:
                break
            for row in outcomes(plan, texts, options.most, options.seed):
                rows.append(row)
                if lines:
                    print(json.dumps(asdict(row)), file=lines, flush=True)
    if not lines:
        options.output.write_text(table(rows))


if __name__ == "__main__":
    main()
