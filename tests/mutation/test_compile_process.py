"""The compiler gives mutants the same code, other code, or none."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest

from conformance import targets
from conformance.kernels.catalogue import get
from conformance.mutation.compile_process import Compared, CompileProcess, _Question, without_names
from conformance.mutation.judge import Judge
from conformance.mutation.mutants import Mutant
from conformance.mutation.tier_plans import TierPlan


@pytest.fixture(scope="module")
def plan():
    kernel = get("int_mm")
    problem = kernel.example("int8", kernel.configs[0])
    return TierPlan("case#0", "case", kernel.plan(problem, kernel.configs[0], targets.find("sm_90")), None)


@pytest.fixture(scope="module")
def process():
    with contextlib.closing(CompileProcess()) as compiler:
        yield compiler


def changed(plan, old, new, name="tiles.accumulate"):
    function = next(each for each in plan.functions if each.name == name)
    assert old in function.source
    return Mutant(function, "body0", "loop", 1, (1, 1), function.source.replace(old, new))


def test_the_same_code_is_told(process, plan):
    same = changed(plan, "range(tl.cdiv", "range(0, tl.cdiv")
    compared = process.compare(same, [plan])
    assert not compared.differing
    assert len(compared.codes) == 1
    assert process.same_in_random(same, [plan]) > 1


def test_other_code_is_told_by_plan(process, plan):
    other = changed(plan, "range(tl.cdiv", "range(1, tl.cdiv")
    assert process.compare(other, [plan]).differing == {"case#0"}
    assert process.same_in_random(other, [plan]) is None


class _Compiler:
    """Says of each plan what ``answers`` has: "same", "other" or an error; ``asked`` holds how many it was asked of."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def compare(self, _, plans):
        self.asked.append(len(plans))
        answers = [self.answers[each.id] for each in plans]
        errors = [answer for answer in answers if answer not in ("same", "other")]
        differing = frozenset(each.id for each in plans if self.answers[each.id] != "same")
        return Compared(differing, errors[0] if len(errors) == len(plans) else "", frozenset(answers))

    def same_in_random(self, *_):
        return 12

    def check(self, *_):
        return None


@pytest.mark.parametrize(
    ("answers", "outcome", "ran"),
    [
        (["same"] * 60, "equivalent", 10),
        (["same"] * 40 + ["other"] * 20, "survived", 30),
        (["wrong"] * 60, "compile-error", 60),
        (["wrong"] * 40 + ["other"] * 20, "survived", 60),
    ],
)
def test_only_plans_of_other_code_are_run(plan, monkeypatch, answers, outcome, ran):
    """The compiler is asked of forty plans and then of the other twenty."""
    plans = [dataclasses.replace(plan, id=f"case#{number}") for number in range(60)]
    judge = Judge(plans, {}, lambda: None, "here", 0, interprets=True)
    monkeypatch.setattr(judge, "order", lambda _: plans)
    judge.compiler = _Compiler({each.id: answer for each, answer in zip(plans, answers, strict=True)})
    runs = []
    monkeypatch.setattr(judge, "_run", lambda _, some, result: (result, runs.extend(some)))
    result = judge.judge(changed(plan, "range(tl.cdiv", "range(1, tl.cdiv"))
    assert result.outcome == outcome
    assert len(runs) == ran
    assert judge.compiler.asked == [40, 20]


def test_what_does_not_compile_is_told(process, plan):
    compared = process.compare(changed(plan, "range(tl.cdiv(K, BLOCK_K))", "range(nothing)"), [plan])
    assert "nothing is not defined" in compared.error


def test_compiled_code_is_checked(process, plan):
    same = changed(plan, "range(tl.cdiv", "range(0, tl.cdiv")
    assert process.check(same, frozenset({"case#0"}), [plan]) is None
    # without a product of tiles there is no matrix instruction, which the kernel declares
    unmatched = changed(plan, "acc = tl.dot(a, converted, acc, input_precision=PRECISION, out_dtype=acc.dtype)", "pass")
    check, text = process.check(unmatched, frozenset({"case#0"}), [plan])
    assert check.startswith("codegen/requires/")
    assert text


def test_a_plan_that_fails_unchanged_says_nothing_of_a_fault(process, plan):
    config = dataclasses.replace(plan.plan.config, num_warps=3)  # which no release compiles
    failing = dataclasses.replace(plan, id="case#1", plan=dataclasses.replace(plan.plan, config=config))
    mutant = changed(plan, "range(tl.cdiv", "range(1, tl.cdiv")
    assert process._ask(_Question("tiles.accumulate", None, (failing.plan,), True))[0].startswith("compile: ")
    assert process.check(mutant, frozenset({"case#1"}), [failing]) is None


def test_each_dtype_is_compiled(process):
    """A product without its precision shows in fp32 alone, where it falls back to tf32."""
    kernel, plans = get("mm"), []
    for number, dtype in enumerate((*(("bf16",) * 10), "fp32")):
        problem = kernel.example(dtype, kernel.configs[0])
        plan = kernel.plan(problem, kernel.configs[0], targets.find("sm_90"))
        plans.append(TierPlan(f"case#{number}", "case", plan, None))
    mutant = changed(plans[0], ", input_precision=PRECISION", "", "tiles.dot_pointers")
    check, _ = process.check(mutant, frozenset(plan.id for plan in plans), plans)
    assert check == "codegen/products"


def test_names_and_locations_do_not_count():
    first = (
        '#loc = loc("a.py":1:2)\n%acc = tt.load %a_ptr : i32 loc(#loc3)\n%x_1 = arith.addi %acc, %acc loc("x"(#loc))'
    )
    second = "%0 = tt.load %1 : i32\n%2 = arith.addi %0, %0"
    assert without_names(first).split() == without_names(second).split()
    assert without_names(second) != without_names(second.replace("%0, %0", "%0, %1"))


def test_a_plan_is_another_with_other_fills(plan):
    from conformance.mutation.results import plan_digest, plans_digest

    other = dataclasses.replace(plan, fills=("wide-A",))
    assert plan_digest(plan) == plan_digest(dataclasses.replace(plan, id="case#1", case="other"))
    assert plan_digest(plan) != plan_digest(other)
    assert plans_digest([plan, other]) == plans_digest([other, plan])
