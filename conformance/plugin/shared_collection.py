"""Collection of a run with workers: one of them collects, and the others take its selection from the run's folder.

The worker that first gets the lock collects as pytest does, with every filter, and leaves the node ids. The others
collect one item of each test. They make the item of a case when xdist gives them its number. The lock ends with the
process that holds it: if that dies, the next one collects.

Each worker collects for itself where an item could become another. That is so if the command line names single cases,
or if a third-party plugin has a hook that sees the items. It is also so if pytest itself made the items of a scenario.
"""

from __future__ import annotations

import fcntl
import mmap
from array import array
from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conformance.plugin.lazy_items import ItemGroup
from conformance.plugin.parametrisation import Parametrisation, selection
from conformance.records import replace_file

NODE_IDS_FILE = "collected.txt"
LOCK_FILE = "collected.lock"

#: What a worker tells xdist in place of its node ids: they are in the run's folder.
IN_FOLDER = "conformance: the node ids are in the folder of the run"

#: Hooks in which a plugin sees the items, and could change them.
SEEING = ("pytest_itemcollected", "pytest_collection_modifyitems", "pytest_collection_finish")

#: Modules whose hooks leave items as they are, leave some out, or mark tests for filters. xdist's worker is a module
#: without a file.
KNOWN = ("_pytest.", "_hypothesis_pytestplugin", "xdist.", "__channelexec__", "conformance.plugin.")


class NodeIds(Sequence[str]):
    """The node ids in the folder of a run, which are read when they are asked for; ``targets`` is what they are
    for."""

    def __init__(self, folder: Path) -> None:
        with open(folder / NODE_IDS_FILE, "rb") as file:
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.targets = self._text.readline()[:-1].decode()
        self._starts = array("Q", [self._text.tell()])
        while line := self._text.readline():
            self._starts.append(self._starts[-1] + len(line))

    @staticmethod
    def write(folder: Path, targets: str, nodeids: Sequence[str]) -> None:
        """Raises ValueError if a node id has more than one line."""
        text = "\n".join([targets, *nodeids, ""])
        if text.count("\n") != len(nodeids) + 1:
            raise ValueError("a node id has several lines")
        replace_file(folder / NODE_IDS_FILE, text)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._text[self._starts[index] : self._starts[index + 1] - 1].decode()


class GivenItems(Sequence[pytest.Item]):
    """The items of ``nodeids``: those of a group are made when they are asked for, the ``others`` are there."""

    def __init__(
        self, nodeids: Sequence[str], groups: Mapping[str, ItemGroup], others: Mapping[str, pytest.Item]
    ) -> None:
        self.nodeids = nodeids
        self._groups = groups
        self._others = others
        self._item = lru_cache(2)(self._made)  # xdist asks for the item and the next one, again after each phase

    def __len__(self) -> int:
        return len(self.nodeids)

    def __getitem__(self, index: Any) -> Any:
        return self._item(index)

    def known(self, nodeid: str) -> bool:
        """True if this process has the test of ``nodeid``."""
        return nodeid.partition("[")[0] + "[" in self._groups or nodeid in self._others

    def _made(self, index: int) -> pytest.Item:
        nodeid = self.nodeids[index]
        test, _, case = nodeid.partition("[")
        group = self._groups.get(test + "[")
        return self._others[nodeid] if group is None else group.item(case[:-1])


class SharedCollection:
    """Hooks of a worker whose run has the ``folder``."""

    def __init__(self, folder: Path, parametrisation: Parametrisation) -> None:
        self._folder = folder
        self._parametrisation = parametrisation
        self._collects = False  # for the others, too
        self._given: NodeIds | None = None
        self._collected: dict[str, pytest.Item] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, Any, Any]:
        config = session.config
        if not _may_share(config):
            return (yield)
        with open(self._folder / LOCK_FILE, "w") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)  # of this process alone: a child that outlives it does not keep it
            if not (self._folder / NODE_IDS_FILE).exists():
                self._collects = True
                return (yield)
        nodeids = NodeIds(self._folder)
        if nodeids.targets != _targets(config):  # xdist will say how the collections differ
            return (yield)
        self._given = nodeids
        self._parametrisation.look_up(selection(config))
        yield
        session.testscollected = len(nodeids)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        if self._given is not None:
            self._collected = {item.nodeid: item for item in items}
            items.clear()  # what the filters make of them is known
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> Generator[None]:
        items: Sequence[pytest.Item] = session.items
        told = None
        if self._collects:
            told = self._leave(session)
        elif self._given is not None:
            items = made_later = GivenItems(self._given, self._parametrisation.groups, self._collected)
            told = [nodeid for nodeid in self._given if made_later.known(nodeid)]
            if len(told) == len(self._given):
                told = [IN_FOLDER]
            else:  # a file failed in this worker alone
                items = GivenItems(told, self._parametrisation.groups, self._collected)
        if told is not None:
            session.items = [cast(pytest.Item, SimpleNamespace(nodeid=nodeid)) for nodeid in told]
        yield
        session.items = cast("list[pytest.Item]", items)

    def _leave(self, session: pytest.Session) -> list[str] | None:
        """Leaves the selection to the other workers and returns what xdist is told; None if each has to collect."""
        nodeids = [item.nodeid for item in session.items]
        targets = _targets(session.config)
        if not _may_share(session.config) or self._parametrisation.made_by_pytest:  # a conftest came with the tests
            targets, nodeids = "each worker collects", []
        try:
            NodeIds.write(self._folder, targets, nodeids)
        except ValueError:
            NodeIds.write(self._folder, "each worker collects", [])
            return None
        return [IN_FOLDER] if nodeids else None


def shared(folder: Path) -> list[str]:
    """The node ids that a worker left in ``folder``."""
    return (folder / NODE_IDS_FILE).read_bytes().decode().split("\n")[1:-1]


def _targets(config: pytest.Config) -> str:
    return "targets " + " ".join(target.id for target in selection(config).targets)


def _may_share(config: pytest.Config) -> bool:
    if any("[" in argument for argument in config.args):
        return False
    hooks = [getattr(config.hook, name) for name in SEEING]
    return all(impl.function.__module__.startswith(KNOWN) for hook in hooks for impl in hook.get_hookimpls())
