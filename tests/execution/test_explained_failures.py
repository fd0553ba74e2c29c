"""Faults of memory, stores and the grid become a cause; right numbers have none."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from conformance import targets
from conformance.execution.trial.explained_failures import explain
from conformance.families.gemm.problem import bmm, mm
from conformance.heuristics.configs import Config
from conformance.inputs.fills import fills
from conformance.kernels import catalogue
from conformance.numerics.contract import FMA, Contract
from conformance.numerics.fill import Seen
from conformance.numerics.rounding import round_to
from conformance.problems import Layout

CONTRACT = Contract("fp16", FMA)
PROBLEM = mm(40, 56, 40, layout_a=Layout(pad=8))


def plan_of(problem):
    kernel = catalogue.get("bmm" if problem.batch else "mm")
    return kernel.plan(problem, Config(32, 32, 16, 2, 4), targets.find("sm_90"))


def explained(disturbed=(), grid=None, problem=PROBLEM, seen=(), failed=("memory/transparent",)):
    plan = plan_of(problem)
    return explain(plan, CONTRACT, seen, disturbed, grid or plan.grid, failed)


FAR = "tiles.py:56: program (0, 1, 0) loads 3 elements outside the operands, one of them"
TEXTS = {
    f"{FAR} 40 behind the first element of 'a', between its elements": (
        "a is read outside its elements: index 40 of dimension 1, which has 40, by program (0, 1, 0) at tiles.py:56"
    ),
    f"{FAR} 9 behind the last element of 'b'": (
        "b is read 9 elements behind the last element, by program (0, 1, 0) at tiles.py:56"
    ),
    f"{FAR} 3 before the first element of 'a'": (
        "a is read 3 elements before the first element, by program (0, 1, 0) at tiles.py:56"
    ),
    f"{FAR} {2**45} before the first element of 'a'": "memory that is no operand's is read, by program (0, 1, 0)",
    "tiles.py:128: program (1, 0, 0) stores 4 elements of 'out' again: program (0, 0, 0) has stored element 3": (
        "elements of out are stored by program (0, 0, 0) and by program (1, 0, 0)"
    ),
    "64 bytes changed behind 'out', first at element offset 2240": "memory outside the result is written",
}


@pytest.mark.parametrize("text", TEXTS)
def test_what_memory_shows_is_a_cause(text):
    assert explained([text]).startswith(f"FAIL memory/transparent | CAUSE {TEXTS[text]}")


def test_an_operand_is_named_only_if_every_run_tells_the_same():
    """An address far from its operand lies near another one, and in each run near another."""
    line = (
        "tiles.py:38 (called at attention.py:91): program (0, 0, 0) loads 8 elements outside the operands, one of them"
    )
    first, second = f"{line} 61889 behind the last element of 'a'", f"{line} 274881 behind the last element of 'b'"
    by = "by program (0, 0, 0) at tiles.py:38 (called at attention.py:91)"
    assert explained([first, first]).endswith(f"CAUSE a is read 61889 elements behind the last element, {by}")
    assert explained([first, second]).endswith(f"CAUSE memory that is no operand's is read, {by}")


def test_a_load_near_an_output_and_a_store_near_an_operand_name_none():
    by = "by program (2, 0, 0) at tiles.py:42"
    head, tail = (
        "tiles.py:42: program (2, 0, 0)",
        "4 elements outside the operands, one of them 9 behind the last element",
    )
    assert explained([f"{head} loads {tail} of 'out'"]).endswith(f"CAUSE memory that is no operand's is read, {by}")
    assert explained([f"{head} stores {tail} of 'a'"]).endswith(f"CAUSE memory that is no operand's is stored to, {by}")
    assert "CAUSE out is stored to 9 elements behind" in explained([f"{head} stores {tail} of 'out'"])


def test_what_was_not_read_is_a_cause_where_nothing_else_is():
    plan = plan_of(PROBLEM)
    unread = ["program (1, 0, 0) stores out without row 3 of a, and reads row 0..2"]
    told = explain(plan, CONTRACT, (), (), plan.grid, ("numerics/randn",), lambda: unread)
    assert told == f"FAIL numerics/randn | CAUSE {unread[0]}"
    other = explain(plan, CONTRACT, (), (), (5,), ("numerics/randn",), lambda: unread)
    assert "row 3" not in other
    assert "1 programs more" in other


def test_tiles_that_are_stored_twice_and_others_never():
    (text,) = [text for text in TEXTS if "again" in text]
    (fill,) = fills(PROBLEM, CONTRACT, 1, ("transparent",))
    out = round_to(fill.expected, "fp16")
    assert "by none" not in explained([text], seen=[Seen(fill, {"out": out})])
    out.view(torch.uint8)[32:, 64:] = 0xFE  # the last tile was never stored
    told = explained([text], seen=[Seen(fill, {"out": out})])
    assert "CAUSE not written: tile (1,1) | " in told
    assert "by program (1, 0, 0), and others by none: the order of tiles is wrong" in told


def test_text_of_another_kind_is_no_cause():
    assert explained(["something else"]) == ""


@pytest.mark.parametrize(
    ("grid", "cause"),
    [
        ((5,), "the grid (5,) has 1 programs more than (4,)"),
        ((3,), "the grid (3,) has 1 programs fewer than (4,)"),
        ((2, 2), "the grid (2, 2) has the dimensions of (4,) in another order or split"),
    ],
)
def test_another_grid_is_a_cause(grid, cause):
    assert explained(grid=grid, failed=("grid",)) == f"FAIL grid | CAUSE {cause}"


def test_numbers_are_explained_by_what_every_fill_shows():
    problem = bmm(40, 56, 40, batch=3)
    seen = []
    for fill in fills(problem, CONTRACT, 1, ("transparent", "wide-A")):
        a, b = (fill.inputs[name].double() for name in "ab")
        seen.append(Seen(fill, {"out": round_to(a[[0, 0, 0]] @ b, "fp16")}))
    text = explained(problem=problem, seen=seen, failed=("numerics/transparent",))
    assert "CAUSE A of another matrix: the first one is used for all" in text
    broken = [dataclasses.replace(entry, outputs={"out": torch.zeros(3, 40, 56).half()}) for entry in seen]
    assert "another matrix" not in explained(problem=problem, seen=broken, failed=("numerics/transparent",))


def nan_seen(problem=PROBLEM):
    """Returns a fill whose result is NaN throughout."""
    (fill,) = fills(problem, CONTRACT, 1, ("transparent",))
    return (Seen(fill, {"out": torch.full((40, 56), torch.nan).half()}),)


BEGINS = "NaN begins at mm.py:24: 0 / 0 [2240 elements]"


def test_nan_has_an_origin_and_no_guess():
    plan, failed = plan_of(PROBLEM), ("numerics/transparent",)
    text = explain(plan, CONTRACT, nan_seen(), (), plan.grid, failed, tuple, lambda fill: [BEGINS])
    assert f" | CAUSE {BEGINS}" in text.partition("\n")[0]
    assert "no operand holds NaN" not in text
    without = explain(plan, CONTRACT, nan_seen(), (), plan.grid, failed)
    assert "no operand holds NaN" in without


def test_reads_that_are_missing_explain_the_nan_of_other_elements():
    plan, missing = plan_of(PROBLEM), "program (0, 0, 0) stores out without row 8 of b, and reads row 9"
    held = BEGINS.replace("0 / 0", "b holds NaN at [9, 3]")
    arguments = (plan, CONTRACT, nan_seen(), (), plan.grid, ("numerics/transparent",))
    text = explain(*arguments, lambda: [missing], lambda fill: [held, BEGINS])
    assert f"CAUSE {missing} | CAUSE {BEGINS}" in text
    assert held not in text
    assert f"CAUSE {held}" in explain(*arguments, tuple, lambda fill: [held, BEGINS])


def test_memory_outside_the_operands_is_told_once():
    plan, disturbed = plan_of(PROBLEM), [f"{FAR} 9 behind the last element of 'b'"]
    outside = BEGINS.replace("0 / 0", "memory outside the operands is read")
    text = explain(plan, CONTRACT, nan_seen(), disturbed, plan.grid, ("memory",), tuple, lambda fill: [outside, BEGINS])
    assert "CAUSE b is read 9 elements behind" in text
    assert outside not in text
    assert BEGINS in text


def test_a_trace_that_fails_leaves_the_diagnosis():
    plan = plan_of(PROBLEM)

    def fails(fill):
        raise RuntimeError("no trace")

    text = explain(plan, CONTRACT, nan_seen(), (), plan.grid, ("numerics/transparent",), tuple, fails)
    assert "every element is NaN" in text
    assert text.endswith("where NaN begins was not found: RuntimeError: no trace")


def test_right_nan_is_not_traced():
    plan, (fill,) = plan_of(PROBLEM), fills(PROBLEM, CONTRACT, 1, ("transparent",))
    right = Seen(dataclasses.replace(fill, expected=torch.full((40, 56), torch.nan).double()), nan_seen()[0].outputs)
    wrong = Seen(fill, {"out": torch.zeros(40, 56).half()})
    asked = []
    explain(plan, CONTRACT, (right, wrong), (), plan.grid, ("numerics/transparent",), tuple, asked.append)
    assert asked == []


def test_an_overflow_is_asked_for_only_where_one_may_be():
    plan, asked = plan_of(PROBLEM), []

    def overflows(fill):
        asked.append(fill.name)
        return ["32-bit overflow at mm.py:9: 2 * 1073741824 = 2147483648, and became -2147483648"]

    def text_of(far):
        places = [f"{FAR} {far} before the first element of 'a'"]
        return explain(plan, CONTRACT, nan_seen(), places, plan.grid, ("memory",), tuple, lambda fill: (), overflows)

    assert "32-bit overflow" not in text_of(40)
    assert not asked
    assert "CAUSE 32-bit overflow at mm.py:9: 2 * 1073741824" in text_of(2**31)
    assert asked == ["transparent"]
