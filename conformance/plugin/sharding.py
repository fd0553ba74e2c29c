"""Cuts the selection of a run into shards, and picks the cases of this one.

The process that leads a run cuts, once and before the first case. It plans all selected cases, to know which share
kernels. Workers collect the whole selection; they are handed the cases of the shard alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.gate.runs.run_environment import extensions
from conformance.judging.settings import Settings
from conformance.machine.kept_answers import PACKAGE, code_digest
from conformance.plain_json import compact_json, jsonable
from conformance.plugin.case_ids import CaseIds
from conformance.plugin.options import OUTSIDE_KERNELS
from conformance.records import Shard, ShardPlan, list_digest
from conformance.shards.cut import cut
from conformance.shards.durations import Durations, DurationsError, package_durations, read_durations, weights_digest
from conformance.shards.numbers import ShardNumber

#: Where the scheduler finds the node ids of this shard's tests.
OWN = pytest.StashKey[frozenset[str]]()
#: Entry points of packages that bring kernels and targets.
_PACKAGES = (OUTSIDE_KERNELS, "conformance.targets")
#: The part of the stack in which shards may differ if the user merges them with --mixed-devices.
DEVICE = "device"


class Sharding:
    """The shard that the ``settings`` name; the only one if they name none. ``kernels`` returns the keys of the kernels
    that each case compiles; None if no case of the run has any. ``base`` is the folder to which the user's files are
    relative."""

    def __init__(
        self,
        settings: Settings,
        case_ids: CaseIds,
        base: Path,
        kernels: Callable[[Sequence[str]], Mapping[str, Collection[str]]] | None,
    ) -> None:
        self._settings = settings
        self._number = settings.shard or ShardNumber(1, 1)
        self._case_ids = case_ids
        self._base = base
        self._kernels = kernels
        self._durations = self._read_durations()
        self._numbers: dict[str, int] = {}
        self._weights: dict[str, int] = {}

    def _read_durations(self) -> Durations:
        if self._number.count == 1:
            return Durations({})  # nothing is cut
        try:
            if self._settings.durations_from is None:
                return package_durations(self._settings.has_gpu)
            return read_durations(self._settings.durations_from, self._settings.has_gpu)
        except DurationsError as error:
            option = "" if self._settings.durations_from is None else "--durations-from: "
            raise pytest.UsageError(f"{option}{error}") from None

    def cut(self, nodeids: Sequence[str], uncollectable: Sequence[str] = ()) -> list[int]:
        """Returns the places of this shard's tests in ``nodeids``. Tests that are no cases belong to the first shard.
        ``uncollectable`` are the ids of files that could not be collected, which have a record each."""
        ids = [self._case_ids(nodeid) for nodeid in nodeids]
        cases = [*(case for case in ids if case is not None), *uncollectable]
        self._weights = self._durations.weights(cases)
        planned = self._number.count > 1 and self._kernels is not None
        kernels = self._kernels(cases) if planned and self._kernels is not None else {}
        self._numbers = cut(self._weights, kernels, self._number.count)
        return [place for place, case in enumerate(ids) if self.owns(case)]

    def owns(self, case: str | None) -> bool:
        """True if ``case`` is of this shard; None is a test that is no case."""
        return (1 if case is None else self._numbers.get(case)) == self._number.number

    def shard(self, stack: Mapping[str, Any]) -> Shard:
        """Returns what ``run.json`` says of this shard, after :meth:`cut`. ``stack`` is the run's."""
        lists: dict[int, list[str]] = defaultdict(list)
        for case, number in self._numbers.items():  # sorted by case
            lists[number].append(case)
        settings = self._settings
        plan = ShardPlan(
            cases=tuple(len(lists[number]) for number in range(1, self._number.count + 1)),
            case_lists=tuple(list_digest(lists[number]) for number in range(1, self._number.count + 1)),
            durations=weights_digest(self._weights),
            harness=(code_digest(), *(code_digest(folder) for folder in self._case_ids.suites if folder != _SUITES)),
            stack={name: value for name, value in stack.items() if name != DEVICE},
            tier=settings.tier,
            seed=settings.seed,
            targets=settings.targets,
            options=jsonable(self._judging_options()),
        )
        return Shard(self._number.number, plan, plan.digest)

    def _judging_options(self) -> dict[str, Any]:
        """Returns the options that change what is judged. Files are there as their digests."""
        settings = self._settings
        calibration = settings.calibration
        return {
            "repeats": settings.repeats,
            "reruns": settings.reruns,
            "compile_only": settings.compile_only,
            "gpu": settings.has_gpu,
            "ttgir": settings.ttgir,
            "require": settings.require,
            "case_timeout_s": settings.case_timeout_s,
            "compiled": settings.compiled is not None,
            "expected_failures": [_file_digest(self._base / file) for file in settings.expected_failure_files],
            "calibration": None if calibration is None else _file_digest(calibration),
            "packages": [entry for entry in extensions() if entry["group"] in _PACKAGES],
            "declared": hashlib.sha256(compact_json(jsonable(settings.declared)).encode()).hexdigest(),
        }

    def sentence(self) -> str:
        """Says how many cases this shard has, and how much longer the longest shard is than the mean."""
        loads: Counter[int] = Counter()
        for case, number in self._numbers.items():
            loads[number] += self._weights[case]
        own = sum(number == self._number.number for number in self._numbers.values())
        mean = sum(loads.values()) / self._number.count
        longest = f"; the longest has {max(loads.values()) / mean:.2f} times the mean" if mean else ""
        return f"shard {self._number}: {own} of {len(self._numbers)} cases{longest}"


_SUITES = PACKAGE / "suites"


def _file_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


class ShardListing:
    """Leaves a pytest that only lists its cases those of the shard."""

    def __init__(self, sharding: Sharding) -> None:
        self._sharding = sharding

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        keep_own(config, items, self._sharding.cut([item.nodeid for item in items]))


def keep_own(config: pytest.Config, items: list[pytest.Item], places: Sequence[int]) -> None:
    """Leaves in ``items`` those at ``places``, and reports the others as deselected."""
    own = [items[place] for place in places]
    kept = set(own)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = own
