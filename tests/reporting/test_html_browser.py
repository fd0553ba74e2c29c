"""The HTML report in headless Chromium: what a person sees and where the address leads."""

from __future__ import annotations

import random
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from report_pages import failing, made, small_records, written

from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.records import Status
from conformance.reporting.html import render


def test_the_first_screen_is_the_answer(reader, small):
    page = reader.open(small).page
    assert reader.texts("h1") == ["2 cases failed"]
    assert page.locator("#answer").inner_text().startswith("8 of 11 claimed cases passed (72.7 %).")
    assert reader.texts(".counts li") == ["2 fail", "1 not-run", "8 pass"]
    assert "Run problems (1)" in reader.texts("h2")
    assert "3.6.0" in reader.texts(".pairs")[0]


def test_the_first_screen_groups_the_failures_by_cause(reader, small):
    page = reader.open(small).page
    rows = [row.split("\t") for row in reader.texts("table:has(th:text-is('Cause')) tbody tr")]
    assert [row[0] for row in rows] == ["wrong result"]
    page.locator("table:has(th:text-is('Cause')) tbody a").first.click()
    page.wait_for_selector("#count")
    assert reader.texts("#count") == ["2 cases of 11"]


def test_the_first_screen_of_a_comparison_names_the_regressions(reader, compared):
    page = reader.open(compared).page
    assert reader.texts("h1") == ["The same stack: not safe"]
    assert reader.texts("table:has(th:text-is('Change')) tbody .status")[0] == "NEW_FAIL"
    page.locator("table:has(th:text-is('Change')) tbody a").first.click()
    page.wait_for_selector(".group[open] tbody a")


def test_the_first_screen_of_a_comparison_is_enough_to_decide(reader, compared):
    """The page says what got worse and where, what was not tested, and what to do, before any table of the run."""
    page = reader.open(compared).page
    line, first, answer = reader.texts(".answer")
    assert line.startswith("NOT SAFE")
    assert first.startswith("3 cases got worse: mm on gfx942, sm_90. 8 cases compared, 5 unchanged.")
    assert answer.endswith("never as passed.")
    titles = reader.texts("h2")
    assert titles[:3] == ["Regressions", "What to do next", "What was not looked at"]
    assert titles.index("All cases of the candidate") > 3
    rows = [row.split("\n") for row in reader.texts(".regressions tbody tr")]
    assert [row[0].split("\t")[0] for row in rows][:2] == ["NEW_FAIL", "LOST_COVERAGE"]
    assert "gives a wrong result, or breaks another promise; it did not before." in page.inner_text(".regressions")
    assert ["mm", "gfx942"] in [reader.texts(f".regressions tbody tr:nth-child({n}) td")[1:3] for n in (2, 3)]
    assert any(text.startswith("The quick tier is a sample") for text in reader.texts("section li"))
    assert page.locator("section:has(h2:text-is('What to do next')) li").count() >= 2


def test_a_run_without_cases_proves_nothing(reader, tmp_path):
    reader.open(written(tmp_path, render(made(tmp_path, []))))
    assert reader.texts("h1") == ["Nothing was proven"]
    assert reader.open(tmp_path.joinpath("report.html").as_uri(), "cases").texts("#count") == ["0 cases of 0"]


@pytest.mark.parametrize(
    ("problems", "title"),
    [((), "All claimed cases passed"), (("records are missing",), "No recorded case failed; the run is not whole")],
)
def test_a_run_that_is_not_whole_is_not_titled_as_passed(reader, tmp_path, problems, title):
    passed = [record for record in small_records() if record.status is Status.PASS]
    reader.open(written(tmp_path, render(made(tmp_path, passed, problems=problems))))
    assert reader.texts("h1") == [title]


def test_a_cell_of_the_matrix_counts_and_leads_to_its_cases(reader, small):
    page = reader.open(small).page
    row = page.locator(".matrix tbody tr", has=page.locator("th", has_text="scaled_mm"))
    cell = row.locator("td.cell")
    assert cell.inner_text().split("\n") == ["1 not-run", "1 pass"]
    assert cell.locator("a").get_attribute("class") == "unproven"
    assert page.locator(".matrix td.none").count() > 0
    cell.locator("a").click()
    page.wait_for_selector("#count")
    assert reader.hash() == "#/cases?kernel=scaled_mm&target=sm_90"
    assert reader.texts("#count") == ["2 cases of 11"]


def test_the_suites_count_by_status(reader, small):
    page = reader.open(small).page
    row = page.locator("table:has(caption:text('Cases of each suite')) tr", has_text="gemm").last
    assert row.inner_text().split() == ["gemm", "fail", "1", "0", "6"]


