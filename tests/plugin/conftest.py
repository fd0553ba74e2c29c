"""A project of its own with tiny suites, run by a pytest of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.records import CaseRecord, Reading, RunInfo, read_records, read_run

ROOT = Path(__file__).resolve().parents[2]


class Project:
    """``run`` runs pytest in the project; ``records`` and the others read what its only run left."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path

    def suite(self, name: str, source: str) -> None:
        header = "import os, time, pytest\nfrom conformance.records import *\n"
        (self.path / "suites").mkdir(exist_ok=True)
        (self.path / "suites" / f"test_{name}.py").write_text(header + source)

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest_subprocess("-p", "conformance.plugin", *arguments, timeout=60)

    def refused(self, message: str, *arguments: str) -> None:
        """Runs pytest and checks that it refuses to, with a line of ``message``."""
        result = self.run(*arguments)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([message])

    @property
    def folder(self) -> Path:
        (folder,) = (self.path / "reports").iterdir()
        return folder

    @property
    def reading(self) -> Reading:
        return read_records(self.folder)

    @property
    def records(self) -> dict[str, CaseRecord]:
        """The records by the name of the test function with its parameters."""
        by_name = {record.case.split("::")[-1]: record for record in self.reading.records}
        assert len(by_name) == len(self.reading.records)
        return by_name

    @property
    def statuses(self) -> dict[str, str]:
        return {name: record.status.value for name, record in self.records.items()}

    @property
    def info(self) -> RunInfo:
        return read_run(self.folder)


@pytest.fixture(params=[(), ("-n", "2")], ids=["alone", "xdist"])
def workers(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options with which the process that the user started runs the cases, or workers of xdist do."""
    return request.param


@pytest.fixture
def new_python() -> None:
    """The processes of the test start as a user's do; see ``bare``."""


@pytest.fixture
def bare(request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project without suites. Its pytest is a fork, unless the test asks for ``new_python``. A test does so if it
    asks what ended a process, what is imported or what is left running."""
    if "new_python" not in request.fixturenames:
        request.getfixturevalue("forked")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "TRITON_INTERPRET", "OMP_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    for variable in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(variable)
    return Project(pytester)


@pytest.fixture
def project(bare: Project) -> Project:
    """A project whose folder ``suites`` holds conformance suites; no GPU unless a test asks for some."""
    (bare.path / "pytest.ini").write_text(
        "[pytest]\n"
        "conformance_suites = suites\n"
        "testpaths = suites\n"
        "addopts = -p no:cacheprovider --conformance-gpus 0 --conformance-reruns 0 -n 0\n"
    )
    return bare
