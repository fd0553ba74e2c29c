"""The kernels of the package that :mod:`conformance.selftest.planting` writes."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from conformance.heuristics.configs import Config
from conformance.kernels.gemm import TunedMm
from conformance.kernels.kernel import Kernel, Plan
from conformance.kernels.launch import Launch
from conformance.kernels.persistent_tma import PersistentTmaMm
from conformance.selftest.host_faults import ACTIONS
from conformance.selftest.planting import LIST_FILE

#: A small tile: the kernels compile in a second or two.
CONFIG = Config(64, 32, 32, 2, 4)
DTYPE = "fp16"


class _Copied:
    """The launch of a kernel of the catalogue, with the device function of a copy of its source. ``entry`` is the name
    of that function, "" for the kernel's own; ``host`` an action of :data:`ACTIONS`."""

    def copied(self, folder: Path, entry: str, host: str) -> None:
        """Sets the ``folder`` of the package, the device function and the action."""
        self._folder, self._entry, self._host = folder, entry, host

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        launch: Launch = super().launch(plan, tensors)  # type: ignore[misc]  # of the class that follows
        original: Any = launch.function
        module = f"{self._folder.name}.{self.name}.{original.fn.__module__.rpartition('.')[2]}"  # type: ignore[attr-defined]
        copy = getattr(importlib.import_module(module), self._entry or original.fn.__name__)
        launch = dataclasses.replace(launch, function=copy)
        return ACTIONS[self._host](launch, tensors, self._folder) if self._host else launch


class CopiedMm(_Copied, TunedMm):
    """A copy of mm."""


class CopiedPersistentTmaMm(_Copied, PersistentTmaMm):
    """A copy of mm_persistent_tma."""


CLASSES: dict[str, type[CopiedMm | CopiedPersistentTmaMm]] = {
    "mm": CopiedMm,
    "mm_persistent_tma": CopiedPersistentTmaMm,
}


def kernels_in(folder: Path) -> list[Kernel]:
    """Returns the kernels of the package in ``folder``, in the order of its list."""
    kernels: list[Kernel] = []
    for entry in json.loads((folder / LIST_FILE).read_text()):
        kernel: CopiedMm | CopiedPersistentTmaMm = CLASSES[entry["kernel"]](
            entry["name"], "mm", dtypes=(DTYPE,), configs=(CONFIG,)
        )
        kernel.copied(folder, entry["entry"], entry["host"])
        kernels.append(kernel)
    return kernels
