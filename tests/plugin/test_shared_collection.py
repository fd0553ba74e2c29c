"""With workers one process collects. The others have the same items, and make those that they run."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from conformance.plugin import shared_collection
from conformance.plugin.lazy_items import ItemGroup
from conformance.plugin.shared_collection import GivenItems, NodeIds
from conformance.records import read_run
from tests.forked_python import executable

ROOT = Path(__file__).resolve().parents[2]
SUITES = ("split_k", "tma_store")

#: A plugin that writes down what each worker has to run, and runs none of it. ``fault`` is planted.
PROBE = """
import json, os, pathlib, re, pytest
from conformance.plugin import shared_collection
from conformance.plugin.compile_stage import RunStage
from conformance.plugin.fixtures import RECORDER

HERE = pathlib.Path(__file__).parent
FAULT = os.environ.get("FAULT", "")

def first(name):
    try:
        os.close(os.open(HERE / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

def plain(values):
    return re.sub(" at 0x[0-9a-f]+", "", repr(values))

def pytest_configure(config):
    RunStage.run = lambda self, cases: None
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(config.workerinput["workerid"]))
        if FAULT == "a plugin that sees items":
            config.pluginmanager.register(Seeing())
        elif FAULT == "a plugin that multiplies items":
            config.pluginmanager.register(Twice())
        elif FAULT == "other targets":
            shared_collection._targets = lambda config: config.workerinput["workerid"]

class Worker:
    def __init__(self, name):
        self.name = name

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector):
        if FAULT == "dies when it collects" and first("died"):
            os._exit(3)
        if FAULT == "a late plugin that sees items" and not collector.config.pluginmanager.has_plugin("late"):
            collector.config.pluginmanager.register(Seeing(), "late")

    def pytest_ignore_collect(self, collection_path):
        lacks = FAULT == "lacks a suite" and collection_path.name == "test_split_k.py" and not first("has it")
        return True if lacks else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        facts = [
            [item.nodeid, item.name, item.callspec.id, plain(item.callspec.params), item.fixturenames, item.location,
             sorted(item.keywords), [mark.name for mark in item.iter_markers()], repr(item), item.parent.nodeid]
            for item in session.items
        ]
        kind, count = type(session.items).__name__, session.testscollected
        (HERE / f"{self.name}.json").write_text(json.dumps({"kind": kind, "count": count, "items": facts}))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        if FAULT == "dies when it runs" and first("died"):
            os._exit(3)
        recorder = item.stash[RECORDER]  # a case whose phases are not seen costs its worker
        recorder.verdict("x", True)
        recorder.phases |= {"setup", "teardown"}
        return True

class Seeing:
    def pytest_itemcollected(self, item):
        pass

class Twice:
    def pytest_generate_tests(self, metafunc):
        metafunc.fixturenames.append("again")
        metafunc.parametrize("again", [1, 2])
