"""The report that a person looks at: one HTML file that needs nothing else, neither a network nor this package.

The text of compiled stages is embedded here; records may come from strangers.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from conformance.records import CaseRecord
from conformance.reporting import html_data
from conformance.reporting.failure_groups import Meaning
from conformance.reporting.html_data import ReportedRun
from conformance.reporting.listed_cases import CONFIGS_LIMIT, PER_CELL, RANK, RANKED, ListedCases, listed_cases
from conformance.user_files.findings import Comparison, Severity

CASES_LIMIT = 200  # cases whose artefacts are embedded: failing ones first, then changed ones
TEXT_LIMIT = 512_000  # bytes of one artefact
TOTAL_LIMIT = 48_000_000  # bytes of all of them, before compression
STAGES_LIMIT = 24  # artefacts of one case


@dataclass
class Texts:
    """The texts to embed, each once, with the bytes that were left out by reason."""

    roots: Sequence[Path]
    texts: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    _known: dict[Path, int | str] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _total: int = 0

    def of_case(self, record: CaseRecord, folder: Path) -> dict[str, int | str]:
        """For each stage of ``record`` the number of its text, or the reason why it is not embedded."""
        numbers: dict[str, int | str] = {}
        for stage, name in sorted(record.artefacts.items())[:STAGES_LIMIT]:
            numbers[stage[:100]] = answer = self._one(folder, name)
            if isinstance(answer, str):
                self.left_out[answer] += 1
        return numbers

    def _one(self, folder: Path, name: str) -> int | str:
        path = _inside(folder / name, (folder, *self.roots))
        if isinstance(path, str):
            return path
        if path not in self._known:
            self._known[path] = self._read(path)
        return self._known[path]

    def _read(self, path: Path) -> int | str:
        try:
            with path.open("rb") as file:
                data = file.read(TEXT_LIMIT + 1)
        except OSError:
            return "cannot be read"
        if b"\0" in data[:8192]:
            return "binary"
        if len(data) > TEXT_LIMIT:
            data = data[:TEXT_LIMIT] + f"\n... cut here: longer than {TEXT_LIMIT} bytes\n".encode()
        if self._total + len(data) > TOTAL_LIMIT:
            return f"past the limit of {TOTAL_LIMIT} bytes for all texts"
        text = data.decode("utf-8", errors="replace")
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
            self._total += len(data)
        return self._numbers[text]


def _inside(path: Path, roots: Iterable[Path]) -> Path | str:
    """``path`` with its links resolved, or why it is not read."""
    try:
        if not any(path.resolve().is_relative_to(root.resolve()) for root in roots):
            return "outside the run's folder"
        real = path.resolve(strict=True)
        return real if real.is_file() else "no regular file"
    except FileNotFoundError:
        return "not there"
    except (OSError, ValueError, RuntimeError):  # too long a name, a null byte, a loop of links
        return "not a usable path"


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
    """Returns the page of ``run``. With a ``comparison`` it also shows what changed since ``baseline``. Artefacts are
    embedded from below the runs' own folders and ``roots``, from nowhere else."""
    changed = _changed(comparison)
    records, listed = run.reading.records, listed_cases(run.reading.records, changed[Severity.WARNING])
    then = listed_cases(baseline.reading.records) if baseline else None
    before = _changed_before(baseline, changed[Severity.INFO])
    texts = Texts(roots)
    artefacts = _artefacts(run, listed, baseline, before, changed[Severity.WARNING], texts)
    details, detailed = _chunks("record", records, listed.order)
    places = [index for *_, index in before]
    earlier, detailed_before = _chunks("before", baseline.reading.records if baseline else (), places)
    changes = html_data.comparison_data(comparison, run) if comparison else None
    configs = html_data.configs(listed.configs, then.configs if then else ())
    head: dict[str, Any] = {
        "run": html_data.header(run, listed),
        "meanings": [meaning.value for meaning in Meaning],
        "chunk": CHUNK,
        "kept": detailed,
        "before": [case[: html_data.CASE_LIMIT] for _, case, _ in before[:detailed_before]],
        "baseline": html_data.header(baseline, then) if baseline and then else None,
        "comparison": None if changes is None else {**changes, "groups": None},
        "left_out": dict(sorted(texts.left_out.items())),
        "limits": {
            "cases": CASES_LIMIT,
            "bytes": TEXT_LIMIT,
            "listed": PER_CELL,
            "configs": CONFIGS_LIMIT,
        },
    }
    data = [
        plain("head", head),
        packed("columns", _json(html_data.columns((records[index] for index in listed.order), listed.weights))),
        packed("configs", _json(configs)),
        packed("groups", _json(changes["groups"] if changes else [])),
        packed("artefacts", _json(artefacts)),
        *(packed(f"text-{number}", text) for number, text in enumerate(texts.texts)),
        *details,
        *earlier,
    ]
    title = f"{changes['title']}: conformance" if changes else f"Conformance of {head['run']['id']}"
    return _page("".join(data), title)


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _chunks(name: str, records: Sequence[CaseRecord], order: Sequence[int]) -> tuple[list[str], int]:
    """Returns the records in this ``order`` of their indices, packed :data:`CHUNK` at a time, and how many there was
    room for."""
    elements: list[str] = []
    size = packed_records = 0
    for number, start in enumerate(range(0, len(order), CHUNK)):
        part = order[start : start + CHUNK]
        element = packed(f"{name}-{number}", f"[{','.join(html_data.line(records[index]) for index in part)}]")
        size += len(element)
        if size > DETAILS_LIMIT:
            break
        elements.append(element)
        packed_records += len(part)
    return elements, packed_records


