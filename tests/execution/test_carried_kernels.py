"""Kernels that were compiled elsewhere: Triton takes them as its own, and what does not belong is not taken."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
from pathlib import Path

import pytest

from conformance.execution.compile.carried_kernels import KERNELS_FILE, CarriedKernels, Toolchain, toolchain
from conformance.execution.compile.compilation import CompilePool, CompileRequest, CompileResult
from conformance.execution.compile.specialisation import specialisation
from conformance.records import Status
from conformance.targets import Target
from tests.execution.sample_kernels import Sample, launch

SAMPLES = "tests.execution.sample_kernels"
COPY = Sample("copy", offset=8)
SM90 = Target("cuda", 90, 32)
KEY = specialisation(launch(COPY, SM90), SM90).key
MINE = toolchain(None, SM90)


def compiled(cache: Path, monkeypatch: pytest.MonkeyPatch, carried: tuple[str, str] | None = None) -> CompileResult:
    """COPY, compiled with an empty cache of Triton's."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    with CompilePool(1) as pool:
        return pool.submit(CompileRequest(f"{SAMPLES}:launch", COPY, SM90, carried=carried)).result()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with COPY, which another machine compiled: its PTX says so, and so does its name of the kernel."""
    result = compiled(tmp_path / "there", monkeypatch)
    assert result.artefact is not None
    ptx, facts = result.artefact.stages["ptx"], result.artefact.stages["json"]
    ptx.write_text(ptx.read_text() + "// elsewhere\n")
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"hash": "elsewhere"}))
    kernels = CarriedKernels(tmp_path, write=True)
    kernels.add(KEY, MINE, result)
    kernels.close()
    return tmp_path


def test_triton_takes_a_carried_kernel_under_its_own_key(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = elsewhere / "here"
    artefact = compiled(here, monkeypatch, (str(elsewhere), MINE.edition)).artefact
    assert artefact is not None
    assert artefact.cached
    assert artefact.text("ptx").endswith("// elsewhere\n")
    assert all(path.is_relative_to(here) for path in artefact.stages.values())
    assert artefact.metadata["hash"] not in ("", "elsewhere")
    again = compiled(here, monkeypatch).artefact
    assert again is not None
    assert (again.cached, again.metadata) == (True, artefact.metadata), "a launch finds it without help"


def test_a_kernel_of_another_toolchain_is_not_taken(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artefact = compiled(elsewhere / "here", monkeypatch, (str(elsewhere), "another")).artefact
    assert artefact is not None
    assert not artefact.cached
    assert "elsewhere" not in artefact.text("ptx")


def test_files_of_another_kernel_are_not_taken_for_it(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = CarriedKernels(elsewhere, write=True)
    with kernels._database:
        kernels._database.execute("UPDATE files SET name = 'other.' || name")
    kernels.close()
    artefact = compiled(elsewhere / "here", monkeypatch, (str(elsewhere), MINE.edition)).artefact
    assert artefact is not None
    assert not artefact.cached, "it was compiled, and says so"


def test_a_failure_is_carried_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = CarriedKernels(tmp_path, write=True)
    kernels.add(KEY, MINE, CompileResult(Status.TIMEOUT, None, "planted", 1.0))
    kernels.close()
    result = compiled(tmp_path / "here", monkeypatch, (str(tmp_path), MINE.edition))
    assert (result.status, result.artefact) == (Status.TIMEOUT, None)
    assert "planted" in result.error


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, None),
        ({"python": "3.1", "library": "another"}, None),
        ({"triton": "3.0.0"}, "triton 3.0.0, here is"),
        ({"assemblers": {"ptxas": "1.0"}}, "assemblers {'ptxas': '1.0'}"),
        ({"settings": {"DISABLE_LLVM_OPT": "1"}}, "settings"),
        ({"library": "another"}, "library differs"),
    ],
)
def test_a_toolchain_says_what_keeps_kernels_from_being_used(changes: dict[str, object], text: str | None) -> None:
    other = dataclasses.replace(MINE, **changes)  # type: ignore[arg-type]
    objection = MINE.objection(other)
    assert (objection is None) == (text is None)
    assert text is None or (objection is not None and text in objection)
    assert (MINE.edition == other.edition) == (changes.keys() <= {"python", "library"})


def test_a_folder_keeps_the_kernels_of_several_toolchains(tmp_path: Path) -> None:
    other = dataclasses.replace(MINE, triton="3.0.0")
    kernels = CarriedKernels(tmp_path, write=True)
    failure = CompileResult(Status.COMPILE_ERROR, None, "planted", 1.0)
    for used in (MINE, other):
        kernels.add("a", used, failure)
    kernels.add("b", MINE, failure)
    assert {used.triton for used in kernels.toolchains()} == {MINE.triton, "3.0.0"}
    for key, used in (("a", MINE), ("a", other), ("b", MINE)):
        assert kernels.failure(key, used.edition) == (Status.COMPILE_ERROR, "planted")
    assert (kernels.failure("b", other.edition), kernels.files("a", MINE.edition)) == (None, {})


def test_a_toolchain_is_plain_data() -> None:
    facts = json.loads(json.dumps(dataclasses.asdict(MINE)))
    assert Toolchain(**facts) == MINE


def test_a_fifo_holds_no_kernels_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / KERNELS_FILE)
    with pytest.raises(sqlite3.OperationalError, match="a file is required, and this is a fifo"):
        CarriedKernels(tmp_path).toolchains()
