"""Computes the ``run.json`` and the environment that the runs of all shards make together.

``shards.json`` of a merged run keeps theirs, so a verifier computes both again and compares.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conformance.faults import Fault
from conformance.gate.evidence.options import check_options
from conformance.gate.runs.bill_of_materials import UNKNOWN
from conformance.gate.runs.run_environment import deciding_variables
from conformance.records import MergedShards, RunInfo, Shard, ShardPlan, ShardRun, jsonable, run_from_text
from conformance.user_files.run_options import joined

SHARDS_FILE = "shards.json"
SCHEMA = 1
DEVICE = "device"
#: The exit statuses of shards, the worst first. Those that are not here are of a test that ended the run, and worse.
_STATUSES = (0, 75, 1, 2)
_NOTHING_JUDGED = 5
#: Options that differ between the shards of one run, in both spellings.
_OF_ONE_SHARD = tuple(f"--{prefix}{name}" for name in ("shard", "run-dir", "resume") for prefix in ("", "conformance-"))


class UnionError(ValueError):
    """Runs are not the shards of one run. ``place`` is that of the wrong one in the order in which they were given; the
    message says what is wrong with it."""

    def __init__(self, place: int, message: str) -> None:
        super().__init__(message)
        self.place = place


@dataclass(frozen=True)
class Part:
    """The run of one shard and its environment, as :mod:`conformance.gate.runs.run_environment` writes it."""

    run: RunInfo
    environment: Mapping[str, Any]

    @property
    def shard(self) -> Shard:
        """The part of the selection that the run had."""
        assert self.run.shard is not None
        return self.run.shard

    @property
    def device(self) -> str | None:
        """The names of the GPUs of the run; None without one."""
        name = self.run.stack.get(DEVICE)
        return None if name is None else str(name)


def check_parts(parts: Sequence[Part], mixed_devices: bool) -> None:
    """Raises :class:`UnionError` unless ``parts`` are all shards of one plan, each once, of one stack and, unless
    ``mixed_devices``, of one device."""
    for place, part in enumerate(parts):
        _check_part(place, part)
        _check_same(place, part, parts[0])
    numbers = [part.shard.number for part in parts]
    count = len(parts[0].shard.plan.cases)
    for place, number in enumerate(numbers):
        if not 1 <= number <= count:
            raise UnionError(place, f"it is the shard {number} of a plan of {count} shards")
        if number in numbers[:place]:
            raise UnionError(place, f"the shard {number}/{count} comes twice")
        cases, selected = parts[place].shard.plan.cases[number - 1], parts[place].run.selected
        if selected != cases:
            raise UnionError(place, f"run.json was changed: it selected {selected} cases, and its plan has {cases}")
    missing = [f"{number}/{count}" for number in range(1, count + 1) if number not in numbers]
    if missing:
        raise UnionError(0, f"the other shards of its run are missing: {', '.join(missing[:10])}: give them, too")
    for place, part in enumerate(parts):
        if part.device != parts[0].device and not mixed_devices:
            devices = f"on {part.device or 'no device'}, and the first on {parts[0].device or 'no device'}"
            raise UnionError(place, f"it ran {devices}: give --mixed-devices to merge them all the same")


def _check_part(place: int, part: Part) -> None:
    run = part.run
    if run.wall_s is None or run.exit_status is None:
        raise UnionError(place, "the run did not end: run this shard again")
    if run.merged is not None:
        raise UnionError(place, "this run was merged already: give the folders of its shards")
    if run.shard is None:
        raise UnionError(place, "this is the run of no shard: give runs with --shard")
    if run.shard.plan.digest != run.shard.digest:
        raise UnionError(place, "run.json was changed: its plan has another digest than the one that it names")
    if (part.environment["run"], part.environment["started"]) != (run.id, run.started):
        raise UnionError(place, "environment.json is of another run than run.json")
    plan = run.shard.plan
    if len(plan.cases) != len(plan.case_lists) or not plan.cases or min(plan.cases) < 0:
        raise UnionError(place, "run.json was changed: its plan does not have the cases of each shard")
    if (run.tier, run.seed, run.targets) != (plan.tier, plan.seed, plan.targets):
        raise UnionError(place, "run.json was changed: it has another tier, seed or target than its plan")
    stack = {name: value for name, value in part.environment["stack"].items() if name != DEVICE}
    if stack != plan.stack:
        raise UnionError(place, "environment.json was changed: its stack is not that of its plan")
    if code_digests(part.environment) != plan.harness:
        raise UnionError(place, "it was judged by other code than its plan says")


def _check_same(place: int, part: Part, first: Part) -> None:
    """Raises :class:`UnionError` unless ``part`` has the plan, the stack and the narrowing options of ``first``."""
    plan, other = part.shard.plan, first.shard.plan
    if plan != other:
        raise UnionError(place, f"its plan differs from the first shard's in {_difference(plan, other)}")
    bill, others = part.run.bill, first.run.bill
    for name in sorted({*bill, *others}):
        values = {bill.get(name), others.get(name)}
        if len(values) > 1 and UNKNOWN not in values:
            text = f"{name} is {bill.get(name)}, and {others.get(name)} in the first shard"
            raise UnionError(place, f"it ran with another stack: {text}")
    variables = deciding_variables(part.environment["variables"])
    theirs = deciding_variables(first.environment["variables"])
    for name in sorted({*variables, *theirs}):
        if variables.get(name) != theirs.get(name):
            text = (
                f"the variable {name} is {variables.get(name)!r:.80}, and {theirs.get(name)!r:.80} for the first shard"
            )
            raise UnionError(place, f"it ran in another environment: {text}")
    if narrowing(part.environment) != narrowing(first.environment):
        options = ", ".join(narrowing(part.environment)) or "no option"
        raise UnionError(place, f"its cases were chosen by {options}, those of the first shard by others")


def code_digests(environment: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns the digests of all code that judged: the package's first, then those of suites outside it."""
    return (environment["code"]["sha256"], *environment["code"]["suites"])


