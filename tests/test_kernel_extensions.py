"""A third-party kernel brings its features with their evidence, and the spills that are known of it."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import re
import types
from pathlib import Path

import pytest

from conformance import codegen_checks as codegen
from conformance.codegen_checks import FEATURES, REGISTERED, Evidence, Feature, check, register_feature
from conformance.execution.compile import kernel_figures
from conformance.execution.compile.kernel_figures import KernelResources
from conformance.judging import sweep
from conformance.kernels import catalogue
from conformance.machine import entry_point_loading
from conformance.records import KernelDeclarations
from conformance.reproducers.kernel_scripts import NotReproducible, patterns
from conformance.targets import find
from conformance.user_files.expected_failures import ExpectedFailures, with_kernels
from conformance.user_files.toml_entries import EntryError

MINE = "entry point 'mine' (mine:MINE)"
SHOWN_BY = {"nvidia": (Evidence("ptx", r"CHECK: {{^prefetch\.global\.L2\b}}"),)}
PREFETCH = Feature("MY_PREFETCH", "prefetches into L2", SHOWN_BY)


@pytest.fixture
def registry():
    """Takes back what a test registers."""
    features, texts = list(FEATURES), list(REGISTERED)
    yield
    FEATURES[:], REGISTERED[:] = features, texts


def artefact(folder: Path, ptx: str) -> types.SimpleNamespace:
    folder.mkdir()
    (folder / "kernel.ptx").write_text(ptx)
    resources = KernelResources(32, 0, "bytes", 0, 0, 128, "cubin")
    return types.SimpleNamespace(
        target_id="sm_90", kernel_name="kernel", stages={"ptx": folder / "kernel.ptx"}, resources=resources
    )


def test_a_feature_from_elsewhere_is_looked_for_and_its_loss_is_seen(registry, tmp_path):
    target = find("sm_90")
    register_feature(PREFETCH)
    with_it, without = artefact(tmp_path / "a", "prefetch.global.L2 [%rd1];"), artefact(tmp_path / "b", "ret;")
    assert [verdict.passed for verdict in check(with_it, target, requires=[PREFETCH])] == [True]
    (lost,) = check(without, target, requires=[PREFETCH])
    assert (lost.passed, lost.text.splitlines()[0].partition(";")[0]) == (
        False,
        "MY_PREFETCH (prefetches into L2) is required",
    )
    assert not check(with_it, target, forbids=[PREFETCH])[0].passed
    assert "MY_PREFETCH" in kernel_figures.features(with_it, target)
    assert "MY_PREFETCH" not in kernel_figures.features(without, target)


def test_what_was_kept_before_a_feature_was_known_does_not_count(registry, tmp_path):
    compiled, target = artefact(tmp_path / "a", "prefetch.global.L2 [%rd1];"), find("sm_90")
    assert kernel_figures.describe(compiled, target, disassemble=False)["features"] == []
    register_feature(PREFETCH)
    assert kernel_figures.describe(compiled, target, disassemble=False)["features"] == ["MY_PREFETCH"]


def test_a_reproducer_looks_for_it(registry):
    with pytest.raises(NotReproducible, match="MY_PREFETCH is no feature that is known here"):
        patterns({"MY_PREFETCH": True}, find("sm_90"))
    register_feature(PREFETCH)
    (line,) = patterns({"MY_PREFETCH": True}, find("sm_90"))
    assert eval(line) == ("MY_PREFETCH", "ptx", r"^prefetch\.global\.L2\b", True)
    with pytest.raises(NotReproducible, match="nothing in the code of amd shows MY_PREFETCH"):
        patterns({"MY_PREFETCH": True}, find("gfx942"))


def test_the_same_feature_may_be_registered_twice_and_another_may_not(registry):
    assert register_feature(PREFETCH) is register_feature(PREFETCH)
    assert FEATURES.count(PREFETCH) == 1
    with pytest.raises(ValueError, match="a feature named MY_PREFETCH is known already"):
        register_feature(dataclasses.replace(PREFETCH, meaning="other"))


@pytest.mark.parametrize(
    ("name", "evidence", "message"),
    [
        ("my feature", SHOWN_BY, "use capital letters"),
        ("WGMMA", SHOWN_BY, "a feature named WGMMA is known already"),
        ("MY_X", {}, "has no evidence"),
        ("MY_X", {"nvidia": (Evidence("ptx", "CHECK: prefetch"),)}, "is no 'CHECK: "),
        ("MY_X", {"nvidia": (Evidence("ptx", "CHECK: {{(}}"),)}, "is no 'CHECK: "),
    ],
)
def test_a_feature_that_cannot_be_used_is_refused(registry, name, evidence, message):
    with pytest.raises(ValueError, match=message):
        register_feature(Feature(name, "does something", evidence))
    assert codegen.REGISTERED == REGISTERED
    assert name == "WGMMA" or name not in {feature.name for feature in FEATURES}


def spilling(kernel, target="sm_90"):
    some = types.SimpleNamespace(resources=KernelResources(200, 48, "bytes", 1024, 0, 256, "cubin"))
    return sweep.spill_verdict(kernel, "bf16", kernel.configs[0], find(target), some)


def test_a_kernel_from_elsewhere_declares_its_own_spills(monkeypatch):
    mm = catalogue.get("mm")
    line = sweep.spill_key(mm, "bf16", mm.configs[0], find("sm_90"))
    monkeypatch.setattr(sweep, "_declared", frozenset)
    monkeypatch.setattr(sweep, "_targets_with_declarations", lambda: frozenset({"sm_80", "sm_90"}))
    assert not spilling(mm).passed
    monkeypatch.setattr(type(mm), "declared_spills", frozenset({line}))
    assert spilling(mm).text.endswith(", declared")
    assert not spilling(mm, "sm_80").passed  # a target whose spills are declared
    monkeypatch.setattr(type(mm), "declared_spills", frozenset())
    monkeypatch.setattr(sweep, "_declared", lambda: frozenset({line}))
    assert not spilling(mm).passed  # the lines of others are not its own


def installed(monkeypatch, **attributes):
    """Puts a kernel like mm, with other ``attributes`` and the name "mine", in the place of installed packages."""
    kernel = catalogue.get("mm")
    copy = type("Mine", (type(kernel),), {"__module__": "conformance.mine"})
    vendor_kernel = object.__new__(copy)
    vendor_kernel.__dict__.update(kernel.__dict__, **{"name": "mine", **attributes})
    entry = types.SimpleNamespace(name="mine", value="mine:MINE", dist=None, load=lambda: vendor_kernel)
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [entry])
    monkeypatch.setattr(entry_point_loading, "LEFT_OUT", {})
    return catalogue._loaded.__wrapped__


#: What a kernel may declare wrongly, and the words that say so.
MALFORMED = {
    "configs": ((), "a tuple of configs is required"),
    "dtypes": (("bf17",), "a tuple of these: fp64, *"),
    "operations": ("mm", "a set of names of operations is required"),
    "weight": ("x", "1, 2 or 3 is required"),
    "limits": (3, "a KernelLimits or None is required"),
    "expected_failures": (3, "a path or None is required"),
    "name": (None, "a text is required"),
}


@pytest.mark.parametrize("declared", MALFORMED)
def test_a_kernel_with_a_malformed_declaration_is_left_out(monkeypatch, declared):
    value, required = MALFORMED[declared]
    load = installed(monkeypatch, **{declared: value})
    assert "mine" not in load()[0]
    assert re.search(f"{declared} of Mine is .*; {required}", entry_point_loading.LEFT_OUT[MINE])


def test_a_long_name_is_refused(monkeypatch):
    load = installed(monkeypatch, name="m" * 101)
    load()
    assert "'.', at most 100" in entry_point_loading.LEFT_OUT[MINE]


def test_an_entry_point_cannot_end_the_command(monkeypatch):
    def load():
        return os._exit(0)

    monkeypatch.setattr(entry_point_loading, "LEFT_OUT", {})
    assert entry_point_loading.taken("mine", load) is None
    assert "os._exit was called: it would end this command" in entry_point_loading.LEFT_OUT["mine"]
    assert not hasattr(os._exit, "__wrapped__")


def test_a_package_whose_metadata_cannot_be_read_has_no_name(tmp_path, monkeypatch):
    folder = tmp_path / "mine-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_bytes(b"\xff\xfe")
    (folder / "entry_points.txt").write_text("[conformance.kernels]\nmine = mine:MINE\n")
    monkeypatch.syspath_prepend(tmp_path)
    entries = importlib.metadata.entry_points(group="conformance.kernels", name="mine")
    assert [entry_point_loading.package_of(entry) for entry in entries] == ["a package whose METADATA cannot be read"]


def test_a_line_that_declares_nothing_of_its_kernel_is_refused(monkeypatch):
    load = installed(monkeypatch, declared_spills=frozenset({"mm bf16 128x128x64-s4-w8 sm_90"}))
    load()
    assert re.search(
        r"mine declares the spill 'mm bf16 .*; write 'mine DTYPE CONFIG TARGET'", entry_point_loading.LEFT_OUT[MINE]
    )


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ({"SPILLS": {"bytes": 64}}, r"the thresholds of mine: \[SPILLS\] is no kind"),
        ({"mm": {"MORE_SPILLS": {"bytes": 64}}}, r"the thresholds of mine: \[mm\] is no kind"),  # of another kernel
        (
            {"MORE_SPILLS": {"bytes": -1}},
            r"the thresholds of mine: \[MORE_SPILLS\]: bytes = -1: a number of 0 or more is required",
        ),
        ({"MORE_SPILLS": 64}, r"the thresholds of mine: MORE_SPILLS must be a table"),
        ("MORE_SPILLS", r"the thresholds of mine: 'MORE_SPILLS': tables of thresholds are required"),
    ],
)
def test_thresholds_that_cannot_be_used_are_refused(monkeypatch, thresholds, message):
    load = installed(monkeypatch, thresholds=thresholds)
    load()
    assert re.search(r"entry point 'mine' \(mine:MINE\): " + message, entry_point_loading.LEFT_OUT[MINE])


KNOWN = """
[[expected_failure]]
id = "skips"
cases = "*[mine-*"
stack = { triton = ">=3" }
seen = "numerics"
upstream = "https://example.org/1"
owner = "me"
expires = 2099-01-01
"""
ENTRY = {
    "id": "skips", "cases": "*[mine-*", "stack": {"triton": ">=3"}, "seen": "numerics",
    "upstream": "https://example.org/1", "owner": "me", "expires": "2099-01-01",
}  # fmt: skip


def test_what_a_kernel_from_elsewhere_declares_is_collected(monkeypatch, tmp_path):
    line, file = "mine bf16 128x128x64-s4-w8 sm_90", tmp_path / "known.toml"
    file.write_text(KNOWN)
    thresholds = {"MORE_SPILLS": {"regression_bytes": 256}}
    load = installed(monkeypatch, thresholds=thresholds, declared_spills=frozenset({line}), expected_failures=file)
    kernels = load()
    monkeypatch.setattr(catalogue, "catalogue", lambda: kernels[0])
    monkeypatch.setattr(catalogue, "_loaded", lambda: kernels)
    (declared,) = catalogue.declarations().items()
    assert declared == (
        "mine",
        KernelDeclarations("entry point 'mine' (mine:MINE)", thresholds, (ENTRY,), (line,)),
    )
    file.write_text(KNOWN.replace("mine", "mm"))
    with pytest.raises(EntryError, match=r"a pattern with '\[mine-' is required"):
        catalogue.declarations()


def test_a_file_of_expected_failures_that_cannot_be_used_names_itself(tmp_path):
    with pytest.raises(EntryError, match=r"nowhere.toml cannot be read"):
        with_kernels(ExpectedFailures(), {"mine": tmp_path / "nowhere.toml"})
