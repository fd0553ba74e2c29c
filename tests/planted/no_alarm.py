"""Correct kernels must raise no alarm: ``python tests/planted/no_alarm.py --count 2000 --seed 0 [--workers N]``.

Draws distinct cases over all kernels, dtypes, layouts, biases, scales and variants (ragged sizes, K tails, primes,
ones, zeros) and judges each. Runs in the interpreter where there is no accelerator or TRITON_INTERPRET is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SIZES = (1, 2, 3, 7, 8, 13, 16, 17, 24, 31, 32, 33, 40, 47, 48, 56, 61, 64, 65, 72, 80, 88, 97)
#: On a device the catalogue's own tile sizes are drawn, and sizes up to a few tiles of them.
LARGE_SIZES = (*SIZES, 127, 128, 129, 168, 248, 257, 300, 384, 520)
K_SIZES = (0, 1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 40, 64, 88, 96, 127, 128, 131, 160)
LARGE_K = (*K_SIZES, 256, 520, 1031, 2048)


def draw(random: random.Random, device: bool) -> tuple[str, Any, Any, Any]:
    """(kernel name, problem, config, variant), not necessarily acceptable to the kernel."""
    from conformance.kernels import catalogue
    from conformance.kernels.kernel import Variant
    from conformance.kernels.launch import Config
    from conformance.problems import Bias, Gemm, Layout

    kernel = random.choice(list(catalogue.catalogue().values()))
    op, pick = next(iter(kernel.operations)), random.choice
    dtype = pick(kernel.dtypes)
    sizes, ks = (LARGE_SIZES, LARGE_K) if device else (SIZES, K_SIZES)
    m, n, k = pick(sizes), pick(sizes), pick(ks)
    if kernel.descriptors and random.random() < 0.8:  # otherwise nearly every pitch would be refused
        n, k = -(-n // 8) * 8, -(-k // 16) * 16

    def layout(order: str | None = None) -> Layout:
        plain = kernel.descriptors or random.random() < 0.6
        pad = pick((0, 0, 8, 16)) if plain else pick((0, 1, 3, 8))
        step = 1 if plain or order else pick((1, 2))
        return Layout(order or pick(("row", "col")), pad, step, pick((0, 0, 16)) if plain else pick((0, 1, 5)))

    fields: dict[str, Any] = {"layout_out": layout("row" if kernel.descriptors else None)}
    if op == "scaled_mm":
        fields |= {
            "layout_a": layout("row"),
            "layout_b": layout("col"),
            "scaling": pick(("tensor", "row")),
            "fast_accum": pick((False, True)),
            "out_dtype": pick(("bf16", "fp16", "fp32")),
            "b_dtype": pick(kernel.dtypes),
        }
    else:
        fields |= {"layout_a": layout(), "layout_b": layout(), "precision": pick(("ieee", "tf32"))}
        if dtype != "fp32":
            fields["out_dtype"] = pick((None, None, "fp32"))
    if op == "addmm":
        fields |= {"alpha": pick((1.0, 2.0, -0.5, 0.3, 0.0)), "beta": pick((1.0, 0.5, -4.0, 0.7, 0.0))}
    if op == "addmm" or (op == "scaled_mm" and random.random() < 0.5):
        fields["bias"] = Bias(pick(("n", "1n", "m1", "mn")))
    problem = Gemm(op, m, n, k, dtype, **fields)
    if device:
        config = pick(kernel.configs)
    else:
        config = Config(
            pick((16, 32)), pick((16, 32, 64)), pick((32, 64) if op == "scaled_mm" else (16, 32)), 2, 4, pick((1, 2, 8))
        )
    store = kernel.descriptors and random.random() < 0.5
    variant = Variant(static=pick((False, True)))
    if kernel.descriptors:
        variant = Variant(
            pick(("device", "host")),
            store,
            pick((1, 2, 4)),
            pick((False, True)),
            pick((False, True)),
            pick((None, 2, 3)),
        )
    return kernel.name, problem, config, variant


def cases(count: int, seed: int, device: bool, target: Any) -> Iterator[tuple[Any, int]]:
    """``count`` distinct plans, each with a seed of its fills."""
    from conformance.kernels import catalogue
    from conformance.kernels.kernel import NotApplicable

    source, seen = random.Random(seed), set[Any]()
    while len(seen) < count:
        name, problem, config, variant = draw(source, device)
        try:
            plan = catalogue.get(name).plan(problem, config, target, variant)
        except NotApplicable:
            continue
        key = (plan, fills_seed := source.randrange(2**31))
        if key not in seen:
            seen.add(key)
            yield plan, fills_seed


def judge_share(count: int, seed: int, worker: int, workers: int) -> int:
    """Judges every ``workers``-th case and says each alarm, then the totals, as lines of JSON; returns the alarms."""
    from table import _executor

    from conformance.execution.trial import trial
    from conformance.kernels import catalogue

    executor, target = _executor()
    alarms, kinds = 0, Counter[str]()
    for index, (plan, fills_seed) in enumerate(cases(count, seed, executor.name == "device", target)):
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
    sys.path[:0] = [str(ROOT), str(HERE)]
    if options.worker is not None:
        return int(judge_share(options.count, options.seed, options.worker, options.workers) > 0)
    from table import has_device

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if not has_device():
        environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    started, totals, alarms, broken = time.perf_counter(), Counter[str](), [], 0
    command = [
        sys.executable,
        str(HERE / "no_alarm.py"),
        *(f"--{name}={getattr(options, name)}" for name in ("count", "seed", "workers")),
    ]
    children = [
        subprocess.Popen([*command, f"--worker={worker}"], env=environment, stdout=subprocess.PIPE, text=True)
        for worker in range(options.workers)
    ]
    for process in children:
        output, _ = process.communicate()
        said = [json.loads(line[1:]) for line in output.splitlines() if line.startswith("@")]
        alarms += [data for data in said if "alarm" in data]
        finished = [data["totals"] for data in said if "totals" in data]
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
