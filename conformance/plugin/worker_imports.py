"""Lets the server that forks the workers of a run import their modules once; see ``worker_launcher``."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

#: The import that takes longest of those of cases about Inductor's code.
INDUCTOR_IMPORT = "torch._inductor.compile_fx"
#: How the names of suites about Inductor's code begin.
INDUCTOR_SUITES = "inductor_"


class WorkerImports:
    """Starts the server as the session starts: its imports take seconds. ``modules`` are those that it imports in
    addition to each worker's."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._launcher = [sys.executable, str(Path(__file__).with_name("worker_launcher.py")), *modules]

    @property
    def specification(self) -> str:
        """Returns the specification by which xdist starts a worker."""
        return f"popen//python={shlex.join(self._launcher)}"

    def pytest_sessionstart(self) -> None:
        none = subprocess.DEVNULL
        self._starts = subprocess.Popen(self._launcher, stdin=none, stdout=none, stderr=none, start_new_session=True)

    def pytest_sessionfinish(self) -> None:
        self._starts.kill()  # it ended long ago, unless it hangs
        self._starts.wait()
