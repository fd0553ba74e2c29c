"""A run records its stack, its checkout and its options when it begins."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conformance.gate.runs.run_environment import (
    assembler_facts,
    deciding_variables,
    distribution_facts,
    environment,
    git_state,
    variables,
)
from conformance.machine.kept_answers import code_digest
from conformance.machine.versions import ASSEMBLERS, assemblers, nvidia_tool


def wheel(folder: Path, sources: dict[str, str], name: str = "fake_stack") -> Path:
    """A distribution as an installer leaves it in ``folder``."""
    info = f"{name}-1.0.dist-info"
    files = {**sources, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"}
    rows = []
    for file, text in files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.append(f"{file},sha256={digest},{len(text)}")
    (folder / info / "RECORD").write_text("\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return folder


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return wheel(tmp_path, {"fake_stack/__init__.py": "a = 1\n", "fake_stack/lib.so": "machine code"})


def facts():
    return distribution_facts("fake_stack", "fake_stack/")


def test_an_installed_wheel_is_described(installed):
    entry = facts()
    assert (entry["version"], entry["files"], entry["altered"], entry["is_imported"]) == ("1.0", 3, [], True)
    rows = sorted(
        row for row in (installed / "fake_stack-1.0.dist-info/RECORD").read_text().splitlines() if ",," not in row
    )
    assert entry["record_sha256"] == hashlib.sha256("".join(row + "\n" for row in rows).encode()).hexdigest()


def test_what_an_installer_adds_does_not_change_the_digest(installed):
    before = facts()["record_sha256"]
    record = installed / "fake_stack-1.0.dist-info/RECORD"
    added = "fake_stack-1.0.dist-info/INSTALLER,sha256=a,4\n../../bin/x,sha256=b,3\nfake_stack/__pycache__/a.pyc,,\n"
    record.write_text(added + record.read_text())
    assert facts()["record_sha256"] == before


@pytest.mark.parametrize(
    ("file", "content"),
    [("__init__.py", "a = 2\n"), ("lib.so", "machine code and more"), ("lib.so", None)],
    ids=["source edited in place", "library of another size", "file removed"],
)
def test_files_altered_since_they_were_installed_are_named(installed, file, content):
    path = installed / "fake_stack" / file
    path.unlink() if content is None else path.write_text(content)
    entry = facts()
    assert (entry["altered"], entry["altered_files"]) == ([f"fake_stack/{file}"], 1)


def test_another_build_before_it_on_the_path_is_seen(installed, monkeypatch):
    other = installed / "other" / "fake_stack"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(other.parent))
    assert facts()["is_imported"] is False


def test_a_distribution_that_is_not_installed_has_no_facts():
    assert distribution_facts("no-such-distribution", "x/") is None


def tool(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"tool")
    path.chmod(0o755)
    return path


@pytest.fixture
def own_triton(tmp_path, monkeypatch) -> Path:
    """The folder of the tools of a Triton that is imported before the installed one."""
    for name in ASSEMBLERS:
        monkeypatch.delenv(f"TRITON_{name.upper().replace('-', '_')}_PATH", raising=False)
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    return tmp_path / "triton" / "backends/nvidia/bin"


def test_the_assemblers_of_the_variables_are_hashed(own_triton, tmp_path, monkeypatch):
    own = tool(tmp_path / "mine")
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", str(own))
    facts = {"name": "ptxas-blackwell", "path": str(own), "sha256": hashlib.sha256(b"tool").hexdigest()}
    assert assembler_facts() == [facts]


def test_the_assemblers_are_those_of_the_triton_that_is_imported(own_triton):
    own = tool(own_triton / "ptxas")  # a release from before there were two
    assert assemblers() == {"ptxas": own}


def test_a_variable_that_names_nothing_leaves_tritons_own_tool(own_triton, tmp_path, monkeypatch):
    """As Triton itself looks for it."""
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "none"))
    assert nvidia_tool("ptxas") is None
    own = tool(own_triton / "ptxas")
    assert nvidia_tool("ptxas") == own


def test_variables_that_change_results_are_kept_and_secrets_are_not():
    environ = {
        "TRITON_CACHE_DIR": "/c",
        "TORCHINDUCTOR_REMOTE_CACHE": "redis://user:word@host/0",
        "CUDA_API_TOKEN": "abc",
        "PYTORCH_SECRET_THING": "abc",
        "TRITON_KEY": "abc",
        "PYTEST_ADDOPTS": "-k mm",
        "PYTEST_CURRENT_TEST": "x",
        "HOME": "/root",
        "LD_PRELOAD": "x.so",
        "PTXAS_OPTIONS": "-O0",
        "DISABLE_MMA_V3": "1",
        "AMDGCN_USE_BUFFER_OPS": "0",
        "LLVM_PASS_PLUGIN_PATH": "/p.so",
        "NVIDIA_PASSWORD": "abc",
    }
    assert variables(environ) == {
        "AMDGCN_USE_BUFFER_OPS": "0",
        "CUDA_API_TOKEN": "(withheld)",
        "DISABLE_MMA_V3": "1",
        "LD_PRELOAD": "x.so",
        "LLVM_PASS_PLUGIN_PATH": "/p.so",
        "NVIDIA_PASSWORD": "(withheld)",
        "PTXAS_OPTIONS": "-O0",
        "PYTEST_ADDOPTS": "-k mm",
        "PYTORCH_SECRET_THING": "(withheld)",
        "TORCHINDUCTOR_REMOTE_CACHE": "redis://(withheld)@host/0",
        "TRITON_CACHE_DIR": "/c",
        "TRITON_KEY": "(withheld)",
    }


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


def test_the_state_of_a_checkout(tmp_path):
    assert git_state(tmp_path) is None
    git(tmp_path, "init")
    (tmp_path / "a.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    clean = git_state(tmp_path)
    assert (clean["dirty"], clean["diff_sha256"], len(clean["commit"])) == (False, None, 40)
    (tmp_path / "new.py").write_text("")
    assert git_state(tmp_path) == {**clean, "dirty": True}
    (tmp_path / "a.py").write_text("a = 2\n")
    assert git_state(tmp_path)["diff_sha256"] is not None


def test_a_package_inside_another_checkout_has_no_commit(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "a").write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    (tmp_path / "site-packages").mkdir()
    assert git_state(tmp_path / "site-packages") is None


def test_the_environment_is_json_and_quick_to_collect():
    began = time.perf_counter()
    facts = environment("run-1", "2026-01-01T00:00:00+00:00", {"torch": "2.13.0"}, ["GPU"], ["--tier", "quick"])
    assert time.perf_counter() - began < 5, "a run waits for this; a quiet machine needs well under a second"
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert (facts["run"], facts["options"], facts["code"]) == (
        "run-1",
        ["--tier", "quick"],
        {"sha256": code_digest(), "suites": []},
    )


def test_collecting_imports_neither_torch_nor_triton():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = None;"
        "from conformance.gate.runs.run_environment import *;"
        "print(environment('a', 'b', {}, [], [])['distributions']['triton'])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=Path(__file__).parents[2])


def test_a_file_that_changes_changes_the_code_digest_of_the_same_process(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("x")
    digest = code_digest(tmp_path)
    file.write_text("y")
    os.utime(file, ns=(1, 1))
    assert code_digest(tmp_path) != digest


def test_the_code_digest_depends_on_names_and_contents_and_on_nothing_else(tmp_path):
    def package(files: dict[str, str]) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return code_digest(folder)

    code = {"a.py": "x", "b/c.py": "y", "b/d.toml": "z"}
    assert package(code) == package({**code, "b/__pycache__/c.pyc": "other", ".cache/x": "other"})
    others = [
        {**code, "a.py": "X"},
        {**code, "b/d.toml": "Z"},
        {**code, "e.py": ""},
        {"a.py": "x", "b/c.py": "y"},
        {"a.pyx": "", "b/c.py": "y", "b/d.toml": "z"},
        {"a.py": "y", "b/c.py": "x", "b/d.toml": "z"},
    ]
    assert len({package(code), *map(package, others)}) == len(others) + 1


def test_variables_that_choose_tools_and_libraries_decide_and_those_of_devices_and_caches_do_not():
    free = [
        "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "TRITON_CACHE_DIR",
        "CUDA_CACHE_PATH",
        "TRITON_HOME",
        "PYTHONPATH",
    ]
    deciding = ["LD_PRELOAD", "LD_LIBRARY_PATH", "TRITON_PTXAS_PATH", "TRITON_LIBDEVICE_PATH", "TRITON_PLUGIN_PATHS"]
    assert [*deciding_variables(dict.fromkeys([*free, *deciding], "x"))] == deciding
