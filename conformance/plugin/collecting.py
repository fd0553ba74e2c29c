"""Runs in every process that collects: which cases are left after our filters, and that none hides."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from conformance.plugin.options import Settings
from conformance.plugin.selection import CaseIds


class Collecting:
    def __init__(self, settings: Settings, case_ids: CaseIds) -> None:
        self.settings = settings
        self.case_ids = case_ids

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, pytest.CollectReport]:
        report: pytest.CollectReport = yield
        if report.skipped and self.case_ids(collector.nodeid) is not None:
            report.outcome = "failed"
            report.longrepr = f"{collector.nodeid} skipped itself when collected: skip cases, for a typed reason"
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        wanted, kernels = self.settings.case, self.settings.kernels
        if wanted is None and not kernels:
            return
        kept: list[pytest.Item] = []
        dropped: list[pytest.Item] = []
        for item in items:
            chosen = wanted is None or self.case_ids(item.nodeid) == wanted
            (kept if chosen and (not kernels or kernel_of(item) in kernels) else dropped).append(item)
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def kernel_of(item: pytest.Item) -> str | None:
    """The name of the kernel that ``item`` is parametrised with: its parameter ``kernel``, if any."""
    callspec = getattr(item, "callspec", None)
    kernel = callspec.params.get("kernel") if callspec is not None else None
    return None if kernel is None else str(getattr(kernel, "name", kernel))
