"""Kernels that are written as published ones are, and right: nothing that the interpreter lacks fails their cases."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from conformance.records import CaseRecord, Status, Verdict, read_records
from tests.forked_python import executable

ROOT = Path(__file__).resolve().parents[1]
LANES = ("published_warn", "published_error", "published_off", "published_zero", "published_short")
KERNELS = ("published_numbers", "published_named", "published_broken", "published_unseen", *LANES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[CaseRecord]]:
    """The records of one run over every kernel of the package, by kernel."""
    folder = tmp_path_factory.mktemp("published")
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_"))}
    path = os.pathsep.join([str(ROOT / "tests" / "published_style"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    words = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "conformance.plugin", "--no-gpu"]
    words += [
        "--pyargs",
        "conformance.suites",
        "--tier",
        "quick",
        "--suite",
        "config_space",
        "--target",
        "sm_90",
        "--target",
        "gfx1250",
    ]
    words += ["--conformance-reruns", "0", "--run-dir", str(folder / "run"), "-k", "ragged"]
    words += [word for name in KERNELS for word in ("--kernel", name)]
    subprocess.run(
        [executable(), *words], cwd=folder, env={**inherited, "PYTHONPATH": path}, capture_output=True, check=False
    )
    records: dict[str, list[CaseRecord]] = {name: [] for name in KERNELS}
    for record in read_records(folder / "run").records:
        records[record.kernel or ""].append(record)
    reasons = {str(record.reason) for of_kernel in records.values() for record in of_kernel}
    if any("numpy" in reason for reason in reasons):
        pytest.skip(f"nothing can be judged without a device here: {reasons.pop()}")
    return records


def test_numbers_that_are_tensors_when_compiled_fail_no_case(run: dict[str, list[CaseRecord]]) -> None:
    assert run["published_numbers"]
    for record in run["published_numbers"]:
        assert record.status is Status.PASS, record.diagnosis
        assert "source" not in record.observed


def test_what_the_interpreter_alone_raises_leaves_the_executed_code(run: dict[str, list[CaseRecord]]) -> None:
    assert run["published_named"]
    for record in run["published_named"]:
        assert record.status is Status.PASS, record.diagnosis
        assert record.executor == "ttgir"
        assert "not run: the kernel raises AttributeError" in record.observed["source"]
        assert record.observed["source"].endswith("and the compiler accepts the kernel: it needs a device")


def test_what_the_compiler_refuses_too_is_a_failure_of_the_kernel(run: dict[str, list[CaseRecord]]) -> None:
    assert run["published_broken"]
    for record in run["published_broken"]:
        assert record.status is Status.FAIL
        assert "the kernel raises NameError (name 'missing_name' is not defined)" in record.diagnosis


def about_lanes(records: list[CaseRecord], target: str) -> tuple[CaseRecord, list[Verdict]]:
    """The record of the case on ``target``, and what its check of undefined lanes said."""
    (record,) = (record for record in records if record.target == target)
    return record, [verdict for verdict in record.verdicts if verdict.check == "undefined-lanes"]


def test_lanes_that_the_code_makes_zero_are_a_warning_and_hide_no_fault(run: dict[str, list[CaseRecord]]) -> None:
    record, (verdict,) = about_lanes(run["published_warn"], "sm_90")
    assert (record.status, verdict.passed, verdict.details["severity"]) == (Status.PASS, True, "warn")
    lanes, _, reached = re.sub(r"__init__.py:\d+", "LINE", verdict.text).partition(", which the mask leaves")
    assert lanes == "k 80 to 95 of a (LINE) and k 80 to 95 of b (LINE)"
    assert reached == " without a value, reach the result: the code for sm_90 gives them 0"
    record, _ = about_lanes(run["published_short"], "sm_90")
    assert record.status is Status.FAIL
    assert "nan" not in record.diagnosis.lower()
    assert "CAUSE k-block 0 of 3 (BLOCK_K=32) is skipped" in record.diagnosis


def test_the_severity_is_that_of_the_contract(run: dict[str, list[CaseRecord]]) -> None:
    record, (verdict,) = about_lanes(run["published_error"], "sm_90")
    assert (record.status, verdict.passed) == (Status.FAIL, False)
    assert [each.check for each in record.verdicts if not each.passed] == ["undefined-lanes"]
    record, verdicts = about_lanes(run["published_off"], "sm_90")
    assert (record.status, verdicts) == (Status.PASS, [])
    record, (verdict,) = about_lanes(run["published_zero"], "sm_90")
    assert (record.status, verdict.passed, "severity" in verdict.details) == (Status.PASS, True, False)


@pytest.mark.parametrize("kernel", LANES)
def test_lanes_stay_undefined_where_the_code_does_not_make_them_zero(
    run: dict[str, list[CaseRecord]], kernel: str
) -> None:
    record, (verdict,) = about_lanes(run[kernel], "gfx1250")
    assert (record.status, verdict.passed) == (Status.FAIL, False)
    assert "the code for gfx1250 gives them what shared memory held before" in verdict.text
    assert "got nan" in record.diagnosis
    assert f"CAUSE {verdict.text}" in record.diagnosis


def test_without_its_source_a_kernel_is_judged_only_if_the_code_makes_the_lanes_zero(
    run: dict[str, list[CaseRecord]],
) -> None:
    record, (verdict,) = about_lanes(run["published_unseen"], "sm_90")
    assert (record.status, record.executor, verdict.details["severity"]) == (Status.PASS, "ttgir", "warn")
    assert "may reach the result: the source was not run, and the code for sm_90 gives them 0" in verdict.text
    record, verdicts = about_lanes(run["published_unseen"], "gfx1250")
    assert (record.status, verdicts) == (Status.NOT_RUN, [])
    assert record.observed["ttgir"]["unknown"].startswith("lanes that the mask of __init__.py:")