def _changed(comparison: Comparison | None) -> dict[Severity, dict[str, None]]:
    """Returns the cases with a finding of at least this severity, in the order of the findings."""
    changed: dict[Severity, dict[str, None]] = {Severity.WARNING: {}, Severity.INFO: {}}
    for group in comparison.groups if comparison else ():
        cases = dict.fromkeys(finding.case for finding in group.findings)
        changed[Severity.INFO].update(cases)
        if group.severity is not Severity.INFO:
            changed[Severity.WARNING].update(cases)
    return changed


def _changed_before(baseline: ReportedRun | None, changed: Collection[str]) -> list[tuple[int, str, int]]:
    """Rank, case and index of each of the baseline's records whose case has ``changed``."""
    records = baseline.reading.records if baseline and changed else ()
    return sorted(
        (RANK[record.status], record.case, index) for index, record in enumerate(records) if record.case in changed
    )


def _artefacts(
    run: ReportedRun,
    listed: ListedCases,
    baseline: ReportedRun | None,
    before: Sequence[tuple[int, str, int]],
    changed: Collection[str],
    texts: Texts,
) -> dict[str, list[Any]]:
    """By case: the stages' texts now and in the baseline. Failing cases come first, then changed ones."""
    records, earlier = run.reading.records, baseline.reading.records if baseline else ()
    failing: dict[str, int] = {}
    for index in listed.order:  # the worst first
        record = records[index]
        if RANKED[record.status] not in ("bad", "expected") or len(failing) == CASES_LIMIT:
            break
        if record.artefacts:
            failing[record.case] = index
    chosen = list(dict.fromkeys([*failing, *changed]))[:CASES_LIMIT]
    now = {**_indices(records, listed.order, {*chosen} - failing.keys()), **failing}
    then = {case: index for _, case, index in before}
    texts_by_case: dict[str, list[Any]] = {}
    for case in chosen:
        here = texts.of_case(records[now[case]], run.folder) if case in now else {}
        there = texts.of_case(earlier[then[case]], baseline.folder) if baseline and case in then else {}
        texts_by_case[case] = [here, there]
    return texts_by_case


def _indices(records: Sequence[CaseRecord], order: Iterable[int], cases: Collection[str]) -> dict[str, int]:
    """The index of the record of each of the ``cases`` that is in ``order``."""
    return {case: index for index in order if cases and (case := records[index].case) in cases}


def _page(data: str, title: str) -> str:
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
    inserted = {
        "{{policy}}": policy,
        "{{style}}": style,
        "{{data}}": data,
        "{{title}}": html.escape(title),
        "{{script}}": script,
    }
    # One pass: what is inserted is never searched for a mark.
    return "".join(inserted.get(part, part) for part in re.split(r"(\{\{\w+\}\})", _asset("report.html")))


def stylesheet() -> tuple[str, str]:
    """Returns the style of all pages, and the policy of a page that has this style and no script."""
    style = "".join(_asset(f"{name}.css") for name in STYLES)
    return style, f"default-src 'none'; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"


def _script() -> Iterator[str]:
    """All scripts in one function: their names are not the page's."""
    yield '\n(() => {\n"use strict";\n'
    for name in SCRIPTS:
        yield f"\n// {name}.js\n{_asset(f'{name}.js')}"
    yield "})();\n"


def _asset(name: str) -> str:
    return (resources.files("conformance.reporting") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Returns the source expression that allows exactly the inline element with this ``text``."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


#: What could end a script element, begin a comment in it, or end a line of JavaScript, as JSON escapes.
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def plain(name: str, value: Any) -> str:
    """Returns a data element with ``value`` as JSON. Only the page's own constant ``name`` may be given."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def packed(name: str, text: str) -> str:
    """Returns a data element with ``text`` deflated (zlib format), in base64, as a JSON string."""
    return plain(name, base64.b64encode(zlib.compress(text.encode("utf-8", errors="replace"), 6)).decode("ascii"))
