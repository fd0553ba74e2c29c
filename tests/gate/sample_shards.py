"""The folders of the runs of all shards of a small selection, and ways to spoil them, for the tests of merging."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.proof_level import ProofCount
from conformance.records import CaseRecord, RunInfo, Shard, ShardPlan, Status, jsonable, list_digest, read_run
from conformance.shards.cut import cut
from tests.gate.sample_bundles import CODE, STACK, record, sample_environment

#: Eleven cases, of which one fails and one is not applicable.
RECORDS = [record(number, {3: Status.FAIL, 7: Status.NOT_APPLICABLE}.get(number, Status.PASS)) for number in range(11)]


def write_shards(
    base: Path,
    records: Sequence[CaseRecord] = RECORDS,
    count: int = 3,
    devices: Mapping[int, str] | None = None,
    environment: Mapping[str, Any] | None = None,
    **changes: Any,
) -> list[Path]:
    """The folders ``base``/shard-1 and so on. ``devices`` are by the number of the shard, ``changes`` are to the plan,
    ``environment`` has other facts of all environments."""
    records = sorted(records, key=lambda one: one.case)
    numbers = cut({one.case: 1000 for one in records}, {}, count)
    own = [[one for one in records if numbers[one.case] == number] for number in range(1, count + 1)]
    plan = ShardPlan(
        cases=tuple(map(len, own)),
        case_lists=tuple(list_digest(one.case for one in cases) for cases in own),
        durations="d" * 64,
        harness=(CODE,),
        stack=STACK,
        tier="quick",
        seed=0,
        targets=(),
        options={"repeats": 1, "compile_only": False},
    )
    plan = replace(plan, **changes)
    for number, cases in enumerate(own, 1):
        stack = {**STACK, "device": (devices or {}).get(number)}
        with_stack = [replace(one, stack={**one.stack, "device": stack["device"]}, gpu="0") for one in cases]
        write_shard(base / f"shard-{number}", number, plan, with_stack, stack, environment or {})
    return [base / f"shard-{number}" for number in range(1, count + 1)]


def write_shard(
    folder: Path,
    number: int,
    plan: ShardPlan,
    records: Sequence[CaseRecord],
    stack: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> None:
    proof = ProofCount()
    for one in records:
        proof.add(one)
    started = f"2026-03-04T05:06:{10 - number:02}+00:00"
    info = RunInfo(
        *(folder.name, started, plan.tier, plan.seed, plan.targets),
        workers=2,
        gpus=("0",),
        stack=stack,
        selected=len(records),
        wall_s=1.5 * number,
        bill={"ptxas": "1", "backend hash()": "unknown" if number == 1 else "h"},
        faults=(),
        exit_status=int(any(one.status is Status.FAIL for one in records)),
        proof=proof.by_name(),
        shard=Shard(number, plan, plan.digest, hashlib.sha256(text_of(records)).hexdigest()),
    )
    folder.mkdir(parents=True)
    (folder / "records.jsonl.gz").write_bytes(gzip.compress(text_of(records), mtime=0))
    (folder / "selected.txt").write_text("".join(one.case + "\n" for one in reversed(records)))
    options = ["-q", "--tier", "quick", f"--shard={number}/{len(plan.cases)}", f"--run-dir={folder.name}"]
    facts = sample_environment(run=info.id, started=started, stack=stack, options=options, **environment)
    (folder / "environment.json").write_text(json.dumps(facts, indent=1))
    (folder / "run.json").write_text(json.dumps(jsonable(info), indent=1))


def text_of(records: Sequence[CaseRecord]) -> bytes:
    return "".join(one.to_line() for one in records).encode()


def edit_run(folder: Path, change: Callable[[RunInfo], RunInfo]) -> None:
    (folder / "run.json").write_text(json.dumps(jsonable(change(read_run(folder))), indent=1))


def edit_plan(folder: Path, **changes: Any) -> None:
    """Another plan, as another run would have written it: with its own digest, tier, seed, stack and code."""

    def changed(info: RunInfo) -> RunInfo:
        assert info.shard is not None
        plan = replace(info.shard.plan, **changes)
        shard = replace(info.shard, plan=plan, digest=plan.digest)
        return replace(info, shard=shard, tier=plan.tier, seed=plan.seed, targets=plan.targets)

    edit_run(folder, changed)
    plan = shard_of(folder).plan
    stack = {**plan.stack, "device": read_run(folder).stack["device"]}
    edit_environment(folder, stack=stack, code={"sha256": plan.harness[0], "suites": list(plan.harness[1:])})


def shard_of(folder: Path) -> Shard:
    """The part of the selection that the run in ``folder`` had."""
    shard = read_run(folder).shard
    assert shard is not None
    return shard


def edit_lines(folder: Path, change: Callable[[list[bytes]], list[bytes]], own_digest: bool = False) -> None:
    """Other lines of records. With ``own_digest`` run.json has the digest of them, as if the run had written them."""
    file = folder / "records.jsonl.gz"
    text = b"".join(change(gzip.decompress(file.read_bytes()).splitlines(keepends=True)))
    file.write_bytes(gzip.compress(text, mtime=0))
    if own_digest:
        digest = hashlib.sha256(text).hexdigest()
        edit_run(folder, lambda info: replace(info, shard=replace(info.shard, records=digest)))


def edit_environment(folder: Path, **changes: Any) -> None:
    file = folder / "environment.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
