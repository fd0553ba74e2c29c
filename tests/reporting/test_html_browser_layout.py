"""The HTML report at a glance: two screens for a bad kernel, nothing said twice, the width used, nothing cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from report_pages import Reader, failing, made, small_records, sweep, written

from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.records import CaseRecord, Status, Verdict
from conformance.reporting.html import render
from conformance.reporting.html_data import stacks_title

FILLS = ("transparent", "wide-A", "wide-B", "randn", "hot", "special")
RAGGED = {"shape": [2, 2], "block": [64, 32], "rows": 100, "columns": 40, "wrong": [[0, 0, 1024], [1, 1, 288]]}
DIFFER = "two runs with different poison around the operands differ in 2688 elements, first [0, 88]"


def bad_kernel() -> CaseRecord:
    """A case as a kernel leaves it that is wrong everywhere: 26 of 52 checks failed, 12 of them with a map."""
    verdicts = []
    for config in ("128x128x64-s4-w8", "128x128x64-s5-w8"):
        for number, fill in enumerate(FILLS):
            details = {"wrong": 41664, "total": 41664, "first": [0, 0], "got": 7656.0 + number, "tiles": RAGGED}
            text = f"FAIL exact/{fill} seed 0: 41664/41664 wrong, first [0, 0] got {7656 + number} want -0.15625"
            verdicts += [Verdict(f"numerics/{fill}@{config}", False, text, details)]
            verdicts += [Verdict(f"repeat/{fill}@{config}", False, DIFFER)]
        verdicts += [Verdict(f"diagnosis@{config}", False, "every tile is wrong\nOBSERVED 2688 elements are NaN")]
        verdicts += [Verdict(f"codegen/{n}@{config}", True, "matches line 250") for n in range(13)]
    diagnosis = "\n".join(f"{verdict.check}: {verdict.text}" for verdict in verdicts if not verdict.passed)
    resources = {"resources": {f"figure {n}": n for n in range(20)}}
    return failing("bad", verdicts=tuple(verdicts), diagnosis=diagnosis, observed=resources)


@pytest.fixture(scope="module")
def bad(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("bad")
    return written(folder, render(made(folder, [bad_kernel(), *small_records()])))


@pytest.fixture(scope="module")
def upgrade(tmp_path_factory) -> str:
    """A comparison of two stacks; the candidate's kernel is bad."""
    folder = tmp_path_factory.mktemp("upgrade")
    runs = []
    for name, triton in (("before", "3.8.0"), ("after", "3.9.0")):
        right = {"status": Status.PASS, "verdicts": (Verdict("memory", True),), "diagnosis": ""}
        case = bad_kernel() if name == "after" else replace(bad_kernel(), **right)
        records = [replace(case, stack={"triton": triton, "torch": "2.14"}), *small_records()]
        runs.append(made(folder / name, records, name))
        info = replace(runs[-1].info, stack={"triton": triton, "torch": "2.14"})
        runs[-1] = replace(runs[-1], info=info)
    sides = [replace(read_compared_run(run.folder), stack=run.info.stack) for run in runs]
    return written(folder, render(runs[1], runs[0], compare(*sides)))


def wide(reader: Reader, width: int = 1400) -> Reader:
    reader.page.set_viewport_size({"width": width, "height": 900})
    return reader


#: A window in which the first screen of a run is read: width and height in pixels.
WINDOW = (1280, 800)


