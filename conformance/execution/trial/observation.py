"""The places where launches run, and what was observed in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from conformance.records import ExecutorName


@dataclass(frozen=True)
class Ran:
    """The observations of one run. ``grid`` ran (None if not observed), with this number of ``programs`` (None if not
    known). ``compiled`` is Triton's compiled kernel on a device."""

    executor: ExecutorName
    grid: tuple[int, ...] | None
    programs: int | None
    seconds: float
    compiled: Any = None


class Executor(Protocol):
    """An executor of launches. ``device`` is where their tensors live; ``on_device``: that is an accelerator, not the
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


def watching(executor: Executor, operands: Mapping[str, Tensor], **rules: Any) -> AbstractContextManager[Any]:
    """Returns a context in which ``executor`` watches the accesses to ``operands`` under the ``rules`` of
    :class:`conformance.execution.interpreter.accesses.Accesses`. It gives None where the executor cannot watch."""
    watch = getattr(executor, "watching", None)
    return nullcontext() if watch is None else watch(operands, **rules)