"""


class Run:
    """A run of two suites with two workers."""

    def __init__(self, path: Path, fault: str = "", *arguments: str) -> None:
        (path / "probe.py").write_text(PROBE)
        places = os.pathsep.join([str(ROOT), str(path), os.environ.get("PYTHONPATH", "")])
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        options = [
            *("-n", "2", "-p", "probe", "-o", "cache_dir=cache", "--conformance-no-gpu"),
            "--run-dir=run",
            "--conformance-reruns=0",
        ]
        chosen = [word for suite in SUITES for word in ("--conformance-suite", suite)]
        places_to_collect = [] if arguments and arguments[0].startswith("conformance") else ["conformance.suites"]
        done = subprocess.run(
            [executable(), "-m", "pytest", "--pyargs", *places_to_collect, *options, *chosen, *arguments],
            capture_output=True,
            check=False,
            text=True,
            cwd=path,
            env={**environment, "PYTHONPATH": places, "FAULT": fault},
            timeout=200,
        )
        self.output = done.stdout + done.stderr
        self.workers = [json.loads(file.read_text()) for file in sorted(path.glob("gw*.json"))]
        self.selected = (path / "run" / "selected.txt").read_text().splitlines()
        self.left = [file.name for file in (path / "run").glob("collected*")]

    @property
    def kinds(self) -> list[str]:
        return sorted(worker["kind"] for worker in self.workers)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("usual"))


def test_one_worker_collects_and_the_other_has_the_same_items(usual: Run) -> None:
    assert usual.kinds == ["GivenItems", "list"], usual.output
    first, second = usual.workers
    assert len(first["items"]) > 20
    assert first["items"] == second["items"]
    assert first["count"] == second["count"] == len(first["items"])
    assert [facts[0].rpartition("/")[2] for facts in first["items"]] == usual.selected
    assert usual.left == []


def test_a_filter_of_pytest_holds_for_all(tmp_path: Path, usual: Run) -> None:
    run = Run(tmp_path, "", "-k", "bf16 and not store")
    assert run.kinds == ["GivenItems", "list"], run.output
    assert run.workers[0]["items"] == run.workers[1]["items"]
    assert run.selected == [case for case in usual.selected if "bf16" in case and "store" not in case]


def test_what_failed_before_is_chosen_for_all(tmp_path: Path, usual: Run) -> None:
    """Below the root directory pytest leaves out files and items already while it collects."""
    failed = [case for case in usual.selected if "short=3" in case]
    cache = tmp_path / "cache" / "v" / "cache"
    cache.mkdir(parents=True)
    nodeids = [f"conformance/suites/{case}" for case in (*failed, "test_zero_size.py::test_gone[mm]")]
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(nodeids, True)))
    run = Run(tmp_path, "", "--lf", f"--rootdir={ROOT}", f"-ocache_dir={tmp_path / 'cache'}")
    assert run.kinds == ["GivenItems", "list"], run.output
    assert run.workers[0]["items"] == run.workers[1]["items"]
    assert run.selected == failed


@pytest.mark.parametrize("fault", ["dies when it collects", "dies when it runs"])
def test_another_worker_takes_over_from_one_that_dies(tmp_path: Path, usual: Run, fault: str) -> None:
    run = Run(tmp_path, fault)
    assert "replacing crashed worker" in run.output
    assert run.kinds == ["GivenItems"] * (fault == "dies when it runs") + ["GivenItems", "list"], run.output
    assert all(worker["items"] == usual.workers[0]["items"] for worker in run.workers)
    assert run.selected == usual.selected


@pytest.mark.parametrize(
    "cause",
    ["a plugin that sees items", "a late plugin that sees items", "a plugin that multiplies items", "other targets"],
)
def test_where_items_may_differ_each_worker_collects(tmp_path: Path, usual: Run, cause: str) -> None:
    run = Run(tmp_path, cause)
    assert run.kinds == ["list", "list"], run.output
    assert len(run.selected) == len(usual.selected) * (2 if "multiplies" in cause else 1)


def test_where_single_cases_are_named_each_worker_collects(tmp_path: Path, usual: Run) -> None:
    file, _, test = next(case for case in usual.selected if "[" in case).partition("::")
    run = Run(tmp_path, "", f"conformance.suites.{file.removesuffix('.py')}::{test}")
    assert run.kinds == ["list", "list"], run.output
    assert run.selected == [f"{file}::{test}"]


def test_a_worker_that_lacks_a_test_is_found_out_and_runs_the_others(tmp_path: Path, usual: Run) -> None:
    run = Run(tmp_path, "lacks a suite")
    assert "have collected different cases: only one of them has test_split_k.py::" in run.output
    assert sorted(run.selected) == sorted(usual.selected)
    ids = [{facts[0].rpartition("/")[2] for facts in worker["items"]} for worker in run.workers]
    lacking = {case for case in usual.selected if not case.startswith("test_split_k.py")}
    assert sorted(ids, key=len) == [lacking, set(usual.selected)]
    assert read_run(tmp_path / "run").problems == ()


def test_node_ids_are_what_was_written(tmp_path: Path) -> None:
    ids = ["a.py::test_a[x-\u00e9]", "", "b.py::test_b\r"]
    NodeIds.write(tmp_path, "sm_90", ids)
    read = NodeIds(tmp_path)
    assert (list(read), read.targets, len(read), read[2]) == (ids, "sm_90", 3, ids[2])
    assert shared_collection.shared(tmp_path) == ids
    with pytest.raises(IndexError):
        read[3]
    NodeIds.write(tmp_path, "none", [])
    assert list(NodeIds(tmp_path)) == shared_collection.shared(tmp_path) == []
    with pytest.raises(ValueError, match="several lines"):
        NodeIds.write(tmp_path, "sm_90", ["a\nb"])


def test_a_test_that_is_not_there_is_not_known() -> None:
    items = GivenItems(["a::b", "c::d[1]", "e::f"], {"c::d[": ItemGroup.__new__(ItemGroup)}, {"a::b": None})
    assert [items.known(nodeid) for nodeid in items.nodeids] == [True, True, False]
    assert not items.known("a::b[1]")