def _difference(plan: ShardPlan, other: ShardPlan) -> str:
    """Returns text about the first thing in which two plans differ, such as "seed: 1, and 0 there"."""
    if plan.stack != other.stack:
        return "the stack: " + _values(plan.stack, other.stack)
    if plan.harness != other.harness:
        return "the code of the harness or of the suites"
    if plan.options != other.options:
        return "options: " + _values(plan.options, other.options)
    for name in ("tier", "seed", "targets"):
        ours, theirs = getattr(plan, name), getattr(other, name)
        if ours != theirs:
            return f"{name}: {ours!r:.80}, and {theirs!r:.80} there"
    if len(plan.cases) != len(other.cases):
        return f"the number of shards: {len(plan.cases)}, and {len(other.cases)} there"
    if plan.durations != other.durations:
        return "the durations by which it was cut: give the same --durations-from to all"
    return f"the selected cases: {plan.selected}, and {other.selected} there"


def _values(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    name = next(name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name))
    return f"{name} {ours.get(name)!r:.80}, and {theirs.get(name)!r:.80} there"


def narrowing(environment: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the options that chose cases, but for the choice of a shard."""
    return check_options(whole_options(environment["options"]), environment["variables"]).narrowing


def whole_options(options: Sequence[str]) -> list[str]:
    """Returns ``options`` without those that concern one shard only.

    >>> whole_options(["--tier", "quick", "--shard", "3/8", "--run-dir=r3"])
    ['--tier', 'quick']
    """
    kept: list[str] = []
    words = iter(joined(options))
    for word in words:
        if word in _OF_ONE_SHARD:
            next(words, None)
        elif word.partition("=")[0] not in _OF_ONE_SHARD:
            kept.append(word)
    return kept


def combined_run(parts: Sequence[Part], name: str, judged: bool) -> RunInfo:
    """Returns the ``run.json`` of the run ``name`` that ``parts``, in the order of their numbers, make together.
    ``judged`` is false if no case was judged. Its wall time is that of the longest shard, its exit status the worst."""
    runs = [part.run for part in parts]
    plan = parts[0].shard.plan
    devices = list(dict.fromkeys(part.device for part in parts))
    worst = max((run.exit_status for run in runs if run.exit_status is not None), key=_rank)
    proof: Counter[str] = Counter()
    for run in runs:
        proof.update(run.proof or {})
    return RunInfo(
        id=name,
        started=min(run.started for run in runs),
        tier=plan.tier,
        seed=plan.seed,
        targets=plan.targets,
        workers=sum(run.workers for run in runs),
        gpus=tuple(dict.fromkeys(gpu for run in runs for gpu in run.gpus)),
        stack={**runs[0].stack, DEVICE: ", ".join(sorted(filter(None, devices))) or None},
        selected=plan.selected,
        wall_s=max(run.wall_s or 0.0 for run in runs),
        problems=tuple(f"shard {part.shard}: {problem}" for part in parts for problem in part.run.problems),
        bill=_bill(runs),
        declared=runs[0].declared,
        faults=tuple(_of_shard(part.shard, fault) for part in parts for fault in part.run.faults or ()),
        exit_status=_NOTHING_JUDGED if not judged and worst == 0 else worst,
        proof=proof,
        required=runs[0].required,
        reruns="; ".join(f"shard {part.shard}: {part.run.reruns}" for part in parts if part.run.reruns) or None,
        parts=tuple(one for run in runs for one in run.parts),
        merged=MergedShards(plan, plan.digest, tuple(map(_shard_run, parts)), mixed_devices=len(devices) > 1),
    )


def _rank(status: int) -> int:
    return _STATUSES.index(status) if status in _STATUSES else len(_STATUSES)


def _bill(runs: Iterable[RunInfo]) -> dict[str, str]:
    """Returns the bill of all ``runs``, whose known values agree."""
    bill: dict[str, str] = {}
    for run in runs:
        for name, value in run.bill.items():
            bill[name] = value if bill.get(name, UNKNOWN) == UNKNOWN else bill[name]
    return bill


def _of_shard(shard: Shard, fault: Fault) -> Fault:
    return replace(fault, text=f"shard {shard}: {fault.text}")


def _shard_run(part: Part) -> ShardRun:
    run, shard = part.run, part.shard
    return ShardRun(
        number=shard.number,
        run=run.id,
        started=run.started,
        cases=shard.plan.cases[shard.number - 1],
        records=shard.records,
        wall_s=run.wall_s or 0.0,
        workers=run.workers,
        gpus=run.gpus,
        device=part.device,
        exit_status=run.exit_status,
    )


def combined_environment(parts: Sequence[Part], run: RunInfo) -> dict[str, Any]:
    """Returns the ``environment.json`` of the merged ``run``. It is that of the first shard with the GPUs of all. It
    has no options that concern one shard only."""
    first = parts[0].environment
    return {
        **first,
        "run": run.id,
        "started": run.started,
        "stack": {**first["stack"], DEVICE: run.stack[DEVICE]},
        "gpus": [gpu for part in parts for gpu in part.environment["gpus"]],
        "options": whole_options(first["options"]),
    }


def shards_text(parts: Sequence[Part]) -> str:
    """Returns the text of ``shards.json``: the run and the environment of each shard. The plan, which is the same in
    all, is in the merged ``run.json``."""
    entries = []
    for part in parts:
        run = jsonable(part.run)
        run["shard"]["plan"] = None
        entries.append({"run": run, "environment": dict(part.environment)})
    return json.dumps({"schema": SCHEMA, "shards": entries}, indent=1) + "\n"


def parts_of(content: Mapping[str, Any], plan: ShardPlan) -> list[Part]:
    """Returns the parts that ``content``, the object in a ``shards.json``, has; ``plan`` is the merged run's. Raises
    ValueError for another content; a :class:`~conformance.records.RecordError` is one."""
    if content.get("schema") != SCHEMA or not isinstance(content.get("shards"), list):
        raise ValueError(f"the shards of schema {SCHEMA} are required")
    parts = []
    for entry in content["shards"]:
        if not isinstance(entry, dict) or not isinstance(entry.get("run"), dict):
            raise ValueError("an object with the run of each shard is required")
        shard = entry["run"].get("shard")
        if not isinstance(shard, dict) or not isinstance(entry.get("environment"), dict):
            raise ValueError("each shard needs its number and its environment")
        run = {**entry["run"], "shard": {**shard, "plan": jsonable(plan)}}
        parts.append(Part(run_from_text(json.dumps(run)), entry["environment"]))
    return parts
