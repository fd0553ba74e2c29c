"""A run names all that makes its code, a comparison shows what differs, and what is not known is said."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.commands.verify import describe
from conformance.execution.compile.carried_kernels import backend_hashes
from conformance.gate.evidence.archive import read_archive
from conformance.gate.evidence.contents import ENVELOPE_FILE
from conformance.gate.evidence.contents import parse as parse_members
from conformance.gate.evidence.statement import build_statement
from conformance.gate.evidence.verify import verify
from conformance.gate.runs import bill_of_materials as bills
from conformance.gate.runs.bill_of_materials import NONE, UNKNOWN, bill_of_materials
from conformance.gate.stacks.stack_file import PREVIEWS, StackError, parse, read_matrix
from conformance.records import RUN_FILE, RunInfo, jsonable, run_from_text
from conformance.reporting.comparison import render_terminal, stack_changes
from conformance.reporting.html_data import ReportedRun, comparison_data
from conformance.user_files.findings import Comparison, Side
from tests.gate.sample_bundles import sample

COMMIT, OTHER = "1f126a6dea50d185c0781743a667390037ae88bd", "6bc4aaf6641c56ee104f6200c96a6a571bc77052"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a made-up Triton, which alone can be imported."""
    folder = tmp_path / "triton"
    for place in ("_C", "backends/nvidia/lib", "backends/amd/lib"):
        (folder / place).mkdir(parents=True)
    (folder / "__init__.py").touch()
    text = b"\0LLVM version 23.0.0git\0LLVM version 23.0.0git (" + COMMIT.encode() + b")\0"
    (folder / "_C/libtriton.so").write_bytes(b"x" * (bills._CHUNK - 60) + text)  # across the end of a chunk
    (folder / "backends/nvidia/lib/libdevice.10.bc").write_bytes(b"device")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(bills, "_package", lambda: folder)
    bills._listed.cache_clear()
    yield folder
    bills._listed.cache_clear()


def metadata(package: Path, version: str, *rows: str) -> None:
    info = package.parent / f"triton-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{row}\n" for row in rows))
    bills._listed.cache_clear()


def test_what_a_package_says(package: Path) -> None:
    bill = bill_of_materials("580.1", {})
    assert bill["LLVM commit"] == bill["LLVM commit for AMD"] == COMMIT
    assert bill["libdevice sha256"] == hashlib.sha256(b"device").hexdigest()
    assert bill["driver"] == "580.1"


def test_what_a_package_does_not_say_is_unknown(package: Path) -> None:
    metadata(package, "3.9.0")
    (package / "_C/libtriton.so").write_bytes(b"nothing")
    bill = bill_of_materials(None, {})
    unknown = {"Triton commit", "LLVM commit", "LLVM commit for AMD", "ocml sha256", "ockl sha256"}
    assert {name for name, value in bill.items() if value == UNKNOWN} == unknown
    assert bill["driver"] == NONE


def test_a_build_from_source_names_its_commit(package: Path) -> None:
    metadata(package, "3.10.0+git0a1b2c3d")
    assert bill_of_materials(None, {})["Triton commit"] == "0a1b2c3d"


def test_the_code_generator_for_amd_may_have_an_llvm_of_its_own(package: Path) -> None:
    own = package / "backends/amd/lib/libtriton_amd_codegen.so"
    own.write_bytes(b"LLVM version 24.0.0git (" + OTHER.encode() + b")")
    assert bill_of_materials(None, {})["LLVM commit for AMD"] == OTHER
    own.write_bytes(b"stripped")
    assert bill_of_materials(None, {})["LLVM commit for AMD"] == UNKNOWN


def test_a_file_that_is_not_the_wheels_is_read(package: Path) -> None:
    listed = base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")
    place = "triton/backends/nvidia/lib/libdevice.10.bc"
    metadata(package, "3.9.0", f"{place},sha256={listed},6")
    assert bill_of_materials(None, {})["libdevice sha256"] == bytes(32).hex()
    (package.parent / place).write_bytes(b"device, altered")
    assert bill_of_materials(None, {})["libdevice sha256"] == hashlib.sha256(b"device, altered").hexdigest()
    (package / "mine.bc").write_bytes(b"mine")
    named = bill_of_materials(None, {"TRITON_LIBDEVICE_PATH": str(package / "mine.bc")})
    assert named["libdevice sha256"] == hashlib.sha256(b"mine").hexdigest()


def backend(package: Path, name: str = "nvidia", code: str = "stages = 3") -> Path:
    """A backend in Triton's package."""
    folder = package / "backends" / name
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    (folder / "compiler.py").write_text(code)
    return folder


def vendor(package: Path, value: str = "vendor_triton.backend", top: str = "vendor_triton") -> Path:
    """A backend that another installed package brings, with a library next to it."""
    folder = package.parent / top
    (folder / "backend").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "backend" / "compiler.py").write_text("drops = ()")
    (folder / "codegen.so").write_bytes(b"machine code")
    info = package.parent / f"{top}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {top}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[triton.backends]\nvendor = {value}\n")
    importlib.invalidate_caches()
    return folder


