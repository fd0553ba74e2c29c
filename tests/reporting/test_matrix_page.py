"""The page of a matrix: the answers, and each kernel's trend over the stacks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from report_pages import HOSTILE, Reader, written

from conformance.commands import matrix
from conformance.gate.runs.run_reader import ComparedRun, read_compared_run
from conformance.records import CaseRecord, Status, Verdict
from conformance.reporting.matrix_page import PairAnswer, render
from conformance.user_files.findings import Comparison, Narrowing, Side
from tests.command_runs import write_run

PAIRS = [
    PairAnswer("old", "new", True, "01/report.html"),
    PairAnswer("new", HOSTILE, False, "02/report.html", f"3 NEW_FAIL {HOSTILE}"),
]


def record(kernel: str, case: int, registers: int, status: Status = Status.PASS) -> CaseRecord:
    passed = status is Status.PASS
    observed = {"resources": {"registers": registers, "spills": 0, "shared_memory": 1024}}
    verdicts = (Verdict("numerics", passed),)
    return CaseRecord(
        f"test_a.py::test_x[{kernel}-{case}]", "a", status, kernel=kernel, verdicts=verdicts, observed=observed
    )


def stack(folder: Path, name: str, triton: str, *records: CaseRecord) -> ComparedRun:
    write_run(folder, records)
    return replace(read_compared_run(folder, name), stack={"triton": triton, "torch": "2.14", "harness": name})


@pytest.fixture
def stacks(tmp_path) -> list[ComparedRun]:
    """Registers of mm grow by half in the second stack and stay; the third fails bmm and lost conv."""
    steady = [record("bmm", 0, 40), record("conv", 0, 64), record("steady", 0, 64)]
    sides = [
        ("old", "3.7.1", [*steady, *(record("mm", n, 100 + n) for n in range(3))]),
        ("new", "3.8.0", [*steady, *(record("mm", n, 150 + n) for n in range(3))]),
        (HOSTILE, "3.9.0", [record("bmm", 0, 40, Status.FAIL), steady[2], *(record("mm", n, 150) for n in range(2))]),
    ]
    return [stack(tmp_path / str(n), name, triton, *records) for n, (name, triton, records) in enumerate(sides)]


@pytest.fixture
def address(tmp_path, stacks) -> str:
    return written(tmp_path, render(stacks, PAIRS))


def opened(reader: Reader, address: str) -> Reader:
    reader.page.goto(address)
    return reader


def test_the_page_answers_and_shows_trends(reader, address):
    page = opened(reader, address).page
    assert reader.texts("h1") == ["Triton 3.7.1, 3.8.0, 3.9.0"]
    assert reader.texts(".answer strong") == ["1 of 2 upgrades are safe."]
    rows = {
        row.split("\t")[0]: row.split("\t")
        for row in reader.texts("section:has(h2:text('Kernels')) > .scroll tbody tr")
    }
    assert set(rows) == {"mm", "bmm", "conv"}
    assert rows["mm"][1:4] == ["3 passed", "3 passed", "2 passed"]
    assert rows["mm"][4].split("\n")[:2] == [" +49.3 %", "100 → 150 → 149"]
    assert rows["bmm"][3] == "0 passed 1 failed"
    assert rows["conv"][3] == "no case"
    assert page.locator("summary").inner_text().startswith("1 more that did not fail")
    assert page.locator("a:text-is('what changed')").first.get_attribute("href") == "01/report.html"
    assert page.locator("svg.trend").count() == 1


@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_is_cut(reader, address, width):
    reader.page.set_viewport_size({"width": width, "height": 900})
    page = opened(reader, address).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_names_cannot_be_markup(stacks):
    page = render(stacks, PAIRS)
    assert "<img" not in page
    assert "<script" not in page
    assert "script-src" not in re.findall('Content-Security-Policy" content="([^"]*)"', page)[0]


def test_the_page_has_no_violation_that_axe_knows(reader, address):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = opened(reader, address).page
    results = axe.Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


def test_runs_without_figures_say_how_to_get_them(tmp_path):
    bare = replace(record("mm", 0, 1), observed={})
    page = render([stack(tmp_path / name, name, name, bare) for name in ("a", "b")], [])
    assert "conformance matrix FILE --suite config_space" in page
    assert "No pair was compared" in page


def test_the_command_writes_the_page_beside_the_reports(tmp_path, stacks, monkeypatch, capsys):
    (tmp_path / "stacks.toml").write_text("")
    monkeypatch.setattr(
        matrix,
        "read_matrix",
        lambda file: SimpleNamespace(
            stacks=[SimpleNamespace(name=name) for name in ("old", "new")], pairs=[("old", "new")]
        ),
    )
    runs = [
        SimpleNamespace(
            name=name, folder=tmp_path / str(n), environment=SimpleNamespace(stack=SimpleNamespace(name=name))
        )
        for n, name in enumerate(("old", "new"))
    ]
    monkeypatch.setattr(matrix, "run_stacks", lambda *arguments: runs)
    sides = [Side(name, {}, "quick", 0, 24, {}) for name in ("old", "new")]
    compared = Comparison(*sides, (), 24, 0, objections=("one",), narrowing=Narrowing(("--kernel mm",), 24, 1373))
    monkeypatch.setattr(matrix, "report_pair", lambda *arguments: (tmp_path / "out").mkdir() or (1, compared))
    arguments = SimpleNamespace(
        file=tmp_path / "stacks.toml", output=tmp_path / "out", known=[], issues=None, baseline_runs=1
    )
    assert matrix.run(arguments) == 1
    page = (tmp_path / "out" / "index.html").read_text()
    assert 'href="01/report.html"' in page
    assert "not safe" in page
    first_line = "NOT SAFE for 24 of 1,373 cases (--kernel mm): 1 objection"
    assert f'<td data-name="Why">{first_line}</td>' in page
    assert "0 of 1 upgrades are safe for 24 of 1,373 cases (--kernel mm).</strong>" in page
    output = capsys.readouterr().out
    assert "old  " in output
    assert first_line in output


def test_a_narrowed_matrix_says_so_on_its_first_screen(stacks: list[ComparedRun]) -> None:
    narrow = PairAnswer("a", "b", True, "01/report.html", "SAFE for 24 ...", "24 of 1,373 cases (--kernel mm)")
    whole = PairAnswer("a", "b", True, "01/report.html", "SAFE: no regression")
    assert "1 of 1 upgrades are safe for 24 of 1,373 cases (--kernel mm).</strong>" in render(stacks, [narrow])
    assert "1 of 1 upgrades are safe.</strong>" in render(stacks, [whole])


def test_a_kernel_that_fails_as_expected_did_fail(tmp_path: Path) -> None:
    sides = [stack(tmp_path / "a", "a", "3.8.0", record("mm", 0, 100))]
    sides.append(stack(tmp_path / "b", "b", "3.9.0", record("mm", 0, 100, Status.EXPECTED_FAIL)))
    page = render(sides, [])
    assert "1 expected to fail" in page
    assert "more that did not fail" not in page
    sides[1] = stack(tmp_path / "c", "c", "3.9.0", record("mm", 0, 100))
    assert "1 more that did not fail" in render(sides, [])
