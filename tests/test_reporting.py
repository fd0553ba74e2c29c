"""Reports say what the records say."""

from __future__ import annotations

import dataclasses
import json

import expecttest

from conformance.records import CaseRecord, Reason, ReasonCode, RunInfo, Status, Verdict
from conformance.reporting.summary import Tally, is_verified
from conformance.reporting.summary_text import digest, render_markdown
from conformance.reporting.text import clean, markdown_table, text_table

RUN = RunInfo(
    id="20260102-030405-beef",
    started="2026-01-02T03:04:05+00:00",
    tier="quick",
    seed=0,
    workers=2,
    gpus=("0",),
    stack={"torch": "2.11", "triton": "3.6.0", "driver": None},
    selected=5,
    wall_s=4.0,
    problems=("1 selected but not recorded: test_a.py::test_lost",),
)
JUDGED = {
    "executor": "device",
    "problem": {"id": "mm-5x5x5", "M": 5, "N": 5, "K": 5},
    "config": {"id": "4x4x4", "block_m": 4, "block_n": 4},
    "verdicts": (Verdict("numerics/randn", True), Verdict("numerics/special", True)),
    "observed": {"complete": True, "tiles": (2, 2)},
}


def record(case: str, status: Status, kernel: str, worker: str, seconds: float, **fields: object) -> CaseRecord:
    suite, durations = case[len("test_")], {"total": seconds}
    return CaseRecord(case, suite, status, kernel=kernel, worker=worker, durations=durations, **fields)


RECORDS = (
    record("test_a.py::test_x[1]", Status.PASS, "mm", "gw0", 1.5, gpu="0", **JUDGED),
    record("test_a.py::test_x[2]", Status.PASS, "mm", "gw1", 0.25, gpu="0", **JUDGED),
    record(
        "test_b.py::test_y", Status.NOT_RUN, "mm", "gw1", 0.5, reason=Reason(ReasonCode.NO_DEVICE, "device", "none")
    ),
    record(
        "test_b.py::test_z|",
        Status.FAIL,
        "scaled_mm",
        "gw0",
        2.0,
        gpu="0",
        verdicts=(Verdict("memory", False, "guard overwritten"),),
        diagnosis="tile (0, 1)\nk-block 2 skipped \x1b[31m",
        repro="python -m pytest x",
    ),
)


def summarise(records, run):
    tally = Tally()
    for record in records:
        tally.add(record)
    return tally.summary(run)


def test_a_summary_counts_what_was_run_of_compiled_kernels():
    def with_ttgir(number, status=Status.PASS, executed=True, **ttgir):
        verdicts = (Verdict("memory", True), Verdict("executed/ttgir", status is Status.PASS))[: 1 + executed]
        fields = {
            "observed": {"ttgir": ttgir},
            "verdicts": verdicts,
            "executor": "ttgir" if executed else "interpreter",
        }
        return record(f"test_a.py::test_x[{number}]", status, "mm", "gw0", 1.0, **fields)

    records = [
        with_ttgir(1, orders=3, fills=2, layouts="checked"),
        with_ttgir(2, orders=3, fills=2, layouts="not known: #ttg.spiral"),
        with_ttgir(3, executed=False, unknown="ttg.twist", layouts="checked"),
    ]
    text = render_markdown(summarise(records, RUN))
    assert "| TTGIR run | of 2 cases, with layouts checked of 2; not run: 1 with ttg.twist |" in text
    assert "proven by: device 0, TTGIR 2, interpreter 1 (source only: no compiled code was run)" in text
    wrong = render_markdown(summarise([with_ttgir(1, Status.FAIL, orders=3, fills=2, layouts="checked")], RUN))
    assert "| TTGIR run | of 1 cases, wrong in 1, with layouts checked of 1 |" in wrong
    assert "proven by" not in wrong


def test_a_summary_counts_the_code_whose_order_is_not_known():
    observed = {"order": {"unknown": {"fence": "the size of a box"}}}
    cases = [
        CaseRecord(f"test_a.py::test_x[{n}]", "a", Status.PASS, observed=observed, verdicts=(Verdict("memory", True),))
        for n in range(2)
    ]
    assert "| order not known | fence of 2 cases |" in render_markdown(summarise(cases, RUN))
    assert "order not known" not in render_markdown(summarise([], RUN))