def test_each_backend_has_a_digest_of_its_files(package: Path) -> None:
    folder = backend(package)
    digest = bill_of_materials(None, {})["backend nvidia sha256"]
    library = hashlib.sha256(b"device").hexdigest()
    code = hashlib.sha256(b"stages = 3").hexdigest()
    text = f"compiler.py\0{code}\nlib/libdevice.10.bc\0{library}\n"
    assert digest == hashlib.sha256(text.encode()).hexdigest()
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "compiler.pyc").write_bytes(b"compiled")
    assert bill_of_materials(None, {})["backend nvidia sha256"] == digest
    seen = [digest]
    for place, content in (("compiler.py", "stages = 2"), ("lib/libdevice.10.bc", "deviCe"), ("more.py", "")):
        (folder / place).write_text(content)  # the first two have the size that they had
        seen.append(bill_of_materials(None, {})["backend nvidia sha256"])
    (folder / "more.py").rename(folder / "renamed.py")
    seen.append(bill_of_materials(None, {})["backend nvidia sha256"])
    assert len({*seen}) == 5


def test_a_file_of_a_backend_is_read_though_the_wheel_lists_its_size(package: Path) -> None:
    backend(package)
    listed = base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")
    before = bill_of_materials(None, {})["backend nvidia sha256"]
    metadata(package, "3.9.0", f"triton/backends/nvidia/compiler.py,sha256={listed},10")
    assert bill_of_materials(None, {})["backend nvidia sha256"] == before


def test_a_vendors_backend_has_a_digest_of_its_whole_package(package: Path) -> None:
    folder = vendor(package)
    name = "backend vendor (vendor_triton.backend) sha256"
    before = bill_of_materials(None, {})
    assert before["backend vendor (vendor_triton.backend) hash()"] == UNKNOWN
    (folder / "codegen.so").write_bytes(b"other machine code")
    after = bill_of_materials(None, {})
    assert before[name] != after[name]
    assert UNKNOWN not in (before[name], after[name])


def test_a_backend_without_its_files_is_unknown(package: Path) -> None:
    vendor(package, "vendor_of_nowhere.backend")
    assert bill_of_materials(None, {})["backend vendor (vendor_of_nowhere.backend) sha256"] == UNKNOWN


def test_what_a_backend_says_of_itself_is_in_the_bill() -> None:
    bill = {"backend nvidia hash()": UNKNOWN, "backend vendor (v.backend) hash()": UNKNOWN, "driver": "1"}
    long = "ptxas\nrelease 13.4\n-90"
    said = bills.with_backend_hashes(bill, {"nvidia": long, "vendor": "v1-7", "late": "x"})
    assert said == {
        "backend nvidia hash()": hashlib.sha256(long.encode()).hexdigest(),
        "backend vendor (v.backend) hash()": "v1-7",
        "driver": "1",
        "backend late hash()": "x",
    }
    assert bills.with_backend_hashes(bill, {}) == bill


def test_the_loaded_backends_say_their_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("triton.backends")

    class Compiler:
        target = None

        def __init__(self, target: object) -> None:
            pass

        @staticmethod
        def supports_target(target: object) -> bool:
            return target.backend == "cuda"

        def hash(self) -> str:
            return "of a vendor"

    class Broken(Compiler):
        def hash(self) -> str:
            raise Exception("ROCm linker not found")

    class Foreign(Compiler):
        supports_target = staticmethod(lambda target: False)

    backends = {name: SimpleNamespace(compiler=one) for name, one in (("a", Compiler), ("b", Broken), ("c", Foreign))}
    monkeypatch.setattr(module, "backends", backends)
    assert backend_hashes() == {
        "a": "of a vendor",
        "b": "unknown: Exception: ROCm linker not found",
        "c": "unknown: no target of it is known",
    }
    monkeypatch.delitem(sys.modules, "triton.backends.compiler")
    assert backend_hashes() == {}


def test_variables_that_change_code_are_named_and_others_are_not(package: Path) -> None:
    environ = {"TRITON_DEFAULT_FP_FUSION": "0", "DISABLE_LLVM_OPT": "1", "PTXAS_OPTIONS": "-O0"}
    others = {"TRITON_CACHE_DIR": "/c", "TRITON_INTERPRET": "1", "HOME": "/h", "TRITON_PTXAS_PATH": "/p"}
    bill = bill_of_materials(None, {**environ, **others})
    assert {name: value for name, value in bill.items() if name.startswith("env ")} == {
        f"env {name}": value for name, value in environ.items()
    }


def test_run_json_keeps_the_bill() -> None:
    info = RunInfo("id", "2026-01-01", "quick", 0, bill={"LLVM commit": COMMIT})
    assert run_from_text(json.dumps(jsonable(info))).bill == {"LLVM commit": COMMIT}
    old = {name: value for name, value in jsonable(info).items() if name != "bill"}
    assert run_from_text(json.dumps(old)).bill == {}


