"""A text that a user may copy, such as the id of a case, is whole or absent in a shortened text."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from made_records import BASE, KERNEL, changed, compared, failing

from conformance.commands.shared import confirmed_scripts
from conformance.gate.shortened_text import first_words, last_words
from conformance.gate.stacks.confirm_scripts import Attempt, Confirmation, ScriptOutcome
from conformance.reporting.comparison import render_markdown, render_terminal
from conformance.reporting.github import annotation_lines
from conformance.user_files.findings import Finding, Kind

CASE = "test_config_space.py::test_row[mm_persistent_tma-128x256x64-s3-w8-shape=ragged and odd-order=row.col-sm_100]"
SENTENCE = f"nothing of {CASE} could be run, and of {CASE} neither"


@pytest.mark.parametrize("shorten", [first_words, last_words])
@pytest.mark.parametrize("limit", range(0, len(SENTENCE) + 1, 3))
def test_an_id_in_a_shortened_text_is_whole(shorten, limit):
    short = shorten(SENTENCE, limit)
    assert len(short) <= limit + len(" ...")
    rest = short.replace(CASE, "")
    assert not re.search(r"\w+::|\[|\]|-s3|sm_100|ragged", rest), short


@pytest.mark.parametrize("shorten", [first_words, last_words])
def test_a_text_that_fits_is_not_shortened(shorten):
    assert shorten(SENTENCE, len(SENTENCE)) == SENTENCE


def test_no_script_names_the_whole_case_whatever_the_command_wrote(monkeypatch, tmp_path):
    environment = SimpleNamespace(command=lambda *words: words, environ=dict)
    run = SimpleNamespace(environment=environment, folder=tmp_path)
    finding = Finding(Kind.NEW_FAIL, CASE, "mm", "sm_100", "x", "", "")
    for length in range(380, 520, 7):
        output = f"conformance: error: {CASE} {'word ' * (length // 5)}"
        monkeypatch.setattr(confirmed_scripts, "attempt", lambda *_, output=output: Attempt(1, output))
        confirmed, text = confirmed_scripts._one(finding, run, run, tmp_path)
        assert not confirmed
        assert text.startswith(f"no script for {CASE}: ")
        assert "::" not in text.replace(CASE, "")


def test_a_script_that_cannot_run_names_the_whole_case():
    wrong = Attempt(2, f"{'word ' * 50}{CASE}")
    text = Confirmation(ScriptOutcome.CANNOT_RUN, wrong, wrong).text
    assert "::" not in text.replace(CASE, "")


@pytest.mark.parametrize("render", [render_terminal, render_markdown, lambda one: "\n".join(annotation_lines(one))])
def test_reports_name_whole_cases(tmp_path, render):
    """The failing check's text holds the id of another case, wherever the text is cut."""
    ids = {one["case"] for one in BASE} | {CASE}
    for words in (20, 50, 70, 95):
        wrong = failing("numerics/randn", f"{'word ' * words}{CASE} {CASE} {'word ' * words}{CASE}")
        text = render(compared(tmp_path, BASE, changed(BASE, wrong, **KERNEL)))
        for found in re.findall(r"test_config_space\.py::test_row\[?[^\]\n]*\]?", text.replace("%3A", ":")):
            assert found in ids, found
