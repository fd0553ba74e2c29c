"""Records of made-up runs, as the harness writes them: the base of planted regressions."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.records import SCHEMA, RecordError, from_line
from conformance.user_files.findings import Comparison

Record = dict[str, Any]

STACK = {"torch": "2.13.0", "triton": "3.8.0", "python": "3.12.3", "ptxas": "12.8.93", "device": "NVIDIA H200"}
KERNELS = ("mm", "mm_persistent_tma", "addmm")
CONFIGS = ("128x256x64-s3-w8", "128x128x64-s4-w8", "64x128x32-s4-w4", "64x64x64-s3-w4")
PROBLEMS = ("mm-4096x4096x4096-bf16", "mm-8192x512x1024-bf16")
FILLS = ("transparent", "wide-A", "wide-B", "randn", "hot", "special")


def record(kernel: str = "mm", config: str = CONFIGS[0], problem: str = PROBLEMS[0], target: str = "sm_90") -> Record:
    """A passing case of a device run that was timed."""
    case = f"test_config_space.py::test_row[{kernel}-{config}-{problem}-{target}]"
    draw = random.Random(case)
    base = 100 * draw.uniform(1, 3)
    checks = [*(f"numerics/{fill}" for fill in FILLS), "memory", "grid"]
    checks += ["codegen/requires/TMA_LOAD", "codegen/requires/WGMMA", "codegen/forbids/SPILL", "resources"]
    return {
        "case": case,
        "suite": "config_space",
        "status": "pass",
        "reason": None,
        "kernel": kernel,
        "problem": {"id": problem, "op": "mm", "M": 4096, "N": 4096, "K": 4096, "dtype": "bf16"},
        "config": {"id": config, "block_m": 128, "block_n": 256, "block_k": 64, "num_stages": 3, "num_warps": 8},
        "options": {"dtype": "bf16", "variant": "store"},
        "target": target,
        "executor": "device",
        "tier": "default",
        "seed": 0,
        "stack": STACK,
        "durations": {"run": 0.5, "compile": 0.1, "check": 0.01, "total": 0.7},
        "verdicts": [
            {"check": check, "passed": True, "text": "PASS 95040 elements", "details": {}} for check in checks
        ],
        "observed": {
            "grid": [3],
            "resources": {
                "registers": 168,
                "spills": 0,
                "spill_unit": "bytes",
                "shared_memory": 147456,
                "stack": 0,
                "threads": 256,
                "source": "cubin",
            },
            "compile_s": 1.1,
            "compile_cached": False,
            "code": {
                "features": ["TMA_LOAD", "TMA_STORE", "WGMMA"],
                "instructions": {
                    "HGMMA": 64,
                    "UTMALDG": 8,
                    "UTMASTG": 4,
                    "IMAD": 120,
                    "MOV": 90,
                    "SYNCS": 30,
                    "BRA": 20,
                },
                "bytes": 9856,
                "sha256": f"{draw.getrandbits(256):064x}",
            },
            "run": {
                "problem": problem,
                "us": round(base, 3),
                "samples_us": [round(base * draw.gauss(1, 0.004), 3) for _ in range(15)],
            },
            "outputs": {fill: f"{draw.getrandbits(256):064x}" for fill in FILLS[3:]},
        },
        "artefacts": {},
        "worker": "gw0",
        "gpu": "0",
        "outcome": "passed",
        "diagnosis": "",
        "repro": f"python -m pytest --pyargs conformance.suites --conformance-case '{case}'",
        "schema": SCHEMA,
    }


def run_of_all() -> list[Record]:
    """48 cases: every kernel, config, problem and two targets."""
    return [
        record(kernel, config, problem, target)
        for kernel in KERNELS
        for config in CONFIGS
        for problem in PROBLEMS
        for target in ("sm_90", "sm_100")
    ]


def _line(one: Record) -> str:
    """The line that the harness writes for a record; one that it would not write as it is."""
    line = json.dumps(one)
    try:
        return from_line(line).to_line()
    except RecordError:
        return line + "\n"


def write_run(folder: Path, records: Iterable[Record], **run: Any) -> Path:
    """A run's folder; ``run`` replaces fields of its ``run.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    records = list(records)
    (folder / "records.jsonl").write_text("".join(map(_line, records)))
    info = {"id": folder.name, "started": "2026-01-01T00:00:00+00:00", "tier": "default", "seed": 0, "targets": []}
    info |= {"workers": 1, "gpus": ["0"], "stack": STACK, "selected": len(records), "wall_s": 10.0, "problems": []}
    (folder / "run.json").write_text(json.dumps({**info, "schema": SCHEMA, **run}))
    return folder


