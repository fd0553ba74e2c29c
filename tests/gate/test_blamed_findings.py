"""The gate names the guilty stages of regressions, or the command that finds them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from types import SimpleNamespace

from conformance import cli
from conformance.blame.attribution import blamed
from conformance.blame.inquiry import Attribution, BlameError, CaseAnswer, LaunchAnswer, PassBlame
from conformance.commands.shared import blamed_findings
from conformance.gate.stacks.stack_file import parse
from conformance.user_files.findings import Finding, Group, Kind

INTO_BAD, INTO_GOOD = (8.0, 8.0, 0.0), (0.0, 0.0, 8.0)
ATTRIBUTION = Attribution(
    *("spills", 0.0, 8.0, INTO_BAD, INTO_GOOD, blamed(INTO_BAD, INTO_GOOD), ""),
    (PassBlame(("add_pipeline",), ("add_pipeline",)), PassBlame(("add_pipeline",), ("add_pipeline",))),
)
LAUNCHES = (LaunchAnswer("gemm", ("source", "ttir"), (ATTRIBUTION,), ()),)


def group(kind, cause, case):
    return Group(kind, cause, (Finding(kind, case, "mm", "sm_90", cause, "1", "2"),))


def run(stack):
    return SimpleNamespace(environment=SimpleNamespace(stack=stack))


def lines(groups, most=0, good="triton==3.8.0", bad="triton==3.9.0 preview=fp-fusion-off"):
    comparison = SimpleNamespace(regressions=groups)
    stacks = run(parse(good)), run(parse(bad))
    return list(blamed_findings.blamed_findings(comparison, *stacks, most, lambda text: None))


def test_the_command_of_a_regression_is_understood():
    ((line, answered),) = lines([group(Kind.MORE_SPILLS, "more spills on sm_90", "test_a.py::test_x[mm-a]")])
    assert not answered
    begins, _, command = line.partition(": ")
    assert begins == "MORE_SPILLS more spills on sm_90"
    arguments, rest = cli._parser().parse_known_args(shlex.split(command)[1:])
    assert rest == []
    assert (arguments.case, arguments.good) == ("test_a.py::test_x[mm-a]", "triton==3.8.0")
    assert (arguments.bad, arguments.symptom) == ("triton==3.9.0 preview=fp-fusion-off", ["spills"])


def test_what_no_stage_is_guilty_of_has_no_line():
    assert lines([group(Kind.LOST_COVERAGE, "missing", "test_a.py::test_x[mm-a]")]) == []


def test_a_stack_with_variables_of_its_own_has_no_command():
    stack = replace(parse("current"), variables=(("TRITON_DEBUG", "1"),))
    comparison = SimpleNamespace(regressions=[group(Kind.SLOWER, "slower", "test_a.py::test_x[mm-a]")])
    ((line, _),) = blamed_findings.blamed_findings(comparison, run(stack), run(stack), 0, print)
    assert "cannot be asked for" in line


def test_the_worst_are_asked_about(monkeypatch):
    def ask_case(case, good, bad, folder, symptoms):
        if case.endswith("[mm-b]"):
            raise BlameError("the case is not there")
        return CaseAnswer(case, "sm_90", ("a", "b"), LAUNCHES, 1.0)

    monkeypatch.setattr(blamed_findings, "ask_case", ask_case)
    groups = [group(Kind.MORE_SPILLS, kind, f"test_a.py::test_x[mm-{kind}]") for kind in "abc"]
    (first, _), (second, _), (third, answered) = lines(groups, most=2)
    assert first == (
        "MORE_SPILLS a: gemm, spills 0 -> 8: the passes on TTIR, both directions agree; it turns with add_pipeline"
    )
    assert second == "MORE_SPILLS b: no stage is named: the case is not there"
    assert third.startswith("MORE_SPILLS c: conformance blame ")
    assert not answered
