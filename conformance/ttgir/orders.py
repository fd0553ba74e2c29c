"""The orders in which one compiled kernel runs: each is legal, so all must give the same."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.ttgir.machine import PROGRAM, Schedule
from conformance.ttgir.text import Region, TtgirModule

#: The kinds of operations that go on while the agent does.
ASYNCHRONOUS = frozenset({"copy", "mma", "store"})
#: At once, as late as a wait allows, products late, copies late.
SCHEDULES = (
    Schedule("eager"),
    Schedule("late", ASYNCHRONOUS),
    Schedule("late products", frozenset({"mma"})),
    Schedule("late copies", frozenset({"copy", "store"})),
)
#: Random orders of one kernel.
RANDOM = 3


def agents_of(module: TtgirModule) -> list[str]:
    """The names of the agents that ``module`` has: the program first, then its partitions."""
    return [PROGRAM, *dict.fromkeys(_partitions(module.function.body))]


def _partitions(region: Region) -> Iterator[str]:
    for operation in region.operations:
        for inner in operation.regions:
            if operation.name == "ttg.warp_specialize" and inner.label.startswith("partition"):
                yield inner.label.split("(")[0]
            yield from _partitions(inner)


def orders_of(module: TtgirModule, seeds: int = RANDOM) -> tuple[Schedule, ...]:
    """Returns the orders that show faults of ``module``: those of SCHEDULES, each agent in turn last, and ``seeds``
    random ones. The first two come with operations that end at once and as late as allowed. A text of one agent has
    none that could be last, and one without asynchronous operations runs in one order only."""
    agents = agents_of(module)
    last = [
        Schedule(f"{agent} last, {'late' if late else 'eager'}", late, starved=agent)
        for agent in (agents if len(agents) > 1 else ())
        for late in (frozenset[str](), ASYNCHRONOUS)
    ]
    if len(agents) == 1 and not _goes_on(module.function.body):
        return SCHEDULES[:1]
    return (*SCHEDULES, *last, *(Schedule(f"random {seed}", seed=seed) for seed in range(seeds)))


def _goes_on(region: Region) -> bool:
    """True if an operation of ``region`` goes on while the agent does."""
    return any(
        "async" in operation.name
        or operation.name.startswith(("ttng.tc_gen5", "ttng.warp_group_dot"))
        or any(map(_goes_on, operation.regions))
        for operation in region.operations
    )