def compared(folder: Path, before: Iterable[Record], after: Iterable[Record], **run: Any) -> Comparison:
    """The comparison of two runs below ``folder``; ``run`` replaces fields of the ``run.json`` of the second."""
    sides = write_run(folder / "baseline", before), write_run(folder / "candidate", after, **run)
    return compare(*map(read_compared_run, sides))


def changed(records: Iterable[Record], change: Callable[[Record], None], **where: str) -> list[Record]:
    """Copies, ``change`` applied to those whose kernel, target, config or problem is as said; the machine code of
    those becomes another."""
    copies = copy.deepcopy(list(records))
    hits = [one for one in copies if all(_value(one, key) == value for key, value in where.items())]
    assert hits, f"no record has {where}"
    for one in hits:
        change(one)
        code = one["observed"].get("code")
        if code:
            code["sha256"] = code["sha256"][::-1]
    return copies


def _value(one: Record, key: str) -> Any:
    value = one[key]
    return value["id"] if isinstance(value, dict) else value


def fail(one: Record, check: str, text: str, status: str = "fail") -> None:
    """Makes ``check`` of the case fail."""
    one["status"] = status
    for verdict in one["verdicts"]:
        if verdict["check"] == check:
            verdict.update(passed=False, text=text)
            break
    else:
        one["verdicts"].append({"check": check, "passed": False, "text": text, "details": {}})
    one["diagnosis"] = f"{check}: {text}"


def kinds(comparison: Comparison) -> dict[str, int]:
    """Returns the number of findings of each kind."""
    return dict(Counter(finding.kind.value for group in comparison.groups for finding in group.findings))


def observing(part: str, **figures: object) -> Callable[[Record], None]:
    """Changes figures that were observed of a case."""
    return lambda one: one["observed"][part].update(figures)


def failing(check: str, text: str) -> Callable[[Record], None]:
    """Makes a check of a case fail."""
    return lambda one: fail(one, check, text)


def timed(factor: float) -> Callable[[Record], None]:
    """Makes all times of a case ``factor`` times as long."""

    def change(one: Record) -> None:
        run = one["observed"]["run"]
        run["us"] *= factor
        run["samples_us"] = [value * factor for value in run["samples_us"]]

    return change


def then(*changes: Callable[[Record], None]) -> Callable[[Record], None]:
    """Applies each of ``changes``."""

    def all_of_them(one: Record) -> None:
        for change in changes:
            change(one)

    return all_of_them


def by(executor: str | None) -> Callable[[Record], None]:
    """Makes ``executor`` the one that ran a case."""
    return lambda one: one.update(executor=executor)


def without(*checks: str) -> Callable[[Record], None]:
    """Takes the verdicts of ``checks`` out of a case."""
    return lambda one: one.update(verdicts=[each for each in one["verdicts"] if each["check"] not in checks])


def crash(one: Record) -> None:
    one.update(status="crash", diagnosis="the worker died of signal 11 at 0x7f00deadbeef", verdicts=[])


def refused(one: Record) -> None:
    reason = {"code": "layout", "subject": "a", "detail": "order not taken"}
    one.update(status="not-applicable", executor=None, verdicts=[], reason=reason)


def not_run(one: Record) -> None:
    reason = {"code": "no-device", "subject": "device", "detail": "none"}
    one.update(status="not-run", executor=None, verdicts=[], reason=reason)


def untimed(one: Record) -> None:
    del one["observed"]["run"]


def measured_once(one: Record) -> None:
    one["observed"]["run"]["samples_us"] = [one["observed"]["run"]["us"]]


#: What a run without a fault records, and the eight cases of one kernel on one target in it.
BASE = run_of_all()
KERNEL = {"kernel": "mm", "target": "sm_90"}
