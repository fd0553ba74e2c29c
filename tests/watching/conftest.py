"""A user's suite of kernels with one fault each, and what ``conformance watch`` records of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import targets
from conformance.records import CaseRecord, read_records
from conformance.watching.settings import WatchSettings
from conformance.watching.watched_run import WatchedRun

SUITE = Path(__file__).with_name("user_suite.py")


def watched(folder: Path, *words: str, **settings: object) -> tuple[int, dict[str, CaseRecord]]:
    """Returns the exit status of a watched run of the user's suite, and its records by test and kernel."""
    tests = folder / "tests"
    tests.mkdir()
    (tests / "test_user.py").write_text(SUITE.read_text())
    run = folder / "run"
    chosen = WatchSettings(targets.compile_targets()[0].id, str(run), **settings)  # type: ignore[arg-type]
    plain = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", f"--rootdir={tests}", str(tests / "test_user.py"))
    status = WatchedRun(chosen, [*plain, *words]).run()
    return status, {record.case.split("::")[1]: record for record in read_records(run).records}


@pytest.fixture(scope="session")
def watched_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder in which the whole suite is watched."""
    return tmp_path_factory.mktemp("watched")


@pytest.fixture(scope="session")
def whole_suite(watched_folder: Path) -> tuple[int, dict[str, CaseRecord]]:
    """Returns what :func:`watched` does of all tests that come to an end."""
    return watched(watched_folder, "--deselect", "test_user.py::test_kills_the_process")
