"""One program of a launch: its agents, its barriers, and the legal orders in which they run.

An agent is what runs instructions in order: the program, or one partition of it. An asynchronous operation begins when
an agent issues it, and touches its memory at any time after. It is over for whoever waited for it, as vector clocks
say.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.ttgir.memory import Clock, GlobalMemory, MissingFence, ProgramFault, View, joined
from conformance.ttgir.text import Region, TtgirModule

#: The name of the agent that is the program itself.
PROGRAM = "the program"
#: A block of instructions that may wait: it yields while it does.
Running = Generator[None, None, Any]


@dataclass(frozen=True)
class Schedule:
    """The times at which asynchronous operations touch their memory, and the agent that goes first.

    ``late`` are the kinds ("copy", "mma", "store") that end only when somebody waits. ``seed`` draws times and agents
    at random. ``starved`` is the name of the agent that goes only when no other can.
    """

    name: str
    late: frozenset[str] = frozenset()
    seed: int | None = None
    starved: str | None = None


@dataclass
class Pending:
    """An asynchronous operation under way. ``clock`` is what is over when it ends, itself included."""

    number: int
    kind: str
    what: str
    clock: Clock
    effect: Callable[[], None]
    done: bool = False
    over: bool = False

    def finish(self) -> None:
        """It touches its memory, if it has not yet."""
        if not self.done:
            self.done = True
            self.effect()


@dataclass
class Promise:
    """The accumulator of a wgmma without a wait yet: only another wgmma may read it. ``values`` are there once the
    wgmma has touched its memory."""

    pending: Pending
    values: Any = None
    rename: Callable[[], Any] | None = None

    @property
    def value(self) -> Any:
        return self.values if self.rename is None else self.rename()

    def renamed(self, how: Callable[[Any], Any]) -> Promise:
        """Returns the same registers as a tensor of other dimensions, which ``how`` makes of the values."""
        return Promise(self.pending, rename=lambda: how(self.value))


@dataclass
class Barrier:
    """An mbarrier: arrivals and bytes that its phase still needs, and what is over once a phase is complete."""

    name: str
    count: int
    arrivals: int = 0
    bytes: int = 0
    phase: int = 0
    gathered: Clock = field(default_factory=dict)
    complete: Clock = field(default_factory=dict)

    def arrive(self, count: int, clock: Clock, what: str) -> None:
        self.arrivals += count
        self.gathered = joined(self.gathered, clock)
        if self.arrivals > self.count:
            raise ProgramFault(f"{what} arrives at {self.name}, which expects {self.count} arrivals and has them")
        self._advance()

    def expect(self, size: int, clock: Clock, what: str) -> None:
        """An arrival, and ``size`` more bytes that the phase waits for."""
        self.bytes += size
        self.arrive(1, clock, what)

    def deliver(self, size: int, clock: Clock) -> None:
        self.bytes -= size
        self.gathered = joined(self.gathered, clock)
        self._advance()

    def end(self, what: str) -> None:
        """Raises Fault if bytes are expected that have not come, or came and were not expected."""
        if self.bytes:
            raise ProgramFault(f"{what} ends {self.name}, which still waits for {self.bytes} bytes")

    def _advance(self) -> None:
        if self.arrivals == self.count and self.bytes == 0:
            self.phase += 1
            self.arrivals = 0
            self.complete = joined(self.complete, self.gathered)


class Agent:
    """A thread of execution: runs instructions in order, knows what is over, and what it issued and has not
    waited for."""

    def __init__(self, program: ProgramRun, name: str, clock: Clock) -> None:
        self.program, self.name, self.number = program, name, program.next_number()
        self.clock = dict(clock)
        self.time = 0
        self.waiting = ""
        self.copies: list[list[Pending]] = [[]]
        self.products: list[Pending] = []
        self.stores: list[Pending] = []
        self.tick()

    def tick(self) -> None:
        """Advances the time, so that later events are told from earlier ones."""
        self.time += 1
        self.clock[self.number] = self.time

    def learn(self, clock: Clock) -> None:
        """Marks what is over in ``clock`` as over for this agent."""
        self.clock = joined(self.clock, clock)

    def touch(self, view: View, what: str, *, writes: bool) -> None:
        """This agent itself reads or writes ``view``."""
        view.access(self.number, self.time, self.clock, what, writes=writes)
        self.tick()

    def fill(self, view: View, what: str) -> None:
        """This agent itself writes ``view``, by the generic proxy: TMA and tensor cores see it behind a fence."""
        if self.program.proxies:
            self.program.unfenced[view.place] = (view, self.number, self.time, what)
        self.touch(view, what, writes=True)

    def fence(self) -> None:
        """Makes the writes that this agent knows of visible to TMA and tensor cores."""
        left = self.program.unfenced.items()
        self.program.unfenced = {
            place: (view, owner, time, by) for place, (view, owner, time, by) in left if self.clock.get(owner, 0) < time
        }

    def begin(self, kind: str, what: str, effect: Callable[[], None], views: Sequence[tuple[View, bool]]) -> Pending:
        """Returns an asynchronous operation that touches ``views``, each read or (True) written, between now and its
        end."""
        number = self.program.next_number()
        pending = Pending(number, kind, what, {**self.clock, number: 1}, effect)
        for view, writes in views:
            view.access(number, 1, self.clock, what, writes=writes)
            self.program.check_fence(view, what, writes=writes)
        if views:
            self.program.begun.append(pending)
        self.tick()
        return pending

    def end(self, pending: Pending) -> None:
        """This agent waited for ``pending``."""
        pending.finish()
        pending.over = True
        self.learn(pending.clock)

    def end_stores(self, left: int) -> None:
        """This agent waited for all of its stores but the last ``left``."""
        over = self.stores[: max(len(self.stores) - left, 0)]
        for pending in over:
            self.end(pending)
        self.stores = self.stores[len(over) :]


class ProgramRun:
    """One program: runs its agents until all are over. Raises Fault for a deadlock and for whatever they do wrong.
    ``shares``: for each layout by its name, into how many parts the blocks of a cluster divide a tile. ``proxies``:
    whether copies and products see what an agent wrote only behind a fence, as NVIDIA's do."""

    #: Steps of agents after which a program is said to hang.
    PATIENCE = 1_000_000

    def __init__(
        self,
        place: tuple[int, int, int],
        grid: tuple[int, int, int],
        memory: GlobalMemory,
        schedule: Schedule,
        *,
        shares: Mapping[str, int] | None = None,
        proxies: bool = True,
    ):
        self.place, self.grid, self.memory, self.schedule = place, grid, memory, schedule
        self.shares, self.proxies = shares or {}, proxies
        self._numbers = 0
        self.barriers: dict[int, Barrier] = {}
        self.scratch: dict[int, Any] = {}
        self.new_descriptors: set[int] = set()  # made, and no fence has followed
        self._scratch_end = 1 << 60
        self.under_way: list[Pending] = []
        self.products: list[Pending] = []
        self.begun: list[Pending] = []
        # what agents wrote to shared memory, by its place, and no fence has made visible to the asynchronous proxy
        self.unfenced: dict[Any, tuple[View, int, int, str]] = {}
        self._random = random.Random(schedule.seed)
        self._running: list[tuple[Agent, Running]] = []

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def new_scratch(self, size: int) -> int:
        """Returns an address in memory of the program's own."""
        self._scratch_end += size + 128
        return self._scratch_end

    def check_fence(self, view: View, what: str, *, writes: bool) -> None:
        """Raises Fault if an asynchronous operation that reads ``view`` may not see what an agent wrote there. One that
        writes ends what is known of it."""
        for place, (written, _, _, by) in list(self.unfenced.items()):
            if written.buffer is view.buffer and written.overlaps(view):
                if not writes:
                    raise MissingFence(f"{what} reads {view.buffer.name}, and no fence follows {by}, which wrote it")
                del self.unfenced[place]

    def is_late(self, kind: str) -> bool:
        """True if an operation of this kind that begins now touches its memory later."""
        if self.schedule.seed is not None:
            return self._random.random() < 0.5
        return kind in self.schedule.late

    def launch(self, pending: Pending) -> None:
        """``pending`` ends now or, if the schedule says so, when nothing else goes on."""
        if self.is_late(pending.kind):
            self.under_way.append(pending)
        else:
            pending.finish()

    def launch_product(self, pending: Pending) -> None:
        """The same in the queue of tcgen05, where operations end in order."""
        if self.products:
            pending.clock = joined(pending.clock, self.products[-1].clock)
        self.products.append(pending)
        if not self.is_late("mma"):
            self.finish_products(len(self.products))

    def finish_products(self, count: int) -> None:
        for pending in self.products[:count]:
            pending.finish()
        self.products = [*self.products[count:]] or self.products[-1:]  # the last one orders the next

    def spawn(self, agent: Agent, running: Running) -> None:
        self._running.append((agent, running))

    def run(self, agent: Agent, running: Running) -> None:
        """Runs ``agent`` and those that it spawns to their ends."""
        self.spawn(agent, running)
        for _ in range(self.PATIENCE):
            if not self._running:
                break
            if self._step():
                continue
            if not self._end_something():
                waits = "; ".join(f"{agent.name} {agent.waiting}" for agent, _ in self._running)
                raise ProgramFault(f"deadlock: {waits}")
        else:
            raise ProgramFault(f"no end after {self.PATIENCE} steps")
        while self._end_something():
            pass
        for pending in self.begun:
            if pending.number not in agent.clock:
                raise ProgramFault(f"the program ends without a wait for {pending.what}")
        for barrier in self.barriers.values():
            barrier.end("the program")

    def _step(self) -> bool:
        """Lets each agent go on as far as it can; whether one did."""
        order = list(self._running)
        if self.schedule.seed is not None:
            self._random.shuffle(order)
        if self.schedule.starved is not None:
            order.sort(key=lambda pair: pair[0].name == self.schedule.starved)
        for agent, running in order:
            before, agent.waiting = agent.time, ""
            try:
                next(running)
            except StopIteration:
                self._running.remove((agent, running))
                return True
            if agent.time > before:
                return True
        return False

    def _end_something(self) -> bool:
        """Ends one operation that is under way; whether there was one."""
        if self.under_way:
            index = self._random.randrange(len(self.under_way)) if self.schedule.seed is not None else 0
            self.under_way.pop(index).finish()
            return True
        for index, pending in enumerate(self.products):
            if not pending.done:
                self.finish_products(index + 1)
                return True
        return False


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