class TestSummary(expecttest.TestCase):
    maxDiff = None

    def test_markdown(self):
        self.assertExpectedInline(
            render_markdown(summarise(RECORDS, RUN)),
            """\
# Conformance run

**FAILED: 1 of 3 judged cases failed, by 1 cause; every other one passed; the run itself has 1 problem.**

**Problem:** 1 selected but not recorded: test_a.py::test_lost

- cases: 2 pass, 1 fail
- not judged: 1 not-run (no-device 1)
- proven by: device 2, TTGIR 0, interpreter 0

## Failed cases

### 1. access outside the operands in 1 case (scaled_mm): memory: guard overwritten

`test_b.py::test_z|`:

    tile (0, 1)
    k-block 2 skipped \\x1b[31m
    memory: guard overwritten
    reproduce: conformance run '--conformance-case=test_b.py::test_z|'

## By kernel

| kernel | pass | fail | not-run |
|---|---|---|---|
| mm | 2 | 0 | 1 |
| scaled_mm | 0 | 1 | 0 |
| total | 2 | 1 | 1 |

## By suite

| suite | pass | fail | not-run |
|---|---|---|---|
| a | 2 | 0 | 0 |
| b | 0 | 1 | 1 |
| total | 2 | 1 | 1 |

## Slowest cases

| case | seconds |
|---|---|
| test_b.py::test_z\\| | 2.00 |
| test_a.py::test_x[1] | 1.50 |
| test_b.py::test_y | 0.50 |
| test_a.py::test_x[2] | 0.25 |

## The run

|  |  |
|---|---|
| run | 20260102-030405-beef |
| started | 2026-01-02T03:04:05+00:00 |
| stack | torch 2.11, triton 3.6.0 |
| tier | quick |
| seed | 0 |
| targets | default |
| workers | 2 |
| GPUs | 0 |
| rate | 0.50 verified cases per second: 2 in 4.0 s (passed, every fill, at least 2 x 2 tiles) |
| busy by worker | gw0 3.5 s, gw1 0.8 s |
| busy by GPU | 0 3.8 s |
""",
        )

    def test_digest(self):
        self.assertExpectedInline(
            json.dumps(digest(RECORDS), indent=1),
            """\
{
 "schema": 4,
 "cases": 4,
 "verified": 2,
 "statuses": {
  "pass": 2,
  "fail": 1,
  "not-run": 1
 },
 "proven_by": {
  "device": 2,
  "TTGIR": 0,
  "interpreter": 0,
  "compiled only": 0,
  "no kernel": 0
 },
 "kernels": {
  "mm": {
   "pass": 2,
   "not-run": 1
  },
  "scaled_mm": {
   "fail": 1
  }
 },
 "suites": {
  "a": {
   "pass": 2
  },
  "b": {
   "fail": 1,
   "not-run": 1
  }
 },
 "targets": {
  "(none)": {
   "pass": 2,
   "fail": 1,
   "not-run": 1
  }
 },
 "stacks": [
  ""
 ],
 "sha256": "250ef3dd811da2e4e31826994ff6bc410a2e4f1ff52ded8e7bd30c0198f0d3d3"
}""",
        )


def test_digest_does_not_depend_on_order_or_time():
    slower = [dataclasses.replace(record, durations={"total": 99.0}) for record in reversed(RECORDS)]
    assert digest(slower) == digest(RECORDS)
    other = [*RECORDS[1:], dataclasses.replace(RECORDS[0], status=Status.FAIL)]
    assert digest(other)["sha256"] != digest(RECORDS)["sha256"]


def test_only_passes_of_several_tiles_judged_by_every_fill_are_verified():
    good = RECORDS[0]
    assert is_verified(good)
    assert not is_verified(dataclasses.replace(good, status=Status.FAIL))
    assert not is_verified(dataclasses.replace(good, observed={})), "a record of an older version"
    for unverified in ({"complete": False}, {"complete": "yes"}, {"tiles": (1, 2)}, {"tiles": ()}, {"tiles": "22"}):
        assert not is_verified(dataclasses.replace(good, observed={**good.observed, **unverified})), unverified


def test_text_from_records_cannot_steer_the_terminal():
    assert clean("a\x1b]0;title\x07\r\n\tb\u202e") == "a\\x1b]0;title\\x07\\x0d\n\tb\\x202e"


def test_tables():
    rows = [["name", "n"], ["a|b", "12"]]
    assert text_table(rows) == "name   n\na|b   12"
    assert markdown_table(rows) == "| name | n |\n|---|---|\n| a\\|b | 12 |"
