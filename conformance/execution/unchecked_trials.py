"""Trials of plans that their kernel refuses. Each runs in a process of its own: it may corrupt memory or lose the
device."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from conformance.kernels.kernel import Plan
from conformance.records import Check, CheckKind

#: Seconds until a process that lost the device is given up.
DEADLINE = 180.0


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
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        future = pool.submit(_trial, plan, seed)
        try:
            return future.result(timeout=DEADLINE)
        except BrokenProcessPool:
            return UncheckedOutcome("died", "the process ended without an answer")
        except TimeoutError:
            for process in list(pool._processes.values()):
                process.kill()
            return UncheckedOutcome("died", f"no answer within {DEADLINE:g} s")


def _trial(plan: Plan, seed: int) -> UncheckedOutcome:
    from conformance.execution.device import DeviceExecutor
    from conformance.execution.trial import trial
    from conformance.kernels.catalogue import get

    try:
        result = trial(get(plan.kernel), plan, DeviceExecutor(), seed=seed, names=("transparent", "randn"))
    except Exception as error:  # whatever the device makes of it is the finding
        return UncheckedOutcome("error", f"{type(error).__name__}: {error}".split("\n", 1)[0])
    failed = [verdict for verdict in result.verdicts if not verdict.passed]
    kinds = {Check.parse(verdict.check).kind for verdict in failed}
    wrong, overwritten = bool(kinds & {CheckKind.NUMERICS, CheckKind.REPEAT}), CheckKind.MEMORY in kinds
    kind = {(0, 0): "clean", (1, 0): "wrong-numbers", (0, 1): "overwritten", (1, 1): "wrong-and-overwritten"}[
        int(wrong), int(overwritten)
    ]
    return UncheckedOutcome(kind, "; ".join(f"{verdict.check}: {verdict.text}" for verdict in failed)[:2000])