@pytest.mark.parametrize("causes", [0, 40])
def test_the_matrix_begins_on_the_first_screen_of_a_run(reader, tmp_path, causes):
    """Whatever failed, and however long the causes, the problems and the bill of materials are."""
    words = [f"{'abcdefghij'[n % 10]}{'klmn'[n // 10]} " + "a long cause that goes on " * 4 for n in range(causes)]
    bad = [failing(f"bad{n}", verdicts=(Verdict(f"numerics/{text}", False, text),)) for n, text in enumerate(words)]
    good = [record for record in small_records() if record.status.value == "pass"]
    problems = tuple(f"problem {n}: " + "a sentence about the run " * 6 for n in range(causes))
    bill = {
        "libtriton sha256": "0123456789abcdef" * 4,
        **{f"file {n} sha256": "fedcba9876543210" * 4 for n in range(15)},
    }
    page = reader.open(written(tmp_path, render(made(tmp_path, [*bad, *good], bill=bill, problems=problems)))).page
    width, height = WINDOW
    page.set_viewport_size({"width": width, "height": height})
    matrix = page.locator("table.matrix tbody tr").first.bounding_box()
    assert matrix["y"] + matrix["height"] <= height, f"the first row ends at {matrix['y'] + matrix['height']}"
    assert "fedcba98" not in page.locator("main").inner_text()
    stack = page.locator("section[aria-labelledby=stack]")
    assert stack.bounding_box()["y"] > matrix["y"]
    stack.locator("summary:text-is('Bill of materials: 16 more entries')").click()
    page.wait_for_selector("td:has-text('fedcba98')")
    if causes:
        page.click("summary:text-is('37 more causes')")
        page.wait_for_selector("table:has(caption:text('All other causes')) tbody tr >> nth=36")
        page.click("summary:text-is('39 more problems')")
        page.wait_for_selector("li:has-text('problem 39')")


def test_what_differs_from_the_baseline_is_not_folded(reader, tmp_path):
    runs = []
    for name, digest in (("before", "a" * 64), ("after", "b" * 64)):
        bill = {"libtriton sha256": digest, "libdevice sha256": "c" * 64}
        runs.append(made(tmp_path / name, small_records(), name, bill=bill))
    sides = [replace(read_compared_run(run.folder), run=run.info) for run in runs]
    page = reader.open(written(tmp_path, render(runs[1], runs[0], compare(*sides)))).page
    text = page.locator("section[aria-labelledby=stack]").inner_text()
    assert "b" * 20 in text
    assert "c" * 20 not in text


def test_the_page_of_a_bad_kernel_fits_two_screens(reader, bad):
    page = wide(reader).open(bad, "case?id=bad").page
    assert page.evaluate("document.documentElement.scrollHeight") <= 1800
    assert page.locator("svg[role=img]").count() == 1
    page.click("summary:text-is('11 more maps of wrong tiles')")
    reader.wait("document.querySelectorAll('svg[role=img]').length === 12")


def test_what_checks_agree_on_is_said_once(reader, bad):
    page = wide(reader).open(bad, "case?id=bad").page
    text = page.locator("main").inner_text()
    assert text.count(DIFFER) == 1
    assert text.count("OBSERVED 2688") == 1
    assert text.count("41664/41664 wrong") == 1
    assert "Diagnosis" not in reader.texts("h2")  # its lines are those of the checks
    assert reader.texts("#checks") == ["26 checks of 52 failed."]
    assert reader.texts(".verdicts summary") == ["and 11 other checks", "and 11 other checks", "and 1 other check"]
    page.locator(".verdicts summary").first.click()
    page.wait_for_selector(".verdicts li")
    assert "numerics/hot@128x128x64-s5-w8: FAIL exact/hot seed 0" in reader.texts(".verdicts li")[9]


def test_percentages_are_of_the_elements_that_an_edge_tile_has(reader, bad):
    """An output of 100 x 40 in tiles of 64 x 32: the last one has 36 x 8 elements, and all are wrong."""
    page = reader.open(bad, "case?id=bad").page
    rows = reader.texts("table:has(caption:text('Tiles')) tbody tr")
    assert rows == ["1\t1\t36 × 8\t288\t100.0 %", "0\t0\t64 × 32\t1,024\t50.0 %"]
    drawn = page.locator("svg[role=img] rect.wrong").first
    assert [drawn.get_attribute(name) for name in ("x", "y", "width", "height")] == ["32", "64", "8", "36"]


