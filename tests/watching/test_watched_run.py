"""A user's suite, unchanged, is watched: each launch has a record, and each check one that fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.records import CaseRecord, read_run
from tests.watching.conftest import watched

Watched = tuple[int, dict[str, CaseRecord]]

pytestmark = pytest.mark.long(15)  # the first of them watches the whole suite


def launch_of(records: dict[str, CaseRecord], test: str) -> CaseRecord:
    """Returns the only launch of ``test``."""
    (record,) = (record for case, record in records.items() if case.startswith(f"{test}/"))
    return record


def test_the_users_tests_keep_their_own_outcomes(whole_suite: Watched) -> None:
    status, records = whole_suite
    statuses = {case: record.status.value for case, record in records.items() if "/" not in case}
    failing = {"test_of_its_own": "fail", "test_does_not_compile": "compile-error"}
    others = {"test_graph": "not-run", "test_too_long": "not-run", "test_skipped": "not-applicable"}
    passing = {case: "pass" for case in statuses if case not in {**failing, **others}}
    assert statuses == {**passing, **failing, **others}
    assert len(passing) == 22
    assert status == 1


@pytest.mark.parametrize(
    ("test", "check", "text"),
    [
        ("test_unmasked", "memory/bounds", r"reads 28 elements out of bounds, the first 1 elements behind .*'x_ptr'"),
        ("test_everyone_stores", "races", r"program \(1, 0, 0\) changes element 1 of 'out_ptr', which program \(0"),
        ("test_reads_neighbour", "races", r"reads element 0 of 'out_ptr', which program \(0, 0, 0\) changed"),
    ],
)
def test_each_fault_of_a_launch_is_named(whole_suite: Watched, test: str, check: str, text: str) -> None:
    record = launch_of(whole_suite[1], test)
    assert record.status.value == "fail"
    assert {name for name, _ in record.failing} == {check}
    assert re.search(text, record.failing[0][1])


@pytest.mark.parametrize(
    "test", ["test_scale[100]", "test_tuned", "test_counts", "test_product", "test_scalars_and_hints"]
)
def test_a_launch_that_is_right_passes(whole_suite: Watched, test: str) -> None:
    record = launch_of(whole_suite[1], test)
    assert record.status.value == "pass", record.failing
    assert {"memory/bounds", "races", "executed/ttgir", "resources"} <= set(record.checks)
    assert record.executor == "ttgir"
    assert record.observed["code"]["features"] is not None
    assert record.observed["resources"]["shared_memory"] >= 0


def test_the_first_config_that_fits_is_taken(whole_suite: Watched) -> None:
    record = launch_of(whole_suite[1], "test_tuned")
    assert record.problem is not None
    assert record.problem["arguments"]["BLOCK"] == "=32"


def test_undefined_lanes_that_reach_a_result_are_named(whole_suite: Watched) -> None:
    records = whole_suite[1]
    reaching, others = (launch_of(records, test) for test in ("test_sums_all_lanes", "test_scale[100]"))
    texts = [next(each.text for each in one.verdicts if each.check == "undefined-lanes") for one in (reaching, others)]
    assert re.search(r"\(test_user.py:\d+\) reach element 0 of 'out_ptr': the code gives 0", texts[0])
    assert "reach no result" in texts[1]


def test_pipelined_code_runs_in_every_order(whole_suite: Watched) -> None:
    assert launch_of(whole_suite[1], "test_product").observed["ttgir"]["orders"] > 1


def test_gradients_launch_on_the_device(whole_suite: Watched) -> None:
    records = whole_suite[1]
    assert [case.partition("/")[2][:8] for case in records if case.startswith("test_gradient/")] == [
        "scale-0-",
        "scale-1-",
    ]


def compiled(records: dict[str, CaseRecord], test: str) -> set[str]:
    """Returns the names and numbers of the launches of ``test``, in which everything was compiled."""
    assert "not compiled" not in records[test].observed
    return {case.partition("/")[2][:-9] for case in records if case.startswith(f"{test}/")}


def test_kernels_that_inductor_generates_are_taken(whole_suite: Watched) -> None:
    records = whole_suite[1]
    launch = launch_of(records, "test_compiled_function")
    assert launch.kernel == "triton_poi_fused_add_gelu_mul_0"
    assert launch.status.value == "pass"
    assert "not compiled" not in records["test_compiled_function"].observed
    assert {"triton_poi_fused_mul_0-0", "triton_poi_fused_mul_0-1"} == compiled(records, "test_compiled_with_gradient")
    assert any("native_layer_norm" in kernel for kernel in compiled(records, "test_compiled_module"))
    (note,) = records["test_compiled_on_the_cpu"].observed["not compiled"]
    assert note == "ReLU ran as it is written: no tensor of the device is given to it"


def test_what_cannot_be_taken_is_said(whole_suite: Watched) -> None:
    records = whole_suite[1]
    assert "torch.cuda.CUDAGraph needs a device" in records["test_graph"].reason_detail
    assert "5000 programs: more than 4096 are not run" in records["test_too_long"].reason_detail
    assert launch_of(records, "test_too_long").status.value == "not-run"


def test_records_are_the_same_in_every_run(
    whole_suite: Watched, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, records = watched(tmp_path, "-k", "scale or of_its_own or tuned", "-n", "1", configs="all")
    assert status == 1
    tuned = [records.pop(case) for case in sorted(records) if case.startswith("test_tuned/")]
    blocks = [record.problem["arguments"]["BLOCK"] for record in tuned if record.problem]
    assert blocks == ["=32", "=64", "=32"]  # each config that fits, and then the choice
    assert records.pop("test_tuned").status.value == "pass"
    assert len(records) == 5
    for case, record in records.items():
        first = whole_suite[1][case]
        assert record.observed.get("outputs") == first.observed.get("outputs")
        assert record.checks == first.checks
        assert record.status is first.status
    info = read_run(tmp_path / "run")
    assert (info.tier, info.exit_status, info.selected) == ("watch", 1, 9)
    assert "FAILED: 1 of 9 judged cases failed" in capfd.readouterr().out


@pytest.mark.parametrize(("words", "why"), [((), ": SIGKILL ended it"), (("-n", "1"), "")])
def test_of_a_process_that_dies_one_test_is_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    status, records = watched(tmp_path, "-k", "kills or test_scale or test_of_its_own", *words)
    assert status == 1
    assert launch_of(records, "test_kills_the_process").status.value == "pass"
    crashed = records["test_kills_the_process"]
    assert crashed.status.value == "crash"
    assert crashed.diagnosis == f"pytest's process died in this test{why}"
    assert records["test_scale[100]"].status.value == "pass"
    assert records["test_of_its_own"].status.value == "fail"
    assert "FAILED: 2 of 7 judged cases failed" in capfd.readouterr().out
