"""Tells a GPU that may be broken from code that is wrong, by what failed cases gave when they were judged again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from conformance.faults import Fault, FaultKind
from conformance.machine.gpu_health import gpu_state
from conformance.machine.gpus import Gpus
from conformance.records import CaseRecord, Rerun, Status

#: Seconds for which a GPU multiplies small integers, and those after which it has given no answer.
PRODUCTS_S, ANSWER_S = 5.0, 120.0
#: Said of each GPU that is suspect.
ADVICE = "run these cases on another GPU: until then they say nothing of the code"


class SuspectGpus:
    """Suspects GPUs of ``gpus``. ``environment`` has the variables of a process that asks one."""

    def __init__(self, gpus: Gpus, environment: Mapping[str, str]) -> None:
        self._gpus = gpus
        self._environment = dict(environment)
        self._wrong: dict[str, str] = {}
        self._lock = threading.Lock()

    def fault(self, record: CaseRecord, reruns: Sequence[Rerun]) -> Fault | None:
        """Returns a fault if the GPU of the failed ``record`` is suspect, and None if it is not. A GPU is if the case
        fails there each time and passes on another one of the same name. So is one that multiplies integers wrong."""
        gpu = record.gpu
        if gpu is None or gpu not in self._gpus.entries:
            return None
        telling = [rerun for rerun in reruns if rerun.fault is None and rerun.status is not Status.NOT_RUN]
        here = [rerun for rerun in telling if rerun.gpu == gpu]
        there = [rerun for rerun in telling if rerun.gpu != gpu]
        passes_there = bool(there) and all(rerun.status is Status.PASS for rerun in there)
        fails_here = bool(here) and all(rerun.status is not Status.PASS for rerun in here)
        why = ""
        if passes_there and fails_here and len({*self._gpus.names}) <= 1:
            why = f"the case failed there {1 + len(here)} times, and passed on GPU {there[0].gpu}"
        why = "; ".join(filter(None, (why, self._wrong_products(gpu))))
        if not why:
            return None
        state = gpu_state(self._gpus.variable, gpu)
        return Fault.of(
            FaultKind.DEVICE_SUSPECT, f"GPU {gpu}{f' ({state})' if state else ''} may be broken: {why}; {ADVICE}"
        )

    def _wrong_products(self, gpu: str) -> str:
        """Returns a sentence if torch's products of small integers are wrong on ``gpu``; asks each GPU once."""
        with self._lock:
            if gpu not in self._wrong:
                counts = self._products(gpu).items()
                text = ", ".join(f"{count} elements of {name}" for name, count in counts if count)
                self._wrong[gpu] = f"torch's own exact products are wrong there: {text}" if text else ""
            return self._wrong[gpu]

    def _products(self, gpu: str) -> dict[str, int]:
        command = [sys.executable, "-m", "conformance.execution.device.exact_products", str(PRODUCTS_S)]
        path = os.pathsep.join(str(entry) for entry in sys.path if entry)
        environment = {**self._environment, self._gpus.variable: gpu, "PYTHONPATH": path}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=ANSWER_S, check=True
            )
            return dict(json.loads(done.stdout))
        except (OSError, subprocess.SubprocessError, ValueError):
            return {}  # it says nothing
