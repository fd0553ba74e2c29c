"""The table of the releases: a run with a failure, of another release, or that proves nothing is no pass."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from conformance.case_record import CaseRecord, RunInfo
from conformance.case_status import Reason, ReasonCode, Status
from conformance.machine.versions import OLDEST_TRITON
from tests import releases
from tests.command_runs import JUDGED, write_run
from tests.releases import EARLIER, RELEASES, Result, install, main, result_of, table

ROOT = Path(__file__).resolve().parents[1]
TENSORMAP = Reason(ReasonCode.NO_INTERPRETER, "tensormap", "no interpreter has tensor maps")


def left(folder: Path, triton: str, *cases: tuple[Status, Reason | None]) -> Path:
    """A folder as a run with ``triton`` leaves it."""
    records = [
        CaseRecord(case=f"test_a.py::test[{index}]", suite="a", status=status, reason=reason, verdicts=JUDGED)
        for index, (status, reason) in enumerate(cases)
    ]
    return write_run(folder, records, RunInfo("r", "2026-11-01", "quick", 0, stack={"triton": triton}))


@pytest.mark.parametrize(
    ("triton", "cases", "status", "problem"),
    [
        ("3.3.1", [(Status.PASS, None), (Status.NOT_RUN, TENSORMAP), (Status.EXPECTED_FAIL, None)], 0, ""),
        ("3.3.1", [(Status.PASS, None), (Status.COMPILE_ERROR, None)], 1, ""),
        ("3.3.1", [(Status.PASS, None)], 2, ""),  # a record is missing, or the run was ended
        ("3.7.1", [(Status.PASS, None)], 0, "it ran with Triton 3.7.1"),
        ("3.3.1", [(Status.NOT_RUN, TENSORMAP)], 0, "no case passed"),
        ("3.3.1", [], 5, "no case passed"),
    ],
)
def test_what_a_run_left(tmp_path, triton, cases, status, problem):
    result = result_of("3.3.1", left(tmp_path / "run", triton, *cases), status)
    assert result.problem == problem
    assert result.passed == (not problem and status == 0)
    assert result.failing == (("test_a.py::test[1]",) if status == 1 else ())


def test_a_run_that_left_nothing_is_no_pass(tmp_path):
    result = result_of("3.3.1", tmp_path / "run", 4)
    assert not result.passed
    assert "cannot be read" in result.problem


def test_the_table_names_what_fails_and_what_was_not_judged(tmp_path):
    results = [
        result_of("3.3.1", left(tmp_path / "a", "3.3.1", (Status.PASS, None), (Status.CRASH, None)), 1),
        Result("3.9.0", problem="pip ended with status 1"),
    ]
    assert table(results).splitlines()[2:] == [
        "| 3.3.1 | 1 | 0 | 1 | 0 | 0 | 1 |",
        "| 3.9.0 | 0 | 0 | 0 | 0 | 0 | none |",
        "",
        "3.3.1 fails test_a.py::test[1]",
        "3.9.0 was not judged: pip ended with status 1",
    ]


def test_a_release_is_installed_once_into_its_folder(tmp_path, monkeypatch):
    calls = []

    def pip(command, check):
        calls.append(command[-1])
        Path(command[-2]).mkdir()

    monkeypatch.setattr(subprocess, "run", pip)
    assert install(tmp_path, "3.9.0") == install(tmp_path, "3.9.0") == tmp_path / "3.9.0"
    assert calls == ["triton==3.9.0"]


def test_one_release_that_fails_ends_with_status_1(tmp_path, monkeypatch, capsys):
    """The others are run all the same. Words of pytest reach it, behind those that every run has."""

    def run(release, tritons, output, words):
        assert words == ["--suite", "zero_size"]
        return result_of(release, left(output / release, release, (Status.PASS, None)), int(release == "3.3.1"))

    monkeypatch.setattr(releases, "run", run)
    words = ["--suite", "zero_size", "--output"]
    assert main([*words, str(tmp_path / "all")]) == 1
    assert [line.split()[1] for line in (tmp_path / "all/releases.md").read_text().splitlines()[2:]] == list(RELEASES)
    assert main([*words, str(tmp_path / "one"), "--release", "3.9.0"]) == 0
    assert "| 3.9.0 | 1 | 0 | 0 | 0 | 0 | 0 |" in capsys.readouterr().out


def test_the_list_is_what_the_guides_and_the_makefile_promise():
    minors = [release.rpartition(".")[0] for release in RELEASES]
    assert minors[0] == OLDEST_TRITON
    assert minors == [f"3.{minor}" for minor in range(2, 2 + len(minors))]
    makefile = (ROOT / "Makefile").read_text()
    assert f"$(TRITONS)/{EARLIER.name}/installed" in makefile
    pinned = re.findall(r"^triton==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned == [list(RELEASES)[-1]]
