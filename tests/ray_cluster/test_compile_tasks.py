"""Nodes compile the kernels of a run together; what they cannot do is compiled by the stage itself."""

from __future__ import annotations

import dataclasses
import json
import pickle
import sys

import pytest

from conformance.cases.case_table import Selection
from conformance.execution.compile.carried_kernels import KERNELS_FILE, CarriedKernels
from conformance.judging.compile_stage import CompileStage
from conformance.judging.settings import Settings
from conformance.machine.gpus import Gpus
from conformance.ray_cluster import worker_actor
from conformance.ray_cluster.cluster import _COMPILE
from conformance.ray_cluster.compile_tasks import _take, compile_on_nodes, parts
from conformance.targets import find
from conformance.user_files.expected_failures import ExpectedFailures

CASES = [
    "test_transposition.py::test_transposed_operands[mm-fp32-32x64x32-s5-w8-order=row.row-static=True-sm_90]",
    "test_transposition.py::test_transposed_operands[addmm-fp16-32x64x32-s5-w8-order=row.row-static=True-sm_90]",
]
SETTINGS = Settings("quick", ("sm_90",), (), (), 0, None, Gpus(), None, 60.0, (), ExpectedFailures())
SELECTION = Selection((find("sm_90"),), "quick", asked_for_targets=True)


def test_the_cases_of_one_kernel_go_to_one_node_and_each_node_has_its_part():
    kernels = {f"c{number}": [f"k{number // 2}"] for number in range(12)}
    first, second = parts([1, 2], kernels)
    assert sorted(first + second) == sorted(kernels)
    assert len(second) == 2 * len(first)
    assert not {kernels[case][0] for case in first} & {kernels[case][0] for case in second}
    assert parts([1], {"a": []}) == [[]]


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The kernels that a node with an empty cache has compiled for the first case."""
    words = ["-c", _COMPILE, json.dumps(sys.path)]
    environment = {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("node"))}
    task = pickle.dumps((SETTINGS, SELECTION, CASES[:1], 1))
    content, error = worker_actor.compiled(words, environment, task)
    assert not error
    return content


def test_kernels_of_nodes_are_taken_and_those_of_a_node_that_fails_are_compiled_here(tmp_path, monkeypatch, content):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    asked = []

    def run(tasks):
        asked.extend((number, list(pickle.loads(task)[2])) for number, task in tasks)
        return [content, b""]

    with CompileStage(1, 120.0) as stage:
        carried = compile_on_nodes(stage, SETTINGS, SELECTION, CASES, [1, 1], run, tmp_path)
        results = stage.compile(SETTINGS, SELECTION, CASES, carried)
    assert sorted(asked) == [(0, [CASES[1]]), (1, [CASES[0]])]
    assert carried == tmp_path
    assert (len(results.kernels), len(results.cached), results.failed) == (2, 1, [])


def test_kernels_of_other_tools_are_not_taken(tmp_path, content):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / KERNELS_FILE).write_bytes(content)
    (here,) = CarriedKernels(tmp_path / "part").toolchains()
    store = CarriedKernels(tmp_path, write=True)
    assert _take(store, tmp_path / "part", dataclasses.replace(here, triton="0")) == 0
    assert store.toolchains() == []
    assert _take(store, tmp_path / "part", here) == 1
    (tmp_path / "part" / KERNELS_FILE).write_bytes(content[:5000])
    assert _take(store, tmp_path / "part", here) == 0


def test_a_node_that_cannot_compile_says_why():
    content, error = worker_actor.compiled(["-c", "raise SystemExit('no harness')"], {}, b"")
    assert (content, error) == (b"", "no harness")
    assert "No such file" in worker_actor.compiled(["-c", "pass"], {}, b"")[1]