@pytest.mark.parametrize(
    ("before", "after", "title"),
    [
        ({"triton": "3.8.0"}, {"triton": "3.9.0"}, "Triton 3.8.0 to 3.9.0"),
        (
            {"triton": "3.8.0", "torch": "2.14"},
            {"triton": "3.9.0", "torch": "2.15"},
            "Triton 3.8.0 to 3.9.0, PyTorch 2.14 to 2.15",
        ),
        ({"ptxas": "12.8"}, {}, "ptxas 12.8 to none"),
        ({"triton": "3.8.0", "harness": "a"}, {"triton": "3.8.0", "harness": "b"}, "The same stack"),
    ],
)
def test_a_comparison_is_named_by_what_is_replaced(before, after, title):
    assert stacks_title(before, after) == title


def test_the_page_of_a_gate_is_titled_by_its_stacks(reader, upgrade):
    page = reader.open(upgrade).page
    assert reader.texts("h1") == ["Triton 3.8.0 to 3.9.0: not safe"]
    assert page.title() == "Triton 3.8.0 to 3.9.0: not safe"
    assert page.locator("header").inner_text().startswith("Conformance Triton 3.8.0 to 3.9.0")
    html = Path(upgrade.removeprefix("file://")).read_text()
    assert "<title>Triton 3.8.0 to 3.9.0: conformance</title>" in html  # what a mail program shows


def test_thresholds_are_a_table_with_units_that_is_unfolded(reader, upgrade):
    page = reader.open(upgrade, "changes").page
    assert page.locator("table.thresholds").count() == 0
    page.click("summary:has-text('Thresholds')")
    page.wait_for_selector("table.thresholds")
    rows = reader.texts("table.thresholds tbody tr")
    assert "registers\t10 %\t8 registers" in rows
    assert "shared memory\t5 %\t1,024 bytes" in rows
    assert "compile time\t50 %\t5 cases, 0.1 seconds" in rows


@pytest.mark.parametrize(
    ("view", "command"),
    [
        ("", "conformance run --tier quick"),
        ("configs", "conformance run --suite config_space"),
        ("changes", "conformance report RUN --baseline EARLIER_RUN"),
    ],
)
def test_an_empty_page_says_how_to_fill_it(reader, tmp_path, view, command):
    reader.open(written(tmp_path, render(made(tmp_path, []))), view)
    assert reader.texts(".how code") == [command]


def test_without_a_gpu_the_page_of_configs_says_where_times_come_from(reader, tmp_path):
    untimed = replace(sweep("64x64", 5.0), observed={"resources": {"registers": 96}})
    reader.open(written(tmp_path, render(made(tmp_path, [untimed]))), "configs")
    assert "a machine with a GPU" in reader.texts(".how")[0]


VIEWS = ("", "cases", "configs", "changes", "case?id=bad")
#: Elements whose content is wider than they are: what is in them is cut, or must be scrolled to.
CUT = """() => [...document.querySelectorAll("main *")].filter((node) => node.clientWidth > 0
  && node.scrollWidth > node.clientWidth + 1 && !node.matches("pre, select, .hidden-text, thead, thead *")
  && !node.closest("svg")).map((node) => node.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_cut_in_a_narrow_window(reader, upgrade, view):
    page = wide(reader, 400).open(upgrade, view).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.evaluate(CUT) == []


def test_the_first_screen_uses_the_width(reader, upgrade):
    page = wide(reader).open(upgrade).page
    rightmost = page.evaluate(
        "Math.max(...[...document.querySelectorAll('table')].map((t) => t.getBoundingClientRect().right))"
    )
    assert rightmost > 1300


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("view", ["case?id=bad", "changes"])
def test_axe_finds_nothing_when_all_is_unfolded(browser, upgrade, view, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    context = browser.new_context(bypass_csp=True, viewport={"width": width, "height": 900})
    page = Reader(context.new_page()).open(upgrade, view).page
    page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
    page.wait_for_timeout(200)
    page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")  # those within
    violations = axe.Axe().run(page).response["violations"]
    context.close()
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in violations] == []
