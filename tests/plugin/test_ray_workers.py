"""Runs on a Ray cluster of two nodes: they judge as workers of this machine do, whatever dies.

The cases themselves kill what is to die, so that no test waits for the right moment."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.plugin import options, parametrisation
from conformance.plugin.fresh_pytest import FreshPytest
from conformance.plugin.ray_workers import RayWorkers
from conformance.plugin.resuming import MOST_DEATHS
from conformance.plugin.run_faults import INFRASTRUCTURE
from conformance.ray_cluster.cluster import ClusterError
from conformance.records import CaseRecord, read_records, read_run
from conformance.targets import find

pytest.importorskip("ray")
pytest_plugins = ["pytester"]

#: Functions by which a case finds the processes that it kills. Its parent is the actor; the actor's is the node.
PROCESSES = """
def parent(number):
    return int(open(f"/proc/{number}/stat").read().rpartition(")")[2].split()[1])

def is_on_head():
    return "--head" in open(f"/proc/{parent(os.getppid())}/cmdline").read().split(chr(0))

def once(name):
    try:
        open(name, "x").close()
    except FileExistsError:
        return False
    return True
"""
SUITE = """
@pytest.mark.parametrize("number", range(6))
def test_passes(recorder, number):
    recorder.set(observed={"threads": os.environ.get("OMP_NUM_THREADS")})
    recorder.verdict("numbers", True, str(number))

def test_fails(recorder, tmp_path):
    (tmp_path / "code.txt").write_text("of the case")
    recorder.set(artefacts={"ttir": tmp_path / "code.txt"})
    recorder.verdict("numbers", False, "why")

def test_crashes(recorder):
    os.kill(os.getpid(), 11)

def test_is_killed(recorder):
    os.kill(os.getppid() if "CONFORMANCE_ON_RAY" in os.environ else os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a cluster of two nodes with a core each."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    node = {"num_cpus": 1, "object_store_memory": 80_000_000}
    soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}
    head = {**node, "include_dashboard": False, "_system_config": soon}  # a dead node is known after a second
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(**node)
    cluster.wait_for_nodes()
    yield cluster.address
    cluster.shutdown()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-n", "0"], "-n 0 contradicts --ray: it runs the cases in this process; give one of them"),
        (["-s", "-n", "1"], "-s contradicts --ray: it shows what the cases of this process print; give one of them"),
        (["--tx", "popen", "-n", "1"], "--tx contradicts --ray: it starts workers without Ray; give one of them"),
        (
            ["--gpus", "2", "-n", "1"],
            "--gpus contradicts --ray: it counts GPUs of this machine; -n N starts N workers*",
        ),
        (["--reproducers=a", "-n", "1"], "--reproducers contradicts --ray: it writes scripts on the nodes; give one*"),
    ],
)
def test_options_that_contradict_it_are_refused(project, words, said):
    project.suite("all", SUITE)
    project.refused(f"ERROR: {said}", "--ray=auto", *words)


def test_a_device_class_needs_a_cluster(project):
    project.refused("ERROR: --device-class H100 chooses nodes of a Ray cluster: give --ray, too", "--device-class=H100")


@pytest.mark.parametrize(("has_gpu", "kept"), [(True, True), (False, False)])
def test_a_fresh_pytest_uses_the_cluster_for_its_gpus_alone(has_gpu, kept):
    fresh = FreshPytest(SimpleNamespace(ray="auto", has_gpu=has_gpu), ["--ray", "auto", "-k", "mm"], Path(), {})
    assert ("--ray=auto" in fresh._words) == kept


class NodeWithGpu:
    """A cluster whose node says that its GPU is an sm_90, or that it cannot say what it is."""

    def __init__(self, error=None):
        self._error = error

    def device(self):
        if self._error is not None:
            raise self._error
        return find("sm_90")


@pytest.mark.parametrize(("cluster", "targets"), [(None, []), (NodeWithGpu(), ["sm_90"])])
def test_a_leader_without_a_gpu_compiles_for_that_of_the_cluster(config_of, cluster, targets):
    assert [target.id for target in parametrisation.selection(config_of(cluster)).targets] == targets


def test_a_cluster_that_cannot_say_what_its_gpu_is_ends_the_run(config_of):
    with pytest.raises(pytest.exit.Exception, match="node a cannot say") as ended:
        parametrisation.selection(config_of(NodeWithGpu(ClusterError("node a cannot say"))))
    assert ended.value.returncode == INFRASTRUCTURE


@pytest.fixture
def config_of():
    """Returns the configuration of a run with a GPU, of which this machine has none."""

    def make(cluster):
        stash = pytest.Stash()
        chosen = SimpleNamespace(targets=(), has_gpu=True, tier="quick", kernels=(), compile_only=False)
        stash[options._SETTINGS] = chosen
        if cluster is not None:
            stash[options.CLUSTER] = cluster
        return SimpleNamespace(stash=stash)

    return make


def test_a_case_that_was_under_way_when_three_nodes_died_has_crashed(tmp_path):
    workers = RayWorkers.__new__(RayWorkers)
    workers._folder, workers._case_ids, workers._ends = tmp_path, lambda nodeid: nodeid, Counter()
    node = SimpleNamespace(gateway=SimpleNamespace(id="gw0", _io=SimpleNamespace(lost_with_node=True)))
    answers = [workers._is_judged_again(node, "test_a.py::test_a") for _ in range(MOST_DEATHS)]
    assert answers == [True] * (MOST_DEATHS - 1) + [False]
    node.gateway._io.lost_with_node = False
    assert not workers._is_judged_again(node, "test_a.py::test_b")


