"""A kernel's basic blocks, which of them may follow which, and its paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TypeVar

from conformance.execution.compile.assembly import AssemblyCode

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
