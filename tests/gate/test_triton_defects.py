"""Defects of Triton that suites carry: which cases are expected to fail with which release, and that they do."""

from __future__ import annotations

import os
from importlib.metadata import version

import pytest

from conformance import codegen_checks
from conformance.cases.case_table import Selection
from conformance.cases.lookup import case_ids
from conformance.execution.compile.compilation import CompilePool
from conformance.judging.planner import plan_cases
from conformance.judging.settings import Settings
from conformance.kernels import catalogue
from conformance.machine.gpus import Gpus
from conformance.records import CaseRecord, Status
from conformance.targets import compile_targets, find
from conformance.user_files.case_list import Ids
from conformance.user_files.expected_failures import ExpectedFailures, read_expected_failures

#: The suites with such cases, and beginnings of the entries' ids.
SUITES = ("matrix_units", "warp_specialization", "tma_store", "transposition")
ENTRIES = ("triton-nested-", "triton-specialised-", "triton-int8-")
KNOWN = [entry for entry in read_expected_failures().entries if entry.id.startswith(ENTRIES)]

#: Releases that were measured: the orders in which tf32 products fail, with a flattened loop and with a nested one.
ALL = {"row.row", "row.col", "col.row", "col.col"}
TF32 = {
    "3.4.0": ({"col.row", "col.col"}, ALL),
    "3.6.0": (set(), ALL),
    "3.7.1": ({"row.row", "col.row", "col.col"}, {"col.row"}),
    "3.8.0": (set(), set()),
    "3.9.0": (set(), set()),
}
#: Those that fail on every nested loop, and on int8 products that do not say in which dtype they are summed.
NO_NESTED_LOOP, NO_IMPLIED_DTYPE = {"3.4.0", "3.6.0"}, {"3.6.0", "3.7.1"}


def expecting(record):
    return [entry for entry in KNOWN if entry.concerns(record)]


def failed(case, release):
    """The record of a case that failed with a release of Triton."""
    return CaseRecord(case, "x", Status.FAIL, target=case.rstrip("]").rpartition("-")[2], stack={"triton": release})


def measured(case, release):
    """Returns True if the case failed when it was measured."""
    flattened, nested = TF32[release]
    order = case.partition("order=")[2][:7]
    if "_blackwell_ws-" in case and "flatten=False" in case:
        return release in NO_NESTED_LOOP or ("operands=tf32" in case and order in nested)
    return ("operands=tf32" in case and order in flattened) or ("test_int8[" in case and release in NO_IMPLIED_DTYPE)


@pytest.fixture(scope="module")
def full():
    """The ids of the suites' cases in the full tier."""
    return list(case_ids(Selection(tuple(compile_targets()), "full"), SUITES))


@pytest.mark.parametrize("release", TF32)
def test_as_many_entries_as_defects(full, release):
    assert [case for case in full if len(expecting(failed(case, release))) != measured(case, release)] == []


@pytest.mark.parametrize("entry", KNOWN, ids=lambda entry: entry.id)
def test_an_entry_excuses_its_own_defect(full, entry):
    """Each has cases with a release that was measured; without the entry they fail, and so they do with other words."""
    cases = Ids(full).matching(entry.cases)
    record = next(failed(case, release) for case in cases for release in TF32 if entry.concerns(failed(case, release)))
    failures, words = ExpectedFailures((entry,)), f"before {entry.seen} after"
    assert failures.failure(record, Status.FAIL, words).status is Status.EXPECTED_FAIL
    assert ExpectedFailures(()).failure(record, Status.FAIL, words).status is Status.FAIL
    assert failures.failure(record, Status.FAIL, "other words").status is Status.FAIL
    assert failures.success(record).status is Status.UNEXPECTED_PASS


def test_quick_has_some_of_them():
    quick = list(case_ids(Selection(tuple(compile_targets()), "quick"), SUITES))
    for release in ("3.4.0", "3.6.0", "3.7.1"):
        assert {entry.id for case in quick for entry in expecting(failed(case, release))}, release


def test_this_triton_fails_as_its_entries_say_and_nowhere_else():
    """Cases of sm_100 are compiled, and their code checked, without a look at the entries."""
    target = find("sm_100")
    selection = Selection((target,), "full", ("int_mm", "mm_blackwell_ws"), asked_for_targets=True)
    texts = (
        "::test_int8[int_mm-int8-64x64x32-",
        "tile=64x64",
        "test_nested_loops[mm_blackwell_ws-bf16-128x128x64-s5-w4",
    )
    cases = [case for case in case_ids(selection, SUITES) if any(text in case for text in texts)]
    settings = Settings("full", ("sm_100",), (), (), 0, None, Gpus(), None, 60.0, (), ExpectedFailures())
    plans = plan_cases((settings, selection, tuple(cases)), target)
    assert len(plans) > 16
    with CompilePool(int(os.environ.get("CONFORMANCE_TEST_WORKERS", "2")), 240) as pool:
        futures = {case: (planned.request, pool.submit(planned.request)) for case, (planned,) in plans.items()}
        failures = {case: failure(request, future.result()) for case, (request, future) in futures.items()}
    for case, text in failures.items():
        entries = expecting(failed(case, version("triton")))
        assert bool(text) == bool(entries), (case, text[-1000:])
        assert all(entry.seen in text for entry in entries), (case, text[-4000:])


def failure(request, result):
    """Returns the reason why a compilation failed, or what its code lacks; empty if nothing is wrong."""
    if result.artefact is None:
        return result.error
    plan, _ = request.payload
    features = catalogue.get(plan.kernel).features(plan)
    verdicts = codegen_checks.check(result.artefact, request.target, features.required, features.forbidden)
    return "\n".join(verdict.text for verdict in verdicts if not verdict.passed)
