"""Loads modules while a worker waits for its first case: the others collect and the compile stage compiles meanwhile.

Without it the first case of each worker would pay for it, all of them at once, while no core waits for work.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from conformance.plugin.case_hooks import environment_restored
from conformance.plugin.shared_collection import GivenItems

#: How the names of suites about Inductor's code begin.
INDUCTOR_SUITES = "inductor_"
#: How their files begin, and the one whose cases have children that Inductor starts.
INDUCTOR, TUNING = f"/test_{INDUCTOR_SUITES}", f"/test_{INDUCTOR_SUITES}tuning."


class WarmUp:
    """Hooks of a worker that has just been started, for a run with a GPU. No case waits for the warm-up for more than
    ``seconds``: a device that hangs is to hang in a case, which has a deadline."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._thread: threading.Thread | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        self._thread = threading.Thread(target=self._load, args=(session.items,), name="warm-up", daemon=True)
        self._thread.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        if self._thread is not None:  # two threads that import the same see modules half made
            self._thread.join(self._seconds)
            self._thread = None
        return (yield)

    def _load(self, items: Any) -> None:
        nodeids = items.nodeids if isinstance(items, GivenItems) else (item.nodeid for item in items)
        with environment_restored():
            for step in (self._device, self._triton, lambda: self._inductor(nodeids)):
                with contextlib.suppress(Exception):  # a case that needs it will meet the error, too
                    step()

    def _device(self) -> None:
        importlib.import_module("torch").accelerator.synchronize()

    def _triton(self) -> None:
        importlib.import_module("conformance.execution.compile.compile_worker").hash_triton()

    def _inductor(self, nodeids: Iterable[str]) -> None:
        files = {nodeid.partition("::")[0] for nodeid in nodeids}
        if any(INDUCTOR in file for file in files):
            provider = importlib.import_module("conformance.inductor.compile.provider")
            if any(TUNING in file for file in files):
                provider.start_server()
            for module in ("torch._dynamo.convert_frame", *provider.PRELOADED):
                importlib.import_module(module)
