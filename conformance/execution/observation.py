"""What was observed when a launch ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ran:
    """``grid`` is the one that ran (None if this run was not observed), ``programs`` how many programs of it ran
    where that is known; ``compiled`` is Triton's compiled kernel on a device."""

    executor: str
    grid: tuple[int, ...] | None
    programs: int | None
    seconds: float
    compiled: Any = None
