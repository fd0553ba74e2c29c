"""The reports that are read in a browser, and the browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from report_pages import HOSTILE, Reader, made, many_records, small_records, sweep, written

from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.records import Status, Verdict
from conformance.reporting.html import render

PASSED = (Verdict("numerics/randn", True),)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> str:
    """The address of a report of few records."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "a.ptx").write_text("mov.u32 %r1;\n" + HOSTILE)
    return written(folder, render(made(folder, small_records(), problems=(f"1 lost: {HOSTILE}",))))


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> str:
    """The address of a report with a baseline."""
    folder = tmp_path_factory.mktemp("compared")
    text = [f"line {n}" for n in range(60)]
    before = [r for r in small_records() if r.kernel != HOSTILE]
    after = [r for r in before if "gfx942" not in r.case]
    after = [sweep("64x64", 3.0) if r.case == "sweep[64x64]" else r for r in after]
    before = [
        replace(r, status=Status.PASS, verdicts=PASSED, diagnosis="") if r.status is Status.FAIL else r for r in before
    ]
    runs = [made(folder / name, side, name) for name, side in (("before", before), ("after", after))]
    (folder / "before" / "a.ptx").write_text("\n".join(text))
    (folder / "after" / "a.ptx").write_text("\n".join([*text[:30], "an added line", *text[30:50], "other", *text[51:]]))
    comparison = compare(*(read_compared_run(run.folder, run.folder.name) for run in runs))
    return written(folder, render(runs[1], runs[0], comparison))


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("large")
    return written(folder, render(made(folder, many_records())))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium, Debian's or the one that CONFORMANCE_CHROMIUM names."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    chromium = os.environ.get("CONFORMANCE_CHROMIUM") or shutil.which("chromium")
    if not chromium:
        pytest.skip("Chromium is not installed: apt-get install chromium, or set CONFORMANCE_CHROMIUM to its path")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def reader(browser) -> Iterator[Reader]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    reader = Reader(context.new_page())
    yield reader
    context.close()
    assert reader.complaints == []
    assert [url for url in reader.requests if not url.startswith(("file:", "about:"))] == []
