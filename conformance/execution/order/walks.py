"""A kernel's basic blocks, walks on its paths with the values of registers, and what is said of its order.

A branch whose predicate is known goes where it must. Threads that part wait for each other where their paths meet
again. Any other branch goes where the walk's manner says, so that each loop has several turns. Every walk is thus a
path that the code's own values allow. Several walks in unlike manners cover the paths of a kernel with loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from conformance.execution.compile.code_structure import AssemblyCode
from conformance.execution.order.register_values import REGISTER, Registers, split_operands, written


class OrderAnswer(NamedTuple):
    """The answer about ``subject``, such as "fence": the first ``fault``, or what is ``unknown``; the code is in order
    if both are empty."""

    subject: str
    fault: str = ""
    unknown: str = ""

    @property
    def right(self) -> bool:
        """True if the order is known and right."""
        return not (self.fault or self.unknown)


State = TypeVar("State")


class BlockGraph:
    """The basic blocks of ``code`` by their numbers; ``following`` has the numbers of those that may come next. Sets of
    blocks are bits of a number."""

    def __init__(self, code: AssemblyCode) -> None:
        self.blocks = code.blocks()
        first_of = {block.start: number for number, block in enumerate(self.blocks)}
        self.following = [
            tuple(dict.fromkeys(first_of[at] for at in code.successors[block[-1]] if at in first_of))
            for block in self.blocks
        ]
        self._before: list[list[int]] = [[] for _ in self.blocks]
        for number, following in enumerate(self.following):
            for after in following:
                self._before[after].append(number)
        self._leading: dict[tuple[int, int], set[int]] = {}

    def block_of(self, instructions: Iterable[int]) -> dict[int, int]:
        """Returns the number of the block of each of ``instructions``."""
        numbers = set(instructions)
        return {at: number for number, block in enumerate(self.blocks) for at in numbers.intersection(block)}

    def leads(self, number: int, target: int, past: int) -> bool:
        """Returns True if a path leads from block ``number`` to ``target`` without passing block ``past``."""
        if (past, target) not in self._leading:
            waiting, leading = [target], {target}
            while waiting:
                new = {one for one in self._before[waiting.pop()] if one != past} - leading
                leading |= new
                waiting += new
            self._leading[past, target] = leading
        return number in self._leading[past, target]

    def reached(self, without: int | None = None) -> list[int]:
        """For each block those that a path leads to from it, past none of ``without``."""
        sets = [0] * len(self.blocks)
        changed = True
        while changed:
            changed = False
            for number in reversed(range(len(self.blocks))):
                new = sets[number]
                for after in self.following[number]:
                    if after != without and number != without:
                        new |= sets[after] | 1 << after
                changed |= new != sets[number]
                sets[number] = new
        return sets

    @cached_property
    def joins(self) -> list[int | None]:
        """For each block the first one that every path from it passes (its immediate post-dominator), None if there is
        none."""
        everything = (1 << len(self.blocks)) - 1
        after = [everything if self.following[number] else 1 << number for number in range(len(self.blocks))]
        changed = True
        while changed:
            changed = False
            for number in reversed(range(len(self.blocks))):
                if following := self.following[number]:
                    common = everything
                    for one in following:
                        common &= after[one]
                    new = common | 1 << number
                    changed |= new != after[number]
                    after[number] = new
        return [self._nearest(after, number) for number in range(len(self.blocks))]

    def _nearest(self, after: list[int], number: int) -> int | None:
        others = [one for one in range(len(self.blocks)) if one != number and after[number] >> one & 1]
        return max(others, key=lambda one: after[one].bit_count(), default=None)

    def states(
        self, first: State, join: Callable[[State, State], State], through: Callable[[int, State], State]
    ) -> Mapping[int, State]:
        """Returns the least state before each block that can be reached. ``first`` is the one before block 0,
        ``through`` gives the state after a block, and ``join`` that of two paths that meet."""
        before: dict[int, State] = {0: first} if self.blocks else {}
        waiting = [*before]
        while waiting:
            number = waiting.pop()
            state = through(number, before[number])
            for after in self.following[number]:
                new = join(before[after], state) if after in before else state
                if after not in before or new != before[after]:
                    before[after] = new
                    waiting.append(after)
        return before


#: Iterations of a loop whose end is not known, when a walk first comes to it and later. The first number exceeds the
#: slots of any buffer that Triton rotates.
TURNS, LATER_TURNS = 9, 2
#: Blocks of a walk at most.
MOST_BLOCKS = 1000


@dataclass(frozen=True)
class Manner:
    """The rule by which a walk decides what the code leaves open. It goes towards block ``target``. Where both ways
    lead there, forward jumps are taken if ``jumps``."""

    target: int
    jumps: bool


@dataclass(frozen=True)
class Step:
    """An instruction on a walk: its number, and the ``active`` threads."""

    at: int
    active: NDArray[np.bool_]


class Walker:
    """Walks through ``code`` that stop at ``stops``, and compute what the addresses and predicates there depend on."""

    def __init__(self, code: AssemblyCode, graph: BlockGraph, stops: Collection[int], threads: int) -> None:
        self.code, self.graph, self.threads = code, graph, threads
        self.operands = [split_operands(text) for text in code.operands]
        self._stops = set(stops)
        self._reached = graph.reached()
        needed = self._needed(stops)
        self._executed = [[at for at in block if at in needed or at in self._stops] for block in graph.blocks]

    def _needed(self, stops: Collection[int]) -> set[int]:
        """Returns the instructions that write what addresses and predicates at ``stops``, and branches, depend on."""
        writers: dict[str, list[int]] = {}
        for at, operation in enumerate(self.code.operations):
            for register in written(operation, self.operands[at]):
                writers.setdefault(register, []).append(at)
        branches = [block[-1] for block in self.graph.blocks if self.code.guards[block[-1]]]
        waiting = [name for at in (*stops, *branches) for name in self._read(at, at in self._stops)]
        needed, seen = set[int](), set(waiting)
        while waiting:
            for at in writers.get(waiting.pop(), ()):
                if at not in needed:
                    needed.add(at)
                    new = set(self._read(at, False)) - seen
                    seen |= new
                    waiting += new
        return needed

    def _read(self, at: int, stop: bool) -> list[str]:
        """Returns the registers that an instruction reads; of a stop those of addresses and descriptors, and no
        data."""
        operands = [text for text in self.operands[at] if not text.startswith("{")] if stop else self.operands[at]
        if not stop and self.code.operations[at].startswith(("ld", "wgmma", "tcgen05", "mbarrier")):
            operands = []  # what they write is not known
        return REGISTER.findall(" ".join([self.code.guards[at], *operands]))

    def walk(self, manner: Manner, registers: Registers) -> Iterator[Step]:
        """The steps of a walk; ``registers`` have the values before each when it is taken."""
        code, graph = self.code, self.graph
        active = np.ones(self.threads, np.bool_)
        parted: list[tuple[int, NDArray[np.bool_]]] = []
        turns: Counter[int] = Counter()
        number = 0
        for _ in range(MOST_BLOCKS):
            while parted and parted[-1][0] == number:
                active = parted.pop()[1]
            for at in self._executed[number]:
                if at in self._stops:
                    yield Step(at, active)
                registers.execute(code.operations[at], self.operands[at], code.guards[at])
            following = graph.following[number]
            if not following:
                return
            if len(following) == 1:
                number = following[0]
                continue
            after = self._known(number, active, registers)
            if after is None:
                after = self._chosen(number, manner, turns)
                last = graph.blocks[number][-1]
                held = registers.guard(code.guards[last]) if code.operations[last].startswith("bra") else None
                join = graph.joins[number]
                if held is not None:
                    parted += [(join, active)] if join is not None else []
                    active = active & (held if after == following[0] else ~held)
            number = after

    def _known(self, number: int, active: NDArray[np.bool_], registers: Registers) -> int | None:
        """The block after a branch of which all active threads take the same way, as far as the predicate is known."""
        last = self.graph.blocks[number][-1]
        if not self.code.operations[last].startswith("bra"):
            return None
        held = registers.guard(self.code.guards[last])
        if held is None or not active.any():
            return None
        jumps = held[active]
        target, *others = self.graph.following[number]
        return target if jumps.all() else others[0] if not jumps.any() else None

    def _chosen(self, number: int, manner: Manner, turns: Counter[int]) -> int:
        following = self.graph.following[number]
        inside = [one for one in following if self._leads(one, number)]
        outside = [one for one in following if one not in inside]
        if inside and outside:  # the end of a loop
            turns[number] += 1
            stays = turns[number] < TURNS or (turns[number] - TURNS) % (LATER_TURNS + 1)
            ways = inside if stays else outside
        else:
            ways = inside or outside
        # past this block again every turn of a loop leads everywhere in it
        towards = [one for one in ways if self.graph.leads(one, manner.target, number)]
        towards = towards or [one for one in ways if self._leads(one, manner.target)] or ways
        return towards[0 if manner.jumps else -1]

    def _leads(self, number: int, target: int) -> bool:
        return number == target or bool(self._reached[number] >> target & 1)
