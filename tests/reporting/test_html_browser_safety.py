"""Records from strangers in the HTML report: they are shown, and do nothing."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from report_pages import HOSTILE, failing, made, written

from conformance.records import Verdict
from conformance.reporting.html import render


@pytest.mark.parametrize(
    "view", ["constructor", "case?id=__proto__", "case?id=constructor", "case", "cases?status=toString&sort=x&page=-3"]
)
def test_an_address_that_names_nothing_shows_a_page(reader, small, view):
    reader.open(small, view)
    assert len(reader.texts("h1")) == 1


@pytest.mark.parametrize(
    "tiles",
    [7, {}, {"shape": [1e9, 1e9], "block": [1, 1], "wrong": []}, {"shape": ["a", 1], "block": [1, 1], "wrong": 3}],
)
def test_a_map_that_makes_no_sense_is_left_out(reader, tmp_path, tiles):
    record = failing("c", verdicts=(Verdict("n", False, "", {"tiles": tiles}),))
    reader.open(written(tmp_path, render(made(tmp_path, [record]))), "case?id=c")
    assert reader.texts("svg[role=img]") == []


def test_a_hostile_record_shows_literally_and_runs_nothing(reader, small):
    for view in ("", "cases", "configs", "case?id=" + quote(HOSTILE, safe="")):
        page = reader.open(small, view).page
        if view != "configs":
            assert HOSTILE in page.locator("main").inner_text()
        for handle in page.query_selector_all("main button"):
            if handle.is_visible() and handle.is_enabled():
                handle.focus()
    for details in page.query_selector_all("details"):
        details.evaluate("node => { node.open = true; }")
    page.wait_for_timeout(100)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main iframe").count() == 0
    links = page.evaluate("[...document.querySelectorAll('main a')].map((a) => a.getAttribute('href'))")
    assert [link for link in links if not link.startswith("#")] == [
        "https://example.org/issue/1"
    ]  # without the full stop


def test_what_reorders_or_hides_text_is_shown_as_an_escape(reader, small):
    page = reader.open(small, "case?id=" + quote(HOSTILE, safe="")).page
    assert "\\u202e\\u001b[2J" in page.locator("main pre.wrap").first.inner_text()


def test_hostile_artefact_text_is_text(reader, small):
    page = reader.open(small, "case?id=" + quote("test_a.py::test_x[mm-wrong]", safe="")).page
    page.click("button:text-is('ptx')")
    page.wait_for_selector("#artefact pre")
    assert HOSTILE in page.locator("#artefact pre").inner_text()
    assert page.evaluate("window.hacked") is None


def test_the_policy_refuses_a_script_that_gets_in(browser, small):
    context = browser.new_context()
    page = context.new_page()
    page.goto(small)
    page.wait_for_selector("html[data-ready]")
    added = """() => {
        const made = document.createElement("script");
        made.append("window.hacked = 1");
        document.body.append(made);
    }"""
    error = pytest.importorskip("playwright.sync_api").Error
    with pytest.raises(error, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>x</b>'")
    page.evaluate(f"try {{ ({added})() }} catch {{}}")
    assert page.evaluate("window.hacked") is None
    context.close()


def test_the_data_survives_the_page(reader, small):
    """The page unpacks exactly what the records hold."""
    page = reader.open(small, "case?id=" + quote(HOSTILE, safe="")).page
    page.click("summary:text-is('The record as JSON')")
    page.wait_for_selector("details pre")
    shown = json.loads(page.locator("details pre").text_content())
    assert (shown["case"], shown["options"]["constructor"]) == (HOSTILE, HOSTILE)
