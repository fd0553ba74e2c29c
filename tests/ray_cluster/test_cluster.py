"""The nodes that a run takes, what it refuses, and which variables its workers get. No cluster is started."""

from __future__ import annotations

import importlib.util
import socket
from dataclasses import replace
from types import SimpleNamespace

import pytest

from conformance.machine.gpus import Gpus
from conformance.plugin.ray_workers import RayWorkers
from conformance.ray_cluster import cluster as module
from conformance.ray_cluster import compile_tasks, node_facts
from conformance.ray_cluster.cluster import Cluster, ClusterError, Node, check_stacks, connect, sent_variables
from conformance.ray_cluster.node_facts import NodeFacts, printed_facts, read_facts
from conformance.targets import known_targets

HERE = {"harness": "1 abc", "torch": "2.13.0", "triton": "3.9.0", "python": "3.11.7", "driver": None, "device": None}
H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


def node(name="a", slots=2, gpu=H100, **stack):
    gpus = Gpus(names=(gpu,) * slots, driver="580.1")
    return Node(name, name, slots, NodeFacts({**HERE, "driver": "580.1", "device": gpu, **stack}, gpus))


@pytest.mark.parametrize("name", ["harness", "torch", "triton", "python"])
def test_a_node_with_another_stack_is_refused(name):
    check_stacks("--ray auto", HERE, [node(), node("b")], uses_gpus=True)
    with pytest.raises(
        ClusterError, match=rf"--ray auto: node b has {name} 0, and this machine has {HERE[name]}; inst"
    ):
        check_stacks("--ray auto", HERE, [node(), node("b", **{name: "0"})], uses_gpus=False)


@pytest.mark.parametrize("changed", [{"driver": "570.2"}, {"device": H200}])
def test_nodes_with_another_driver_or_device_are_refused_if_the_run_uses_gpus(changed):
    nodes = [node(), node("b", **changed)]
    check_stacks("--ray auto", HERE, nodes, uses_gpus=False)
    ((name, value),) = changed.items()
    with pytest.raises(ClusterError, match=f"node b has {name} {value}, and node a has"):
        check_stacks("--ray auto", HERE, nodes, uses_gpus=True)


def test_a_node_with_two_kinds_of_gpus_is_refused():
    mixed = node()
    mixed = replace(mixed, facts=replace(mixed.facts, gpus=Gpus(names=(H100, H200))))
    with pytest.raises(ClusterError, match="node a has GPUs of several kinds"):
        check_stacks("--ray auto", HERE, [mixed], uses_gpus=True)


class FakeRay:
    """A cluster whose nodes say what they have in their ``printed`` text."""

    def __init__(self, monkeypatch, nodes, resource="GPU"):
        self.printed = {one.id: one for one in nodes}
        rows = [
            {"NodeID": one.id, "NodeName": one.name, "Alive": True, "Resources": {resource: one.slots}} for one in nodes
        ]
        self.nodes = lambda: rows
        monkeypatch.setattr(module, "_ray", lambda: self)
        monkeypatch.setattr(module, "machine_stack", lambda gpus: HERE)
        monkeypatch.setattr(module, "read_facts", lambda text: self.printed[text].facts)
        monkeypatch.setattr(module, "_printed", lambda program, nodes: [(name, "") for name in nodes])


def test_a_device_class_keeps_the_nodes_of_one_gpu(monkeypatch):
    FakeRay(monkeypatch, [node(), node("b", gpu=H200)])
    with pytest.raises(ClusterError, match="--device-class NAME keeps one kind"):
        module._connected("auto", None, None)
    cluster = module._connected("auto", H200, None)
    assert [one.id for one in cluster.nodes] == ["b"]
    assert cluster.gpus == Gpus(entries=("0", "1"), names=(H200, H200), driver="580.1", listed=2)
    with pytest.raises(
        ClusterError, match=r"--device-class A100: no node has this GPU alone; the cluster has \['NVIDIA"
    ):
        module._connected("auto", "A100", None)


def test_a_run_without_gpus_takes_cores_and_no_device_class(monkeypatch):
    FakeRay(monkeypatch, [node(), node("b", gpu=H200)], resource="CPU")
    cluster = module._connected("auto", None, None)
    assert (cluster.gpus, cluster.slots) == (Gpus(), 4)
    with pytest.raises(ClusterError, match="--device-class H100: this run uses no GPU"):
        module._connected("auto", "H100", None)
    with pytest.raises(ClusterError, match="no node of the cluster has a GPU"):
        module._connected("auto", None, True)


def test_a_node_that_cannot_say_what_it_has_is_refused(monkeypatch):
    FakeRay(monkeypatch, [node()])
    monkeypatch.setattr(module, "read_facts", read_facts)
    said = [("", "Traceback\nModuleNotFoundError: No module named 'x'")]
    monkeypatch.setattr(module, "_printed", lambda program, nodes: said)
    with pytest.raises(ClusterError, match=r"node a \(a\) cannot say what is installed there: ModuleNotFoundError"):
        module._connected("auto", None, None)


def test_facts_are_read_as_they_are_printed(capsys):
    printed_facts()
    facts = read_facts(capsys.readouterr().out)
    assert facts.stack["harness"]
    assert facts.gpus.entries == ()


