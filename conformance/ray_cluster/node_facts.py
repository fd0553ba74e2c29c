"""Prints what is installed on a node, as JSON. The node's Python runs it in a separate process."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

import msgspec

from conformance.machine.gpus import Gpus, find_gpus
from conformance.machine.versions import machine_stack


@dataclass(frozen=True)
class NodeFacts:
    """The versions of a node, as ``run.json`` has them, and its GPUs."""

    stack: dict[str, str | None]
    gpus: Gpus


def node_facts() -> NodeFacts:
    """Returns those of this machine. Without a visible GPU the driver and the device are None."""
    gpus = find_gpus()
    return NodeFacts(machine_stack(gpus), replace(gpus, entries=(), listed=0))


def printed_facts() -> None:
    """Prints those of this machine."""
    print(json.dumps(asdict(node_facts())))


def read_facts(text: str) -> NodeFacts:
    """Returns the facts that a node has printed. Raises ValueError for another text."""
    return msgspec.json.decode(text.strip().splitlines()[-1], type=NodeFacts)
