"""A run has the configs and the cases that somebody asked for, and says which of them there are not."""

from __future__ import annotations

import pytest

from conformance.user_files.case_list import CaseListError, read_case_list

pytest_plugins = ["pytester"]

SUITE = """
@pytest.mark.parametrize("config", ["32x32-s2", "32x32-s2-g4", "64x32-s3"])
@pytest.mark.parametrize("kernel", ["mm", "bmm"])
def test_row(recorder, kernel, config):
    recorder.verdict("ran", True)
"""
CASE = "test_asked_rows.py::test_row[{}]"


@pytest.fixture
def rows(project):
    project.suite("asked_rows", SUITE)
    return project


def test_only_the_configs_that_were_asked_for(rows, workers):
    assert rows.run(*workers, "--config", "32x32-s2", "--config", "64x32-s3").ret == 0
    assert sorted(rows.statuses) == [
        *("test_row[bmm-32x32-s2]", "test_row[bmm-64x32-s3]", "test_row[mm-32x32-s2]", "test_row[mm-64x32-s3]")
    ]


def test_only_the_cases_of_a_file(rows, workers):
    (rows.path / "ids.txt").write_text(f"# mine\n\n{CASE.format('mm-64x32-s3')}\n{CASE.format('bmm-32x32-s2')}\n")
    assert rows.run(*workers, "--cases", "ids.txt").ret == 0
    assert sorted(rows.statuses) == ["test_row[bmm-32x32-s2]", "test_row[mm-64x32-s3]"]


def test_a_config_or_a_case_that_there_is_not_is_refused(rows, workers):
    rows.refused(
        "*--config 16x16-s1: no case with --tier quick has it*",
        *workers,
        *["--config", "32x32-s2", "--config", "16x16-s1"],
    )
    (rows.path / "ids.txt").write_text(f"{CASE.format('mm-64x32-s3')}\n{CASE.format('mm-64x32-s9')}\n")
    rows.refused(
        f"*--cases: {CASE.format('mm-64x32-s9').replace('[', '[[]')}: there is no such case*",
        *workers,
        "--cases",
        "ids.txt",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lists no case"),
        ("# none\n", "lists no case"),
        ("mm\n", "'mm' is no id of a case"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_lists_no_cases_is_refused(tmp_path, text, message):
    file = tmp_path / "ids.txt"
    if text is not None:
        file.write_text(text)
    with pytest.raises(CaseListError, match=message):
        read_case_list(file)
