"""The whole gate, from two stacks to the answer: the candidate is this stack with faults planted in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.cli import main
from conformance.machine.versions import nvidia_tool

#: In the candidate's processes: a module is changed as soon as it has been imported.
SITE = """
import dataclasses, importlib.abc, sys

def lose_tma_stores(module):
    launch = module.PersistentTmaGemm.launch
    def without(self, plan, tensors):
        launched = launch(self, plan, tensors)
        return dataclasses.replace(launched, arguments={{**launched.arguments, "TMA_STORE": False}})
    module.PersistentTmaGemm.launch = without

def lose_a_kernel(module):
    module.KERNELS = tuple(kernel for kernel in module.KERNELS if kernel.name != "mm_plus_mm")

def spoil_a_config(module):
    launch = module.IntegerGemm.launch
    def spoiled(self, plan, tensors):
        if plan.config.id == "{config}" and not tensors["a"].is_meta:
            tensors = dict(tensors, a=tensors["a"] + 1)
        return launch(self, plan, tensors)
    module.IntegerGemm.launch = spoiled

PATCHES = {{
    "conformance.kernels.persistent_tma": lose_tma_stores,
    "conformance.kernels.product_loops": lose_a_kernel,
    "conformance.kernels.int_mm": spoil_a_config,
}}

class Patched:
    def __init__(self, loader, patch):
        self.loader, self.patch = loader, patch
    def __getattr__(self, name):
        return getattr(self.loader, name)
    def exec_module(self, module):
        self.loader.exec_module(module)
        self.patch(module)

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in PATCHES:
            return None
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, specs))
        spec.loader = Patched(spec.loader, PATCHES[name])
        return spec

class First(list):
    def insert(self, index, finder):  # pytest's would come first, and find these modules itself
        super().insert(max(index, 1), finder)

sys.meta_path = First([Finder(), *sys.meta_path])
"""
#: An assembler that has 160 registers for each thread.
PTXAS = r"""#!/bin/sh
for argument; do case "$argument" in *.ptx) sed -i 's/^\.reqntid.*/& .maxnreg 160/' "$argument";; esac; done
exec {ptxas} "$@"
"""
KERNELS = ("mm_persistent_tma", "int_mm", "mm_plus_mm")
#: The cases of the planted faults, and one of each kernel that none touches.
CASES = (
    "(int_mm and (64x64x64-s3-w8 or 256x128x128)) or (test_store_as_asked and bf16 and subtile=4) "
    "or (mm_plus_mm-bf16 and several-tiles)"
)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory):
    """Runs the gate for a candidate: its exit status and what it found, as the JSON says."""
    folder = tmp_path_factory.mktemp("gate")

    def run(candidate: str) -> tuple[int, dict]:
        output = folder / f"output-{len(list(folder.iterdir()))}"
        options = [
            "--no-gpu",
            "--tier=default",
            "--target=sm_90",
            "--reproducers=0",
            "--suite=config_space",
            "--suite=tma_store",
        ]
        options += [*(f"--kernel={kernel}" for kernel in KERNELS), "-k", CASES]
        places = ["--cache", str(folder / "cache"), "--output", str(output)]
        status = main(["gate", "--candidate", candidate, *options, *places])
        assert {file.name for file in output.iterdir()} == {"comparison.json", "comparison.md", "report.html"}
        return status, json.loads((output / "comparison.json").read_text())

    return run


def kinds(comparison: dict, severity: str) -> dict[str, set[str]]:
    """Kernels by kind of the findings of ``severity``."""
    kernels: dict[str, set[str]] = {}
    for group in comparison["groups"]:
        if group["severity"] == severity:
            kernels.setdefault(group["kind"], set()).update(one["kernel"] for one in group["findings"])
    return kernels


def planted(folder: Path, config: str) -> str:
    site, ptxas = folder / "site", folder / "ptxas"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE.format(config=config))
    ptxas.write_text(PTXAS.format(ptxas=nvidia_tool("ptxas")))
    ptxas.chmod(0o755)
    return f"site={site} ptxas={ptxas}"


@pytest.mark.long(50)
@pytest.mark.usefixtures("forked")
def test_identical_stacks_are_safe_and_planted_faults_have_their_names(gate, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "--conformance-reruns=0")  # the planted faults come each time
    status, comparison = gate("current")
    assert (status, comparison["groups"], comparison["compared"]) == (0, [], comparison["unchanged"])
    assert comparison["compared"] > 3

    status, comparison = gate(planted(tmp_path, "64x64x64-s3-w8"))
    assert status == 1
    regressions = kinds(comparison, "regression")
    assert regressions["FEATURE_LOST"] == {"mm_persistent_tma"}
    assert regressions["LOST_COVERAGE"] == {"mm_plus_mm"}
    assert "int_mm" in regressions["MORE_SPILLS"]
    wrong = [group for group in comparison["groups"] if group["cause"].startswith("numerics/")]
    assert [one["kernel"] for group in wrong for one in group["findings"]] == ["int_mm"]
