"""Kernels that were compiled elsewhere: Triton takes them as its own, and what does not belong is not taken."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
import subprocess
import zlib
from pathlib import Path

import pytest

from conformance.execution.compile import carried_kernels
from conformance.execution.compile.carried_kernels import KERNELS_FILE, CarriedKernels, Toolchain, Unusable, toolchain
from conformance.execution.compile.compilation import CompilePool, CompileRequest, CompileResult
from conformance.execution.compile.specialisation import specialisation
from conformance.records import Status
from conformance.targets import Target
from tests.execution.sample_kernels import Sample, launch
from tests.forked_python import executable

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


def stored(folder: Path, change: str, *values: object) -> None:
    """Changes the file of carried kernels in ``folder`` as a stranger could: digests are left as they are."""
    with contextlib.closing(sqlite3.connect(folder / KERNELS_FILE)) as database, database:
        database.execute(change, values)


def signed(folder: Path, **changed: bytes) -> None:
    """Replaces files of COPY, by stage, and writes their digest again."""
    with contextlib.closing(CarriedKernels(folder)) as kernels:
        found = kernels.get(KEY, MINE.edition)
    assert found is not None
    name = next(iter(found[2])).rpartition(".")[0]
    for stage, content in changed.items():
        found[2][f"{name}.{stage}"] = content
        stored(folder, "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", KEY, MINE.edition, f"{name}.{stage}",
               zlib.compress(content))  # fmt: skip
    digest = carried_kernels._digest(KEY, MINE.edition, Status.PASS.value, "", found[2])
    stored(folder, "UPDATE kernels SET digest = ?", digest)


ZEROS = zlib.compress(bytes(carried_kernels.KERNEL_LIMIT + 1), 1)
HOSTILE = {
    "a path": ("UPDATE files SET name = '/tmp/' || name", (), "letters, digits"),
    "a folder above": ("UPDATE files SET name = '../' || name", (), "letters, digits"),
    "two dots": ("UPDATE files SET name = 'a..' || name", (), "letters, digits"),
    "a hidden file": ("UPDATE files SET name = '.' || name", (), "letters, digits"),
    "a line's end": ("UPDATE files SET name = name || char(10)", (), "letters, digits"),
    "bytes for a name": ("UPDATE files SET name = CAST(name AS BLOB)", (), "letters, digits"),
    "one more file": (
        "INSERT INTO files VALUES (?, ?, 'PWNED', ?)",
        (KEY, MINE.edition, zlib.compress(b"x")),
        "several",
    ),
    "a group of files": (
        "INSERT INTO files SELECT key, edition, '__grp__' || name, content FROM files WHERE name LIKE '%json'",
        (),
        "several",
    ),
    "another binary": ("UPDATE files SET content = ? WHERE name LIKE '%cubin'", (zlib.compress(b"x"),), "digest"),
    "a file less": ("DELETE FROM files WHERE name LIKE '%cubin'", (), "digest"),
    "another's digest": ("UPDATE kernels SET digest = ?", ("0" * 64,), "digest"),
    "no text": ("UPDATE kernels SET error = x'00'", (), "digest"),
    "an unknown status": ("UPDATE kernels SET status = 'waived'", (), "digest"),
    "no archive": ("UPDATE files SET content = x'0102'", (), "cannot be unpacked"),
    "a number": ("UPDATE files SET content = 7", (), "cannot be unpacked"),
    "an archive cut off": ("UPDATE files SET content = substr(content, 1, 20)", (), "cut off"),
    "more after it": ("UPDATE files SET content = CAST(content || x'00' AS BLOB)", (), "cut off"),
    "a bomb": ("UPDATE files SET content = ?", (ZEROS,), "bytes that a kernel may have"),
    "a long text": ("UPDATE kernels SET error = ?", ("x" * (carried_kernels.TEXT_LIMIT + 1),), "bytes, "),
    "many files": (
        "WITH n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 99)"
        " INSERT INTO files SELECT key, edition, 'x' || i, x'00' FROM kernels, n",
        (),
        "more than 32 rows",
    ),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_a_stranger_changed_is_not_used_and_says_why(elsewhere: Path, hostile: str) -> None:
    change, values, text = HOSTILE[hostile]
    stored(elsewhere, change, *values)
    with contextlib.closing(CarriedKernels(elsewhere)) as kernels, pytest.raises(Unusable, match=text):
        kernels.get(KEY, MINE.edition)


@pytest.mark.parametrize("status", ["waived", "expected-fail", "not-applicable", "not-run", "pass", "?"])
def test_a_status_that_no_compilation_has_excuses_no_case(tmp_path: Path, status: str) -> None:
    with contextlib.closing(CarriedKernels(tmp_path, write=True)) as kernels:
        kernels.add(KEY, MINE, CompileResult(Status.TIMEOUT, None, "planted", 1.0))
    digest = carried_kernels._digest(KEY, MINE.edition, status, "planted", {})
    stored(tmp_path, "UPDATE kernels SET status = ?, digest = ?", status, digest)
    with contextlib.closing(CarriedKernels(tmp_path)) as kernels, pytest.raises(Unusable, match="status"):
        kernels.get(KEY, MINE.edition)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"cubin": b"\x7fELF"}, "cut off or damaged"),
        ({"ptx": b""}, "ptx is missing or empty"),
        ({"json": b'{"name": "x", "num_warps": 4, "target": {}}'}, "sm_90 is required"),
        ({"json": b"[" * 100_000}, "metadata cannot be read"),
    ],
    ids=["binary", "empty", "target", "deep"],
)
def test_files_that_contradict_each_other_are_compiled_here(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, bytes], text: str
) -> None:
    """Whoever changes a file can write its digest again, too."""
    signed(elsewhere, **changed)
    result = compiled(elsewhere / "here", monkeypatch, (str(elsewhere), MINE.edition))
    assert result.artefact is not None
    assert not result.artefact.cached, "it was compiled, and says so"
    assert text in result.refused


def test_an_exchanged_kernel_is_compiled_here_and_nothing_is_written_outside(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(elsewhere, "UPDATE files SET name = ? || name", f"{elsewhere}/outside/")
    result = compiled(elsewhere / "here", monkeypatch, (str(elsewhere), MINE.edition))
    assert result.artefact is not None
    assert not result.artefact.cached
    assert "elsewhere" not in result.artefact.text("ptx")
    assert "a file is called" in result.refused
    assert not (elsewhere / "outside").exists()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE VIEW more AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n",
        "CREATE TRIGGER later AFTER INSERT ON kernels BEGIN DELETE FROM files; END",
        "CREATE TABLE more (a)",
        "ALTER TABLE files ADD COLUMN more AS (zeroblob(1000000000))",
        "DROP TABLE files",
    ],
    ids=["view", "trigger", "table", "computed column", "no table"],
)
@pytest.mark.parametrize("write", [False, True])
def test_a_file_with_other_tables_is_not_opened(elsewhere: Path, change: str, write: bool) -> None:
    stored(elsewhere, change)
    with pytest.raises(Unusable, match="has other tables"):
        CarriedKernels(elsewhere, write=write)


def test_a_view_in_the_place_of_a_table_is_not_asked(elsewhere: Path) -> None:
    stored(elsewhere, "DROP TABLE toolchains")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i AS edition, i AS facts FROM n"
    stored(elsewhere, f"CREATE VIEW toolchains AS {endless}")
    with pytest.raises(Unusable, match="has other tables"):
        CarriedKernels(elsewhere)


@pytest.mark.parametrize("facts", ["", "[]", "{}", '{"x": 1}', "[" * 100_000, 7, b"x", '{"triton": NaN}'])
def test_a_toolchain_that_cannot_be_read_is_said(elsewhere: Path, facts: object) -> None:
    stored(elsewhere, "UPDATE toolchains SET facts = ?", facts)
    with contextlib.closing(CarriedKernels(elsewhere)) as kernels, pytest.raises(Unusable, match="toolchain there"):
        kernels.toolchains()


def test_many_toolchains_are_not_read(elsewhere: Path) -> None:
    stored(
        elsewhere,
        "WITH n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 99) INSERT INTO toolchains SELECT i, i FROM n",
    )
    with contextlib.closing(CarriedKernels(elsewhere)) as kernels, pytest.raises(Unusable, match="more than 64 rows"):
        kernels.toolchains()


@pytest.mark.parametrize("name", ["a?mode=rwc", "a#b", "a%41", "\udcff"])
def test_the_name_of_a_folder_is_only_a_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with contextlib.closing(CarriedKernels(folder, write=True)) as kernels:
        kernels.add("a", MINE, CompileResult(Status.OOM, None, "planted", 1.0))
    assert [path.name for path in folder.iterdir()] == [KERNELS_FILE]
    with contextlib.closing(CarriedKernels(folder)) as kernels:
        assert kernels.get("a", MINE.edition) == (Status.OOM, "planted", {})


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
        assert kernels.get(key, used.edition) == (Status.COMPILE_ERROR, "planted", {})
    assert kernels.get("b", other.edition) is None


def test_a_toolchain_is_plain_data() -> None:
    facts = json.loads(json.dumps(dataclasses.asdict(MINE)))
    assert Toolchain(**facts) == MINE


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_a_fifo_next_to_the_file_is_not_waited_for(elsewhere: Path, suffix: str) -> None:
    os.mkfifo(elsewhere / f"{KERNELS_FILE}{suffix}")
    code = "import sys; from pathlib import Path; from conformance.execution.compile.carried_kernels import *\n"
    code += "print(len(CarriedKernels(Path(sys.argv[1])).toolchains()))"
    done = subprocess.run([executable(), "-c", code, elsewhere], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"


def test_a_fifo_holds_no_kernels_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / KERNELS_FILE)
    with pytest.raises(OSError, match="a file is required, and this is a fifo"):
        CarriedKernels(tmp_path).toolchains()
