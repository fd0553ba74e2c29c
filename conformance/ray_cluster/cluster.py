"""The nodes of a Ray cluster that can judge the cases of a run: all have the stack of this machine."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.cluster_record import ClusterNode, ClusterRecord
from conformance.gate.runs.run_environment import variables
from conformance.machine.gpus import Gpus
from conformance.machine.versions import machine_stack
from conformance.ray_cluster import worker_actor
from conformance.ray_cluster.node_facts import NodeFacts, read_device, read_facts
from conformance.targets import Target

#: Seconds in which all nodes must have said what is installed there.
FACTS_S = worker_actor.FACTS_S + 60.0
#: Seconds in which a worker that has judged its last case is gone.
ENDING_S = 10.0
#: Seconds in which a machine must answer at the address of a cluster.
ANSWER_S = 10.0
#: The facts of a stack that only GPUs have.
_OF_GPUS = ("driver", "device")
_FACTS, _DEVICE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    f"from conformance.ray_cluster.node_facts import {function}; {function}()"
    for function in ("printed_facts", "printed_device")
)
_COMPILE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from pathlib import Path; "
    "from conformance.ray_cluster.compile_tasks import main; main(Path(sys.argv[2]))"
)
#: Variables that name files or devices of one machine.
_OF_MACHINE = re.compile(r"\w+_VISIBLE_DEVICES|LD_\w+")


class ClusterError(Exception):
    """The cluster cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Node:
    """A node of the cluster. ``slots`` is the number of its workers at one time, and each has so many ``cores``."""

    id: str
    name: str
    slots: int
    facts: NodeFacts
    cores: int = 1


