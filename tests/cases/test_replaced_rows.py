"""Rows of a tier that a third-party kernel refuses are replaced by rows that it takes, if there are any."""

from __future__ import annotations

import itertools

import pytest

from conformance import targets
from conformance.cases import replaced_rows, tier_rows
from conformance.cases.asked_tests import answer
from conformance.cases.case_table import Selection
from conformance.cases.lookup import CaseLookup, case_ids
from conformance.cases.replaced_rows import Replacement
from conformance.kernels.catalogue import get
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.refusal_rules import objection
from conformance.records import Reason, ReasonCode

COLUMNS = {"dtype": ["bf16", "fp16"], "config": [1, 2], "order": ["row", "col"], "static": [False, True]}
ALL = list(itertools.product(*COLUMNS.values()))


def replaced(rows, takes, possible=lambda row: True):
    asked = []

    def counted(row):
        asked.append(row)
        return takes(row)

    return Replacement()(rows, COLUMNS, counted, possible), asked


def test_rows_that_are_taken_stay_and_are_asked_once():
    rows = ALL[::3]
    assert replaced(rows, lambda row: True) == (rows, rows)


def test_a_refused_row_is_replaced_by_one_that_shows_more():
    rows = [("bf16", 1, "row", False), ("bf16", 1, "col", True)]
    new, _ = replaced(rows, lambda row: not row[3])
    assert new[0] == rows[0]
    assert new[1] not in rows
    assert not new[1][3]
    assert new[1][2] == "col" or new[1][:2] != ("bf16", 1)


def test_every_value_that_is_taken_has_a_row():
    rows = [("bf16", 1, "row", True), ("bf16", 2, "col", True), ("fp16", 1, "row", False), ("fp16", 2, "row", True)]
    new, _ = replaced(rows, lambda row: not row[3] and row[:2] != ("fp16", 2))
    values = {value for row in new for value in row if not row[3]}
    assert {"bf16", "fp16", 1, 2, "row", "col"} <= values


def test_a_row_without_another_stays():
    rows = [("bf16", 1, "row", False)]
    new, asked = replaced(rows, lambda row: False)
    assert new == rows
    assert 1 < len(asked) <= 1 + replaced_rows.TRIED


def test_only_possible_rows_take_a_place():
    rows = [("bf16", 1, "row", True)]
    new, asked = replaced(rows, lambda row: not row[3], lambda row: row[:2] == ("bf16", 1))
    assert new == [("bf16", 1, "row", False)] or new == [("bf16", 1, "col", False)]
    assert {row[:2] for row in asked} == {("bf16", 1)}


def test_a_value_that_is_always_refused_is_given_up():
    columns = {"name": list(range(9)), "static": [True, False]}
    replacement, asked = Replacement(), []

    def takes(row):
        asked.append(row)
        return not row[1]

    rows = [(name, True) for name in range(8)] + [(8, False)]
    new = replacement(rows, columns, takes, lambda row: True)
    assert all(not static for _, static in new)
    assert len(asked) <= len(rows) + 8


@pytest.fixture
def refusing_columns(monkeypatch):
    """mm_fp64 as a third-party kernel that refuses an A in column order."""
    kernel, refusal = type(get("mm_fp64")), PointerGemm.refusal

    def refuses(self, plan):
        if plan.problem.op == "mm" and plan.problem.layout_a.order == "col":
            return Reason(ReasonCode.LAYOUT, "a", "rows only")
        return refusal(self, plan)

    monkeypatch.setattr(kernel, "refusal", refuses)
    monkeypatch.setattr(tier_rows, "objection", lambda *refusal: None)
    monkeypatch.setattr(tier_rows, "is_own", lambda kernel: kernel.name != "mm_fp64")


def refused(tier):
    """The cases of transposition that the kernel refuses, and all that it has there."""
    selection = Selection((targets.find("sm_90"),), tier, ("mm_fp64",), asked_for_targets=True)
    lookup, cases = CaseLookup(selection.targets), list(case_ids(selection, ["transposition"]))
    answers = [answer(lookup(case).test, lookup(case).values, selection) for case in cases]
    return [case for case, given in zip(cases, answers, strict=True) if given and given.reason], cases


def test_no_case_is_refused_where_others_are_taken(refusing_columns):
    wrong, cases = refused("quick")
    assert cases
    assert not wrong
    assert any("order=row.row" in case for case in cases)


def test_every_row_that_is_taken_is_there_before_one_is_refused(refusing_columns):
    """The default tier has every order with a config: nothing can take the place of a refused row."""
    wrong, cases = refused("default")
    orders = {order: sum(f"order={order}" in case for case in cases) for order in ("row.row", "row.col", "col.row")}
    assert orders["row.row"] == orders["row.col"] >= orders["col.row"]
    assert all("order=col" in case for case in wrong)


def test_a_refusal_that_no_rule_justifies_stays_a_case(refusing_columns, monkeypatch):
    """By its limits the kernel takes every order: its case must fail, and not go."""
    monkeypatch.setattr(tier_rows, "objection", objection)
    wrong, _ = refused("default")
    assert wrong


def test_a_kernel_of_this_package_keeps_its_rows(refusing_columns, monkeypatch):
    monkeypatch.setattr(tier_rows, "is_own", lambda kernel: True)
    wrong, _ = refused("default")
    assert wrong
