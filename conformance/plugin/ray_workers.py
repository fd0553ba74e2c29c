"""Workers on the nodes of a Ray cluster. Only where they start and how their bytes travel is Ray's.

xdist and this plugin hand out the cases, as they do to workers of this machine. So progress, Ctrl-C, deadlines and the
records of dead workers are the same. The exception is a node that dies: its cases go to other workers, and so does the
one that was under way.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.judging.settings import Settings
from conformance.plugin.case_ids import CaseIds
from conformance.plugin.collection_watch import MARKED_FILE
from conformance.plugin.options import CLUSTER
from conformance.plugin.record_files import written
from conformance.plugin.resuming import MOST_DEATHS
from conformance.plugin.worker_starts import JUDGED_AGAIN, WorkerStarts
from conformance.ray_cluster.cluster import ClusterError, connect, sent_variables
from conformance.ray_cluster.worker_stream import WorkerStream

if TYPE_CHECKING:
    from conformance.cases.case_table import Selection
    from conformance.judging.compile_stage import CompileStage


def join_cluster(config: pytest.Config) -> None:
    """Connects the run to its cluster, and chooses the number of workers. Raises pytest.UsageError if the cluster
    cannot be used."""
    option = config.option
    without_gpu = option.conformance_no_gpu or option.conformance_compile_only or option.conformance_gpus == 0
    try:
        cluster = connect(option.conformance_ray, option.conformance_device_class, False if without_gpu else None)
    except ClusterError as error:
        raise pytest.UsageError(str(error)) from None
    config.add_cleanup(cluster.disconnect)
    config.stash[CLUSTER] = cluster
    workers = option.numprocesses
    if isinstance(workers, int) and workers > cluster.slots:
        of_what = "GPUs" if cluster.gpus.entries else "CPUs"
        raise pytest.UsageError(f"-n {workers}: the cluster has {cluster.slots} {of_what} for workers; give no more")
    option.numprocesses = workers if isinstance(workers, int) else cluster.slots


class RayWorkers:
    """Hooks by which the workers of the run in ``folder`` start on the nodes of the cluster."""

    def __init__(self, config: pytest.Config, folder: Path, case_ids: CaseIds, starts: WorkerStarts) -> None:
        self._config = config
        self._cluster = config.stash[CLUSTER]
        self._folder = folder
        self._case_ids = case_ids
        self._asked: dict[str, Any] = {}  # actors that are starting
        self._streams: list[WorkerStream] = []
        self._index: tuple[str, Any] | None = None  # of what the compile stage has compiled
        self._complete: dict[str, bool] = {}  # nodes, and whether they have the kernels of the index
        self._ends: Counter[str] = Counter()  # ends of nodes at which a case was under way
        config.stash[JUDGED_AGAIN] = self._is_judged_again
        starts.has_room = self._has_room
        python = config.option.tx[0].partition("//")[2] or "python=python"  # which the node's takes the place of
        config.option.tx = [f"popen//{python}//ray={self._cluster.address}"] * len(config.option.tx)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config, specs: list[Any]) -> None:
        from execnet import gateway_io as module

        gateway_io: Any = module
        before = gateway_io.create_io
        config.add_cleanup(lambda: setattr(gateway_io, "create_io", before))
        gateway_io.create_io = self._start
        for spec in specs:  # all at once
            node = self._cluster.take(spec.id)
            if node is not None:
                self._asked[spec.id] = node, self._cluster.actor(node)

    def _start(self, spec: Any, execmodel: Any) -> WorkerStream:
        """Takes the place of execnet's function that starts the process of a gateway."""
        from execnet import gateway_io

        node, actor = self._asked.pop(spec.id, (None, None))
        if node is None:
            node = self._cluster.take(spec.id)
            if node is None:
                raise OSError("no living node of the cluster has room for a worker")
            actor = self._cluster.actor(node)
        stream = WorkerStream(self._cluster, node, actor, spec.id, self._folder, execmodel)
        factory = getattr(self._config, "_tmp_path_factory", None)
        folders = [str(factory.getbasetemp())] if factory is not None else []
        words = gateway_io.popen_args(spec)[1:]  # of the interpreter, which is the node's
        environment = {"OMP_NUM_THREADS": str(node.cores), **sent_variables(os.environ)}
        stream.begin(words, environment, self._config.invocation_params.dir, folders)
        marks = self._folder / MARKED_FILE
        if marks.exists():
            stream.put(MARKED_FILE, marks.read_bytes())
        if self._index is not None and self._complete.get(node.id):
            stream.put(*self._index)
        self._streams.append(stream)
        return stream

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_configure_node(self, node: Any) -> None:
        stream, gpus = node.gateway._io, self._cluster.gpus
        node.workerinput |= {
            "conformance_folder": stream.remote_folder,
            "conformance_gpu": stream.devices.get(gpus.variable) if gpus.entries else None,
            "conformance_shares": False,  # no file with another worker
        }

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        if error is None:
            node.gateway.exit()  # another worker may take its place

    def compile(
        self, stage: CompileStage, settings: Settings, selection: Selection, cases: Sequence[str], folder: Path
    ) -> Path | None:
        """Compiles what ``cases`` need on the nodes of the cluster that have cores, see :func:`compile_on_nodes`."""
        from conformance.ray_cluster.compile_tasks import compile_on_nodes

        nodes = self._cluster.compilers()
        if not nodes:
            return None

        def run(tasks: Sequence[tuple[int, bytes]]) -> list[bytes]:
            return self._cluster.compile([(nodes[number][0], task) for number, task in tasks])

        return compile_on_nodes(stage, settings, selection, cases, [cores for _, cores in nodes], run, folder)

    def give(self, index: Path, folders: Iterable[Path]) -> None:
        """Sends the compile stage's ``index`` to each worker, also to those that start later, before their next cases.
        The files in ``folders`` of Triton's cache, which it names, travel first, once to each node that lacks them. A
        node that cannot write them ends the run."""
        import ray

        files = sorted(file for folder in folders for file in folder.iterdir() if file.is_file())
        streams = {stream.node.id: stream for stream in self._streams}
        try:
            with ThreadPoolExecutor(len(streams) or 1) as pool:
                complete = pool.map(lambda stream: stream.complete(files), streams.values())
                self._complete = dict(zip(streams, complete, strict=True))
        except OSError as error:
            pytest.exit(str(error))
        self._index = index.name, ray.put(index.read_bytes())
        for stream in self._streams:
            if self._complete[stream.node.id]:
                stream.put(*self._index)

    def _has_room(self, node: Any) -> bool:
        stream = getattr(node.gateway, "_io", None)
        return not getattr(stream, "lost_with_node", False) or bool(self._cluster.free())

    def _is_judged_again(self, node: Any, nodeid: str) -> bool:
        case, worker = self._case_ids(nodeid), node.gateway.id
        if not node.gateway._io.lost_with_node or case is None or written(self._folder, worker, case) is not None:
            return False
        self._ends[case] += 1
        return self._ends[case] < MOST_DEATHS
