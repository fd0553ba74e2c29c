"""A test may stop after some of the choices that were pinned: what was judged until then counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.families.gemm.problem import mm
from conformance.judging import inductor_judge
from conformance.judging.case_recorder import CaseEnded, CaseRecorder
from conformance.judging.inductor_judge import Inductor
from conformance.records import Reason, ReasonCode, Status
from conformance.targets import find

NO_NUMBERS = Reason(ReasonCode.NO_DEVICE, "device", "none here")


class ThreeChoices(Inductor):
    """Compiles nothing: each of three choices passes one check, or its numbers cannot be judged for ``unjudged``."""

    unjudged: Reason | None = None

    def compile(self, program: Any, target: Any) -> Any:
        generated = SimpleNamespace(lowerings=[SimpleNamespace(matching=3)], failure=None)
        return SimpleNamespace(generated=generated)

    def _generated(self, compiled: Any, target: Any, template: str) -> Any:
        return SimpleNamespace(excess="", config=SimpleNamespace(id="c"))

    def _judged(self, *args: Any) -> Reason | None:
        self.recorder.verdict("forced", True)
        return self.unjudged


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch) -> ThreeChoices:
    monkeypatch.setattr(inductor_judge, "_program", lambda *args, **fields: SimpleNamespace())
    monkeypatch.setattr(inductor_judge, "replace", lambda program, **fields: program)
    harness: Any = SimpleNamespace(settings=SimpleNamespace(tier="full"))
    return ThreeChoices(harness, CaseRecorder("test_x.py::test_x"))


def runs(inductor: ThreeChoices) -> Any:
    return inductor.pinned(mm(8, 8, 8, "fp16"), find("sm_90"), "template")


def test_a_test_that_takes_every_choice(inductor: ThreeChoices) -> None:
    assert len(list(runs(inductor))) == 3
    assert inductor.recorder.objection() is None
    assert inductor.recorder.record().observed["choices"] == 3


def test_a_test_that_stops_early_has_judged_what_it_took(inductor: ThreeChoices) -> None:
    for _ in runs(inductor):
        break
    assert inductor.recorder.objection() is None
    assert inductor.recorder.unjudged is None
    assert len(inductor.recorder.verdicts) == 1


def test_numbers_that_were_not_judged_end_the_case_as_not_run(inductor: ThreeChoices) -> None:
    inductor.unjudged = NO_NUMBERS
    with pytest.raises(CaseEnded) as end:
        list(runs(inductor))
    assert (end.value.status, end.value.reason) == (Status.NOT_RUN, NO_NUMBERS)


def test_numbers_that_were_not_judged_are_not_forgotten_by_a_test_that_stops(inductor: ThreeChoices) -> None:
    inductor.unjudged = NO_NUMBERS
    for _ in runs(inductor):
        break
    assert inductor.recorder.unjudged == NO_NUMBERS
