"""The report that a person looks at: one HTML file that needs nothing else, neither a network nor this package."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from conformance.gate.findings import Comparison, Severity
from conformance.records import CaseRecord
from conformance.reporting import html_artefacts, html_data
from conformance.reporting.html_data import ReportedRun
from conformance.reporting.page_data import packed, plain

#: The page's scripts in the order in which they are joined: each uses those before it.
SCRIPTS = (
    *("dom", "format", "data", "address", "clipboard", "table", "filters", "blocks", "overview_tables", "overview"),
    *("cases", "tiles", "difference", "artefacts", "case", "configs", "changes", "theme", "main"),
)
STYLES = ("base", "tables", "views", "difference", "media")
CHUNK = 128  # records that are unpacked together when one of them is opened
DETAILS_LIMIT = 96_000_000  # characters of all packed records; past it the last, which passed, keep their row only


def render(
    run: ReportedRun,
    baseline: ReportedRun | None = None,
    comparison: Comparison | None = None,
    roots: Sequence[Path] = (),
) -> str:
    """The page of ``run``. With a ``comparison`` it also shows what changed since ``baseline``. Artefacts are embedded
    from below the runs' own folders and ``roots``, from nowhere else."""
    records = html_data.ranked(run.reading.records)
    before = _changed_before(baseline, comparison)
    texts = html_artefacts.Texts(roots)
    artefacts = _artefacts(records, run, before, baseline, comparison, texts)
    details, detailed = _chunks("record", records)
    earlier, detailed_before = _chunks("before", before)
    then = baseline.reading.records if baseline else ()
    changes = html_data.comparison_data(comparison) if comparison else None
    head: dict[str, Any] = {
        "run": html_data.header(run),
        "chunk": CHUNK,
        "kept": detailed,
        "before": [record.case[: html_data.CASE_LIMIT] for record in before[:detailed_before]],
        "baseline": html_data.header(baseline) if baseline else None,
        "comparison": None if changes is None else {**changes, "groups": None},
        "left_out": dict(sorted(texts.left_out.items())),
        "limits": {"cases": html_artefacts.CASES_LIMIT, "bytes": html_artefacts.TEXT_LIMIT},
    }
    data = [
        plain("head", head),
        packed("columns", _json(html_data.columns(records))),
        packed("configs", _json(html_data.configs(records, then))),
        packed("groups", _json(changes["groups"] if changes else [])),
        packed("artefacts", _json(artefacts)),
        *(packed(f"text-{number}", text) for number, text in enumerate(texts.texts)),
        *details,
        *earlier,
    ]
    return _page("".join(data))


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _chunks(name: str, records: Sequence[CaseRecord]) -> tuple[list[str], int]:
    """The records packed :data:`CHUNK` at a time, and how many there was room for."""
    elements: list[str] = []
    size = packed_records = 0
    for number, start in enumerate(range(0, len(records), CHUNK)):
        part = records[start : start + CHUNK]
        element = packed(f"{name}-{number}", f"[{','.join(html_data.line(record) for record in part)}]")
        size += len(element)
        if size > DETAILS_LIMIT:
            break
        elements.append(element)
        packed_records += len(part)
    return elements, packed_records


def _changed_before(baseline: ReportedRun | None, comparison: Comparison | None) -> list[CaseRecord]:
    """The baseline's records of the cases that have a finding."""
    if baseline is None or comparison is None:
        return []
    changed = {finding.case for group in comparison.groups for finding in group.findings}
    return html_data.ranked(record for record in baseline.reading.records if record.case in changed)


def _artefacts(
    records: Sequence[CaseRecord],
    run: ReportedRun,
    before: Sequence[CaseRecord],
    baseline: ReportedRun | None,
    comparison: Comparison | None,
    texts: html_artefacts.Texts,
) -> dict[str, list[Any]]:
    """By case: the stages' texts now and in the baseline."""
    now = {record.case: record for record in records}
    then = {record.case: record for record in before}
    chosen: dict[str, None] = dict.fromkeys(
        record.case for record in records if html_data.RANKED[record.status] in ("bad", "expected") and record.artefacts
    )
    for group in comparison.groups if comparison else ():
        if group.severity is not Severity.INFO:
            chosen.update(dict.fromkeys(finding.case for finding in group.findings))
    texts_by_case: dict[str, list[Any]] = {}
    for case in list(chosen)[: html_artefacts.CASES_LIMIT]:
        here = texts.of_case(now[case], run.folder) if case in now else {}
        there = texts.of_case(then[case], baseline.folder) if baseline and case in then else {}
        texts_by_case[case] = [here, there]
    return texts_by_case


def _page(data: str) -> str:
    style, script = "".join(_asset(f"{name}.css") for name in STYLES), "".join(_script())
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )
    inserted = {"{{policy}}": policy, "{{style}}": style, "{{data}}": data, "{{script}}": script}
    # One pass: what is inserted is never searched for a mark.
    return "".join(inserted.get(part, part) for part in re.split(r"(\{\{\w+\}\})", _asset("report.html")))


def _script() -> Iterator[str]:
    """All scripts in one function: their names are not the page's."""
    yield '\n(() => {\n"use strict";\n'
    for name in SCRIPTS:
        yield f"\n// {name}.js\n{_asset(f'{name}.js')}"
    yield "})();\n"


def _asset(name: str) -> str:
    return (resources.files("conformance.reporting") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source expression that allows exactly the inline element with this ``text``."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
