"""The number of a run's shard: from ``--shard 3/8``, or from the variables of a CI or batch system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

AUTO = "auto"
MOST_SHARDS = 1000
#: Digits of a number in a variable.
MOST_DIGITS = 9
#: Variables that the user sets: the index of a job, from 0, and the number of jobs.
INDEX_VARIABLE, COUNT_VARIABLE = "CONFORMANCE_SHARD_INDEX", "CONFORMANCE_SHARD_COUNT"


class ShardError(ValueError):
    """There is no number of a shard; the message says why and what to do."""


@dataclass(frozen=True)
class ShardNumber:
    """The shard ``number``, from 1, of ``count``."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True)
class System:
    """The variables of a system that starts a job several times: of a job's ``index``, of their ``count``, and the
    index of the ``first`` job. ``range`` are the variables of the lowest and the highest index and of the step, if the
    system lets the user choose them."""

    name: str
    index: str
    count: str
    first: int = 0
    range: tuple[str, str, str] | None = None


_SLURM = "SLURM_ARRAY_TASK_"
SYSTEMS = (
    System("Buildkite", "BUILDKITE_PARALLEL_JOB", "BUILDKITE_PARALLEL_JOB_COUNT"),
    System("GitLab", "CI_NODE_INDEX", "CI_NODE_TOTAL", first=1),
    System("CircleCI", "CIRCLE_NODE_INDEX", "CIRCLE_NODE_TOTAL"),
    System("Slurm", f"{_SLURM}ID", f"{_SLURM}COUNT", range=(f"{_SLURM}MIN", f"{_SLURM}MAX", f"{_SLURM}STEP")),
    System("Kubernetes", "JOB_COMPLETION_INDEX", COUNT_VARIABLE),  # which has no variable of the count
    System("your workflow", INDEX_VARIABLE, COUNT_VARIABLE),
)


def shard_number(text: str, environ: Mapping[str, str]) -> ShardNumber:
    """Returns the shard that ``text``, the value of ``--shard``, names; ``auto`` asks the variables ``environ``. Raises
    :class:`ShardError`.

    >>> shard_number("3/8", {})
    ShardNumber(number=3, count=8)
    >>> shard_number("auto", {"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4"})
    ShardNumber(number=1, count=4)
    """
    if text == AUTO:
        return _of_variables(environ)
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if match is None:
        raise ShardError(f"--shard {text}: the number of a shard and how many there are, such as 3/8, or auto")
    number, count = map(int, match.groups())
    return _checked(number, count, f"--shard {text}")


def _checked(number: int, count: int, given: str) -> ShardNumber:
    _check_count(count, given)
    if not 1 <= number <= count:
        raise ShardError(f"{given}: a shard from 1/{count} to {count}/{count} is required")
    return ShardNumber(number, count)


def _check_count(count: int, given: str) -> None:
    if not 1 <= count <= MOST_SHARDS:
        raise ShardError(f"{given}: from 1 to {MOST_SHARDS} shards are possible")


def _of_variables(environ: Mapping[str, str]) -> ShardNumber:
    given = {name: value for name, value in environ.items() if value}
    systems = [system for system in SYSTEMS if _is_here(system, given)]
    if not systems:
        names = ", ".join(f"{system.index} ({system.name})" for system in SYSTEMS)
        raise ShardError(f"--shard auto: no variable says which shard this is; give --shard 3/8, or set one of {names}")
    if len(systems) > 1:
        names = " and ".join(f"{system.name} ({system.index}={given.get(system.index, '')})" for system in systems)
        raise ShardError(f"--shard auto: the variables of {names} are set: one system is required; give --shard 3/8")
    (system,) = systems
    index, count = _integer(system, system.index, given), _integer(system, system.count, given)
    shown = f"--shard auto: {system.index}={index}, {system.count}={count}"
    _check_count(count, shown)
    if system.range is None:
        first, last = system.first, system.first + count - 1
        if not first <= index <= last:
            raise ShardError(f"{shown}: {system.name} counts from {first}, so an index up to {last} is required")
        return _checked(index - first + 1, count, shown)
    return _checked(_place_in_range(system, system.range, given, index, count), count, shown)


def _is_here(system: System, given: Mapping[str, str]) -> bool:
    if system.index in given:
        return True
    if system.name == "GitLab":  # a job that is not parallel has the count 1 and no index
        return given.get(system.count, "1") != "1"
    if system.count == COUNT_VARIABLE:  # of two systems: alone it is half a pair of the second
        return system.index == INDEX_VARIABLE and COUNT_VARIABLE in given and "JOB_COMPLETION_INDEX" not in given
    return system.count in given


def _integer(system: System, name: str, given: Mapping[str, str], default: int | None = None) -> int:
    value = given.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        lowest = f", {system.range[0]}" if system.range else ""
        needed = f"{system.name} needs {system.index}{lowest} and {system.count}"
        raise ShardError(f"--shard auto: {name} is not set, and {needed}: set all of them, or give --shard 3/8")
    if not re.fullmatch(r"[0-9]+", value):
        raise ShardError(f"--shard auto: {name}={value[:40]!r}: a number is required; or give --shard 3/8")
    if len(value) > MOST_DIGITS:
        raise ShardError(f"--shard auto: {name}={value[:40]}: at most {MOST_DIGITS} digits are possible")
    return int(value)


def _place_in_range(
    system: System, names: tuple[str, str, str], given: Mapping[str, str], index: int, count: int
) -> int:
    """Returns the place of ``index``, from 1, among the indices from the lowest to the highest in steps."""
    lowest = _integer(system, names[0], given)
    step = _integer(system, names[2], given, 1) or 1
    highest = _integer(system, names[1], given, lowest + step * (count - 1))
    if (index - lowest) % step or highest - lowest != step * (count - 1) or not lowest <= index <= highest:
        text = f"the index {index} of {count} indices from {lowest} to {highest} in steps of {step}"
        advice = "give an array such as 1-8 or 0-14:2, or --shard 3/8"
        raise ShardError(f"--shard auto: {text}: these are not evenly spaced; {advice}")
    return (index - lowest) // step + 1
