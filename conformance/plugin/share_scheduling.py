"""Hands cases to xdist's workers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

import pytest
from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

from conformance.plugin.sharding import OWN
from conformance.plugin.worker_starts import JUDGED_AGAIN

#: A worker with so many cases left gets its next share: with one alone it would wait to hear of the one after.
LEFT = 2


class LastingScheduling(LoadScheduling):
    """The run lasts where a worker has died and xdist does not know it yet. xdist's own scheduling ends the run when it
    sends cases to such a worker, as it does when two workers die at once.

    Workers may have collected different cases, as where a file hung in one of them. Each gets cases that it has; xdist
    would run none. A case that no worker of the first ones has is not run. In the run of a shard the workers have
    collected the cases of all shards, and get those of the shard."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        #: For a worker that has collected other cases: the number of each case there, by its number here.
        self._own_numbers: dict[WorkerController, dict[int, int]] = {}
        self._retired: set[WorkerController] = set()
        self._stash = config.stash

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        if self.collection is None:
            super().add_node_collection(node, collection)
        else:
            self._take(node, collection, self.collection)

    def schedule(self) -> None:
        if self.collection is None:
            collections = self.node2collection.copy()
            cases = list(dict.fromkeys(chain(*sorted(collections.values(), key=len, reverse=True))))
            of_shard = self._stash.get(OWN, None)
            cases = cases if of_shard is None else [case for case in cases if case in of_shard]
            for node, collection in collections.items():
                self._take(node, collection, cases)
        super().schedule()
        for node in self.nodes if self._own_numbers else ():
            self.check_schedule(node)
        session = self.config.pluginmanager.get_plugin("session")
        if session is not None and self._stash.get(OWN, None) is not None:
            session.testscollected = len(self.collection or ())  # where xdist counts the cases of all shards

    def _take(self, node: WorkerController, collection: Sequence[str], cases: list[str]) -> None:
        """Notes which of all ``cases`` a worker has collected."""
        self.node2collection[node] = cases
        if list(collection) != cases:
            theirs = {nodeid: number for number, nodeid in enumerate(collection)}
            numbers = enumerate(cases)
            self._own_numbers[node] = {number: theirs[nodeid] for number, nodeid in numbers if nodeid in theirs}

    def retire(self, worker: str) -> None:
        """Gives ``worker`` no more cases. It ends after the one under way and the next one, which it has begun to
        prepare; others get the rest of its queue. Any thread may call this."""
        for node in self.nodes:
            if node.gateway.id == worker:
                self._retired.add(node)
                with contextlib.suppress(OSError):  # it has ended
                    node.send_steal([])  # its answer arrives in the thread that schedules

    def remove_pending_tests_from_node(self, node: WorkerController, indices: Sequence[int]) -> None:
        """A worker that was retired has given back the cases ``indices``: all that were asked for, or none."""
        if node not in self.node2pending:
            return
        numbers = self._own_numbers.get(node)
        queue = self.node2pending[node]
        back = [number for number in queue if (number if numbers is None else numbers[number]) in {*indices}]
        queue[:] = [number for number in queue if number not in {*back}]
        self.pending[:0] = back
        rest = queue[2:]
        others = [other for other in self.nodes if other not in self._retired and not other.shutting_down]
        if rest and others:
            node.send_steal(rest if numbers is None else [numbers[number] for number in rest])
            return
        node.shutdown()
        for other in others:
            self.check_schedule(other)

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        if node in self._retired:
            return
        if not self.pending or node.shutting_down or self._takes_some(node):
            super().check_schedule(node, duration)
        elif node in self.node2collection:
            node.shutdown()  # it runs the rest of its queue, and waits for no more

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        if numbers := self._own_numbers.get(node):
            item_index = next(number for number in self.node2pending[node] if numbers[number] == item_index)
        super().mark_test_complete(node, item_index, duration)

    def remove_node(self, node: WorkerController) -> str | None:
        under_way = self.node2pending.get(node)
        again = self._stash.get(JUDGED_AGAIN, None)
        if not under_way or again is None or not again(node, (self.collection or ())[under_way[0]]):
            crashed: str | None = super().remove_node(node)
            return crashed
        self.pending[:0] = self.node2pending.pop(node)
        for other in self.nodes:
            self.check_schedule(other)
        return None

    def _takes_some(self, node: WorkerController) -> bool:
        """Returns True if ``node`` has collected some of the cases that are left."""
        if node not in self.node2collection:
            return False
        return node not in self._own_numbers or not self._own_numbers[node].keys().isdisjoint(self.pending)

    def _send_tests(self, node: WorkerController, num: int) -> None:
        before = list(self.pending), list(self.node2pending[node])
        try:
            numbers = self._own_numbers.get(node)
            if numbers is None:
                super()._send_tests(node, num)
                return
            chosen = list(islice((number for number in self.pending if number in numbers), num))
            if chosen:
                others = set(chosen)
                self.pending[:] = [number for number in self.pending if number not in others]
                self.node2pending[node].extend(chosen)
                node.send_runtest_some([numbers[number] for number in chosen])
        except OSError:  # what execnet raises; another worker gets these cases
            self.pending[:], self.node2pending[node][:] = before


class ShareScheduling(LastingScheduling):
    """A worker gets its next share (``--maxschedchunk``) when it comes to the end of the one that it has. xdist's own
    scheduling gives more to a worker whose cases are short, and long ones wait in its queue. This one is for cases that
    are not interpreted."""

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        if node in self._retired or node.shutting_down or not self.pending or not self._takes_some(node):
            super().check_schedule(node, duration)
        elif len(self.node2pending[node]) <= LEFT:
            assert self.maxschedchunk is not None
            self._send_tests(node, self.maxschedchunk)
