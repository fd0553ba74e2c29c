"""Records, runs on disk and a reader of pages, for the tests of the HTML report."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.records import CaseRecord, Reading, Reason, ReasonCode, RunInfo, Status, Verdict
from conformance.reporting.html_data import ReportedRun
from tests.command_runs import write_run

HOSTILE = "<img src=x onerror='window.hacked=1'></script><script>window.hacked=1</script>\" onfocus=window.hacked=1 x="
HOSTILE_LINK = "javascript:window.hacked=1 http://example.org/ data:text/html,x https://example.org/issue/1."
TILES = {"shape": [4, 6], "block": [64, 32], "wrong": [[1, 2, 2048], [3, 5, 7]]}
STACK = {"torch": "2.11.0", "triton": "3.6.0", "python": "3.12.3", "ptxas": "12.8.93", "driver": None, "device": None}


def failing(name: str = "test_a.py::test_x[mm-wrong]", **fields: Any) -> CaseRecord:
    verdicts = (
        Verdict("memory", True, "untouched"),
        Verdict("numerics/randn", False, "2055 wrong", {"wrong": 2055, "worst_ratio": 31.5, "tiles": TILES}),
    )
    usual = {"suite": "gemm", "status": Status.FAIL, "kernel": "mm", "target": "sm_90", "verdicts": verdicts}
    usual |= {"diagnosis": "the last K block is missing"}
    usual |= {
        "repro": "python -m pytest --conformance-case x",
        "observed": {"resources": {"registers": 96, "spills": 0}},
    }
    return CaseRecord(name, **{**usual, **fields})


def sweep(config: str, us: float, spills: int = 0) -> CaseRecord:
    observed = {
        "run": {"problem": "p", "us": us, "samples_us": [us * (1 + n / 1000) for n in range(9)]},
        "resources": {"registers": 96, "spills": spills, "shared_memory": 1024, "spill_unit": "bytes"},
        "compile_s": 0.5,
    }
    verdicts = (Verdict("numerics/randn", True),)
    fields = {"kernel": "mm", "target": "sm_90", "config": {"id": config}, "options": {"dtype": "bf16"}}
    return CaseRecord(
        f"sweep[{config}]",
        "config_space",
        Status.PASS,
        observed=observed,
        verdicts=verdicts,
        problem={"id": "p"},
        **fields,
    )


def small_records() -> list[CaseRecord]:
    judged = {"verdicts": (Verdict("memory", True),)}
    passed = [
        CaseRecord(
            f"test_a.py::test_x[{kernel}-{n}-{target}]", "gemm", Status.PASS, kernel=kernel, target=target, **judged
        )
        for kernel, target, count in (("mm", "sm_90", 3), ("mm", "gfx942", 2), ("scaled_mm", "sm_90", 1))
        for n in range(count)
    ]
    reason = Reason(ReasonCode.NO_DEVICE, "device", "there is none")
    skipped = CaseRecord("test_b.py::test_y", "tma", Status.NOT_RUN, reason, kernel="scaled_mm", target="sm_90")
    hostile = failing(
        HOSTILE,
        kernel=HOSTILE,
        target=HOSTILE,
        suite=HOSTILE,
        diagnosis=f"{HOSTILE} {HOSTILE_LINK} \u202e\x1b[2J",
        repro=HOSTILE,
    )
    hostile = replace(hostile, options={HOSTILE: HOSTILE, "__proto__": {"id": HOSTILE}, "constructor": HOSTILE})
    return [
        *passed,
        skipped,
        failing(artefacts={"ptx": "a.ptx"}),
        hostile,
        sweep("64x64", 5.0),
        sweep("128x64", 4.0, 8),
    ]


def many_records(count: int = 20_000) -> list[CaseRecord]:
    kernels, targets = [f"kernel_{n}" for n in range(40)], ["sm_80", "sm_90", "sm_100", "gfx942", "gfx950"]
    checks = [f"numerics/fill-{n}" for n in range(6)]
    return [
        CaseRecord(
            f"test_gemm.py::test_shapes[{kernels[n % 40]}-bf16-128x128x64-s{n % 5}-w8-case={n:05d}-{targets[n % 5]}]",
            f"suite_{n % 12}",
            Status.FAIL if n % 97 == 0 else Status.NOT_RUN if n % 11 == 0 else Status.PASS,
            kernel=kernels[n % 40],
            target=targets[n % 5],
            config={"id": f"128x128x64-s{n % 5}-w8", "block_m": 128},
            durations={"total": n / 1000},
            verdicts=tuple(Verdict(check, True, f"{n} elements", {"wrong": 0, "total": n}) for check in checks),
            diagnosis=f"{n} elements are wrong" if n % 97 == 0 else "",
            repro=f"python -m pytest --conformance-case {n}",
        )
        for n in range(count)
    ]


def made(folder: Path, records: list[CaseRecord], name: str = "run-1", **changes: Any) -> ReportedRun:
    """A run's folder on disk with its records."""
    info = RunInfo(
        name, "2026-01-02T03:04:05+00:00", "quick", 0, stack=STACK, selected=len(records), wall_s=9.0, **changes
    )
    write_run(folder, records, info)
    return ReportedRun(folder, Reading(tuple(records)), info)


def written(folder: Path, page: str) -> str:
    (folder / "report.html").write_text(page)
    return (folder / "report.html").as_uri()


class Reader:
    """A page as its reader uses it. What the console says and what is requested is kept."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.set_default_timeout(20_000)

    def open(self, address: str, view: str = "") -> Reader:
        self.page.goto("about:blank")  # a change of the hash alone would not load the file again
        self.page.goto(f"{address}#/{view}")
        self.page.wait_for_selector("html[data-ready]")
        return self

    def texts(self, selector: str) -> list[str]:
        return [text.strip() for text in self.page.locator(selector).all_inner_texts()]

    def hash(self) -> str:
        return str(self.page.evaluate("location.hash"))

    def wait(self, script: str, seconds: float = 20) -> None:
        """Until ``script`` is true. Playwright's own wait evaluates text in the page, which its policy refuses."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(script):
            assert time.monotonic() < end, f"never true: {script}"
            self.page.wait_for_timeout(20)
