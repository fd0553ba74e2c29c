"""Checks for third-party parts that must not be passed over: kernels of installed packages, and unknown
accelerators."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest

from conformance.judging.settings import Settings
from conformance.plugin.options import OUTSIDE_KERNELS, check_stack
from conformance.records import CaseRecord, Status

if TYPE_CHECKING:
    from conformance.cases.case_table import Selection

#: The groups in which packages name kernels and targets; to ask for them here costs no import of torch.
KERNELS, TARGETS = OUTSIDE_KERNELS, "conformance.targets"


class Outside:
    """Looks, before the first case runs, for kernels that have none, and after the last for kernels that none judged.

    ``select`` gives the selection; ``whole`` is false if the user chose among the cases of a kernel. ``left_out``: why
    entry points are left out, by what names them.
    """

    def __init__(
        self,
        settings: Settings,
        select: Callable[[], Selection],
        whole: bool,
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        self.left_out = left_out or {}
        self._settings = settings
        self._select = select
        self._whole = whole
        self._missing: dict[str, str] = {}
        self._names: frozenset[str] = frozenset()
        self._statuses: defaultdict[str, set[Status]] = defaultdict(set)
        self._reasons: dict[str, str] = {}

    def failed_cases(self) -> dict[str, str]:
        """Returns why entry points are left out, by the id of the case that stands for each. There is none in a run of
        chosen kernels or cases."""
        settings = self._settings
        if settings.kernels or settings.case or settings.case_list:
            return {}
        places = {where.partition("entry point ")[2]: why for where, why in self.left_out.items()}
        return {f"entry_points::{place.rpartition(' of ')[0] or place}": why for place, why in places.items()}

    def look(self, cases: Sequence[str]) -> list[str]:
        """Returns a text for each kernel without a case. Raises pytest.UsageError if the run has no ``cases`` for that
        reason, and for an accelerator that torch sees and the harness does not know."""
        if not self._settings.has_gpu and not self._settings.without_gpu:
            refuse_unknown_accelerator(self._settings.gpus.variable)
        if entry_points(group=KERNELS):
            from conformance.cases.outside_kernels import without_case
            from conformance.kernels.catalogue import outside_kernels

            self._missing = without_case(self._select())
            self._names = frozenset(outside_kernels())
        if self._missing and not cases:
            raise pytest.UsageError("\n".join(self._missing.values()))
        return list(self._missing.values())

    def take(self, record: CaseRecord) -> None:
        """Looks at a record of the run."""
        if record.kernel in self._names and record.problem is not None:
            self._statuses[record.kernel].add(record.status)
            self._reasons[record.kernel] = str(record.reason)

    def problems(self) -> list[str]:
        """Returns the problems of the run, one text each."""
        if not self._whole:
            return list(self._missing.values())
        refused = [name for name, statuses in self._statuses.items() if statuses == {Status.NOT_APPLICABLE}]
        return [
            *self._missing.values(),
            *(f"no case judged {name}: it refuses them all, the last for {self._reasons[name]}" for name in refused),
        ]


def load_packages() -> dict[str, str]:
    """Loads the kernels and targets of installed packages. Returns why some of them are left out, by entry point."""
    if not entry_points(group=KERNELS) and not entry_points(group=TARGETS):
        return {}
    check_stack()
    from conformance.kernels.catalogue import catalogue
    from conformance.machine.entry_point_loading import LEFT_OUT
    from conformance.targets import compile_targets

    catalogue()
    compile_targets()
    return dict(LEFT_OUT)


#: What the environment said of GPUs before this process hid them from the interpreter's run.
_SHOWN: dict[str, str | None] = {}


def remember(variable: str) -> None:
    """Notes what ``variable``, which shows and hides GPUs, was before it is set."""
    _SHOWN.setdefault(variable, os.environ.get(variable))


def refuse_unknown_accelerator(variable: str) -> None:
    """Raises pytest.UsageError if torch sees an accelerator although the harness found no GPU. A run of the interpreter
    would pass for a test of the device. ``variable`` hides the GPUs that the harness knows."""
    import torch

    hidden, shown = os.environ.pop(variable, None), _SHOWN.get(variable)
    if shown is not None:
        os.environ[variable] = shown
    try:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
    finally:
        os.environ.pop(variable, None)
        if hidden is not None:
            os.environ[variable] = hidden
    if accelerator is not None:
        raise pytest.UsageError(
            f"torch sees an accelerator of type {accelerator.type!r}, and this harness found no NVIDIA or AMD GPU that "
            "it knows. Give --no-gpu to run in Triton's interpreter without it, or --gpus 1 if it is a device that "
            "Triton compiles for: see docs/device.md"
        )
