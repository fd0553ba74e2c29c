"""The command: its exit status, its text and its JSON, with an inquiry that is answered at once."""

from __future__ import annotations

import json

import pytest

from conformance import cli
from conformance.blame.attribution import blamed
from conformance.blame.inquiry import Attribution, BlameError, CaseAnswer, LaunchAnswer
from conformance.commands import blame

CASE = "test_a.py::test_x[mm-a-sm_90]"
INTO_BAD, INTO_GOOD = (8.0, None, 0.0, 0.0), (0.0, 0.0, 8.0, 8.0)


def launch(into_bad, into_good):
    one = Attribution("spills", 0.0, 8.0, into_bad, into_good, blamed(into_bad, into_good))
    return LaunchAnswer("gemm", ("source", "ttir", "ttgir"), (one,), ("ttir of a in b: refused",))


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """The status and the output of the command, whose inquiry ends with the ``launches``, or with an error."""

    def run(launches, *options):
        def ask_case(case, good, bad, folder, **how):
            if isinstance(launches, BlameError):
                raise launches
            assert folder.is_dir()
            return CaseAnswer(case, "sm_90", (good.stack.name, bad.stack.name), launches, 61.4)

        monkeypatch.setattr(blame, "ask_case", ask_case)
        words = ["blame", CASE, "--good", "current", "--bad", "current", "--cache", str(tmp_path), *options]
        status = cli.main(words)
        return status, capsys.readouterr()

    return run


def test_a_guilty_stage_is_an_answer(command):
    status, printed = command((launch(INTO_BAD, INTO_GOOD),))
    assert status == 0
    assert "spills 0 -> 8: the passes on TTIR" in printed.out
    assert "ttir of a in b: refused" in printed.out
    assert "judged without a device" in printed.out


def test_json_has_everything(command):
    status, printed = command((launch(INTO_BAD, INTO_GOOD),), "--json")
    answer = json.loads(printed.out)
    assert (status, answer["named"], answer["case"]) == (0, True, CASE)
    (one,) = answer["launches"][0]["attributions"]
    assert one["guilty"] == ["ttir"]
    assert one["into_bad"] == list(INTO_BAD)


def test_no_difference_and_no_guilty_stage_are_failures(command):
    assert command(())[0] == 1
    status, printed = command((launch((8.0, 0.0, 0.0, 0.0), INTO_GOOD),))
    assert status == 1
    assert "disagreement" in printed.out
    assert "from the good one's text: the front end; from the bad one's: the passes on TTIR" in printed.out


def test_a_question_that_cannot_be_asked(command):
    status, printed = command(BlameError("the case is not there"))
    assert status == 2
    assert printed.err == "conformance: the case is not there\n"


def test_what_was_compiled_is_kept_where_the_user_says(command, tmp_path):
    assert command((launch(INTO_BAD, INTO_GOOD),), "--keep", str(tmp_path / "kept"))[0] == 0
    assert (tmp_path / "kept").is_dir()
    assert command((launch(INTO_BAD, INTO_GOOD),), "--keep", str(tmp_path / "kept"))[0] == 2
