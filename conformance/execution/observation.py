"""Where launches run, and what was observed when one did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from conformance.records import ExecutorName


@dataclass(frozen=True)
class Ran:
    """What one run did. ``grid`` ran (None if not observed), with this number of ``programs`` (None if not known).
    ``compiled`` is Triton's compiled kernel on a device."""

    executor: ExecutorName
    grid: tuple[int, ...] | None
    programs: int | None
    seconds: float
    compiled: Any = None


class Executor(Protocol):
    """Where launches run. ``device`` is where their tensors live; ``on_device``: that is an accelerator, not the
    interpreter's host memory."""

    @property
    def name(self) -> ExecutorName: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def on_device(self) -> bool: ...

    def run(self, launch: Any, programs: Sequence[int] | None = None, *, observe: bool = False) -> Ran:
        """Runs ``launch`` and waits for it. ``programs`` restricts it to these program ids of the first grid dimension;
        ValueError where that cannot be. With ``observe`` the result must have the grid that ran; without it may."""
        ...
