"""``conformance show CASE``: a case's record, for people."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands.shared.case_lookup import newest_run, one_case
from conformance.records import CaseRecord
from conformance.reporting.text import clean, indented

HELP = "Show a case's verdicts, artefacts and reproducing command, from its record."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="the case's id, or a part of it that no other case has")
    parser.add_argument(
        "--run", metavar="DIR", dest="folder", type=Path, help="the run's folder (default: the newest under ./reports)"
    )


def run(arguments: argparse.Namespace) -> int:
    folder = arguments.folder or newest_run()
    print(describe(one_case(arguments.case, folder), folder))
    return 0


def describe(record: CaseRecord, folder: Path) -> str:
    """What a record says, for people."""
    identity: list[tuple[str, object]] = [("case", record.case), ("status", record.status.value)]
    identity += [("reason", record.reason)]
    identity += [("kernel", record.kernel), ("problem", record.problem and record.problem.get("id"))]
    identity += [("config", record.config and record.config.get("id")), ("target", record.target)]
    identity += [("options", _pairs(record.options)), ("executor", record.executor), ("tier", record.tier)]
    identity += [("seed", record.seed), ("stack", _pairs(record.stack)), ("observed", _pairs(record.observed))]
    identity += [("seconds", _pairs(record.durations)), ("worker", record.worker), ("GPU", record.gpu)]
    lines = [f"{label + ':':10}{clean(str(value))}" for label, value in identity if value not in (None, "")]
    if record.verdicts:
        lines.append("verdicts:")
    for verdict in record.verdicts:
        details = {} if verdict.passed else {k: v for k, v in verdict.details.items() if k not in ("passed", "text")}
        text = "; ".join(filter(None, [verdict.text, _pairs(details)]))
        lines.append(
            clean(f"  {'pass' if verdict.passed else 'FAIL'}  {verdict.check}" + (f": {text}" if text else ""))
        )
    if record.artefacts:
        lines.append("artefacts:")
        lines += [f"  {clean(stage)}: {clean(str(folder / path))}" for stage, path in sorted(record.artefacts.items())]
    if record.diagnosis:
        lines += ["diagnosis:", indented(clean(record.diagnosis))]
    if record.repro:
        lines.append(f"reproduce: {clean(record.repro)}")
    return "\n".join(lines)


def _pairs(values: object) -> str:
    items = values.items() if hasattr(values, "items") else ()
    return ", ".join(f"{key} {value}" for key, value in items if value is not None)