def test_the_gpu_of_a_machine_without_one_is_what_a_living_node_prints(monkeypatch, capsys):
    gpu = replace(known_targets()[0], device_index=0)
    monkeypatch.setattr(node_facts, "devices", lambda: (gpu,))
    node_facts.printed_device()
    printed = {"b": (capsys.readouterr().out, "")}
    monkeypatch.setattr(module, "_printed", lambda program, nodes: [printed.get(name, ("", "")) for name in nodes])
    cluster = Cluster("auto", [node(), node("b")], Gpus())
    with pytest.raises(ClusterError, match="node a cannot say what its GPU is"):
        cluster.device()
    cluster.note_dead(cluster.nodes[0])
    assert cluster.device() == gpu


def test_without_ray_the_sentence_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ClusterError, match=r"--ray auto needs Ray: pip install 'triton-conformance\[ray\]'"):
        connect("auto", None, None)


def test_an_address_from_outside_the_cluster_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with pytest.raises(ClusterError, match="--ray ray://head:10001: auto, or HOST:PORT"):
        connect("ray://head:10001", None, None)


def test_a_cluster_that_does_not_answer_is_one_sentence(monkeypatch):
    ray = pytest.importorskip("ray")

    def init(**how):
        raise ConnectionError("Could not find any running Ray instance.\nPlease specify")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(
        ClusterError, match=r"--ray auto: no cluster answers \(Could not find any running Ray instance.\)"
    ):
        connect("auto", None, None)


@pytest.mark.parametrize("variable", [None, "RAY_ADDRESS"])
def test_an_address_where_nothing_listens_is_refused_before_ray_tries(monkeypatch, variable):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "init", lambda **how: pytest.fail("Ray was asked"))
    with socket.socket() as bound:  # without a listener
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        if variable is not None:
            monkeypatch.setenv(variable, address)
        with pytest.raises(ClusterError, match=f"--ray {address}: nothing listens there .*refused"):
            connect("auto" if variable else address, None, None)


def test_workers_go_to_the_emptiest_living_node_and_make_room():
    cluster = Cluster("auto", [node("a", 1), node("b", 2)], Gpus())
    assert [cluster.take(worker).id for worker in ("gw0", "gw1", "gw2")] == ["b", "a", "b"]
    assert cluster.free() == []
    cluster.note_dead(cluster.nodes[0])
    cluster.give_back("gw1")
    assert cluster.free() == []
    cluster.give_back("gw0")
    assert cluster.take("gw3").id == "b"


def test_a_full_cluster_has_no_node_for_another_worker(monkeypatch):
    monkeypatch.setattr(module, "ENDING_S", 0.0)
    cluster = Cluster("auto", [node("a", 1)], Gpus())
    assert cluster.take("gw0") is not None
    assert cluster.take("gw1") is None


def test_workers_get_the_variables_that_change_results_and_no_secret():
    environ = {
        "TRITON_CACHE_DIR": "/cache",
        "CONFORMANCE_RUN_PROCESS": "7",
        "TORCH_TOKEN": "secret",
        "CUDA_VISIBLE_DEVICES": "3",
        "LD_LIBRARY_PATH": "/here",
        "HOME": "/root",
    }
    assert sent_variables(environ) == {"TRITON_CACHE_DIR": "/cache", "CONFORMANCE_RUN_PROCESS": "7"}


class CompilingRay:
    """A cluster of the nodes in ``cores``, on the first of which this process is. A node of ``fails`` dies."""

    exceptions = SimpleNamespace(RayError=OSError)

    def __init__(self, cores, fails=()):
        self._cores, self._fails = cores, fails

    def nodes(self):
        return [
            {"NodeID": name, "Alive": count >= 0, "Resources": {"CPU": count} if count else {}}
            for name, count in self._cores.items()
        ]

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: next(iter(self._cores)))

    def remote(self, function):
        def options(*, num_cpus, max_retries, scheduling_strategy):
            assert (num_cpus, max_retries) == (0, 0)
            return SimpleNamespace(remote=lambda words, environment, task: (scheduling_strategy, task))

        return SimpleNamespace(options=options)

    def get(self, call):
        node, task = call
        if node in self._fails:
            raise OSError("the node died")
        return f"{node} compiled {task}", ""


@pytest.mark.parametrize(
    ("cores", "compilers"),
    [
        ({"here": 2, "b": 4, "without": 0, "dead": -1}, [("here", 2), ("b", 4)]),
        ({"here": 0, "b": 4}, [("b", 4)]),
        ({"here": 2, "without": 0}, []),
    ],
)
def test_living_nodes_with_cores_compile_unless_this_machine_is_the_only_one(monkeypatch, cores, compilers):
    monkeypatch.setattr(module, "_ray", lambda: CompilingRay(cores))
    assert Cluster("auto", [], Gpus()).compilers() == compilers


def test_a_node_that_dies_while_it_compiles_gives_nothing_and_the_others_their_kernels(monkeypatch):
    monkeypatch.setattr(module, "_ray", lambda: CompilingRay({"a": 1, "b": 1}, fails=("a",)))
    monkeypatch.setattr(module, "_on", lambda node: node)
    assert Cluster("auto", [], Gpus()).compile([("a", "x"), ("b", "y")]) == [b"", "b compiled y"]


def test_each_task_goes_to_the_node_that_it_was_made_for(monkeypatch):
    sent = []
    cluster = SimpleNamespace(compilers=lambda: [("a", 1), ("b", 2)], compile=lambda tasks: sent.extend(tasks) or [])
    workers = RayWorkers.__new__(RayWorkers)
    workers._cluster = cluster

    def compile_on_nodes(stage, settings, selection, cases, cores, run, folder):
        assert cores == [1, 2]
        return run([(1, b"second")])

    monkeypatch.setattr(compile_tasks, "compile_on_nodes", compile_on_nodes)
    assert workers.compile(None, None, None, [], None) == []
    assert sent == [("b", b"second")]
