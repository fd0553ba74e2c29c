"""Gives each scenario of the suites its cases, and says which of them a tier leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.plugin.options import settings
from conformance.records import Reason

if TYPE_CHECKING:
    from conformance.cases.case_table import Selection

_SELECTION: pytest.StashKey[Selection] = pytest.StashKey()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    from conformance.cases.case_table import cases_of

    cases = cases_of(metafunc.function)
    if cases is None:
        return
    table = cases.table(selection(metafunc.config), metafunc.fixturenames)
    if table.rows:
        metafunc.parametrize(table.names, list(table.rows.values()), ids=list(table.rows))
    else:  # left to itself, pytest would make a skip of it
        nothing = pytest.param(*[None] * len(table.names), id="none", marks=pytest.mark.no_case)
        metafunc.parametrize(table.names, [nothing])


def selection(config: pytest.Config) -> Selection:
    """What of this run decides which cases a test has."""
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
