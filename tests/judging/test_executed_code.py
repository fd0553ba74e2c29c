"""Compiled kernels are run as TTGIR where there is no device: what is shown, what is kept and what is not known."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from conformance import targets
from conformance.execution.compile.compilation import CompilePool
from conformance.families.gemm.problem import mm
from conformance.heuristics.configs import Config
from conformance.judging import conform, harness
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.harness import Harness
from conformance.judging.settings import Settings
from conformance.kernels.catalogue import get
from conformance.kernels.kernel import Variant
from conformance.machine.gpus import Gpus
from conformance.problems import Layout
from conformance.records import Reason, ReasonCode, Verdict
from conformance.ttgir import verdict
from conformance.ttgir.layout_check import VerifiedLayouts
from conformance.ttgir.memory import ProgramFault
from conformance.ttgir.verdict import Executed
from conformance.user_files.expected_failures import read_expected_failures

SETTINGS = Settings("quick", ("sm_90",), (), (), 0, None, Gpus(), None, 60.0, (), read_expected_failures())
KERNEL = get("mm")
PLAN = KERNEL.plan(mm(136, 56, 176, layout_b=Layout(pad=8)), Config(64, 64, 32, 3, 4), targets.find("sm_90"), Variant())
NOBODY = Reason(ReasonCode.NO_INTERPRETER, "interpreter", "there is none")


@pytest.fixture(scope="module")
def text():
    with CompilePool(1, 240) as pool:
        ((request, _),) = conform.launches_to_compile(PLAN).values()
        return pool.submit(request).result().artefact.text("ttgir")


@pytest.fixture
def judge(monkeypatch, tmp_path):
    """Judges a text; what is kept lies in a folder of the test's own, and ``judge.runs`` counts what was executed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    real = harness.executed
    judging = Harness(SETTINGS)

    def counted(*arguments, **options):
        judge_text.runs += 1
        return real(*arguments, **options)

    def judge_text(text, kernel=KERNEL, **options):
        return judging.executed(kernel, PLAN, [text], ("transparent",), **{"anew": False, **options})

    monkeypatch.setattr(harness, "executed", counted)
    judge_text.runs, judge_text.harness = 0, judging
    yield judge_text
    judging.pool.close()


def test_a_verdict_of_the_same_is_kept(judge, text):
    first, second = judge(text), judge(text)
    assert first.passed
    assert judge.runs == 1
    assert (second.verdicts, second.orders, second.fills) == (first.verdicts, first.orders, first.fills)
    judge(text + "\n// another text")
    judge(text, anew=True)
    assert judge.runs == 3


