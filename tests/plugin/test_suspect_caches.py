"""A case whose kernel came from a damaged cache fails as a fault of the machine, unless it was expected to fail."""

from __future__ import annotations

import pytest

from tests.gate.sample_entries import entry

pytest_plugins = ["pytester"]

SUITE = """
from conformance.machine.environment_faults import cache_suspect

def asked():
    with open("asked.txt", "a") as file:
        file.write("x")
    return cache_suspect("/cache/X has another ttgir")

def test_good(recorder):
    recorder.cache_checks.append(asked)
    recorder.verdict("numerics", True)

def test_suspect(recorder):
    recorder.cache_checks += [asked, lambda: None]
    recorder.verdict("numerics", False, "3 wrong")
    raise AssertionError("3 wrong")

def test_wrong(recorder):
    recorder.cache_checks.append(lambda: None)
    recorder.verdict("numerics", False, "3 wrong")

def test_expected(recorder):
    recorder.cache_checks.append(asked)
    recorder.verdict("numerics", False, "3 wrong")
    raise AssertionError("3 wrong")
"""


def test_a_failure_from_a_suspect_cache_is_the_machines(project):
    project.suite("caches", SUITE)
    (project.path / "known.toml").write_text(entry(cases='"*::test_expected"', seen='"3 wrong"'))
    result = project.run("-n", "0", "--conformance-reruns", "0", "--expected-failures=known.toml")
    suspect, wrong = project.records["test_suspect"], project.records["test_wrong"]
    assert (suspect.status.value, suspect.fault.kind, suspect.fault_class.value) == (
        *("fail", "cache-suspect", "infrastructure"),
    )
    assert "3 wrong" in suspect.diagnosis
    assert "infrastructure (cache-suspect): /cache/X has another ttgir" in suspect.diagnosis
    assert (wrong.status.value, wrong.fault) == ("fail", None)
    assert project.records["test_good"].fault is None
    assert result.ret == pytest.ExitCode.TESTS_FAILED, "test_wrong is a regression"
    assert (project.path / "asked.txt").read_text() == "x", "not for a case that passes, or fails as expected"
