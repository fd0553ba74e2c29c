"""A trial of a plan that its kernel refuses, in a process of its own: it may corrupt memory or lose the device."""

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
class Seen:
    """``kind``: "clean", "wrong-numbers", "overwritten", "wrong-and-overwritten", "error" or "died"."""

    kind: str
    text: str


def forced_trial(plan: Plan, seed: int = 0) -> Seen:
    """What the harness sees when ``plan`` runs on the device although its kernel refuses it."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        future = pool.submit(_trial, plan, seed)
        try:
            return future.result(timeout=DEADLINE)
        except BrokenProcessPool:
            return Seen("died", "the process ended without an answer")
        except TimeoutError:
            for process in list(pool._processes.values()):
                process.kill()
            return Seen("died", f"no answer within {DEADLINE:g} s")


def _trial(plan: Plan, seed: int) -> Seen:
    from conformance.execution.device import DeviceExecutor
    from conformance.execution.trial import trial
    from conformance.kernels.catalogue import get

    try:
        judged = trial(get(plan.kernel), plan, DeviceExecutor(), seed=seed, names=("transparent", "randn"))
    except Exception as error:  # whatever the device makes of it is the finding
        return Seen("error", f"{type(error).__name__}: {error}".split("\n", 1)[0])
    failed = [verdict for verdict in judged.verdicts if not verdict.passed]
    kinds = {Check.parse(verdict.check).kind for verdict in failed}
    wrong, overwritten = bool(kinds & {CheckKind.NUMERICS, CheckKind.REPEAT}), CheckKind.MEMORY in kinds
    kind = {(0, 0): "clean", (1, 0): "wrong-numbers", (0, 1): "overwritten", (1, 1): "wrong-and-overwritten"}[
        int(wrong), int(overwritten)
    ]
    return Seen(kind, "; ".join(f"{verdict.check}: {verdict.text}" for verdict in failed)[:2000])