def test_a_kept_file_that_cannot_be_read_counts_for_nothing(judge, text, tmp_path):
    judge(text)
    (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
    kept.write_text('{"verdicts": [')
    assert judge(text).passed
    assert judge.runs == 2


def test_kernels_of_others_are_executed_each_time(judge, text):
    outside = SimpleNamespace(name="of_a_vendor", contract=KERNEL.contract, launch=KERNEL.launch)
    judge(text, kernel=outside)
    judge(text, kernel=outside)
    assert judge.runs == 2


def test_a_fault_of_the_compiler_fails_and_is_not_kept(judge, text):
    wrong = text.replace("pendings = 0", "pendings = 2", 1)
    assert wrong != text
    for _ in range(2):
        result = judge(wrong)
        assert not result.passed
        assert "may still be reading" in result.verdicts[-1].text
    assert judge.runs == 2


#: What a loop's product reads was stored by threads; with a fence between, and without.
STORED = """
.visible .entry f() {
  st.shared.b32 [%r1], %r2;
  FENCE
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 1;
  ret;
}
"""


@pytest.mark.parametrize(("instruction", "passes"), [("fence.proxy.async.shared::cta;", True), ("bar.sync 0;", False)])
def test_a_fence_that_is_missing_in_ttgir_may_stand_in_the_ptx(judge, text, monkeypatch, instruction, passes):
    def executed(*_, fences=True, **__):
        return verdict.Executed((verdict._verdict(not fences, "no fence follows"),), unfenced=fences)

    monkeypatch.setattr(harness, "executed", executed)
    ptx = STORED.replace("FENCE", instruction)
    result = judge.harness.executed(KERNEL, PLAN, [text], ("transparent",), ptx=[ptx], anew=True)
    assert result.passed is passes


def case(judge, text, trial=NOBODY):
    """The record of a case whose compiled kernel is ``text``, and what :meth:`CaseJudge.execute` gave."""
    recorder = CaseRecorder("case")
    compiled = SimpleNamespace(texts=lambda stage: [text] if stage == "ttgir" else None)
    judged = conform.CaseJudge(judge.harness, recorder, KERNEL, PLAN, ("transparent",))
    given = judged.execute(compiled, trial)
    return recorder.record(), *given


def test_where_nothing_else_runs_a_case_its_compiled_code_does(judge, text):
    record, trial, verdicts = case(judge, text)
    assert trial.grid == PLAN.grid
    assert {"executed/ttgir", "numerics/transparent", "memory", "grid"} <= {one.check for one in verdicts}
    assert all(one.passed for one in verdicts)
    assert record.observed["ttgir"]["layouts"] == "checked"
    assert record.observed["grid"] == list(PLAN.grid)


def test_what_is_not_known_is_named_and_shows_nothing(judge, text):
    record, trial, verdicts = case(judge, text.replace("ttg.async_wait", "ttg.wait_of_the_future"))
    assert trial is NOBODY
    assert verdicts == []
    assert record.observed["ttgir"] == {
        "unknown": "ttg.wait_of_the_future",
        "layouts": "checked",
        "passed": False,
    }


@pytest.mark.parametrize(
    ("said", "passes", "recorded"),
    [
        (VerifiedLayouts([], []), True, "checked"),
        (VerifiedLayouts(["dot (k.py:1): B repeats some k"], []), False, "checked"),
        (VerifiedLayouts([], ["#ttg.spiral"]), True, "not known: #ttg.spiral"),
    ],
)
def test_what_the_layouts_are_said_to_be(judge, text, monkeypatch, said, passes, recorded):
    monkeypatch.setattr(verdict, "verified", lambda module: said)
    result = judge(text)
    assert result.passed is passes
    assert result.observed["layouts"] == recorded
    assert [one.text for one in result.verdicts if not one.passed] == said.faults
    checks = {one.check for one in result.verdicts}
    assert ("executed/layouts" in checks) is (recorded == "checked")


def test_a_kernel_that_came_without_its_ttgir_is_not_run(judge):
    recorder = CaseRecorder("case")
    compiled = conform.CompiledPlan(SimpleNamespace(stages={"ptx": "kernel.ptx"}), {})
    given = conform.CaseJudge(judge.harness, recorder, KERNEL, PLAN).execute(compiled, NOBODY)
    assert given == (NOBODY, [])
    assert recorder.record().observed["ttgir"]["unknown"] == "a kernel without its TTGIR"
    assert judge.runs == 0


@pytest.mark.parametrize(
    ("given", "executes"),
    [
        ({}, True),
        ({"ttgir": "never"}, False),
        ({"compile_only": True}, False),
        ({"gpus": Gpus(entries=("0",))}, False),
        ({"gpus": Gpus(entries=("0",)), "ttgir": "always"}, True),
    ],
)
def test_where_it_is_done(given, executes):
    assert dataclasses.replace(SETTINGS, **given).executes is executes


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("", ""), "its TTGIR is right in "),
        (("pendings = 0", "pendings = 2"), "its TTGIR is wrong, too: program (0, 0, 0)"),
        (("ttg.async_wait", "ttg.wait_of_the_future"), "its TTGIR was not run: ttg.wait_of_the_future"),
        ((None, None), "its TTGIR was not run: there is none"),
    ],
)
def test_a_failure_on_a_device_says_where_it_arises(judge, text, edit, said):
    recorder, (old, new) = CaseRecorder("case"), edit
    changed = text.replace(old, new, 1) if old else text
    compiled = SimpleNamespace(texts=lambda stage: None if old is None or stage != "ttgir" else [changed])
    judged = conform.CaseJudge(judge.harness, recorder, KERNEL, PLAN, ("transparent",))
    assert said in judged.explain(compiled, ())


@pytest.mark.parametrize(
    ("failed", "sentence"),
    [
        ("numerics/transparent", "orders: the fault arises below it, on the device, or in an order that was not run"),
        ("numerics/transparent/lse", "orders: the fault arises below it"),
        ("memory", "orders: the fault arises below it"),
        ("numerics/randn", "with transparent, and was not run with randn: where the fault arises is not known"),
        ("memory/randn", "with transparent, and was not run with randn: where the fault arises is not known"),
        ("repeat/stress", "with transparent, and was not run with stress: where the fault arises is not known"),
    ],
)
def test_right_ttgir_says_where_a_fault_arises_only_with_the_fills_that_fail(failed, sentence):
    right = Executed((Verdict("executed/ttgir", True),), orders=("late",), fills=("transparent",))
    judge = SimpleNamespace(executed=lambda *_, **__: right)
    compiled, verdicts = SimpleNamespace(texts=lambda _: []), [Verdict(failed, False), Verdict("numerics/hot", True)]
    explanation = conform.CaseJudge(judge, CaseRecorder("case"), KERNEL, PLAN).explain(compiled, verdicts)
    assert sentence in explanation
    assert ("arises below" in explanation) == ("arises below" in sentence)


