"""The facts of ``run.json`` about the Ray cluster on which the workers of a run lived."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ClusterNode:
    """A node of the cluster: its name, and the number of workers that it has room for."""

    name: str
    workers: int


@dataclass(frozen=True)
class ClusterRecord:
    """The cluster of a run. ``address`` is as the user gave it, and ``version`` that of Ray. ``device_class`` is the
    name of the GPUs to which the user kept the run; None for any. ``lost`` are the nodes that died during the run."""

    address: str
    version: str
    nodes: tuple[ClusterNode, ...]
    device_class: str | None = None
    lost: tuple[str, ...] = ()
