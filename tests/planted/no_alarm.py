"""Correct kernels must raise no alarm: ``python -m tests.planted.no_alarm --count 2000 --seed 0 [--workers N]``.

Draws distinct cases over all kernels, dtypes, layouts and variants (see conformance.cases.random_problems) and judges
each. Runs in the interpreter where there is no accelerator or TRITON_INTERPRET is 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Tile sizes for the interpreter, where the listed ones take too long.
SMALL = (16, 32, 64)


def small_configs(kernel: Any) -> tuple[Any, ...]:
    """Configs of the kernel's kind with small tiles."""
    from conformance.heuristics.configs import Config, FlexConfig, FlexDecodeConfig

    kind = type(kernel.configs[0])
    if kind is Config:
        depths = (32, 64) if set(kernel.dtypes) & {"e4m3", "int8"} else (16, 32)
        spaces = itertools.product(SMALL[:2], SMALL, depths, (1, 2, 8))
        return tuple(Config(m, n, k, 2, 4, group_m=group) for m, n, k, group in spaces)
    if kind is FlexDecodeConfig:
        return tuple(FlexDecodeConfig(n, 1, 4) for n in SMALL)
    return tuple(FlexConfig(m, n, 1, 4) for m in SMALL for n in SMALL if n % m == 0)


def cases(count: int, seed: int, device: bool, target: Any) -> Iterator[tuple[Any, int]]:
    """``count`` distinct plans of all kernels in turn, each with a seed of its fills."""
    from conformance.cases.random_problems import random_plan
    from conformance.kernels import catalogue

    kernels = [kernel for kernel in catalogue.catalogue().values() if kernel.usable_on(target)]
    seen: set[Any] = set()
    for number in itertools.count(1_000_000_000 * (seed + 1)):
        kernel = kernels[number % len(kernels)]
        plan = random_plan(kernel, number, target, large=device, configs=() if device else small_configs(kernel))
        if len(seen) == count:
            return
        if plan not in seen:
            seen.add(plan)
            yield plan, number % 2**31


def judge_share(count: int, seed: int, worker: int, workers: int) -> int:
    """Judges every ``workers``-th case and says each alarm, then the totals, as lines of JSON; returns the alarms."""
    from conformance import targets
    from conformance.execution.trial.trial import trial
    from conformance.kernels import catalogue
    from tests.planted.table import _executor

    executor, target = _executor()
    target = target or targets.find("sm_90")
    alarms, kinds = 0, Counter[str]()
    for index, (plan, fills_seed) in enumerate(cases(count, seed, executor.on_device, target)):
        if index % workers != worker:
            continue
        label = f"{plan.kernel}/{plan.problem.id}/{plan.config.id}/{plan.variant.id} fills seed {fills_seed}"
        try:
            result = trial(catalogue.get(plan.kernel), plan, executor, seed=fills_seed)
            failed = [f"{verdict.check}: {verdict.text}" for verdict in result.verdicts if not verdict.passed]
            text = "\n".join([*failed, result.diagnosis])
            kinds.update({f"kernel {plan.kernel}": 1, "fills": len(result.outputs), "cases": 1})
        except Exception as error:
            failed, text = ["exception"], f"{type(error).__name__}: {error}"
        if failed:
            alarms += 1
            print("@" + json.dumps({"alarm": label, "text": text}), flush=True)
    print("@" + json.dumps({"totals": kinds}), flush=True)
    return alarms


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker is not None:
        return int(judge_share(options.count, options.seed, options.worker, options.workers) > 0)
    from tests.planted.table import has_device

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if not has_device():
        environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    started, totals, alarms, broken = time.perf_counter(), Counter[str](), [], 0
    command = [
        sys.executable,
        *("-m", "tests.planted.no_alarm"),
        *(f"--{name}={getattr(options, name)}" for name in ("count", "seed", "workers")),
    ]
    children = [
        subprocess.Popen([*command, f"--worker={worker}"], env=environment, stdout=subprocess.PIPE, text=True)
        for worker in range(options.workers)
    ]
    for process in children:
        output, _ = process.communicate()
        messages = [json.loads(line[1:]) for line in output.splitlines() if line.startswith("@")]
        alarms += [data for data in messages if "alarm" in data]
        finished = [data["totals"] for data in messages if "totals" in data]
        totals.update(finished[0] if finished else {})
        broken += not finished
    for alarm in alarms:
        print(f"ALARM {alarm['alarm']}\n{alarm['text']}\n")
    kernels = ", ".join(
        f"{name.removeprefix('kernel ')} {count}"
        for name, count in sorted(totals.items())
        if name.startswith("kernel ")
    )
    judged = f"{totals['cases']} of {options.count} cases with {totals['fills']} fills"
    print(f"{len(alarms)} alarms in {judged} ({kernels}), {time.perf_counter() - started:.0f} s")
    if broken:
        print(f"{broken} of {options.workers} workers died before the end: see their stderr")
    return int(bool(alarms or broken or totals["cases"] < options.count))


if __name__ == "__main__":
    sys.exit(main())