def sent_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of this process that its workers on other machines get: those that can change results, but
    no secrets."""
    shown = variables(environ)
    own = {name: value for name, value in environ.items() if shown.get(name) == value}
    own |= {name: value for name, value in environ.items() if name.startswith("CONFORMANCE_")}
    return {name: value for name, value in own.items() if not _OF_MACHINE.fullmatch(name)}


class Cluster:
    """A cluster that this process is connected to. ``address`` is what the user gave. ``nodes`` have the same stack;
    ``gpus`` are theirs, none if the run wants none; ``device_class`` is the name that the user gave, if any."""

    def __init__(self, address: str, nodes: Sequence[Node], gpus: Gpus, device_class: str | None = None) -> None:
        self.address = address
        self.nodes = tuple(nodes)
        self.gpus = gpus
        self._device_class = device_class
        self._held: dict[str, str] = {}  # the node of each worker
        self._dead: set[str] = set()
        self._lock = threading.Lock()

    @property
    def slots(self) -> int:
        """The number of workers that the cluster has room for."""
        return sum(node.slots for node in self.nodes)

    def free(self) -> list[Node]:
        """Returns a living node for each worker that there is room for, the emptiest first."""
        held = list(self._held.values())
        left = [(node.slots - held.count(node.id), node) for node in self.nodes if node.id not in self._dead]
        return [node for slots, node in sorted(left, key=lambda one: -one[0]) if slots > 0]

    def take(self, worker: str) -> Node | None:
        """Returns the node for a new ``worker``. Waits for one that is ending, and returns None if there is no room."""
        until = time.monotonic() + ENDING_S
        while True:
            with self._lock:
                for node in self.free():
                    self._held[worker] = node.id
                    return node
            if time.monotonic() > until:
                return None
            time.sleep(0.05)

    def give_back(self, worker: str) -> None:
        """The ``worker`` has ended."""
        with self._lock:
            self._held.pop(worker, None)

    def is_dead(self, node: Node) -> bool:
        """Asks the cluster whether ``node`` has died."""
        if node.id not in self._dead and node.id not in {one["NodeID"] for one in _ray().nodes() if one["Alive"]}:
            self._dead.add(node.id)
        return node.id in self._dead

    def note_dead(self, node: Node) -> None:
        """The cluster has said that ``node`` has died."""
        self._dead.add(node.id)

    def record(self) -> ClusterRecord:
        """Returns what ``run.json`` says of the cluster, with the nodes that are known to have died by now."""
        return ClusterRecord(
            self.address,
            _ray().__version__,
            tuple(ClusterNode(node.name, node.slots) for node in self.nodes),
            self._device_class,
            tuple(node.name for node in self.nodes if node.id in self._dead),
        )

    def device(self) -> Target:
        """Returns the GPU of the workers, as the first living node describes it. Raises :class:`ClusterError` if that
        cannot say what it is."""
        node = next((node for node in self.nodes if node.id not in self._dead), self.nodes[0])
        ((text, error),) = _printed(_DEVICE, [node.id])
        try:
            return read_device(text)
        except ValueError as why:
            last = (error.strip().splitlines() or [str(why)])[-1]
            raise ClusterError(
                f"--ray {self.address}: node {node.name} cannot say what its GPU is: {last}; check that torch sees the "
                "GPU there"
            ) from None

    def actor(self, node: Node) -> Any:
        """Begins to start an actor on ``node`` and returns its handle."""
        ray = _ray()
        one_gpu = {"num_gpus": 1, "num_cpus": 0} if self.gpus.entries else {"num_cpus": 1}
        return (
            ray.remote(worker_actor.WorkerActor)
            .options(
                **one_gpu,
                max_restarts=0,
                max_task_retries=0,  # a retry never turns a crash into a pass
                max_concurrency=4,
                scheduling_strategy=_on(node.id),
            )
            .remote()
        )

    def compilers(self) -> list[tuple[str, int]]:
        """Returns each living node with cores, and their number; none if only this machine has some."""
        rows = [(node["NodeID"], int(node["Resources"].get("CPU", 0))) for node in _ray().nodes() if node["Alive"]]
        rows = [(node, cores) for node, cores in rows if cores]
        here = _ray().get_runtime_context().get_node_id()
        return rows if any(node != here for node, _ in rows) else []

    def compile(self, tasks: Sequence[tuple[str, bytes]]) -> list[bytes]:
        """Runs each task of :mod:`compile_tasks` on its node, and returns what they compiled; nothing of a node that
        fails or dies."""
        ray = _ray()
        words = ["-c", _COMPILE, json.dumps([str(entry) for entry in sys.path])]
        compiled = ray.remote(worker_actor.compiled)
        environment = sent_variables(os.environ)
        calls = [
            compiled.options(num_cpus=0, max_retries=0, scheduling_strategy=_on(node)).remote(
                words, environment, payload
            )
            for node, payload in tasks
        ]
        contents = []
        for call in calls:
            try:
                contents.append(ray.get(call)[0])
            except ray.exceptions.RayError:
                contents.append(b"")
        return contents

    def disconnect(self) -> None:
        """Ends the actors of this process, and its connection."""
        _ray().shutdown()


def _ray() -> Any:
    import ray  # it is an extra

    return ray


def _on(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def connect(address: str, device_class: str | None, wants_gpu: bool | None) -> Cluster:
    """Connects this process to the cluster at ``address``, or at the one of this machine if that is "auto".

    ``wants_gpu``: None takes GPUs if the cluster has some. ``device_class`` keeps the nodes whose GPUs have this name.
    Raises :class:`ClusterError` without Ray, without a cluster, and for nodes that have not this machine's stack."""
    if importlib.util.find_spec("ray") is None:
        raise ClusterError(f"--ray {address} needs Ray: pip install 'triton-conformance[ray]'")
    if address != "auto" and not re.fullmatch(r"[^\s:/]+:\d+", address):
        raise ClusterError(
            f"--ray {address}: auto, or HOST:PORT of a cluster that this machine belongs to, is required; from outside "
            "it, give the command to 'ray job submit'"
        )
    _look_for(address if address != "auto" else os.environ.get("RAY_ADDRESS", ""))
    _join(address)
    try:
        return _connected(address, device_class, wants_gpu)
    except BaseException:
        _ray().shutdown()
        raise


