"""Packages outside the tree add a kernel, a target and a family of problems by entry points; the suites judge them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.records import CaseRecord, Status, read_records, read_run
from tests.forked_python import executable

HERE = Path(__file__).parent
ROOT = HERE.parent

#: What the tests run of the suites of products, and of the suites that take kernels of every family.
PRODUCTS = ("--suite", "transposition", "--suite", "dynamic_shapes", "-k", "transposed or awkward")
EVERY_FAMILY = ("--suite", "config_space", "--suite", "random_problems")


def _python(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python in ``folder`` with the vendor's package installed next to ours."""
    path = os.pathsep.join([str(HERE / "bring_your_own"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_INTERPRET"))
    }
    command, variables = [executable(), *arguments], {**inherited, "PYTHONPATH": path, **environment}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def _run(folder: Path, kernel: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The suites with one kernel, for the vendor's target."""
    command = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "conformance.plugin"]
    command += ["--conformance-reruns", "0"]
    command += ["--pyargs", "conformance.suites", "--no-gpu", "--tier", "quick", "--kernel", kernel]
    command += ["--target", "sm_86", *options, "--run-dir", str(folder)]
    return _python(folder.parent, *command, **environment)


def _records(folder: Path) -> tuple[CaseRecord, ...]:
    records = read_records(folder).records
    reasons = {str(record.reason) for record in records if record.status is Status.NOT_RUN}
    if reasons:
        pytest.skip(f"nothing can be judged without a device here: {reasons.pop()}")
    return records


def test_kernel_and_target_from_elsewhere_are_judged(tmp_path):
    done = _run(tmp_path / "run", "vendor_mm", *PRODUCTS)
    records = _records(tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {record.kernel for record in records} == {"vendor_mm"}
    assert {record.target for record in records} == {"sm_86"}
    assert {record.status for record in records} == {Status.PASS}
    checks = {verdict.check for record in records for verdict in record.verdicts}
    assert {"numerics/transparent", "numerics/randn", "memory", "grid", "codegen/requires/POINTER_STORE"} <= checks
    assert "codegen/requires/VENDOR_MASKED_STORE" in checks
    assert "VENDOR_MASKED_STORE" in records[0].observed["code"]["features"]
    (declared,) = read_run(tmp_path / "run").declared.items()
    assert declared[0] == "vendor_mm"
    assert declared[1].by.startswith("entry point 'vendor_mm'")
    assert declared[1].thresholds == {"MORE_SPILLS": {"regression_bytes": 128}}


KNOWN = """
[[expected_failure]]
id = "vendor-skips"
cases = "{cases}"
stack = {{ triton = ">=3" }}
seen = "{seen}"
upstream = "https://example.org/1"
owner = "vendor"
expires = 2099-01-01
checks = ["*"]
"""


@pytest.mark.parametrize(
    ("cases", "seen", "statuses"),
    [
        ("*[vendor_mm-*", "numerics/transparent", {Status.EXPECTED_FAIL}),
        ("*[vendor_mm-*", "another defect", {Status.FAIL}),
        ("*[mm-*", "numerics/transparent", set()),
    ],
    ids=["its own", "another failure", "of another kernel"],
)
def test_a_kernel_from_elsewhere_brings_its_known_defects(tmp_path, cases, seen, statuses):
    (tmp_path / "known.toml").write_text(KNOWN.format(cases=cases, seen=seen))
    variables = {"VENDOR_SKIPPED_BLOCKS": "1", "VENDOR_EXPECTED": str(tmp_path / "known.toml")}
    done = _run(
        tmp_path / "run", "vendor_mm", "--suite", "transposition", "-k", "row.row and static=False", **variables
    )
    if not statuses:
        assert done.returncode == pytest.ExitCode.USAGE_ERROR
        assert "a pattern with '[vendor_mm-' is required" in done.stderr
        return
    records = _records(tmp_path / "run")
    assert {record.status for record in records} == statuses
    caught = {verdict.check for record in records for verdict in record.verdicts if not verdict.passed}
    assert "numerics/transparent" in caught, json.dumps(sorted(caught))
    (entry,) = read_run(tmp_path / "run").declared["vendor_mm"].expected_failures
    assert (entry["id"], entry["cases"], entry["expires"]) == ("vendor-skips", cases, "2099-01-01")
    assert done.returncode == (Status.FAIL in statuses), done.stdout[-2000:]


def test_kernels_from_elsewhere_move_no_case_of_ours(tmp_path):
    command = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "conformance.plugin"]
    command += ["--pyargs", "conformance.suites", "--no-gpu", "--tier", "quick"]
    command += ["--target", "sm_80", "--target", "sm_90", "--target", "sm_100"]  # the package adds one, too
    command += ["--suite", "config_space", "--suite", "strided_operands", "--suite", "zero_size"]
    beside = _python(tmp_path, *command).stdout.splitlines()
    alone = _python(tmp_path, *command, PYTHONPATH=str(ROOT)).stdout.splitlines()
    ours = [line for line in beside if "::" in line and "vendor_mm" not in line and "scaled_rows" not in line]
    assert len(ours) < len([line for line in beside if "::" in line])
    assert ours == [line for line in alone if "::" in line]


def test_family_from_elsewhere_is_judged(tmp_path):
    """The sweep takes the family's own shapes and fills, random problems are drawn from its examples."""
    done = _run(tmp_path / "run", "scaled_rows", *EVERY_FAMILY)
    records = _records(tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {record.status for record in records} == {Status.PASS}
    assert {record.suite for record in records} == {"config_space", "random_problems"}
    assert all("numerics/distinct" in {verdict.check for verdict in record.verdicts} for record in records)
    shapes = {record.case.partition("shape=")[2].rpartition("-")[0] for record in records if "shape=" in record.case}
    assert shapes == {"one-row", "three-blocks"}


def test_wrong_kernel_of_a_family_from_elsewhere_is_caught(tmp_path):
    done = _run(tmp_path / "run", "scaled_rows", *EVERY_FAMILY, VENDOR_SKIPPED_COLUMNS="1")
    records = _records(tmp_path / "run")
    assert done.returncode == 1, done.stdout + done.stderr
    assert {record.status for record in records} == {Status.FAIL}


def test_device_class_from_elsewhere_has_tables_of_its_own(tmp_path):
    """The vendor's rows for plain products, our rows for the rest, and our own tables as they were."""
    code = """
from conformance.heuristics import lookup
from conformance.targets import Target, find
device = lookup.for_target(find("sm_86"))
print(device.name, *(config.id for config in device.table("mm")), device.table("conv") == lookup.CUDA.table("conv"))
print(lookup.for_target(Target("cuda", 86, 32)).name, len(lookup.CUDA.table("mm")))
"""
    done = _python(tmp_path, "-c", code)
    assert done.stdout.splitlines() == ["vendor 32x32x32-s2-w4 True", "cuda 19"], done.stderr


@pytest.mark.parametrize(("kind", "guide"), [("kernels", "kernel.md"), ("targets", "device.md")])
def test_entry_point_groups_are_those_of_the_guides(kind, guide):
    assert f"conformance.{kind}" in (ROOT / "docs" / guide).read_text()


def test_a_kernel_module_of_this_tree_needs_no_line_elsewhere(tmp_path, monkeypatch):
    """The catalogue finds it, and puts it behind the modules whose order is written down."""
    from conformance import kernels
    from conformance.kernels import catalogue

    text = "import copy\nfrom conformance.kernels import attention\nKERNELS = (copy.copy(attention.KERNELS[0]),)\n"
    (tmp_path / "added.py").write_text(text + "KERNELS[0].name = 'added'\n")
    before = list(catalogue.own_kernels())
    monkeypatch.setattr(kernels, "__path__", [*kernels.__path__, str(tmp_path)])
    try:
        assert list(catalogue.own_kernels.__wrapped__()) == [*before, "added"]
    finally:
        sys.modules.pop("conformance.kernels.added", None)
