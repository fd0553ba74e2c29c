"""The settings of a watched run, as the command hands them to the process that runs the tests."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

#: The variable of the environment that holds them.
VARIABLE = "CONFORMANCE_WATCH"
#: What is taken of a kernel's configs where an autotuner would measure them.
CONFIGS = ("first", "all")
#: The exit status of a pytest process that has lost its device. pytest's own end at 5.
LOST_DEVICE = 90


@dataclass(frozen=True)
class WatchSettings:
    """``target`` is what kernels are compiled for, ``folder`` that of the run. ``configs`` is one of :data:`CONFIGS`.
    ``device``: launches are made on a GPU, which is the target. Else a launch has ``launch_s`` seconds, and one of more
    than ``programs`` programs is not run. ``done`` is a file of node ids, one a line: these tests are left out."""

    target: str
    folder: str
    configs: str = "first"
    launch_s: float = 60.0
    programs: int = 4096
    device: bool = False
    done: str = ""

    def variables(self) -> dict[str, str]:
        """Returns the variables of the environment that hold the settings."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def of_environment(cls) -> WatchSettings | None:
        """Returns the settings that the environment holds; None if it holds none."""
        text = os.environ.get(VARIABLE)
        return cls(**json.loads(text)) if text else None
