"""What a tier leaves out is said, and where its values are shown instead."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conformance.cases.case_table import CaseTable, Selection, cases_of
from conformance.cases.left_out import left_out
from conformance.records import ReasonCode
from conformance.suites import test_transposition
from conformance.targets import compile_targets
from tests.forked_python import executable

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("kernel", "dtype", "static")
TIERS = {
    "quick": {"mm-bf16-static=False": ("mm", "bf16", False), "mm-fp16-static=True": ("mm", "fp16", True)},
    "default": {
        "mm-bf16-static=False": ("mm", "bf16", False),
        "mm-fp16-static=False": ("mm", "fp16", False),
        "mm-fp32-static=True": ("mm", "fp32", True),
        "bmm-bf16-static=True": ("bmm", "bf16", True),
    },
}


class Table:
    def table(self, selection, arguments):
        return CaseTable(NAMES, TIERS.get(selection.tier, {}))


def test_the_reason_names_the_closest_case_and_what_differs():
    reasons = left_out(Table(), Selection((), "quick"), NAMES)
    assert all(reason.code is ReasonCode.TIER and reason.subject == "quick" for reason in reasons.values())
    assert {case: reason.detail for case, reason in reasons.items()} == {
        "mm-fp16-static=False": "closest is [mm-bf16-static=False], which differs in dtype",
        "mm-fp32-static=True": "closest is [mm-fp16-static=True], which differs in dtype; "
        "no case of the tier has its dtype",
        "bmm-bf16-static=True": "the tier has no case of this test with this kernel",
    }


def test_the_largest_tier_leaves_nothing_out():
    assert left_out(Table(), Selection((), "exhaustive"), NAMES) == {}


@pytest.mark.parametrize("kernels", [("mm",), ("mm", "baddbmm")])
def test_a_suite_names_all_of_the_default_tier(kernels):
    cases = cases_of(test_transposition.test_transposed_operands)
    arguments = ("kernel", "target", "dtype", "config", "order", "static")
    quick = Selection(compile_targets(), "quick", kernels)
    held = {tier: set(cases.table(Selection(quick.targets, tier, kernels), arguments).rows) for tier in TIERS}
    reasons = left_out(cases, quick, arguments)
    assert set(reasons) == held["default"] - held["quick"]
    assert all(reason.detail.partition("[")[2].partition("]")[0] in held["quick"] for reason in reasons.values())


def test_the_command_prints_ids_and_reasons(tmp_path):
    command = [executable(), "-m", "conformance", "list", "--no-gpu", "--tier", "quick", "--suite", "split_k"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [*command, "--left-out"], capture_output=True, text=True, cwd=tmp_path, env=environment, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) > 50
    assert all(line.startswith("test_split_k.py::test_s") for line in lines)
    assert all("]: tier (quick): closest is [" in line for line in lines)