def _look_for(address: str) -> None:
    """Raises :class:`ClusterError` if nothing listens at ``address``: Ray itself tries for many minutes. A text that is
    no HOST:PORT is left to Ray."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"--ray {address}: nothing listens there ({error}); start a cluster with 'ray start --head', or give the "
            "address of one"
        ) from None


def _join(address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = _ray()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False, logging_level=logging.CRITICAL)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        text = str(error).strip().partition("\n")[0]
        raise ClusterError(
            f"--ray {address}: no cluster answers ({text}); start one with 'ray start --head', or give its address"
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():  # Ray takes SIGTERM, and the run ends in order at it
                signal.signal(number, handler)
    # Ray prints the last lines of a dead node's log; no option turns that off.
    ray._private.worker.print_to_stdstream = lambda *lines, **how: None
    ray.cloudpickle.register_pickle_by_value(worker_actor)


def _connected(address: str, device_class: str | None, wants_gpu: bool | None) -> Cluster:
    living = [node for node in _ray().nodes() if node["Alive"]]
    with_gpus = any(node["Resources"].get("GPU", 0) >= 1 for node in living)
    uses_gpus = with_gpus if wants_gpu is None else wants_gpu
    if device_class is not None and not uses_gpus:
        raise ClusterError(f"--device-class {device_class}: this run uses no GPU of the cluster; leave it out")
    resource = "GPU" if uses_gpus else "CPU"
    rows = [(node, int(node["Resources"].get(resource, 0))) for node in living]
    rows = [(node, slots) for node, slots in rows if slots]
    if not rows:
        raise ClusterError(f"--ray {address}: no node of the cluster has a {resource} for a worker")
    facts = _printed(_FACTS, [node["NodeID"] for node, _ in rows])
    nodes = []
    for (node, slots), (text, error) in zip(rows, facts, strict=True):
        name = f"{node['NodeName']} ({node['NodeID'][:8]})"
        try:
            cores = max(1, int(node["Resources"].get("CPU", 0)) // slots)
            nodes.append(Node(node["NodeID"], name, slots, read_facts(text), cores))
        except (ValueError, LookupError):
            why = (error.strip().splitlines() or ["it printed nothing"])[-1]
            raise ClusterError(
                f"--ray {address}: node {name} cannot say what is installed there: {why}; install this harness there, "
                "at the same path"
            ) from None
    if device_class is not None:
        nodes = _of_class(device_class, nodes)
    here = machine_stack(Gpus())
    check_stacks(f"--ray {address}", here, nodes, uses_gpus)
    return Cluster(address, nodes, _gpus(nodes) if uses_gpus else Gpus(), device_class)


def _printed(program: str, nodes: Sequence[str]) -> list[tuple[str, str]]:
    """Returns what ``program`` prints on each of ``nodes``, and what it says of an error."""
    ray = _ray()
    words = ["-c", program, json.dumps([str(entry) for entry in sys.path])]
    printed = ray.remote(worker_actor.printed)
    calls = [
        printed.options(num_cpus=0, max_retries=0, scheduling_strategy=_on(node)).remote(
            words, sent_variables(os.environ)
        )
        for node in nodes
    ]
    done, _ = ray.wait(calls, num_returns=len(calls), timeout=FACTS_S)
    answers = []
    for call in calls:
        try:
            answers.append(ray.get(call) if call in done else ("", f"no answer within {FACTS_S:g} s"))
        except ray.exceptions.RayError as error:
            answers.append(("", str(error)))
    return answers


def _of_class(device_class: str, nodes: Sequence[Node]) -> list[Node]:
    """Returns the nodes with GPUs of the name ``device_class`` alone. Raises :class:`ClusterError` if there is none."""
    chosen = [node for node in nodes if {*node.facts.gpus.names} == {device_class}]
    if not chosen:
        names = sorted({name for node in nodes for name in node.facts.gpus.names})
        raise ClusterError(f"--device-class {device_class}: no node has this GPU alone; the cluster has {names}")
    return chosen


def check_stacks(option: str, here: Mapping[str, str | None], nodes: Sequence[Node], uses_gpus: bool) -> None:
    """Raises :class:`ClusterError`, which begins with ``option``, for the first of ``nodes`` that differs. It must have
    the stack of this machine, which is ``here``. If the run ``uses_gpus`` it must have the driver and the GPUs of the
    first node."""
    for node in nodes:
        for name, ours in here.items():
            theirs = node.facts.stack.get(name)
            if name not in _OF_GPUS and theirs != ours:
                raise ClusterError(
                    f"{option}: node {node.name} has {name} {theirs}, and this machine has {ours}; install one stack "
                    "on all nodes"
                )
        if not uses_gpus:
            continue
        for name in _OF_GPUS:
            first, theirs = nodes[0].facts.stack[name], node.facts.stack[name]
            if theirs != first:
                advice = "install one stack on all nodes" if name == "driver" else "--device-class NAME keeps one kind"
                raise ClusterError(
                    f"{option}: node {node.name} has {name} {theirs}, and node {nodes[0].name} has {first}; {advice}"
                )
        if len({*node.facts.gpus.names}) > 1:
            raise ClusterError(f"{option}: node {node.name} has GPUs of several kinds: {node.facts.stack['device']}")


def _gpus(nodes: Sequence[Node]) -> Gpus:
    """Returns the GPUs of ``nodes``. Each node counts its own from 0."""
    first = nodes[0].facts.gpus
    entries = tuple(str(number) for node in nodes for number in range(node.slots))
    return Gpus(first.variable, entries, first.names[:1] * len(entries), first.driver, len(entries))
