"""The compile stage hands its results to the processes that run cases, by launch, whether they interpret or not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conformance.execution.compile.compilation import CompileRequest, CompileResult
from conformance.execution.compile.compiled_index import CompiledIndex, IndexedPools, asked, identity
from conformance.execution.compile.index_files import INDEX_FILE
from conformance.records import Status
from conformance.targets import Target
from tests.execution.sample_kernels import Sample, launch
from tests.forked_python import ROOT, executable

SAMPLES = "tests.execution.sample_kernels"
SM90 = Target("cuda", 90, 32)

#: Prints the identities of some launches of the catalogue.
CODE = """
import itertools
from conformance.execution.compile.compiled_index import identity
from conformance.kernels.catalogue import catalogue, meta_launch
from conformance.kernels.kernel import NotApplicable
from conformance.targets import find

for kernel, target in itertools.product(catalogue().values(), (find("sm_90"), find("gfx942"))):
    for config in kernel.configs[:2]:
        try:
            problem = kernel.example(kernel.dtype_names()[0], config)
            plan = kernel.plan(problem, config, target, kernel.example_variant())
        except NotApplicable:
            continue
        for step in meta_launch(plan, target).steps:
            print(kernel.name, identity(step, target), identity(step, target, exact=True))
"""


def identities(interpret: bool) -> list[str]:
    environment = {**os.environ, "TRITON_INTERPRET": str(int(interpret)), "CUDA_VISIBLE_DEVICES": "-1"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run([executable(), "-c", CODE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_a_process_that_interprets_knows_a_launch_as_one_that_compiles_does() -> None:
    compiling = identities(interpret=False)
    assert len(compiling) > 40
    assert identities(interpret=True) == compiling


def test_an_identity_is_what_is_compiled_and_an_exact_one_counts_sizes() -> None:
    copies = [launch(Sample("copy", size=size), SM90) for size in (4096, 8192)]
    others = [launch(Sample("copy", size=4096, offset=2), SM90), launch(Sample("pointer"), SM90)]
    plain = [identity(one, SM90) for one in (*copies, *others)]
    assert plain[0] == plain[1]
    assert len(set(plain)) == 3
    assert plain[0] != identity(copies[0], Target("cuda", 80, 32))
    exact = [identity(one, SM90, exact=True) for one in copies]
    assert len({*exact, *plain}) == 5


def result(text: str) -> CompileResult:
    return CompileResult(Status.COMPILE_ERROR, None, text, 0.5)


def test_a_pool_asks_the_index_first_and_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, missing = Sample("copy"), Sample("copy", offset=2)
    launch_id = identity(launch(stored, SM90), SM90)
    CompiledIndex.write(
        tmp_path / INDEX_FILE, {launch_id: result("stored"), "idle": result("idle")}, {"a": [launch_id, "idle"]}
    )
    pools = IndexedPools(1, 60.0, tmp_path, "gw0")
    try:
        answer = pools.submit(CompileRequest(f"{SAMPLES}:launch", stored, SM90)).result()
        assert answer == result("stored")
        compiled = pools.submit(CompileRequest(f"{SAMPLES}:launch", missing, SM90)).result()
        assert compiled.status is Status.PASS
    finally:
        pools.close()
    missed, used = asked(tmp_path)
    assert (missed, used) == (["tma_store_wgmma_tcgen05 for sm_90"], {launch_id})
    assert asked(tmp_path) == ([], set()), "the files are gone"
    assert CompiledIndex(tmp_path / INDEX_FILE).idle(used) == {"a": "idle"}


def test_a_launch_that_must_not_be_shared_is_not_served_by_another(tmp_path: Path) -> None:
    sample = Sample("copy")
    CompiledIndex.write(tmp_path / INDEX_FILE, {identity(launch(sample, SM90), SM90): result("shared")}, {})
    pools = IndexedPools(1, 60.0, tmp_path)
    try:
        request = CompileRequest(f"{SAMPLES}:launch", sample, SM90, deduplicate=False)
        assert pools.submit(request).result().status is Status.PASS
    finally:
        pools.close()
    assert len(asked(tmp_path)[0]) == 1


def test_without_an_index_a_pool_compiles_and_writes_nothing(tmp_path: Path) -> None:
    for folder in (tmp_path, None):
        pools = IndexedPools(1, 60.0, folder)
        assert pools.submit(CompileRequest(f"{SAMPLES}:launch", Sample("copy"), SM90)).result().status is Status.PASS
        pools.close()
    assert not list(tmp_path.iterdir())
