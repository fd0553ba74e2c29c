"""Cases that a tier leaves out are listed, and where their values are shown instead."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.cases.case_table import CaseTable, Selection, cases_of
from conformance.cases.left_out import left_out, why
from conformance.records import ReasonCode
from conformance.suites import test_transposition
from conformance.targets import compile_targets, find
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


CASES = cases_of(test_transposition.test_transposed_operands)
ARGUMENTS = ("kernel", "target", "dtype", "config", "order", "static")
TEST = "test_transposition.py::test_transposed_operands"


@pytest.mark.parametrize("tier", ["quick", "default"])
def test_why_says_the_rule_of_a_case_that_the_tier_has_and_of_one_that_it_has_not(tier):
    selection = Selection(compile_targets(), tier, ("mm",))
    has, all_of_them = (CASES.table(replace(selection, tier=one), ARGUMENTS).rows for one in (tier, "full"))
    inside, outside = next(iter(has)), next(case for case in all_of_them if case not in has)
    line = why(f"{TEST}[{inside}]", replace(selection, kernels=()))
    assert line.startswith(f"in the {tier} tier: mm has weight 3: ")
    line = why(f"{TEST}[{outside}]", selection)
    assert line.startswith(f"not in the {tier} tier: mm has weight 3: ")
    assert line.split("closest is [")[1].split("]")[0] in has
    assert "\n" not in line


def test_why_knows_the_other_reasons():
    quick, alone = Selection(compile_targets(), "quick"), Selection((find("sm_90"),), "quick")
    full = CASES.table(replace(quick, tier="full", kernels=("bmm", "mm")), ARGUMENTS).rows
    bmm = next(case for case in full if case.startswith("bmm-"))
    assert "others of weight 1 stand for it" in why(f"{TEST}[{bmm}]", quick)
    ampere = next(case for case in full if case.startswith("mm-") and case.endswith("-sm_80"))
    assert why(f"{TEST}[{ampere}]", alone).startswith("not in a run of sm_90: its target is sm_80")
    assert why("test_config_space.py::test_refusals_of_examples[gemm]", quick).startswith("in the quick tier")
    with pytest.raises(KeyError):
        why(f"{TEST}[{bmm.replace('bmm-', 'bmm-bf61-')}]", quick)
