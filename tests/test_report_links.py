"""Links of README.md, CONTRIBUTING.md and reports/ lead to a file and a heading; MkDocs checks those of docs/."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "reports").rglob("*.md"))]


def anchors(text: str) -> set[str]:
    """The anchors that a forge gives to the headings."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"(?m)^#+ (.*)$", text)}


def broken_links(page: Path, text: str) -> list[str]:
    broken = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    return broken


def test_links_lead_somewhere():
    assert {str(page): links for page in PAGES if (links := broken_links(page, page.read_text()))} == {}


@pytest.mark.parametrize("link", ["docs/gone.md", "README.md#gone"])
def test_a_broken_link_is_seen(link):
    assert broken_links(ROOT / "README.md", f"[words]({link}) [text](README.md#guides)") == [link]