def test_filters_live_in_the_address(reader, small):
    page = reader.open(small, "cases").page
    page.fill("#text", "TEST_X mm-0")
    page.select_option("#filter-target", "gfx942")
    page.click("[data-status=pass]")
    assert reader.texts("#count") == ["1 case of 11"]
    reader.wait("location.hash.includes('text=')")
    address = reader.hash()
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert (reader.hash(), reader.texts("#count")) == (address, ["1 case of 11"])
    assert page.input_value("#text") == "TEST_X mm-0"
    assert page.get_attribute("[data-status=pass]", "aria-pressed") == "true"
    page.click("[data-status=pass]")
    page.go_back()
    reader.wait("document.querySelector('[data-status=pass]').ariaPressed === 'true'")


@pytest.mark.parametrize(("status", "count"), [("fail", 2), ("not-run", 1), ("fail,not-run", 3), ("crash", 0)])
def test_a_status_in_the_address_filters(reader, small, status, count):
    reader.open(small, f"cases?status={status}")
    assert reader.texts("#count")[0].startswith(f"{count} case")
    assert len(reader.texts(".list tbody tr")) == count


def test_a_filter_finds_what_a_diagnosis_says(reader, small):
    reader.open(small, "cases?text=last+K+block")
    assert reader.texts("#count") == ["1 case of 11"]


def test_a_value_that_no_case_has_shows_no_case(reader, small):
    reader.open(small, "cases?kernel=constructor")
    assert reader.texts("#count") == ["0 cases of 11"]


def test_columns_sort_and_say_so(reader, small):
    page = reader.open(small, "cases").page
    page.click("[data-sort=case]")
    cases = reader.texts(".list tbody a")
    assert cases == sorted(cases)
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Case")
    page.click("[data-sort=case]")
    assert reader.texts(".list tbody a") == cases[::-1]
    assert page.evaluate("document.activeElement.dataset.sort") == "case"


def test_a_link_opens_a_case_with_its_failing_check_first(reader, small):
    page = reader.open(small, "case?id=" + quote("test_a.py::test_x[mm-wrong]", safe="")).page
    assert reader.texts("h1") == ["test_a.py::test_x[mm-wrong]"]
    assert reader.texts(".verdicts tbody th") == ["numerics/randn"]
    assert reader.texts("#checks") == ["1 check of 2 failed."]
    page.click("summary:text-is('1 check passed')")
    page.wait_for_selector(".verdicts tbody th:text-is('memory')")
    assert "worst_ratio 31.5" in reader.texts(".verdicts tbody tr")[0]
    assert "the last K block is missing" in page.locator("main").inner_text()
    assert page.locator("#repro").inner_text() == (
        "conformance run '--conformance-case=test_a.py::test_x[mm-wrong]' --target=sm_90 --no-gpu"
    )


def test_a_failing_case_has_a_map_of_its_tiles_and_the_same_as_a_table(reader, small):
    page = reader.open(small, "case?id=" + quote("test_a.py::test_x[mm-wrong]", safe="")).page
    drawing = page.locator("svg[role=img]")
    assert drawing.get_attribute("aria-label") == (
        "numerics/randn: 2 tiles of 24 hold 2,055 wrong elements; a tile is 64 × 32"
    )
    assert drawing.locator("rect.wrong").count() == 2
    assert reader.texts("table:has(caption:text('Tiles')) tbody tr") == [
        "1\t2\t64 × 32\t2,048\t100.0 %",
        "3\t5\t64 × 32\t7\t0.3 %",
    ]


def test_the_command_can_be_copied(reader, small):
    page = reader.open(small, "case?id=" + quote("test_a.py::test_x[mm-wrong]", safe="")).page
    page.click("button[aria-label='Copy the command']")
    page.wait_for_selector(".command button:has-text('Copied')")


def test_the_best_config_is_marked_and_figures_sort(reader, small):
    page = reader.open(small, "configs").page
    assert reader.texts(".heat tbody th") == ["128x64 fastest", "64x64"]
    assert page.locator(".heat td.heat-4").count() > 0
    page.click("[data-sort=spills]")
    page.wait_for_selector("th[aria-sort]:has-text('Spills')")
    assert reader.texts(".heat tbody th")[0] == "64x64"
    assert reader.hash().endswith("sort=spills")


