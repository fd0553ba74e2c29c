"""Trials of plans that their kernel refuses. Each runs in a process of its own: it may corrupt memory or lose the
device."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import IO, TYPE_CHECKING

from conformance.execution.compilation import GRACE_SECONDS, fork_server
from conformance.execution.fork_server import ForkedProcess
from conformance.kernels.kernel import Plan
from conformance.records import Check, CheckKind

if TYPE_CHECKING:
    from conformance.execution.device import DeviceExecutor

#: Seconds until a process that lost the device is given up.
DEADLINE = 180.0
#: What the process runs.
ANSWER = "conformance.execution.unchecked_trials:answer"
#: What it says when it has the device.
READY = "ready"


@dataclass(frozen=True)
class UncheckedOutcome:
    """What a trial past the check showed.

    ``kind``: "clean", "wrong-numbers", "overwritten", "wrong-and-overwritten", "error" or "died".
    """

    kind: str
    text: str


def unchecked_trial(plan: Plan, seed: int = 0) -> UncheckedOutcome:
    """What the harness sees when ``plan`` runs on the device although its kernel refuses it.

    Two fills are judged. A process that dies, or that gives no answer within DEADLINE seconds, is the kind "died".
    Raises RuntimeError if it dies before it has the device, which shows nothing of the plan, and
    :class:`~conformance.execution.fork_server.ForkServerLost` if none can be started.
    """
    ours, theirs = Pipe()
    with tempfile.TemporaryFile() as output, ours:
        with theirs:
            process = fork_server(()).fork(
                ANSWER, {"seed": seed}, (theirs.fileno(),), output.fileno(), dict(os.environ)
            )
        try:
            _await_device(ours, process, output)
            ours.send(plan)
            if ours.poll(DEADLINE):
                outcome: UncheckedOutcome = ours.recv()
                return outcome
            return UncheckedOutcome("died", f"no answer within {DEADLINE:g} s")
        except (EOFError, OSError):
            return UncheckedOutcome("died", "the process ended without an answer")
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _await_device(pipe: Connection, process: ForkedProcess, output: IO[bytes]) -> None:
    with contextlib.suppress(EOFError, OSError):
        if pipe.poll(DEADLINE) and pipe.recv() == READY:
            return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)  # it writes why before it ends
    output.seek(0)
    written = output.read().decode(errors="replace").strip()
    raise RuntimeError(f"the process of a trial past the check did not get the device: {written}")


def answer(pipe: int, *, seed: int) -> None:
    """What the process runs: says through the descriptor ``pipe`` that it has the device, receives a plan and sends its
    outcome."""
    import torch

    from conformance.execution.device import DeviceExecutor

    asker, executor = Connection(pipe), DeviceExecutor()
    torch.accelerator.synchronize(executor.device)
    asker.send(READY)
    asker.send(_trial(asker.recv(), executor, seed))


def _trial(plan: Plan, executor: DeviceExecutor, seed: int) -> UncheckedOutcome:
    from conformance.execution.trial import trial
    from conformance.kernels.catalogue import get

    try:
        result = trial(get(plan.kernel), plan, executor, seed=seed, names=("transparent", "randn"))
    except Exception as error:  # whatever the device makes of it is the finding
        return UncheckedOutcome("error", f"{type(error).__name__}: {error}".split("\n", 1)[0])
    failed = [verdict for verdict in result.verdicts if not verdict.passed]
    kinds = {Check.parse(verdict.check).kind for verdict in failed}
    wrong, overwritten = bool(kinds & {CheckKind.NUMERICS, CheckKind.REPEAT}), CheckKind.MEMORY in kinds
    kind = {(0, 0): "clean", (1, 0): "wrong-numbers", (0, 1): "overwritten", (1, 1): "wrong-and-overwritten"}[
        int(wrong), int(overwritten)
    ]
    return UncheckedOutcome(kind, "; ".join(f"{verdict.check}: {verdict.text}" for verdict in failed)[:2000])
