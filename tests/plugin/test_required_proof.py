"""``--require``: a case that can be proven so and is proven by less fails the run; what cannot be says so, typed."""

from __future__ import annotations

import pytest

from conformance.judging.case_recorder import CaseRecorder
from conformance.plugin.run_faults import INFRASTRUCTURE, REQUIRED, RequiredProof, lacks
from conformance.proof_level import ProofLevel
from conformance.records import CaseRecord, ExecutorName, Reason, ReasonCode, Status, Verdict

pytest_plugins = ["pytester"]

CHECKS = {"device": ["numerics/x"], "ttgir": ["numerics/x", "executed/ttgir"], "interpreter": ["numerics/x"]}


def passed(executor: str | None, **observed: object) -> CaseRecord:
    names = CHECKS.get(str(executor), ["codegen/requires/TMA_LOAD"] if executor is None else [])
    return CaseRecord("a", "s", Status.PASS, executor=executor, verdicts=tuple(Verdict(n, True) for n in names))


def not_run(code: ReasonCode, subject: str) -> CaseRecord:
    return CaseRecord("a", "s", Status.NOT_RUN, Reason(code, subject, "text"))


def required(*levels: str) -> list[str]:
    return list(levels)


@pytest.mark.parametrize(
    ("record", "fails"),
    [
        (passed("device"), required()),
        (passed("ttgir"), required("device")),
        (passed("interpreter"), required("executed", "device")),
        (passed(None), required("interpreted", "executed", "device")),
        (not_run(ReasonCode.NO_DEVICE, "device"), required("device")),
        (not_run(ReasonCode.NO_DEVICE, "second device"), required()),
        (not_run(ReasonCode.NO_DEVICE, "memory"), required()),
        (not_run(ReasonCode.NO_INTERPRETER, "e4m3"), required("executed", "device")),
        (not_run(ReasonCode.CAPABILITY, "config tables"), required()),
        (CaseRecord("a", "s", Status.NOT_APPLICABLE, Reason(ReasonCode.DTYPE, "a", "b")), required()),
        (CaseRecord("a", "s", Status.COMPILE_ERROR), required()),
        (CaseRecord("a", "s", Status.EXPECTED_FAIL), required()),
    ],
)
def test_who_lacks_proof(record, fails):
    assert [name for name, level in REQUIRED.items() if lacks(record, level)] == fails


def limited(level: str, executor: ExecutorName | None = None, **options: bool) -> CaseRecord:
    recorder = CaseRecorder("a")
    recorder.proves_at_most(level, "why", **options)
    recorder.set(executor=executor)
    recorder.verdict("numerics/x", True)
    return recorder.record()


def test_a_case_says_what_it_can_be_proven_by():
    assert not lacks(limited("nothing"), ProofLevel.DEVICE)
    assert lacks(limited("compiled"), ProofLevel.DEVICE), "it shows not even that"
    without = limited("nothing", without_device=True)
    assert lacks(without, ProofLevel.DEVICE)
    assert not lacks(without, ProofLevel.INTERPRETED)
    interpreted = limited("interpreted", ExecutorName.INTERPRETER, without_device=True)
    assert not lacks(interpreted, ProofLevel.EXECUTED)
    assert lacks(interpreted, ProofLevel.DEVICE)


def test_the_least_limit_counts_and_an_unknown_one_is_refused():
    recorder = CaseRecorder("a")
    recorder.proves_at_most("nothing", "first")
    recorder.proves_at_most("interpreted", "second", without_device=True)
    limit = recorder.record().observed["proves at most"]
    assert (limit["on a device"], limit["without a device"]) == ("nothing", "nothing")
    with pytest.raises(ValueError, match="'devise' is no level of proof: one of nothing, compiled"):
        recorder.proves_at_most("devise", "x")


@pytest.mark.parametrize("limit", [None, "nothing", {"on a device": 3}, {"on a device": "later"}])
def test_a_strangers_limit_excuses_nothing(limit):
    record = CaseRecord("a", "s", Status.PASS, verdicts=(Verdict("x", True),), observed={"proves at most": limit})
    assert lacks(record, ProofLevel.DEVICE)


def test_the_sentence_names_the_first():
    proof = RequiredProof("device")
    for number in range(5):
        proof.add(CaseRecord(f"c{4 - number}", "s", Status.NOT_RUN, Reason(ReasonCode.NO_DEVICE, "device", "x")))
    assert proof.sentence == "--require device: 5 cases are proven by less: c0, c1, c2 and 2 more"
    none = RequiredProof(None)
    none.add(passed(None))
    assert none.sentence == ""


CASES = """
def test_device(recorder):
    recorder.set(executor="device")
    recorder.verdict("numerics/x", True)
@pytest.mark.proves_at_most("nothing", "a choice is judged")
def test_choice(recorder): recorder.verdict("choices", True)
"""
LESS = """
def test_less(recorder):
    recorder.set(executor="interpreter")
    recorder.verdict("numerics/x", True)
"""


def test_a_run_that_is_proven_by_less_is_not_green(project, workers):
    project.suite("a", CASES)
    gpus = ("--conformance-gpus", "1", "--require", "device")
    assert project.run(*gpus, "--run-dir=first", *workers).ret == 0
    project.suite("b", LESS)
    result = project.run(*gpus, "--run-dir=second", *workers)
    assert result.ret == INFRASTRUCTURE
    result.stdout.fnmatch_lines(["*less-proven*: --require device: 1 case is proven by less: test_b.py::test_less*"])
    assert project.run(*gpus[:2], "--require", "interpreted", "--run-dir=third", *workers).ret == 0


def test_a_node_without_gpu_is_told_before_the_first_case(project, workers):
    project.suite("a", CASES)
    addopts = "addopts=-p no:cacheprovider"
    result = project.run("-o", addopts, "-n", workers[1] if workers else "0", "--require", "device")
    assert result.ret == INFRASTRUCTURE
    result.stderr.fnmatch_lines(["*--require device: no GPU was found: *"])
    assert not (project.path / "reports").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--require", "device"), "*--require device contradicts --gpus 0: give one of them*"),
        (("--require", "device", "--no-gpu"), "*--require device contradicts --no-gpu: give one of them*"),
        (("--require", "interpreted", "--compile-only"), "*contradicts --compile-only, which runs nothing*"),
        (("--require", "executed", "--ttgir", "never"), "*contradicts --ttgir never without a GPU*"),
        (("--require", "devise"), "*--require*invalid choice: 'devise'*"),
    ],
)
def test_contradictions_are_refused(project, words, message):
    project.suite("a", CASES)
    project.refused(message, *words)
