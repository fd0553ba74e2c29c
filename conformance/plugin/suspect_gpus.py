"""Tells a GPU that may be broken from code that is wrong, by what failed cases gave when they were judged again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from conformance.faults import Fault, FaultKind
from conformance.machine.gpu_health import gpu_state
from conformance.machine.gpus import Gpus
from conformance.records import CaseRecord, Rerun, Status, first_of

#: Seconds for which a GPU multiplies small integers, and those after which it has given no answer.
PRODUCTS_S, ANSWER_S = 5.0, 120.0
#: Said of each GPU that is suspect.
ADVICE = "run these cases on another GPU: until then they say nothing of the code"


class NoProducts(Exception):
    """A GPU gave no products."""


class SuspectGpus:
    """Suspects GPUs of ``gpus``. ``environment`` has the variables of a process that asks one."""

    def __init__(self, gpus: Gpus, environment: Mapping[str, str]) -> None:
        self._gpus = gpus
        self._environment = dict(environment)
        self._wrong: dict[str, str] = {}
        self._lock = threading.Lock()

    def passes_elsewhere(self, record: CaseRecord, reruns: Sequence[Rerun]) -> bool:
        """True if the case of the failed ``record`` fails on its GPU each time, and passes each time on another one."""
        here, there = self._split(record, reruns)
        return (
            bool(here and there)
            and all(rerun.status is not Status.PASS for rerun in here)
            and all(rerun.status is Status.PASS for rerun in there)
            and len({*self._gpus.names}) <= 1
        )

    def _split(self, record: CaseRecord, reruns: Sequence[Rerun]) -> tuple[list[Rerun], list[Rerun]]:
        """Returns the reruns on the case's own GPU and those on others, without the ones that say nothing."""
        telling = [rerun for rerun in reruns if rerun.fault is None and rerun.status is not Status.NOT_RUN]
        here = [rerun for rerun in telling if rerun.gpu == record.gpu]
        return here, [rerun for rerun in telling if rerun.gpu != record.gpu]

    def fault(self, record: CaseRecord, reruns: Sequence[Rerun]) -> Fault | None:
        """Returns a fault if the GPU of the failed ``record`` is suspect, and None if it is not. A GPU is if only it
        fails the case. So is one that multiplies integers wrong, or does not where another one does."""
        gpu = record.gpu
        if gpu is None or gpu not in self._gpus.entries:
            return None
        why = ""
        if self.passes_elsewhere(record, reruns):
            here, there = self._split(record, reruns)
            others = first_of([*dict.fromkeys(str(rerun.gpu) for rerun in there)], 3)
            why = f"the case failed there {1 + len(here)} times, and passed {len(there)} times on GPU {others}"
        why = "; ".join(filter(None, (why, self._wrong_products(gpu))))
        if not why:
            return None
        state = gpu_state(self._gpus.variable, gpu)
        return Fault.of(
            FaultKind.DEVICE_SUSPECT, f"GPU {gpu}{f' ({state})' if state else ''} may be broken: {why}; {ADVICE}"
        )

    def _wrong_products(self, gpu: str) -> str:
        """Returns a sentence if torch's products of small integers are wrong on ``gpu``, or end with an error there
        alone. Asks each GPU once."""
        with self._lock:
            if gpu not in self._wrong:
                self._wrong[gpu] = self._asked(gpu)
            return self._wrong[gpu]

    def _asked(self, gpu: str) -> str:
        try:
            counts = self._products(gpu).items()
        except NoProducts as error:
            others = [entry for entry in self._gpus.entries if entry != gpu] if len({*self._gpus.names}) <= 1 else []
            with contextlib.suppress(NoProducts):
                if others and self._products(others[0]):
                    return f"torch's own products end there with an error, and not on GPU {others[0]}: {error}"
            return ""
        text = ", ".join(f"{count} elements of {name}" for name, count in counts if count)
        return f"torch's own exact products are wrong there: {text}" if text else ""

    def _products(self, gpu: str) -> dict[str, int]:
        """Returns the number of wrong elements by dtype. Raises NoProducts if ``gpu`` gives no answer."""
        command = [sys.executable, "-m", "conformance.execution.device.exact_products", str(PRODUCTS_S)]
        path = os.pathsep.join(str(entry) for entry in sys.path if entry)
        environment = {**self._environment, self._gpus.variable: gpu, "PYTHONPATH": path}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=ANSWER_S, check=False
            )
            if done.returncode:
                raise NoProducts(f"exit status {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}")
            return dict(json.loads(done.stdout))
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise NoProducts(f"{type(error).__name__}: {error}") from None
