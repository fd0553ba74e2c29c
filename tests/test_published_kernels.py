"""Kernels that are written as published ones are, and right: nothing that the interpreter lacks fails their cases."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conformance.records import CaseRecord, Status, read_records
from tests.forked_python import executable

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ("published_numbers", "published_named", "published_broken")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[CaseRecord]]:
    """The records of one run over every kernel of the package, by kernel."""
    folder = tmp_path_factory.mktemp("published")
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_"))}
    path = os.pathsep.join([str(ROOT / "tests" / "published_style"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    words = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "conformance.plugin", "--no-gpu"]
    words += ["--pyargs", "conformance.suites", "--tier", "quick", "--suite", "config_space", "--target", "sm_90"]
    words += ["--conformance-reruns", "0", "--run-dir", str(folder / "run"), "-k", "ragged or several-tiles"]
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