def test_the_signed_statement_covers_the_bill(tmp_path: Path) -> None:
    members = read_archive(sample(tmp_path).data)
    del members[ENVELOPE_FILE]
    statement = build_statement(members, parse_members(members))
    run = json.loads(members[RUN_FILE])
    altered = {**members, RUN_FILE: json.dumps({**run, "bill": {"LLVM commit": OTHER}}).encode()}
    assert build_statement(altered, parse_members(altered)) != statement


def test_the_signed_statement_names_the_backends(tmp_path: Path) -> None:
    digest = "a" * 64
    bill = {"backend third (third_backend) sha256": digest, "backend third (third_backend) hash()": "third"}
    bundle = sample(tmp_path, bill=bill)
    subjects = verify(bundle.data, bundle.policy).statement["subject"]
    assert {"name": "backend third (third_backend)", "digest": {"backend_files_sha256": digest}} in subjects
    (tmp_path / "run.zip").write_bytes(bundle.data)
    lines = describe(verify(bundle.data, bundle.policy), bundle.policy).splitlines()
    (line,) = [line for line in lines if line.startswith("backends")]
    assert line.split(maxsplit=1)[1] == f"third (third_backend) hash() third; third (third_backend) sha256 {digest}"


def side(triton: str = "3.9.0", **bill: str) -> Side:
    rows = {name.replace("_", " "): value for name, value in bill.items()}
    return Side("run", {"triton": triton, "device": None}, "quick", 0, 9, {}, bill=rows)


def test_a_comparison_shows_what_differs_beside_the_versions() -> None:
    before = side(LLVM_commit=COMMIT, libtriton_sha256="a" * 64, libdevice_sha256="b" * 64)
    after = side(LLVM_commit=OTHER, libtriton_sha256="c" * 64, libdevice_sha256="b" * 64)
    assert stack_changes(before, after) == [
        ("LLVM commit", "1f126a6dea50...", "6bc4aaf6641c..."),
        ("libtriton sha256", "aaaaaaaaaaaa...", "cccccccccccc..."),
    ]
    text = render_terminal(Comparison(before, after, (), 9, 9))
    assert "1f126a6dea50...  6bc4aaf6641c..." in text


def test_another_version_has_other_bits_and_an_old_run_says_nothing() -> None:
    before, after = side("3.8.0", libtriton_sha256="a" * 64), side(libtriton_sha256="c" * 64)
    assert [row[0] for row in stack_changes(before, after)] == ["triton"]
    assert stack_changes(side(), after) == []


def test_another_backend_is_a_difference_of_the_stacks() -> None:
    before = side(backend_nvidia_sha256="a" * 64)
    assert stack_changes(before, side(backend_nvidia_sha256="b" * 64)) == [
        ("backend nvidia sha256", "aaaaaaaaaaaa...", "bbbbbbbbbbbb...")
    ]
    after = side("3.8.0", backend_nvidia_sha256="b" * 64)
    assert [row[0] for row in stack_changes(before, after)] == ["triton"]
    installed = {"backend v (v.b) sha256": "c" * 64, "backend v (v.b) hash()": "1"}
    assert stack_changes(before, dataclasses.replace(before, bill={**before.bill, **installed})) == [
        ("backend v (v.b) sha256", "none", "cccccccccccc..."),
        ("backend v (v.b) hash()", "none", "1"),
    ]
    old = side(libdevice_sha256="d" * 64)
    assert stack_changes(old, dataclasses.replace(before, bill={**old.bill, **before.bill})) == []


def test_a_variable_is_in_the_title_of_the_page(tmp_path: Path) -> None:
    before, after = side(), dataclasses.replace(side(), bill={"env TRITON_DEFAULT_FP_FUSION": "0"})
    run = ReportedRun(tmp_path, None)  # type: ignore[arg-type]
    data = comparison_data(Comparison(before, after, (), 9, 9), run)
    assert data["title"] == "TRITON_DEFAULT_FP_FUSION none to 0"
    assert data["stacks"][1]["env TRITON_DEFAULT_FP_FUSION"] == "0"


def test_a_preview_is_a_variable_of_its_stack(tmp_path: Path) -> None:
    stack = parse("triton==3.9.0 preview=fp-fusion-off")
    assert (stack.packages, stack.variables) == (("triton==3.9.0",), (("TRITON_DEFAULT_FP_FUSION", "0"),))
    file = tmp_path / "stacks.toml"
    file.write_text(
        '[stack.now]\nuse = "current"\n[stack.next]\nuse = "preview=fp-fusion-off"\nenv = { DISABLE_LLVM_OPT = "1" }\n'
    )
    assert dict(read_matrix(file).stacks[1].variables) == {"TRITON_DEFAULT_FP_FUSION": "0", "DISABLE_LLVM_OPT": "1"}


def test_a_preview_that_is_misspelt() -> None:
    with pytest.raises(StackError, match="preview=fp-fusion-of: there is no such preview; did you mean fp-fusion-off"):
        parse("preview=fp-fusion-of")


def test_triton_reads_the_variables_of_the_previews(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    assert set(PREVIEWS) == {"fp-fusion-off"}
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", PREVIEWS["fp-fusion-off"]["TRITON_DEFAULT_FP_FUSION"])
    assert knobs.language.default_fp_fusion is False
