"""Trials of plans that their kernel refuses. Each runs in a process of its own: it may corrupt memory or lose the
device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.execution.device.fault_search import device_for, device_process
from conformance.kernels.kernel import Plan
from conformance.records import Check, CheckKind

if TYPE_CHECKING:
    from conformance.execution.device.executor import DeviceExecutor

#: Seconds until a process that lost the device is given up.
DEADLINE = 180.0
#: What the process runs.
ANSWER = "conformance.execution.trial.unchecked_trials:answer"


@dataclass(frozen=True)
class UncheckedOutcome:
    """The outcome of a trial past the check.

    ``kind``: "clean", "wrong-numbers", "overwritten", "wrong-and-overwritten", "error" or "died".
    """

    kind: str
    text: str


def unchecked_trial(plan: Plan, seed: int = 0) -> UncheckedOutcome:
    """Runs ``plan`` on the device although its kernel refuses it, and returns the outcome.

    Two fills are judged. A process that dies, or that gives no answer within DEADLINE seconds, is the kind "died".
    Raises RuntimeError if it dies before it has the device, which shows nothing of the plan, and
    :class:`~conformance.execution.compile.fork_server.ForkServerLost` if none can be started.
    """
    with device_process(ANSWER, "a trial past the check", seed=seed) as process:
        try:
            process.send(plan)
            if process.poll(DEADLINE):
                outcome: UncheckedOutcome = process.recv()
                return outcome
            return UncheckedOutcome("died", f"no answer within {DEADLINE:g} s")
        except (EOFError, OSError):
            return UncheckedOutcome("died", "the process ended without an answer")


def answer(pipe: int, *, seed: int) -> None:
    """The main function of the process: receives a plan through the descriptor ``pipe`` and sends its outcome."""
    asker, executor = device_for(pipe)
    asker.send(_trial(asker.recv(), executor, seed))


def _trial(plan: Plan, executor: DeviceExecutor, seed: int) -> UncheckedOutcome:
    from conformance.execution.trial.trial import trial
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
