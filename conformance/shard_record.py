"""The facts of ``run.json`` about shards: how a selection was cut, the part of a run, and the parts of a merged run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.plain_json import jsonable


@dataclass(frozen=True)
class ShardPlan:
    """The cut of a selection, and everything that must be the same in all shards. ``cases`` are the numbers of cases of
    the shards, ``case_lists`` the :func:`list_digest` of each. ``durations`` is the digest of the figures by which the
    selection was cut. ``harness`` are the digests of all code that judged. ``stack`` lacks the device. ``options`` are
    those that change what is judged."""

    cases: tuple[int, ...]
    case_lists: tuple[str, ...]
    durations: str
    harness: tuple[str, ...]
    stack: Mapping[str, Any]
    tier: str
    seed: int
    targets: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def selected(self) -> int:
        """The number of cases of the whole selection."""
        return sum(self.cases)

    @property
    def digest(self) -> str:
        """The SHA-256 (hex) of the canonical JSON of the plan: keys sorted, no spaces, ASCII."""
        text = json.dumps(jsonable(self), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Shard:
    """One part of a selection that was cut: the ``number`` of ``plan``, from 1. ``digest`` is the plan's.
    ``records`` is the SHA-256 of the plain lines of the run's records; empty until the run ended."""

    number: int
    plan: ShardPlan
    digest: str
    records: str = ""

    def __str__(self) -> str:
        return f"{self.number}/{len(self.plan.cases)}"


@dataclass(frozen=True)
class ShardRun:
    """The run of one shard, as a merged run names it. ``run`` is its id, ``records`` the SHA-256 of its lines."""

    number: int
    run: str
    started: str
    cases: int
    records: str
    wall_s: float
    workers: int
    gpus: tuple[str, ...]
    device: str | None
    exit_status: int | None


@dataclass(frozen=True)
class MergedShards:
    """The shards of which a run was merged, in the order of their numbers. ``mixed_devices`` is true if they ran on
    several devices, which the user allowed."""

    plan: ShardPlan
    digest: str
    shards: tuple[ShardRun, ...]
    mixed_devices: bool = False


def list_digest(cases: Iterable[str]) -> str:
    """Returns the SHA-256 (hex) of ``cases``, sorted ids, with a line feed after each."""
    digest = hashlib.sha256()
    for case in cases:
        digest.update(f"{case}\n".encode())
    return digest.hexdigest()
