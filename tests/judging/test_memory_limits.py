"""The compiled code tells what does not fit a target: rows that fit are judged whatever the kernel estimates."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.judging import conform
from conformance.judging.case_recorder import CaseEnded, CaseRecorder
from conformance.records import jsonable, read_records
from conformance.targets import find
from tests.forked_python import executable

ROOT = Path(__file__).resolve().parents[2]
#: A row of mm for Hopper and one for gfx942, both past the limit by estimate.
PAST, FITS = "[mm-tf32-128x128x64-s5-w8", "[mm-fp32-64x64x128-s2-w8"
SHAPES = 4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """Returns the output of a sweep over the two rows, with its summary, and its records by row."""
    folder = tmp_path_factory.mktemp("run") / "records"
    targets = [f"--target={target}" for target in ("sm_90", "gfx942")]
    words = ["--tier=full", "--suite=config_space", "--kernel=mm", *targets, "--no-gpu", "-n1", "-q"]
    # torch's own tables may have the second row with another kpack
    rows = f"shape and ((sm_90 and {PAST[1:]}) or (gfx942 and kpack2 and {FITS[1:]}))"
    command = [executable(), "-m", "pytest", "conformance/suites", *words, "-k", rows, f"--run-dir={folder}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    cases = [jsonable(record) for record in read_records(folder).records]
    output = done.stdout + (folder / "summary.md").read_text()
    return output, {row: [one for one in cases if row in one["case"]] for row in (PAST, FITS)}


def test_code_that_does_not_fit_is_not_applicable_with_what_it_needs(run):
    output, records = run
    assert len(records[PAST]) == SHAPES, output
    needs = {one["observed"]["resources"]["shared_memory"] for one in records[PAST]}
    (needed,) = needs
    assert needed > 232448
    for one in records[PAST]:
        assert (one["status"], one["reason"]["code"]) == ("not-applicable", "shared-memory")
        assert f"shared memory: {needed} bytes per block, sm_90 has 232448" in one["reason"]["detail"]
    others = [one["reason"]["detail"] for one in records[PAST] if "shape=ragged" not in one["case"]]
    assert all("; as measured for mm-" in detail for detail in others), "one compilation tells for all shapes"


def test_code_that_fits_is_judged_though_the_estimate_does_not(run):
    output, records = run
    assert len(records[FITS]) == SHAPES, output
    for one in records[FITS]:
        assert one["status"] == "pass"
        assert (
            one["observed"]["resources"]["shared_memory"] <= 65536 < one["observed"]["shared_memory_estimate"]["kernel"]
        )


def test_a_row_past_the_limit_is_compiled_once(run):
    output, records = run
    kernels = 1 + len({one["observed"]["code"]["sha256"] for one in records[FITS]})
    assert f"| compile stage | {kernels} kernels" in output
    assert "the compile stage" not in output, "nothing was missed or compiled without use"


@pytest.mark.parametrize(
    ("shared", "columns", "says"),
    [
        (300_000, 0, "shared memory: 300000 bytes per block, sm_100 has"),
        (100_000, 1024, "tensor memory: 1024 columns, sm_100 has 512"),
        (100_000, 512, None),
    ],
)
def test_a_launch_beside_the_main_one_that_does_not_fit_is_passed_over(monkeypatch, shared, columns, says):
    def uses(shared, columns):
        return SimpleNamespace(resources=SimpleNamespace(shared_memory=shared, tensor_memory=columns))

    monkeypatch.setattr(conform.CaseJudge, "_record_code", lambda *_: None)
    plan = SimpleNamespace(target=find("sm_100"), config=SimpleNamespace(id="row"), kernel="mm")
    compiled = conform.CompiledPlan(uses(1024, 0), {"smaller": uses(shared, columns), "larger": uses(200_000, 0)})
    judge = conform.CaseJudge(None, CaseRecorder("case"), None, plan, compiled=compiled)
    if says is None:
        judge.pass_over()
        return
    with pytest.raises(CaseEnded, match=says):
        judge.pass_over()
