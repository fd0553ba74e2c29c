"""Hooks of each process that collects: they apply the filters, and let no test skip itself unseen."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.judging.settings import Settings
from conformance.plugin.case_ids import CaseIds, suite_of
from conformance.plugin.lazy_items import LazyFunction

#: Items that a worker gets at a time, where nothing is interpreted.
NEIGHBOURS = 6


class Collecting:
    """Hooks of a process that collects: what the options leave out goes, and a file that skips itself fails."""

    def __init__(self, settings: Settings, case_ids: CaseIds, keyword: Callable[[str], bool] | None = None) -> None:
        """``keyword``: whether a case id is wanted by ``-k``, None if pytest itself asks."""
        self.settings = settings
        self.keyword = keyword
        self.case_ids = case_ids

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leaves out the files of other suites than the user named. Making their cases takes longer than the rest."""
        settings = self.settings
        ids = [settings.case] if settings.case is not None else settings.case_list
        suites = settings.suites if ids is None else {suite_of(case) for case in ids}
        if not suites or collection_path.suffix != ".py" or suite_of(collection_path.name) in suites:
            return None
        return True if self.case_ids(str(collection_path)) is not None else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Collects without the collector of garbage, and hides from it what is left: it would look at every item again
        and again. :mod:`conformance.plugin` undoes that at the end of a process that is no worker."""
        enabled = gc.isenabled()
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            if enabled:
                gc.enable()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, pytest.CollectReport]:
        try:
            report: pytest.CollectReport = yield
        except SystemExit as error:  # which pytest takes for its own
            text = f"{collector.nodeid} ended its process when collected: SystemExit: {error}"
            report = pytest.CollectReport(collector.nodeid, "failed", text, [])
        if report.skipped and self.case_ids(collector.nodeid) is not None:
            report.outcome = "failed"
            report.longrepr = f"{collector.nodeid} skipped itself when collected: skip cases, for a typed reason"
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        settings = self.settings
        named = settings.case is not None or settings.case_list is not None
        narrowed = named or settings.suites or settings.kernels or settings.configs
        unsure = items if narrowed else [item for item in items if type(item) is not LazyFunction]
        unwanted = [item for item in unsure if not self._is_wanted(item)]
        if unwanted:
            config.hook.pytest_deselected(items=unwanted)
            dropped = set(unwanted)
            items[:] = [item for item in items if item not in dropped]
        if not settings.interprets:
            order(items)

    def _is_wanted(self, item: pytest.Item) -> bool:
        settings = self.settings
        if self.keyword is not None and not self.keyword(self.case_ids(item.nodeid) or item.nodeid):
            return False
        if not isinstance(item, LazyFunction) and item.get_closest_marker("no_case") is not None:
            return False  # a scenario that has no case on the chosen targets
        named = settings.case is not None or settings.case_list is not None
        case = self.case_ids(item.nodeid) if named or settings.suites else None
        if settings.case is not None and case != settings.case:
            return False
        if settings.case_list is not None and case not in settings.case_list:
            return False
        if settings.suites and (case is None or suite_of(case) not in settings.suites):
            return False
        if settings.configs and config_of(item) not in settings.configs:
            return False
        return not settings.kernels or kernel_of(item) in settings.kernels


def order(items: list[pytest.Item]) -> None:
    """Puts the slow items first, the longest before all, and those that are timed last."""
    slow = [(mark.args, item) for item in items if (mark := _mark(item, "slow")) is not None]
    slow.sort(key=lambda entry: -entry[0][0] if entry[0] else 0)  # another package's mark may say no seconds
    spread(items, [item for _, item in slow])
    items.sort(key=_timed)


def _timed(item: pytest.Item) -> bool:
    """True if ``item`` has the mark ``timed`` and its condition, if any, holds for the item's parameters."""
    mark = _mark(item, "timed")
    if mark is None:
        return False
    when = mark.kwargs.get("when")
    return bool(when(_params(item))) if callable(when) else True


def _params(item: pytest.Item) -> Mapping[str, Any]:
    """Returns the parameters of the test of ``item``, by their names."""
    if isinstance(item, LazyFunction):
        return item.params
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


def _mark(item: pytest.Item, name: str) -> pytest.Mark | None:
    """Returns the mark ``name`` of the test of ``item``."""
    return item.group.mark(name) if isinstance(item, LazyFunction) else item.get_closest_marker(name)


def spread(items: list[pytest.Item], slow: Sequence[pytest.Item]) -> None:
    """Moves the ``slow`` items so that each is the first of a share. The workers get shares of :data:`NEIGHBOURS` items
    in turn, so no slow item is left to the end."""
    chosen = set(slow)
    others = [item for item in items if item not in chosen]
    for place, item in enumerate(slow):
        others.insert(place * NEIGHBOURS, item)
    items[:] = others


def kernel_of(item: pytest.Item) -> str | None:
    """The name of the kernel that ``item`` is parametrised with: its parameter ``kernel``, if any."""
    kernel = _params(item).get("kernel")
    return None if kernel is None else str(getattr(kernel, "name", kernel))


def config_of(item: pytest.Item) -> str | None:
    """The id of the config that ``item`` is parametrised with: its parameter ``config``, if any."""
    config = _params(item).get("config")
    return None if config is None else str(getattr(config, "id", config))