def test_a_record_of_several_plans_keeps_the_one_that_is_wrong_or_was_not_run():
    recorder = CaseRecorder("case")
    conform._record_execution(recorder, Executed(verdicts=(Verdict("executed/ttgir", True),), orders=("late",)))
    assert recorder.record().observed["ttgir"]["passed"] is True
    conform._record_execution(recorder, Executed(unknown="tt.foo"))
    conform._record_execution(recorder, Executed(verdicts=(Verdict("executed/ttgir", True),), orders=("late",)))
    assert recorder.record().observed["ttgir"].items() >= {"unknown": "tt.foo", "passed": False, "orders": 1}.items()


def test_an_error_of_what_explains_hides_no_failure(judge, text, monkeypatch):
    monkeypatch.setattr(judge.harness, "executed", lambda *_, **__: 1 / 0)
    compiled = SimpleNamespace(texts=lambda stage: [text])
    sentence = conform.CaseJudge(judge.harness, CaseRecorder("case"), KERNEL, PLAN).explain(compiled, ())
    assert sentence == "its TTGIR was not run: ZeroDivisionError: division by zero"


def test_a_large_problem_is_not_run_to_explain_a_failure(judge, monkeypatch):
    monkeypatch.setattr(conform, "EXPLAINED", 1)
    compiled = SimpleNamespace(texts=lambda _: pytest.fail("asked for"))
    sentence = conform.CaseJudge(judge.harness, CaseRecorder("case"), KERNEL, PLAN).explain(compiled, ())
    assert sentence.endswith("elements are too many")


@pytest.mark.parametrize(
    ("given", "explains"),
    [
        ({}, False),
        ({"gpus": Gpus(entries=("0",))}, True),
        ({"gpus": Gpus(entries=("0",)), "ttgir": "never"}, False),
        ({"gpus": Gpus(entries=("0",)), "compile_only": True}, False),
    ],
)
def test_where_a_failure_is_explained(given, explains):
    assert dataclasses.replace(SETTINGS, **given).explains is explains


@pytest.mark.parametrize(
    ("judges", "least"),
    [
        (["ttgir"], "ttgir"),
        (["ttgir", "interpreter"], "interpreter"),
        (["interpreter", "device", "ttgir"], "interpreter"),
        (["device", None], None),
    ],
)
def test_a_case_of_several_plans_shows_what_the_least_shown_does(judges, least):
    recorder = CaseRecorder("case")
    for judged in judges:
        recorder.judged_by(judged)
    assert recorder.record().executor == least


def test_a_value_that_nothing_makes_is_unknown(judge, text):
    first = next(line.split(" = ")[0].strip() for line in text.splitlines() if " = tt.make_range" in line)
    result = judge(text.replace(f"{first} = tt.make_range", f"{first}_gone = tt.make_range", 1))
    assert result.unknown == f"the operation that makes {first}"
    assert not result.passed


@pytest.mark.parametrize("gone", ["tt.make_range", "ttg.async_wait"])
def test_a_fault_of_layouts_stays_where_the_code_cannot_run(judge, text, monkeypatch, gone):
    monkeypatch.setattr(verdict, "verified", lambda module: VerifiedLayouts(["dot (k.py:1): B repeats some k"], []))
    name = next(line.split(" = ")[0].strip() for line in text.splitlines() if f" = {gone}" in line)
    other = f"{name}_gone = {gone}" if gone.startswith("tt.") else f"{name} = {gone}_of_the_future"
    result = judge(text.replace(f"{name} = {gone}", other, 1))
    assert result.unknown
    assert [one.text for one in result.verdicts if not one.passed] == ["dot (k.py:1): B repeats some k"]


def test_a_fault_of_another_size_names_its_problem(judge, text, monkeypatch):
    other = KERNEL.plan(mm(56, 56, 0, layout_b=Layout(pad=8)), PLAN.config, PLAN.target, Variant())
    monkeypatch.setattr(verdict, "problems_of", lambda plan: [plan, other])
    real = verdict.trial

    def faulty(kernel, plan, *arguments, **options):
        if plan is other:
            raise ProgramFault("the tile is read before anybody wrote it")
        return real(kernel, plan, *arguments, **options)

    monkeypatch.setattr(verdict, "trial", faulty)
    (said,) = (one.text for one in judge(text).verdicts if not one.passed)
    assert said == f"{other.problem.id}, which the same code serves, the tile is read before anybody wrote it"
