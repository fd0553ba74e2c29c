"""Prints what is installed on a node, and what its first GPU is. The node's Python runs it in a separate process."""

from __future__ import annotations

import base64
import json
import pickle
from dataclasses import asdict, dataclass, replace

import msgspec

from conformance.machine.gpus import Gpus, find_gpus
from conformance.machine.versions import machine_stack
from conformance.targets import Target, devices


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


def printed_device() -> None:
    """Prints the first GPU of this machine, which torch must see, as a target."""
    print(base64.b64encode(pickle.dumps(devices()[0])).decode())


def read_device(text: str) -> Target:
    """Returns the target that a node has printed. Raises ValueError for another text."""
    try:
        target = pickle.loads(base64.b64decode(text.strip().splitlines()[-1], validate=True))
    except (IndexError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(target, Target):
        raise ValueError(f"{target!r} is no target")
    return target
