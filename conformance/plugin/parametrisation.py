"""Gives each scenario of the suites its cases, and says which of them a tier leaves out."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from conformance.plugin.case_ids import CaseIds
from conformance.plugin.lazy_items import OrderKept, group_of
from conformance.plugin.options import CLUSTER, settings
from conformance.plugin.run_faults import INFRASTRUCTURE
from conformance.records import Reason

if TYPE_CHECKING:
    from conformance.cases.case_table import Cases, CaseTable, Selection
    from conformance.cases.lookup import CaseLookup
    from conformance.plugin.lazy_items import ItemGroup
    from conformance.targets import Target

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

        self._lookup = CaseLookup(selection.targets)

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
        collected = yield
        if not self._tables:
            return collected
        group = group_of(collected, self._tables.pop())
        if group is not None:
            self.groups[group.nodeid] = group
            return collected if self._lookup is not None else group.items()
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
        table = _table(cases, metafunc)
        if table.rows and not self._eager:
            self._tables.append(table)
            case, row = next(iter(table.rows.items()))
            metafunc.parametrize(table.names, [row], ids=[case])
        elif table.rows:
            metafunc.parametrize(table.names, list(table.rows.values()), ids=list(table.rows))
        else:  # left to itself, pytest would make a skip of it
            nothing = pytest.param(*[None] * len(table.names), id="none", marks=pytest.mark.no_case)
            metafunc.parametrize(table.names, [nothing])


def _table(cases: Cases, metafunc: pytest.Metafunc) -> CaseTable:
    """The cases of a test in this run: those of the tier, or those that the command line names, whatever their tier."""
    from conformance.cases.case_table import CaseTable
    from conformance.cases.lookup import CaseLookup

    chosen, arguments = selection(metafunc.config), metafunc.fixturenames
    names, others_too = _named(metafunc.config)
    if not names:
        return cases.table(chosen, arguments)
    test = f"{CaseIds(metafunc.config)(metafunc.definition.nodeid)}["
    finding = CaseLookup(chosen.targets).table(metafunc.function, arguments)
    rows = cases.table(chosen, arguments).rows if others_too else {}
    for text in (name.removeprefix(test).removesuffix("]") for name in names if name.startswith(test)):
        with suppress(KeyError):  # pytest, or the check of a list of cases, says that there is no such case
            rows[text] = finding.rows[text]
    return CaseTable(finding.names, rows)


def _named(config: pytest.Config) -> tuple[list[str], bool]:
    """Returns the ids of the cases that the command line names one by one, and whether it asks for other cases too."""
    chosen = settings(config)
    if chosen.case is not None or chosen.case_list is not None:
        return [chosen.case] if chosen.case is not None else sorted(chosen.case_list or ()), False
    case_ids = CaseIds(config)
    named = [argument for argument in config.args if "[" in argument]
    return [case for case in map(case_ids.of_argument, named) if case], len(named) < len(config.args)


def selection(config: pytest.Config) -> Selection:
    """Returns the parts of this run that decide which cases a test has."""
    if _SELECTION not in config.stash:
        from conformance.cases.case_table import Selection
        from conformance.judging.harness import chosen_targets

        chosen = settings(config)
        config.stash[_SELECTION] = Selection(
            chosen_targets(chosen) or _of_cluster(config),
            chosen.tier,
            chosen.kernels,
            has_gpu=chosen.has_gpu,
            compile_only=chosen.compile_only,
            asked_for_targets=bool(chosen.targets),
        )
    return config.stash[_SELECTION]


def _of_cluster(config: pytest.Config) -> tuple[Target, ...]:
    """Returns the GPU of the workers if this machine has none. Ends the run if no node can say what it is."""
    cluster = config.stash.get(CLUSTER, None)
    if cluster is None:
        return ()
    from conformance.ray_cluster.cluster import ClusterError

    try:
        return (cluster.device(),)
    except ClusterError as error:
        pytest.exit(str(error), returncode=INFRASTRUCTURE)


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


def why_line(case: str, config: pytest.Config) -> str:
    """Returns the line of ``conformance list --why``. Raises pytest.UsageError for a case that no tier has."""
    from conformance.cases.left_out import why
    from conformance.cases.lookup import near_case

    try:
        return f"{case} is {why(case, selection(config))}"
    except KeyError:
        near = near_case(case, selection(config)) or "see 'conformance list'"
        raise pytest.UsageError(f"--why {case}: no tier has that; {near}") from None
