"""Takes the pictures of the guides from real output, with the Chromium that ``make browser`` installs.

``python docs/pictures/take.py reports/bad reports/upgrade`` after the commands of docs/failure.md and docs/gate.md: the
folder of a run that failed, with its report, and the folder of the gate's answer.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

#: Picture -> size of the window in pixels. Above 150 kB a picture is too large for a page.
SIZES = {"report.png": (1200, 866), "gate.png": (1280, 735)}


def take(report: Path, gate: Path) -> None:
    """Writes both pictures beside this file: the page of the first failing case, and the gate's answer."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(color_scheme="light")
        for name, address in (("report.png", report / "report.html"), ("gate.png", gate / "report.html")):
            width, height = SIZES[name]
            page.set_viewport_size({"width": width, "height": height})
            page.goto(address.resolve().as_uri() + ("#/cases?status=fail" if name == "report.png" else ""))
            if name == "report.png":
                page.locator('main a[href^="#/case?"]').first.click()
            page.wait_for_timeout(500)  # milliseconds
            page.screenshot(path=Path(__file__).with_name(name))
        browser.close()


if __name__ == "__main__":
    take(*map(Path, sys.argv[1:]))
