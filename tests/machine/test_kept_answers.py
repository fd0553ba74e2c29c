"""An answer about files is worked out once, and again when the files or the code have changed."""

import os

import pytest

from conformance.machine import kept_answers
from conformance.machine.kept_answers import kept_answer, source_digest


@pytest.fixture
def asked(tmp_path):
    """A question about a file: it returns the answer, and how often that was worked out."""
    file = tmp_path / "kernel.ptx"
    file.write_text("one")
    times = []

    def ask(code="1", name="length", **place):
        def work_out():
            times.append(code)
            return {"length": len(file.read_text()), "pair": (1, 2)}

        return kept_answer([file], name, code, work_out, **place), len(times)

    ask.file = file
    return ask


def test_an_answer_is_worked_out_once_and_is_the_same_json_each_time(asked):
    assert asked() == ({"length": 3, "pair": [1, 2]}, 1)
    assert asked() == ({"length": 3, "pair": [1, 2]}, 1)


def test_a_changed_file_is_asked_again(asked):
    asked()
    asked.file.write_text("three")
    assert asked() == ({"length": 5, "pair": [1, 2]}, 2)


def test_a_file_of_the_same_size_and_another_time_is_asked_again(asked):
    asked()
    asked.file.write_text("two")
    os.utime(asked.file, ns=(1, 1))
    assert asked()[1] == 2


def test_other_code_and_another_question_have_answers_of_their_own(asked):
    asked()
    assert asked(name="other")[1] == 2
    assert asked(code="2")[1] == 3


def test_in_a_folder_each_state_of_the_files_keeps_its_answer(asked, tmp_path):
    """Two stacks that take turns would work out theirs each time."""
    for code in ("1", "2", "1", "2"):
        _, times = asked(code, folder=tmp_path)
    assert times == 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"about": []}', "\udcff"])
def test_what_is_broken_is_worked_out_again(asked, text):
    asked()
    (kept,) = asked.file.parent.glob("*.length.json")
    kept.write_text(text, errors="surrogateescape")
    assert asked() == ({"length": 3, "pair": [1, 2]}, 2)
    assert asked()[1] == 2


def test_a_folder_that_cannot_be_written_keeps_nothing(asked, monkeypatch):
    monkeypatch.setattr(kept_answers.os, "replace", lambda *_: (_ for _ in ()).throw(PermissionError()))
    assert asked()[1] == 1
    assert asked()[1] == 2


def test_the_digest_is_that_of_the_sources():
    assert source_digest(kept_answers) == source_digest(kept_answers) != source_digest(os)
