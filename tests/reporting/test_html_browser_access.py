"""The HTML report by keyboard, by screen reader, in both colour schemes, in a narrow window and in print."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from report_pages import Reader

VIEWS = ["", "cases", "configs", "changes", "case?id=" + quote("test_a.py::test_x[mm-wrong]", safe="")]

#: The contrast of every text with its ground, the least first (WCAG 2, relative luminance).
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map(
    (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce(
    (sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (node) => { for (; node; node = node.parentElement) {
    const found = rgb(getComputedStyle(node).backgroundColor); if (found[3] === 255) return found; }
    return rgb(getComputedStyle(document.documentElement).getPropertyValue("--page")); };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.disabled) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), node.className, node.textContent.slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""


def test_the_keyboard_reaches_a_case(reader, small):
    page = reader.open(small).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    address = reader.hash()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert reader.hash() == address
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.counts') !== null"):
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#count")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.list tbody a')"):
            break
    first = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("ArrowDown")
    second = page.evaluate("document.activeElement.textContent")
    assert first != second
    page.keyboard.press("Enter")
    page.wait_for_selector("h1.code")
    assert reader.texts("h1") == [second]
    page.go_back()
    page.wait_for_selector("#count")
    reader.wait(f"document.activeElement.textContent === {json.dumps(second)}")


def test_what_has_the_focus_shows_it(reader, small):
    page = reader.open(small, "cases").page
    for _ in range(12):
        page.keyboard.press("Tab")
        style = page.evaluate(
            "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])(getComputedStyle(document.activeElement))"
        )
        assert style == ["solid", "2px"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_text_has_contrast(browser, compared, scheme, view):
    context = browser.new_context(color_scheme=scheme)
    page = Reader(context.new_page()).open(compared, view).page
    measured = page.evaluate(CONTRAST)
    assert len(measured) > 15
    assert [entry for entry in measured if entry[0] < 4.5] == []
    context.close()


def test_the_reader_s_colours_win_and_are_remembered(reader, small):
    page = reader.open(small).page
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.select_option("#theme", "dark")
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate(ground) == dark


@pytest.mark.parametrize("view", VIEWS)
def test_a_screen_reader_finds_its_way(reader, compared, view):
    page = reader.open(compared, view).page
    assert page.locator("h1").count() == 1
    assert page.locator("main").count() == page.locator("header nav[aria-label]").count() == 1
    unnamed = """[...document.querySelectorAll("a, button, input, select, svg[role=img], [role=region]")].filter(
      (node) => !(node.textContent.trim() || node.ariaLabel || node.labels?.length)).map((node) => node.outerHTML)"""
    assert page.evaluate(unnamed) == []
    assert (
        page.evaluate("[...document.querySelectorAll('table')].filter((t) => !t.querySelector('th[scope]')).length")
        == 0
    )
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((h) => Number(h.tagName[1]))")
    assert all(after - before <= 1 for before, after in zip([0, *levels], levels, strict=False))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(browser, compared, view, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    context = browser.new_context(bypass_csp=True, color_scheme=scheme)  # axe is a script of the test, not of the page
    page = Reader(context.new_page()).open(compared, view).page
    response = axe.Axe().run(page).response
    assert len(response["passes"]) > 10
    serious = [
        (one["id"], [node["html"] for node in one["nodes"]][:3])
        for one in response["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
    context.close()


@pytest.mark.parametrize("view", VIEWS)
def test_a_narrow_window_does_not_scroll_sideways(browser, compared, view):
    context = browser.new_context(viewport={"width": 360, "height": 700})
    page = Reader(context.new_page()).open(compared, view).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    context.close()


def test_print_leaves_out_the_controls(reader, small):
    page = reader.open(small, "cases").page
    page.emulate_media(media="print")
    assert not page.locator(".filters").is_visible()
    assert page.locator(".list").is_visible()
