"""Files that cheat do not pass; a judge that runs them in its own process lets them."""

from __future__ import annotations

import os

import pytest

from tests.kernels.interpreter_runs import executor, in_interpreter
from tests.plain_files import cheats, open_judge

NAMES = ("right", "copied", "wrong", *cheats.CHEATS)


def verdicts(folder):
    """Returns what both judges say of each file: True for right of the open judge, and "" for right of ours."""
    from conformance.plain_files import asked_problems
    from conformance.plain_files.description import Described
    from conformance.plain_files.device_functions import ForeignCode
    from conformance.plain_files.sandbox import SandboxError
    from conformance.targets import find

    described = Described(operation="mm", call="matmul(a, b)", dtypes=("fp32",), shapes=("smaller-than-a-tile",))
    executor()
    seen = {}
    for name in NAMES:
        path, place = folder / name / f"{name}.py", folder / name / "here"
        place.mkdir(parents=True)
        path.write_text(cheats.text_of(name))
        try:
            [(kernel, (case,)), *_] = asked_problems.recorded(path, described, [find("sm_90")], folder / name / "ours")
            ours = judged(kernel, case, folder / name / "ours")
        except (SandboxError, ForeignCode) as error:
            ours = f"{type(error).__name__}: {error}"
        assert sorted(os.listdir(path.parent)) == sorted([path.name, "here", "ours"]), "a file of others was written"
        seen[name] = open_judge.passes(path, place), ours
    return seen


def judged(recorded, case, folder):
    """Returns why a recorded case fails; "" if it passes in the interpreter."""
    from conformance.execution.trial.trial import trial
    from conformance.plain_files.file_kernel import kernel_of, key

    tape, _ = recorded.tapes[key(case.problem, case.config, case.target)]
    if tape.fault or tape.refused:
        return f"{tape.check}: {tape.fault or tape.refused}"
    kernel = kernel_of(recorded, folder)
    plan = kernel.plan(case.problem, case.config, case.target)
    result = trial(kernel, plan, executor(), names=("transparent",))
    return "" if result.passed else result.diagnosis.partition("\n")[0]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    return in_interpreter(verdicts, tmp_path_factory.mktemp("cheats"))


def test_controls(seen):
    assert seen["right"] == seen["copied"] == (True, "")
    assert (seen["wrong"][0], bool(seen["wrong"][1])) == (False, True)


@pytest.mark.parametrize("name", cheats.PYGPUBENCH)
def test_a_twin_wins_where_its_defence_is_taken_out_and_loses_here(seen, name):
    is_open, ours = seen[name]
    assert is_open, "the cheat does not work"
    assert ours


@pytest.mark.parametrize("name", [name for name in cheats.CHEATS if name not in cheats.PYGPUBENCH])
def test_a_cheat_does_not_pass(seen, name):
    assert seen[name][1]