class Stream:
    """A worker on ``node`` that notes what it is sent. ``complete`` says whether the node takes the kernels."""

    def __init__(self, node, complete):
        self.node, self.sent, self._complete = SimpleNamespace(id=node), [], complete

    def complete(self, files):
        self.sent += [file.name for file in files]
        if isinstance(self._complete, OSError):
            raise self._complete
        return self._complete

    def put(self, name, content):
        self.sent.append(name)


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Sends an index and a folder of kernels to workers."""
    import ray

    monkeypatch.setattr(ray, "put", lambda content: content)
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "mm.ptx").touch()
    (tmp_path / "index").touch()

    def give(*streams):
        workers = RayWorkers.__new__(RayWorkers)
        workers._streams = list(streams)
        workers.give(tmp_path / "index", [tmp_path / "kernel"])

    return give


def test_kernels_travel_once_to_each_node_and_the_index_to_each_worker(given):
    streams = [Stream("a", True), Stream("a", True), Stream("b", True), Stream("dead", False)]
    given(*streams)
    assert [stream.sent for stream in streams] == [["index"], ["mm.ptx", "index"], ["mm.ptx", "index"], ["mm.ptx"]]


def test_a_node_that_cannot_write_kernels_ends_the_run(given):
    with pytest.raises(pytest.exit.Exception, match="no space there"):
        given(Stream("a", OSError("no space there")))


def judged(record: CaseRecord) -> tuple[object, ...]:
    """Returns what a run has found out about a case, whichever worker ran it."""
    fault = record.fault and (record.fault.kind, re.sub(r"gw\d+", "gw", record.fault.text))
    diagnosis = re.sub(r"gw\d+", "gw", record.diagnosis)
    return record.status, record.outcome, record.verdicts, diagnosis, record.artefacts, fault


def records(folder: Path) -> dict[str, CaseRecord]:
    return {record.case.partition("::")[2]: record for record in read_records(folder).records}


def test_a_run_on_a_cluster_equals_one_of_this_machine(project, address, monkeypatch):
    project.suite("all", SUITE)
    here = project.run("-n", "2", "--run-dir=here")
    monkeypatch.setenv("CONFORMANCE_ON_RAY", "1")
    there = project.run("-n", "2", f"--ray={address}", "--run-dir=there")
    assert here.ret == there.ret == pytest.ExitCode.TESTS_FAILED
    first, second = records(project.path / "here"), records(project.path / "there")
    assert {case: judged(record) for case, record in first.items()} == {
        case: judged(record) for case, record in second.items()
    }
    assert second["test_passes[0]"].observed == {"threads": "1"}  # the node has one core
    assert second["test_is_killed"].fault.kind == "killed"
    kept = project.path / "there" / second["test_fails"].artefacts["ttir"]
    assert kept.read_text() == "of the case"
    assert {record.worker for record in second.values()} >= {"gw0", "gw1"}


def test_a_run_whose_leader_was_killed_leaves_no_process_and_goes_on(project, address):
    project.suite(
        "all",
        PROCESSES
        + """
@pytest.mark.parametrize("number", range(8))
def test_a(recorder, number):
    open(f"pid-{os.getpid()}", "w").close()
    if number == 5 and once("killed"):
        os.kill(int(os.environ["CONFORMANCE_RUN_PROCESS"]), 9)
        time.sleep(60)
    recorder.verdict("numbers", True)
""",
    )
    words = ["-n", "1", f"--ray={address}"]
    assert project.run(*words, "--run-dir=run").ret == -signal.SIGKILL
    (worker,) = project.path.glob("pid-*")
    until = time.monotonic() + 15
    while Path("/proc", worker.name[4:]).exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert project.run(*words, "--resume=run").ret == pytest.ExitCode.OK
    left = records(project.path / "run")
    assert {record.status.value for record in left.values()} == {"pass"}
    assert len(left) == 8
    assert read_run(project.path / "run").parts[0].records == 5


def test_ctrl_c_ends_a_run_on_a_cluster_in_order(project, address):
    project.suite(
        "all",
        """
@pytest.mark.parametrize("number", range(8))
def test_a(recorder, number):
    if number == 3:
        os.kill(int(os.environ["CONFORMANCE_RUN_PROCESS"]), 2)
        time.sleep(60)
    recorder.verdict("numbers", True)
""",
    )
    result = project.run("-n", "1", f"--ray={address}")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert list(project.statuses.values()) == ["pass"] * 3


def test_the_cases_of_a_node_that_dies_are_judged_on_another_one(project, address):
    project.suite(
        "all",
        PROCESSES
        + """
@pytest.mark.parametrize("number", range(8))
def test_a(recorder, number):
    if not is_on_head():
        os.kill(parent(os.getppid()), 9)
        time.sleep(60)
    recorder.verdict("numbers", True)
""",
    )
    result = project.run("-n", "2", f"--ray={address}")
    assert result.ret == pytest.ExitCode.OK
    assert {*project.statuses.values()} == {"pass"}
    assert len(project.statuses) == 8
    (lost,) = project.info.ray.lost
    assert lost in {node.name for node in project.info.ray.nodes}
    assert "Raylet" not in result.stdout.str()