def test_changes_are_ranked_and_lead_to_both_sides_of_a_case(reader, compared):
    page = reader.open(compared, "changes").page
    kinds = reader.texts(".group summary b")
    assert kinds[0] == "NEW_FAIL"
    assert {"LOST_COVERAGE", "FASTER"} <= set(kinds)
    page.locator(".group summary").first.click()
    reader.wait("location.hash.includes('open=0')")
    page.locator(".group tbody a").first.click()
    page.wait_for_selector("h1.code")
    assert page.locator(".answer").inner_text().split() == ["Baseline", "pass", "Candidate", "fail"]
    page.click("button:text-is('ptx')")
    page.wait_for_selector(".difference")
    assert reader.texts(".difference .removed") == ["− line 50"]
    assert reader.texts(".difference .added") == ["+ an added line", "+ other"]
    page.locator(".gap button").first.click()
    assert "line 5" in page.locator(".difference").inner_text()


def test_a_lost_case_has_a_page(reader, compared):
    reader.open(compared, "case?id=" + quote("test_a.py::test_x[mm-0-gfx942]", safe=""))
    assert reader.texts(".answer") == ["Baseline pass Candidate no record"]
    assert "LOST_COVERAGE" in reader.texts("main")[0]


def test_configs_show_what_they_were(reader, compared):
    page = reader.open(compared, "configs").page
    assert "was 5 (-40.0 %)" in page.locator(".heat").inner_text()
    assert "(moved)" in page.locator("main").inner_text()


def lines(seed: int, count: int) -> str:
    return " ".join(random.Random(seed).choices("abc", k=count))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("", ""),
        ("a", ""),
        ("", "b"),
        ("a b c", "a b c"),
        ("a b c d", "a x c d"),
        ("a b c a b b a", "c b a b a c"),
        ("x a b", "a b y"),
        ("a a a", "a a"),
        *((lines(seed, 90), lines(seed + 100, 80)) for seed in range(3)),
    ],
)
def test_a_difference_rebuilds_both_texts(reader, tmp_path, a, b):
    folders = []
    for name, text in (("before", a), ("after", b)):
        status = Status.PASS if name == "before" else Status.FAIL
        run = made(tmp_path / name, [failing("c", status=status, artefacts={"ptx": "a.ptx"})], name)
        (tmp_path / name / "a.ptx").write_text(text.replace(" ", "\n"))
        folders.append(run)
    page = render(folders[1], folders[0], compare(*(read_compared_run(run.folder) for run in folders)))
    shown = reader.open(written(tmp_path, page), "case?id=c").page
    shown.click("button:text-is('ptx')")
    if a == b:
        shown.wait_for_selector("#artefact :text('Equal in both')")
        return
    shown.wait_for_selector(".difference")
    rows = shown.evaluate(
        "[...document.querySelectorAll('.difference tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    assert [row[1][2:] for row in rows if row[0]] == a.split(" ")
    assert [row[3][2:] for row in rows if row[2]] == b.split(" ")
    equal = sum(row[1][:1] == " " for row in rows)
    assert equal == longest_common(a.split(" "), b.split(" "))


def longest_common(a: list[str], b: list[str]) -> int:
    best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for x, left in enumerate(a):
        for y, right in enumerate(b):
            best[x + 1][y + 1] = best[x][y] + 1 if left == right else max(best[x][y + 1], best[x + 1][y])
    return best[-1][-1]


def test_twenty_thousand_cases_stay_responsive(reader, large):
    """Figures of the machine are asserted loosely: a tenth of them is usual."""
    size = Path(large.removeprefix("file://")).stat().st_size
    assert size < 6_000_000
    started = time.perf_counter()
    page = reader.open(large, "cases").page
    assert time.perf_counter() - started < 15
    assert reader.texts("#count") == ["20,000 cases of 20,000"]
    assert page.locator(".list tbody tr").count() == 100
    latency = page.evaluate(
        """async () => {
            const input = document.getElementById("text"), took = [];
            for (const char of "kernel_7 case=001") {
                const start = performance.now();
                input.value += char;
                input.dispatchEvent(new Event("input"));
                document.body.offsetHeight; // layout is part of it
                took.push(performance.now() - start);
                await new Promise((done) => setTimeout(done, 0));
            }
            return took.sort((a, b) => a - b);
        }"""
    )
    print(f"{size} bytes; keystroke median {latency[len(latency) // 2]:.1f} ms, most {latency[-1]:.1f} ms")
    assert latency[len(latency) // 2] < 300
    assert 0 < int(reader.texts("#count")[0].split()[0]) < 100


def test_pages_of_a_long_list_are_in_the_address(reader, large):
    page = reader.open(large, "cases?sort=-seconds").page
    assert "case=19999" in reader.texts(".list tbody a")[0]
    page.click("button:text-is('Next')")
    assert reader.hash() == "#/cases?sort=-seconds&page=2"
    assert "case=19899" in reader.texts(".list tbody a")[0]
    page.locator(".list tbody a").first.click()
    page.wait_for_selector("h1.code")
    assert "19899 elements" in page.locator(".verdicts").inner_text()
