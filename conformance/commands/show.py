"""``conformance show CASE``: a case's record, for people."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from conformance.commands.shared.case_lookup import newest_run, one_case
from conformance.records import CaseRecord, jsonable
from conformance.reporting.case_command import case_command
from conformance.reporting.text import log_safe, one_line, shown

HELP = "Show a case's verdicts, artefacts and reproducing command, from its record."


WIDTH = 120
#: Lines of one text that are shown.
LINES = 16
_DIGEST = re.compile(r"[0-9a-f]{32,}")
_DIGEST_IN_VERSION = re.compile(r" [0-9a-f]{12}$")  # that of the harness's own code
#: Details of a verdict that its text has, and how the text about a fill repeats the status, the fill and the seed.
_SAID = frozenset({"passed", "text", "wrong", "total", "first", "got", "want"})
_FAILED_FILL = re.compile(r"^FAIL (\w+)/\S+ seed \d+: ")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="the case's id, or a part of it that no other case has")
    parser.add_argument(
        "--run", metavar="DIR", dest="folder", type=Path, help="the run's folder (default: the newest under ./reports)"
    )
    parser.add_argument("--json", action="store_true", help="the whole record, for programs")


def run(arguments: argparse.Namespace) -> int:
    folder = arguments.folder or newest_run()
    record = one_case(arguments.case, folder)
    record = dataclasses.replace(record, repro=case_command(record))
    print(json.dumps(jsonable(record), indent=1) if arguments.json else describe(record, folder))
    return 0


def describe(record: CaseRecord, folder: Path) -> str:
    """Returns the main parts of a record as a text of one screen. A text of the record never begins a line, so it
    cannot pass for one of ours."""
    failed = [verdict for verdict in record.verdicts if not verdict.passed]
    passed = [verdict.check for verdict in record.verdicts if verdict.passed]
    where = f"{record.executor or 'compiled only'}, tier {record.tier}, seed {record.seed}"
    fields: list[tuple[str, object]] = [("case", record.case), ("status", record.status.value)]
    fields += [("reason", record.reason), ("kernel", record.kernel)]
    fields += [("problem", record.problem and record.problem.get("id"))]
    fields += [("config", record.config and record.config.get("id")), ("options", _pairs(record.options))]
    fields += [("target", record.target), ("ran", where), ("GPU", record.gpu), ("stack", _pairs(record.stack))]
    fields += [("unmapped", record.observed.get("unmapped_pages"))]
    fields += [("code", _pairs(record.observed.get("resources"))), ("seconds", _pairs(record.durations))]
    lines = [f"{label + ':':10}{one_line(str(value))}" for label, value in fields if value not in (None, "")]
    for verdict in failed:
        details = {key: value for key, value in verdict.details.items() if key not in _SAID}
        text = "; ".join(filter(None, [_FAILED_FILL.sub(r"\1: ", verdict.text), _pairs(details)]))
        lines += _shortened(f"FAIL  {verdict.check}" + (f": {text}" if text else ""), "  ")
    if passed:
        lines += textwrap.wrap(
            one_line(f"passed:   {', '.join(passed)}"), WIDTH, subsequent_indent=" " * 10, break_on_hyphens=False
        )
    rest = record.diagnosis
    for verdict in failed:  # they have been printed
        rest = rest.replace(f"{verdict.check}: {verdict.text}", "").replace(verdict.text or "\0", "")
    if rest.strip():
        lines += ["diagnosis:", *_shortened(rest.strip("\n"), "    ")]
    by_folder: dict[Path, list[str]] = {}
    for path in sorted(record.artefacts.values()):
        by_folder.setdefault((folder / path).parent, []).append(Path(path).name)
    for place, names in by_folder.items():
        lines += ["artefacts:", one_line(f"  {place}/"), one_line(f"    {' '.join(names)}")]
    if record.reruns:
        lines.append(one_line(f"again:    {', '.join(map(str, record.reruns))}"))
    lines.append(f"reproduce: {one_line(case_command(record))}")
    return shown(log_safe("\n".join(lines)))


def _shortened(text: str, indent: str) -> list[str]:
    """Returns the lines of ``text``, clean and indented; of many the first and the last."""
    lines = [indent + one_line(line) for line in text.splitlines()]
    if len(lines) <= LINES:
        return lines
    half = LINES // 2
    return [*lines[:half], f"{indent}... {len(lines) - 2 * half} lines more: --json has them", *lines[-half:]]


def _pairs(values: object) -> str:
    """Returns the plain values of a mapping. Collections and digests are for programs."""
    items = values.items() if isinstance(values, Mapping) else ()
    plain = [(key, value) for key, value in items if isinstance(value, str | int | float) and value != ""]
    return ", ".join(f"{key} {_number(value)}" for key, value in plain if not _DIGEST.fullmatch(str(value)))


def _number(value: object) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return _DIGEST_IN_VERSION.sub("", text)
