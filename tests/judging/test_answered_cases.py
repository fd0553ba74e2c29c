"""A kernel answers about the plan of each of its cases: those that it refuses are counted apart."""

from __future__ import annotations

import pytest

from conformance import targets
from conformance.cases.case_table import Selection
from conformance.cases.lookup import case_ids
from conformance.judging import asked_cases
from conformance.kernels.catalogue import get
from conformance.kernels.gemm import PointerGemm
from conformance.records import Reason, ReasonCode

SELECTION = Selection((targets.find("sm_90"),), "default", ("mm_fp64",), asked_for_targets=True)
ACCEPTED = {"dtype": {"fp64": None}, "orders": {"row.row": None, "col.row": None}, "variant": {"host": None}}


@pytest.fixture
def refusing_columns(monkeypatch):
    """mm_fp64, as if it refused an A in column order."""
    kernel, refusal = type(get("mm_fp64")), PointerGemm.refusal

    def refuses(self, plan):
        if plan.problem.op == "mm" and plan.problem.layout_a.order == "col":
            return Reason(ReasonCode.LAYOUT, "a", "rows only")
        return refusal(self, plan)

    monkeypatch.setattr(kernel, "refusal", refuses)


def test_cases_that_a_kernel_refuses_are_counted_apart(refusing_columns):
    asked = asked_cases.asked_cases(SELECTION)
    counts = asked.accepted.total(), asked.refused.total(), asked.unasked.total()
    assert sum(counts) == len(list(case_ids(SELECTION)))
    assert asked.refused["transposition"] > 0
    assert asked.accepted["transposition"] > 0
    assert asked.unjudged(ACCEPTED) == {"orders": ["col.row"]}


def test_values_of_cases_that_are_judged_are_not_named():
    asked = asked_cases.asked_cases(SELECTION)
    assert asked.accepted["transposition"] > 0
    assert asked.unjudged(ACCEPTED).get("dtype") is None


def test_too_many_cases_are_not_asked(monkeypatch):
    monkeypatch.setattr(asked_cases, "MOST", 3)
    asked = asked_cases.asked_cases(SELECTION)
    assert (asked.accepted.total(), asked.refused.total()) == (0, 0)
    assert asked.unasked.total() == len(list(case_ids(SELECTION)))
