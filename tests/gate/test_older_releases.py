"""The releases that come before a candidate's, and the stacks that have them instead."""

from __future__ import annotations

import json
import subprocess

import pytest
from packaging.version import Version

from conformance.gate.stacks import older_releases
from conformance.gate.stacks.older_releases import IndexAnswerError
from conformance.gate.stacks.stack_file import parse, spelled

NOW = {"triton": "3.7.1", "torch": "2.13.0+cpu", "ptxas": "12.8"}


@pytest.fixture
def sites(tmp_path):
    """Folders with a Triton, and with another package."""
    for name, package in (("old", "triton"), ("new", "triton"), ("other", "kernels")):
        (tmp_path / name / package).mkdir(parents=True)
        (tmp_path / name / package / "__init__.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("baseline", "candidate", "changes", "component"),
    [
        ("current", "triton==3.8.0", {"triton": "3.8.0", "ptxas": "12.9"}, "triton"),
        ("triton==3.6.0", "current", {"triton": "3.8.0"}, "triton"),
        ("current", "torch==2.14.1", {"triton": "3.8.0", "torch": "2.14.1"}, "torch"),
        ("current", "torch==2.14.1 triton==3.9.0", {"triton": "3.9.0", "torch": "2.14.1"}, "triton"),
        ("current", "torch==2.14.1", {"torch": "2.14.1"}, "torch"),
        ("current", "ptxas==13.0", {"ptxas": "13.0"}, "ptxas"),
        ("current", "numpy==2.3.5", {}, None),
    ],
)
def test_the_component_that_changed(baseline, candidate, changes, component):
    stacks = parse(baseline), parse(candidate)
    assert older_releases.changed_component(stacks, (NOW, {**NOW, **changes})) == component


def test_the_candidate_with_an_older_release(sites):
    def older(text, component, version):
        return spelled(older_releases.with_release(parse(text), component, Version(version)))

    other = f"site={sites / 'other'}"
    assert older("triton==3.8.0", "triton", "3.7.1") == "triton==3.7.1"
    assert older("current", "triton", "3.7.1") == "triton==3.7.1"
    assert older("torch==2.14.1 triton==3.8.0", "triton", "3.7.1") == "torch==2.14.1 triton==3.7.1"
    assert older("torch==2.14.1", "torch", "2.13.0") == "torch==2.13.0"
    assert older("pytorch-triton-rocm==3.8.0", "triton", "3.7.1") == "pytorch-triton-rocm==3.7.1"
    assert older("ptxas==13.0 triton==3.8.0", "ptxas", "12.9.86") == "triton==3.8.0 ptxas==12.9.86"
    assert older(f"site={sites / 'new'} {other}", "triton", "3.7.1") == f"triton==3.7.1 {other}"
    wheel = sites / "triton-3.8.0-cp311-cp311-linux_x86_64.whl"
    wheel.touch()
    assert older(f"{wheel} preview=fp-fusion-off", "triton", "3.7.1") == "triton==3.7.1 preview=fp-fusion-off"


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ("3.8.0", ["3.6.0", "3.7.0", "3.7.1"]),
        ("3.8.0+git1234567", ["3.6.0", "3.7.0", "3.7.1"]),
        ("3.10.0.dev20261101", ["3.7.1", "3.8.0", "3.9.0"]),
        ("3.7.0", ["3.5.1", "3.6.0"]),
        ("3.5.1", []),
    ],
)
def test_the_last_three_releases(candidate, expected):
    listed = ["3.9.0", "3.7.1", "3.8.0", "3.8.0rc1", "3.7.0", "3.6.0", "3.5.1", "3.6.0"]
    found = older_releases.last_releases([Version(text) for text in listed], Version(candidate))
    assert [str(version) for version in found] == expected


def answers(stdout="", stderr="", status=0):
    return lambda command, **_: subprocess.CompletedProcess(command, status, stdout, stderr)


def test_what_pip_says_of_the_releases():
    text = "triton (3.9.0)\nAvailable versions: 3.9.0, 3.8.0, odd!, 3.7.1\n  INSTALLED: 3.7.1\n"
    assert older_releases.index_versions("triton", answers(text)) == [Version(v) for v in ("3.7.1", "3.8.0", "3.9.0")]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (answers(stderr="WARNING: x\nERROR: No matching distribution found for triton\n", status=1), "No matching"),
        (answers(stderr="usage: pip", status=2), "usage: pip"),
        (answers("something else"), "exit status 0"),
        (lambda *a, **k: (_ for _ in ()).throw(OSError("no python")), "no python"),
        (lambda *a, **k: (_ for _ in ()).throw(subprocess.TimeoutExpired("pip", 60)), "timed out"),
    ],
)
def test_an_index_that_does_not_answer(answer, why):
    with pytest.raises(IndexAnswerError, match=f"pip did not name the releases of triton: .*{why}"):
        older_releases.index_versions("triton", answer)


def test_the_environments_that_are_kept(tmp_path):
    for name, content in (
        ("a", {"packages": ["triton==3.7.0"]}),
        ("b", {"packages": ["triton==3.6.0"]}),
        ("c", {"packages": ["triton==3.5.0", "torch==2.13.0"]}),
        ("d", {"packages": []}),
        ("e", [1]),
    ):
        (tmp_path / "stacks" / name).mkdir(parents=True)
        (tmp_path / "stacks" / name / "stack.json").write_text(json.dumps(content))
    (tmp_path / "stacks" / "a" / "other.json").write_text("broken")
    assert older_releases.kept_versions("triton", tmp_path) == [Version("3.6.0"), Version("3.7.0")]
    assert older_releases.kept_versions("torch", tmp_path) == []
