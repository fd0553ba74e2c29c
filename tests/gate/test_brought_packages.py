"""Packages that a stack brings along are known, announced and named before anything is fetched."""

from __future__ import annotations

import argparse
import http.server
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.commands import CommandError, gate
from conformance.commands.shared import gate_runs
from conformance.gate.stacks import environments, pip_commands
from conformance.gate.stacks.environments import Environment, ResolvedStack, build, resolve, resolve_all
from conformance.gate.stacks.pip_commands import Package, PipError, announcement, brought, build_of, size_text
from conformance.gate.stacks.stack_file import Stack, StackError, parse
from conformance.gate.stacks.stack_runs import StackRun
from conformance.reporting.first_line import answer
from conformance.user_files.findings import Comparison, Side
from tests.gate.fake_wheels import index, wheel

__all__ = ["index"]

HERE = {"torch": Package("torch", "2.13.0+cpu"), "triton": Package("triton", "3.7.1")}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of this command has these packages."""
    real = environments.installed
    monkeypatch.setattr(environments, "installed", lambda site=None: HERE if site is None else real(site))


@pytest.fixture
def torches(index: Path) -> Path:
    """An index with a torch for CUDA, which brings its Triton and libraries, and the same for CPUs, which does not."""
    wheel(index, "torch", "9.1+cu130", ["triton==8.2", "nvidia-cublas==1.2", "filelock"], 3000)
    wheel(index, "torch", "9.1+cpu", ["filelock"], 500)
    wheel(index, "triton", "8.2", padding=2000)
    wheel(index, "nvidia-cublas", "1.2", padding=9000)
    wheel(index, "filelock", "4.0")
    return index


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, ...]]:
    """Packages that a made-up pip plans without looking at files, with what each requires; of two builds of one version
    it takes the first."""
    packages: dict[str, tuple[str, ...]] = {
        "torch==9.1+cu130": ("triton==8.2", "nvidia-cublas==1.2"),
        "torch==9.1+cpu": (),
        "triton==8.2": (),
        "triton==8.3": (),
        "nvidia-cublas==1.2": (),
    }

    def plan(arguments: Sequence[str], cache: Path, say: object) -> list[dict[str, object]]:
        requirements = [_requirement(word) for word in arguments if not word.startswith("-")]
        entries = []
        for text in requirements:
            pinned = next((one for one in packages if text in (one, one.partition("+")[0])), None)
            if pinned is None:
                raise PipError(f"no index that pip knows has it\n{text}")
            requirements += () if "--no-deps" in arguments else packages[pinned]
            name, _, version = pinned.partition("==")
            entries.append({"metadata": {"name": name, "version": version, "requires_dist": [*packages[pinned]]}})
        return entries

    monkeypatch.setattr(environments, "planned", plan)
    return packages


def _requirement(word: str) -> str:
    return Path(word).stem.replace("-", "==", 1) if word.endswith(".whl") else word


def resolved(text: str, cache: Path, has_gpu: bool = True) -> tuple[ResolvedStack, list[str]]:
    lines: list[str] = []
    return resolve(parse(text), cache, has_gpu, lines.append), lines


def versions(one: ResolvedStack) -> dict[str, str]:
    return {package.name: package.version for package in one.packages}


def test_what_a_torch_brings_is_announced_and_named_before_it_is_installed(torches: Path, tmp_path: Path) -> None:
    found, lines = resolved("torch==9.1", tmp_path / "cache")
    assert found.stack.title == "torch==9.1 (brings triton 8.2, CUDA 13.0 build)"
    assert versions(found) == {"torch": "9.1+cu130", "triton": "8.2", "nvidia-cublas": "1.2", "filelock": "4.0"}
    assert all(package.size for package in found.packages)
    assert lines[0].startswith("torch==9.1: nothing is fetched, 4 packages, ")
    assert lines[0].endswith(" kB from files on this machine")
    assert lines[1].startswith("  torch 9.1+cu130, CUDA 13.0 build, ")
    assert lines[1].endswith("; here 2.13.0+cpu, CPU build")
    assert lines[2].startswith("  triton 8.2, ")
    assert lines[2].endswith("; here 3.7.1")
    assert lines[3].startswith("  CUDA libraries: 1 package, ")
    assert not (tmp_path / "cache" / "stacks").exists()
    environment = build(found, print)
    assert (environment.folder / "site" / "nvidia_cublas").is_dir()
    assert StackRun(environment, tmp_path).name == "torch==9.1 (brings triton 8.2, CUDA 13.0 build)"
    kept, lines = resolved("torch==9.1", tmp_path / "cache")
    assert (kept.stack, kept.folder, kept.packages, lines) == (found.stack, found.folder, (), [])


def test_without_a_gpu_the_cpu_build_is_taken_with_the_triton_of_the_other(torches: Path, tmp_path: Path) -> None:
    found, lines = resolved("torch==9.1", tmp_path / "cache", has_gpu=False)
    assert versions(found) == {"torch": "9.1+cpu", "triton": "8.2", "filelock": "4.0"}
    assert found.stack.title == "torch==9.1 (brings triton 8.2)"
    assert "CPU build" in lines[1]
    environment = build(found, print)
    assert not (environment.folder / "site" / "nvidia_cublas").exists()
    assert (environment.folder / "site" / "triton").is_dir()
    with_gpu, _ = resolved("torch==9.1", tmp_path / "cache")
    assert with_gpu.folder != found.folder


def test_a_build_that_the_user_names_is_taken_without_a_gpu_too(
    listed: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    found, _ = resolved("torch==9.1+cu130", tmp_path / "cache", has_gpu=False)
    assert versions(found)["torch"] == "9.1+cu130"


def test_without_a_cpu_build_the_other_is_taken_and_it_is_said_how_to_get_one(
    listed: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    del listed["torch==9.1+cpu"]
    found, lines = resolved("torch==9.1", tmp_path / "cache", has_gpu=False)
    assert versions(found)["torch"] == "9.1+cu130"
    assert lines[0].startswith("torch==9.1: torch 9.1 has no CPU build here: no index that pip knows has it")
    assert "PIP_EXTRA_INDEX_URL" in lines[-1]


def test_a_triton_that_the_user_names_replaces_what_torch_brings(
    listed: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    found, _ = resolved("torch==9.1 triton==8.3", tmp_path / "cache")
    assert found.stack.title == "torch==9.1 triton==8.3 (brings CUDA 13.0 build)"
    own = tmp_path / "triton-8.3.whl"
    own.touch()
    found, _ = resolved(f"torch==9.1 {own}", tmp_path / "cache")
    assert "triton" not in found.stack.title.partition("(brings")[2]


def test_all_stacks_are_resolved_before_one_is_installed(listed: dict[str, tuple[str, ...]], tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"'triton==99' cannot be installed: no index that pip knows has it"):
        resolve_all([parse("torch==9.1"), parse("triton==99")], tmp_path / "cache", True, print)
    assert not (tmp_path / "cache" / "stacks").exists()


def test_a_wrong_candidate_ends_the_gate_before_the_baseline(
    listed: dict[str, tuple[str, ...]], tmp_path: Path, monkeypatch
) -> None:
    for name in ("build", "run", "abilities"):
        monkeypatch.setattr(gate_runs, name, None)
    parser = argparse.ArgumentParser()
    gate.configure(parser)
    words = ["--baseline", "torch==9.1", "--candidate", "triton==99", "--cache", str(tmp_path / "cache")]
    with pytest.raises(CommandError, match=r"'triton==99' cannot be installed: no index"):
        gate.run(parser.parse_args(words))


def test_a_file_that_is_no_wheel_is_refused_before_anything_is_installed(index: Path, tmp_path: Path) -> None:
    broken = tmp_path / "sample-1-py3-none-any.whl"
    broken.write_bytes(b"no zip")
    with pytest.raises(StackError, match=r"cannot be installed: the file is no wheel: fetch or build it again"):
        resolved(str(broken), tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_equal_stacks_are_announced_once(listed: dict[str, tuple[str, ...]], tmp_path: Path) -> None:
    lines: list[str] = []
    first, second = resolve_all([parse("torch==9.1"), parse("torch==9.1", "again")], tmp_path / "c", True, lines.append)
    assert sum("torch 9.1+cu130" in line for line in lines) == 1
    assert (first.folder, first.packages) == (second.folder, second.packages)
    assert second.stack.title == "again (brings triton 8.2, CUDA 13.0 build)"


def test_packages_that_the_disk_cannot_hold_are_refused(
    listed: dict[str, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pip_commands.shutil, "disk_usage", lambda path: SimpleNamespace(free=5000))
    packages = [Package("torch", "9.1", size=9000), Package("triton", "8.2", size=3000)]
    monkeypatch.setattr(environments, "reported", lambda entries: packages)
    with pytest.raises(StackError, match=r"its packages have 12 kB and .* has 5 kB left: give another --cache"):
        resolved("torch==9.1", tmp_path / "cache")
    packages.pop(0)
    resolved("torch==9.1", tmp_path / "cache")


def test_a_pip_that_cannot_say_what_it_fetches_still_installs(torches: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(pip_commands, "_reports_first", lambda package: False)
    found, lines = resolved("torch==9.1", tmp_path / "cache")
    assert (found.packages, found.stack.title) == ((), "torch==9.1")
    assert "no newer pip was to be had (no index that pip knows has it" in lines[1]
    title = "torch==9.1 (brings triton 8.2, CUDA 13.0 build)"
    assert build(found, print).stack.title == title
    assert resolved("torch==9.1", tmp_path / "cache")[0].stack.title == title


BUILDS = {
    "CPU build": Package("torch", "2.13.0+cpu", ("nvidia-cublas",)),
    "CUDA 13.0 build": Package("torch", "2.13.0+cu130"),
    "CUDA 12.8 build": Package("torch", "2.13.0+cu128"),
    "ROCm 6.4 build": Package("torch", "2.13.0+rocm6.4"),
    "XPU build": Package("torch", "2.13.0+xpu"),
    "CUDA build": Package("torch", "2.13.0", ("filelock", "nvidia-cublas==13.1; platform_system == 'Linux'")),
    "ROCm build": Package("torch", "2.13.0", ("pytorch-triton-rocm==3.7",)),
}


@pytest.mark.parametrize("build", BUILDS)
def test_what_a_torch_is_built_for(build: str) -> None:
    assert build_of(BUILDS[build]) == build


def test_a_torch_of_the_same_triton_and_build_brings_nothing() -> None:
    packages = {"torch": Package("torch", "2.14.0+cpu"), "triton": HERE["triton"], "sympy": Package("sympy", "1")}
    assert brought(packages, HERE, ["torch"]) == ()
    assert Stack("torch==2.14.0").title == "torch==2.14.0"


def test_unknown_sizes_are_unknown() -> None:
    packages = [Package("torch", "9", ("nvidia-cublas",)), Package("nvidia-cublas", "1", size=5_000_000)]
    lines = announcement("x", packages, HERE, True)
    assert lines[0] == "x: 2 packages, 5 MB and 1 of unknown size to be fetched"
    assert lines[1] == "  torch 9, CUDA build, size unknown; here 2.13.0+cpu, CPU build"
    assert "1 package of unknown size" in announcement("x", packages[:1], HERE, True)[0]


def test_a_cpu_build_on_a_machine_with_a_gpu_is_said_to_use_none() -> None:
    lines = announcement("x", [Package("torch", "9+cpu", size=1)], HERE, True)
    assert "runs nothing on this machine's GPU" in lines[-1]
    assert "this torch brings no Triton: triton 3.7.1 stays" in lines[-2]
    assert "GPU" not in "".join(announcement("x", [Package("torch", "9+cpu", size=1)], HERE, False))


@pytest.mark.parametrize(("size", "text"), [(12, "12 bytes"), (2500, "2 kB"), (8_210_000, "8 MB"), (5.4e9, "5.4 GB")])
def test_sizes_are_in_the_units_of_pip(size: float, text: str) -> None:
    assert size_text(size) == text


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(404 if "absent" in self.path else 200)
        if "silent" not in self.path:
            self.send_header("Content-Length", "1234")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    with http.server.HTTPServer(("127.0.0.1", 0), _Answers) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_the_size_of_a_file_is_what_its_server_says(server: str, tmp_path: Path) -> None:
    file = tmp_path / "a b.whl"
    file.write_bytes(b"1234")
    urls = [f"{server}/a.whl", f"{server}/absent.whl", f"{server}/silent.whl", file.as_uri(), "git+https://x", ""]
    entries = [{"metadata": {"name": "a", "version": "1"}, "download_info": {"url": url}} for url in urls]
    sizes = [package.size for package in pip_commands.reported(entries)]
    assert sizes == [1234, None, None, 4, None, None]


def test_the_title_is_in_the_names_of_a_comparison(tmp_path: Path) -> None:
    stack = Stack("torch==9.1", brings=("triton 8.2",))
    assert StackRun(Environment(stack, tmp_path, {}), tmp_path).name == "torch==9.1 (brings triton 8.2)"


def test_the_first_line_says_that_torch_and_triton_both_changed() -> None:
    def first_line(**after: str) -> str:
        sides = [
            Side("run", {"torch": "2.13.0", "triton": "3.7.1", **stack}, "quick", 0, 9, {}) for stack in ({}, after)
        ]
        return answer(Comparison(*sides, (), 9, 9))

    both = "; torch (2.13.0 to 2.14.1) and triton (3.7.1 to 3.8.0) both changed"
    assert first_line(torch="2.14.1", triton="3.8.0").endswith(both)
    assert "changed" not in first_line(torch="2.14.1").replace("unchanged", "")
    assert "changed" not in first_line().replace("unchanged", "")
