"""Reasons why an edit that nothing shows changes nothing: rules over what its line did when the text ran unedited.

Each rule watches every run, in every problem and order, by an operation that stands before the line and computes
nothing. So a reason is a fact about those runs, and none is believed because of what a line looks like. Two rest on the
executor's own rules. Let arrivals come in order and waits go round a ring of barriers. Then one wait of each round is
for the round's last arrival, whichever slot the others take. And a program must have waited for everything at its end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from conformance.ttgir import regions, typed_operations
from conformance.ttgir.copies import barrier_at
from conformance.ttgir.machine import Agent, ProgramRun, Schedule
from conformance.ttgir.memory import View
from conformance.ttgir.text import Operation
from tests.ttgir.edits import Edit
from tests.ttgir.judged_texts import Prepared, Seen, first_wrong, wrong

_NAME = re.compile(r"%[\w$.#-]+")
#: Operations that arrive at the barrier that is their first operand.
_ARRIVALS = ("ttng.arrive_barrier", "ttng.tc_gen5_commit")
#: What each wait for groups ends: the groups that its agent has issued.
_GROUPS: dict[str, Callable[[Agent], list[list[Any]]]] = {
    "ttg.async_wait": lambda agent: agent.copies[:-1],
    "ttng.warp_group_dot_wait": lambda agent: [[one] for one in agent.products],
    "ttng.async_tma_store_wait": lambda agent: [[one] for one in agent.stores],
}
#: What sees each execution of the edited line before it happens.
Watch = Callable[[Agent, Mapping[str, Any]], None]


@contextmanager
def _watched(
    watch: Watch, accessed: Callable[[View, int, bool], None], awaited: Callable[[Any], None]
) -> Iterator[None]:
    def step_of(operation: Operation) -> Any:
        return watch

    def access(view: View, owner: int, time: int, clock: Any, what: str, *, writes: bool) -> None:
        accessed(view, owner, writes)
        own(view, owner, time, clock, what, writes=writes)

    def learn(agent: Agent, clock: Any) -> None:
        awaited(clock)
        own_learn(agent, clock)

    own, own_learn = View.access, Agent.learn
    regions.STEPS["planted.watch"] = step_of
    typed_operations.WORDS["planted.watch"] = "by"
    View.access, Agent.learn = access, learn  # type: ignore[method-assign]
    try:
        yield
    finally:
        del regions.STEPS["planted.watch"], typed_operations.WORDS["planted.watch"]
        View.access, Agent.learn = own, own_learn  # type: ignore[method-assign]


def _run_watched(
    edit: Edit, function: str, texts: Mapping[str, str], runs: Sequence[tuple[Prepared, Schedule]], state: _State
) -> None:
    """Runs the unedited text with a watch before the line of ``edit``."""
    lines = texts[function].splitlines()
    # a name of its own, so that no prepared text with another watch is taken
    lines.insert(edit.line, f'planted.watch {{by = "{next(_NUMBERS)}"}}')
    with _watched(state.saw, state.writes.accessed, state.awaited):
        for one, order in runs:
            state.writes.forget()
            state.arrivals.clear()
            text = wrong(one, {**texts, function: "\n".join(lines)}, order)
            assert not text, f"the unedited text: {text}"


_NUMBERS = iter(range(1 << 30))


def reason(
    edit: Edit, function: str, texts: Mapping[str, str], problems: Sequence[Prepared], orders: Sequence[Schedule]
) -> str:
    """Returns the reason why ``edit`` of ``texts[function]`` changes nothing; "" if no rule says so."""
    line = texts[function].splitlines()[edit.line].split(" loc(")[0]
    state = _State(edit, line, texts[function])
    runs = [(one, order) for one in problems for order in orders]
    _run_watched(edit, function, texts, runs, state)
    return state.verdict() or _by_the_executor(edit, first_wrong(problems, {**texts, function: edit.text}, orders))


def _by_the_executor(edit: Edit, seen: Seen | None) -> str:
    """The reason that rests on what the executor says of the edited text, where it has nothing against it."""
    if seen is None and edit.operation in _GROUPS:
        return "a later wait ends the same operations, before anybody uses what they touch"
    if seen is None and edit.kind == "barrier slot off by one":
        return "a ring: one wait of each round is for its last arrival, which follows the others"
    return ""


class _State:
    """The facts that every execution of one line had in common."""

    def __init__(self, edit: Edit, line: str, text: str) -> None:
        self.edit, self.line, self.text = edit, line, text
        self.times = 0
        self.names = _NAME.findall(line)
        self.values: dict[str, set[bool]] = {}
        self.same_place = self.same_values = self.quiet = self.zero = self.unmasked = True
        self.fence_serves = False
        self.groups, self.writes = _Groups(), _Writes()
        self.arrivals: list[tuple[Any, int]] = []  # barriers, and the phase in which each was arrived at
        self.arrival_serves = False
        lines = line, edit.text.splitlines()[edit.line] if edit.operation in _GROUPS else ""
        self.leaves = [int(match[1]) for one in lines if (match := re.search(r"\b(?:num|pendings) = (\d+)", one))]

    def saw(self, agent: Agent, names: Mapping[str, Any]) -> None:
        self.times += 1
        for name in self.names:
            value = names.get(name)
            if isinstance(value, bool) or (np.ndim(value) == 0 and getattr(value, "dtype", None) == np.bool_):
                self.values.setdefault(name, set()).add(bool(value))
        match = re.match(rf"({_NAME.pattern}) for ({_NAME.pattern})$", self.edit.what)
        if match:
            first, second = names.get(match[1]), names.get(match[2])
            both = isinstance(first, View) and isinstance(second, View)
            self.same_place = self.same_place and both and first.place == second.place
            self.same_values = self.same_values and both and np.array_equal(first.bits, second.bits)
        self._memory(agent, names)

    def awaited(self, clock: Any) -> None:
        """Somebody has waited for a barrier at which everything in ``clock`` is over."""
        for barrier, phase in self.arrivals:
            if clock is barrier.complete and barrier.phase > phase:
                self.arrival_serves = True

    def _memory(self, agent: Agent, names: Mapping[str, Any]) -> None:
        operation = self.edit.operation
        if operation == "ttng.wait_barrier":
            view, phase = (names.get(name) for name in self.names[:2])
            barrier = barrier_at(agent, view, "the watch")
            over = barrier.phase & 1 != int(phase) & 1
            complete = all(agent.clock.get(number, 0) >= time for number, time in barrier.complete.items())
            self.quiet = self.quiet and over and complete
        elif operation == "ttng.tc_gen5_mma":
            into = names[self.names[2]]
            self.zero = self.zero and not np.any(into.read())
        elif operation == "ttg.local_store":
            self.writes.awaited = names[self.names[1]]
        elif operation == "ttg.async_copy_global_to_local":
            self.writes.awaited = names[_NAME.findall(self.line.split(" = ", 1)[1])[1]]
            mask = re.search(rf"mask ({_NAME.pattern})", self.line)
            self.unmasked = self.unmasked and mask is not None and not np.any(names[mask[1]])
        elif operation in _GROUPS:
            left, leaves = self.leaves
            issued = _GROUPS[operation](agent)
            self.quiet = self.quiet and all(one.over for group in issued[-leaves : len(issued) - left] for one in group)
        elif operation == "ttg.memdesc_index":
            source, index = (
                names[name]
                for name in re.findall(rf"= ttg.memdesc_index ({_NAME.pattern})\[({_NAME.pattern})\]", self.line)[0]
            )
            if not source.missing:
                self.writes.awaited = source.part(lambda array: array[int(index)])
        elif operation in _ARRIVALS:
            barrier = barrier_at(agent, names[self.names[0]], "the watch")
            self.arrivals.append((barrier, barrier.phase))
        elif operation == "ttng.tmem_store":
            self.writes.awaited = next(names[name] for name in self.names if isinstance(names.get(name), View))
        elif operation == "ttg.async_commit_group":
            self.groups.closes(agent)
            self.writes.follow(self.writes.by.get(copy.number) for copy in agent.copies[-1])
        elif operation == "ttng.fence_async_shared":
            views = [
                view for view, owner, time, _ in agent.program.unfenced.values() if agent.clock.get(owner, 0) >= time
            ]
            if views:
                _serves(agent.program, views, self)

    def verdict(self) -> str:
        kind = self.edit.kind
        if not self.times:
            return "never runs: no problem that the code serves comes here"
        if kind in ("other barrier", "other operand") and self.same_place:
            return "both names are the same memory"
        if kind == "other operand" and self.edit.operation == "ttg.local_load" and self.same_values:
            return "both hold the same values"
        if self.edit.operation in _GROUPS and self.quiet:
            return "nothing is under way that it would leave"
        if self.edit.operation == "ttng.init_barrier" and _is_unused(self.names[0], self.text):
            return "nobody arrives at the barrier or waits for it"
        if kind.startswith("predicate "):
            name = self.edit.what.removeprefix("of ")
            if self.values.get(name) == {kind == "predicate true"}:
                return f"the predicate is always {kind.split()[1]}"
        if kind == "sum kept":
            name, value = re.match(r"(\S+) became (\w+)", self.edit.what).groups()
            if self.values.get(name) == {value == "true"}:
                return "the product adds always, or never"
            if self.zero:
                return "the sum is zero there, so adding to it and replacing it are one"
        if self.edit.operation == "ttng.wait_barrier" and self.quiet:
            return "the phase is over and known to be, as of a fresh barrier"
        if kind == "copy removed" and self.edit.operation == "ttg.async_copy_global_to_local" and self.unmasked:
            return "its mask never holds: nobody needs the tile"
        if kind == "commit removed" and set(re.findall(r"ttg\.async_wait .*?num = (\d+)", self.text)) <= {"0"}:
            return "every wait is for all groups"
        if kind == "commit removed" and self.groups.end_with_the_next():
            return "the wait that ends the group ends the next one too"
        if self.edit.operation in _ARRIVALS and kind.endswith(" removed") and not self.arrival_serves:
            return "nobody waits for the arrival"
        if self.writes.any and not self.writes.read:
            return "nobody reads what it writes"
        if self.edit.operation == "ttng.fence_async_shared" and not self.fence_serves:
            return "nothing that it covers is read by TMA or a tensor core"
        return ""


class _Writes:
    """The memory that one line wrote, and whether any agent read it before it was overwritten."""

    def __init__(self) -> None:
        self.any = self.read = False
        self.forget()

    def forget(self) -> None:
        """Another run begins."""
        self.awaited: View | None = None
        self.by: dict[int, View] = {}
        self.followed: dict[Any, View] = {}

    def follow(self, views: Iterable[View | None]) -> None:
        for view in views:
            if view is not None:
                self.any = True
                self.followed[view.place] = view

    def accessed(self, view: View, owner: int, writes: bool) -> None:
        if not writes:
            same = (one for one in self.followed.values() if one.buffer is view.buffer)
            self.read = self.read or any(one.overlaps(view) for one in same)
            return
        self.by[owner] = view
        self.followed.pop(view.place, None)
        if self.awaited is not None and view.place == self.awaited.place:
            self.follow([view])
            self.awaited = None


class _Groups:
    """The groups of copies that one commit closed, and when the copies of each and of the next one were waited for."""

    def __init__(self) -> None:
        self.closed: list[tuple[Agent, list[Any]]] = []
        self.ends: dict[int, tuple[int, int]] = {}
        self.next: dict[int, list[Any]] = {}
        self.watched: set[int] = set()
        self.open = False  # whether one was closed before the last one was over

    def closes(self, agent: Agent) -> None:
        self.open |= any(not one.over for before, group in self.closed if before is agent for one in group)
        self.closed.append((agent, agent.copies[-1]))
        if id(agent) in self.watched:
            return
        self.watched.add(id(agent))
        own = agent.end

        def end(pending: Any) -> None:
            for group, after in itertools.pairwise(agent.copies):
                if pending in group:
                    self.next[id(group)] = after
            self.ends[id(pending)] = (id(agent), agent.time)
            own(pending)

        agent.end = end  # type: ignore[method-assign]

    def end_with_the_next(self) -> bool:
        """Returns True if one wait ended both, each time; and none was closed before the last one was over, for then
        waits would count fewer groups."""
        return not self.open and all(
            len({self.ends.get(id(one)) for one in (*group, *self.next.get(id(group), ()))}) == 1
            for _, group in self.closed
            if group
        )


def _is_unused(barrier: str, text: str) -> bool:
    """Returns True if the array of barriers that ``barrier`` is one of is only made, indexed and given back."""
    lines = text.splitlines()

    def with_name(name: str) -> list[str]:
        return [line for line in lines if re.search(re.escape(name) + r"(?![\w$.#-])", line)]

    definition = next((line for line in with_name(barrier) if f"{barrier} = ttg.memdesc_index" in line), None)
    array = _NAME.findall(definition.split("memdesc_index")[1])[0] if definition else barrier
    slots = [line.split(" = ")[0].strip() for line in with_name(array) if "memdesc_index" in line]
    uses = [line for name in (array, *slots) for line in with_name(name)]
    idle = ("ttg.local_alloc", "ttg.memdesc_index", "ttng.init_barrier", "ttng.inval_barrier", "ttg.local_dealloc")
    return all(any(word in line for word in idle) for line in uses)


def _serves(program: ProgramRun, views: list[View], state: _State) -> None:
    """Marks ``state`` when an asynchronous operation reads what the fence that is to come makes visible."""
    own = program.check_fence

    def check(view: View, what: str, *, writes: bool) -> None:
        if not writes and any(one.buffer is view.buffer and one.overlaps(view) for one in views):
            state.fence_serves = True
        own(view, what, writes=writes)

    program.check_fence = check  # type: ignore[method-assign]
