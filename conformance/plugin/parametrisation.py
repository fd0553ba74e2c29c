"""Gives each scenario of the suites its cases, and says which of them a tier leaves out."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from conformance.plugin.lazy_items import OrderKept, group_of
from conformance.plugin.options import settings
from conformance.records import Reason

if TYPE_CHECKING:
    from conformance.cases.case_table import CaseTable, Selection
    from conformance.cases.lookup import CaseLookup
    from conformance.plugin.lazy_items import ItemGroup

_SELECTION: pytest.StashKey[Selection] = pytest.StashKey()


class Parametrisation:
    """Hooks of each process that collects: a scenario has an item for each of its cases, which costs little until it is
    used. pytest makes the first item of each test, and the others are like it.

    ``groups`` has the items of each test by the beginning of their node ids. ``made_by_pytest`` is true if pytest made
    all items of some test, because another plugin had a part in them.
    """

    def __init__(self) -> None:
        self.groups: dict[str, ItemGroup] = {}
        self.made_by_pytest = False
        self._lookup: CaseLookup | None = None
        self._tables: list[CaseTable] = []  # of the test that is being collected
        self._eager = False
        self._order = OrderKept()

    def look_up(self, selection: Selection) -> None:
        """From now on one item of each test is collected, and the groups find the cases of ``selection`` one by one."""
        from conformance.cases.lookup import CaseLookup

        self._lookup = CaseLookup(selection)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None]:
        plugins = session.config.pluginmanager
        if plugins.hasplugin("nfplugin") and not session.config.getoption("newfirst"):
            # it keeps the id of every case for a later --new-first, which costs more than to make the cases
            plugins.unregister(name="nfplugin")
        plugins.register(self._order.back)
        yield  # here pytest registers the plugin that reorders
        plugins.register(self._order.aside)

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Module | pytest.Class, name: str, obj: object
    ) -> Generator[None, Any, Any]:
        self._tables.clear()
        made = yield
        if not self._tables:
            return made
        group = group_of(made, self._tables.pop())
        if group is not None:
            self.groups[group.nodeid] = group
            return made if self._lookup is not None else group.items()
        self._eager = self.made_by_pytest = True
        try:
            return collector.ihook.pytest_pycollect_makeitem(collector=collector, name=name, obj=obj)
        finally:
            self._eager = False

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        from conformance.cases.case_table import cases_of

        cases = cases_of(metafunc.function)
        if cases is None:
            return
        if self._lookup is not None and not self._eager:
            table = self._lookup.table(metafunc.function, metafunc.fixturenames)
            self._tables.append(table)
            metafunc.parametrize(table.names, [[None] * len(table.names)], ids=["any"])
            return
        table = cases.table(selection(metafunc.config), metafunc.fixturenames)
        if table.rows and not self._eager:
            self._tables.append(table)
            case, row = next(iter(table.rows.items()))
            metafunc.parametrize(table.names, [row], ids=[case])
        elif table.rows:
            metafunc.parametrize(table.names, list(table.rows.values()), ids=list(table.rows))
        else:  # left to itself, pytest would make a skip of it
            nothing = pytest.param(*[None] * len(table.names), id="none", marks=pytest.mark.no_case)
            metafunc.parametrize(table.names, [nothing])


def selection(config: pytest.Config) -> Selection:
    """Returns what of this run decides which cases a test has."""
    if _SELECTION not in config.stash:
        from conformance.cases.case_table import Selection
        from conformance.judging.harness import chosen_targets

        chosen = settings(config)
        config.stash[_SELECTION] = Selection(
            chosen_targets(chosen),
            chosen.tier,
            chosen.kernels,
            has_gpu=chosen.has_gpu,
            compile_only=chosen.compile_only,
            asked_for_targets=bool(chosen.targets),
        )
    return config.stash[_SELECTION]


class LeftOutCases:
    """A plugin that finds the cases which the chosen tier leaves out: ``reasons`` by node id, when collected."""

    def __init__(self) -> None:
        self.reasons: dict[str, Reason] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        from conformance.cases.case_table import cases_of
        from conformance.cases.left_out import left_out

        cases, chosen = cases_of(metafunc.function), selection(metafunc.config)
        if cases is None or (chosen.kernels and "kernel" not in metafunc.fixturenames):
            return
        for case, reason in left_out(cases, chosen, metafunc.fixturenames).items():
            self.reasons[f"{metafunc.definition.nodeid}[{case}]"] = reason
