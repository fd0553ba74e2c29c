"""Checks that the pipelined loops of a Hopper kernel do not overwrite tiles that a wgmma still reads, or has not read.

A pipelined loop of TTGIR keeps each operand's tiles in the slots of one allocation. A copy from global memory fills
them in turn, a product reads them in turn, and ``warp_group_dot_wait`` leaves its last ``pendings`` products running.
The loop is followed for enough iterations that each slot is filled again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_ALLOCATION = re.compile(r"(%\w+) = ttg\.local_alloc\b.*?: \(\) -> !ttg\.memdesc<(\d+)x\d+x\d")
_VIEW = re.compile(r"(%\w+) = ttg\.memdesc_\w+ (%\w+)")
_COPY = re.compile(r"ttn?g\.async_(?:tma_)?copy_global_to_local (.*?) :")
_PRODUCT = re.compile(r"ttng\.warp_group_dot (%\w+), (%\w+),.*\bisAsync = true\b")
_WAIT = re.compile(r"ttng\.warp_group_dot_wait .*?\bpendings = (\d+)")
_NAME = re.compile(r"%\w+")
_LOOP = re.compile(r"\bscf\.(?:for|while)\b")


@dataclass(frozen=True)
class _Copy:
    """A copy into the next slot of ``allocation``."""

    allocation: str


@dataclass(frozen=True)
class _Product:
    """A product that reads these slots, each the name of a view and of its allocation."""

    slots: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Wait:
    """A wait that leaves the last ``pendings`` products running."""

    pendings: int


_Step = _Copy | _Product | _Wait


@dataclass(frozen=True, order=True)
class Overwritten:
    """An operand with too few slots: the name of its allocation, and how many slots it has."""

    allocation: str
    slots: int


def overwritten_operands(ttgir: str) -> set[Overwritten]:
    """The operands of products in ``ttgir`` that a loop's copies overwrite before a product has read them.

    A loop says nothing of an allocation that it fills or reads other than once in an iteration, and of code whose
    copies stand in another loop than its products, as with specialised warps.
    """
    lines = ttgir.splitlines()
    slots = {match[1]: int(match[2]) for match in map(_ALLOCATION.search, lines) if match}
    roots = {name: name for name in slots}
    for match in filter(None, map(_VIEW.search, lines)):
        roots[match[1]] = roots.get(match[2], "")
    overwritten = set()
    for before, body in _loops(lines):
        prologue, steps = list(_steps(before, roots)), list(_steps(body, roots))
        for name in {step.allocation for step in steps if isinstance(step, _Copy)}:
            if _is_overwritten(name, slots[name], prologue, steps):
                overwritten.add(Overwritten(name, slots[name]))
    return overwritten


def _loops(lines: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Each innermost loop: the lines of its function above it, without those of other loops, and its own lines."""
    open_blocks: list[tuple[bool, list[str]]] = [(False, [])]
    for line in lines:
        opens, closes = line.rstrip().endswith("{") or "({" in line, line.lstrip().startswith("}")
        if closes and len(open_blocks) > 1:
            is_loop, body = open_blocks.pop()
            if is_loop:
                yield [above for loop, block in open_blocks for above in block], body
            elif not _LOOP.search(line):
                open_blocks[-1][1].extend(body)
        if opens:
            open_blocks.append((bool(_LOOP.search(line)), []))
        else:
            open_blocks[-1][1].append(line)


def _steps(lines: Sequence[str], roots: dict[str, str]) -> Iterator[_Step]:
    """The copies, products and waits in ``lines`` that concern allocations with slots."""
    for line in lines:
        if copy := _COPY.search(line):
            targets = [roots[name] for name in _NAME.findall(copy[1]) if roots.get(name)]
            yield from (_Copy(target) for target in targets[:1])
        elif product := _PRODUCT.search(line):
            yield _Product(tuple((view, roots[view]) for view in product.groups() if roots.get(view)))
        elif wait := _WAIT.search(line):
            yield _Wait(int(wait[1]))


def _is_overwritten(name: str, slots: int, prologue: Sequence[_Step], body: Sequence[_Step]) -> bool:
    """True if the loop ``body`` after ``prologue`` copies into a slot of ``name`` whose tile a product reads at that
    time, or has not read."""
    views = {view for step in body if isinstance(step, _Product) for view, root in step.slots if root == name}
    if len(views) != 1 or sum(step == _Copy(name) for step in body) != 1:
        return False
    copied = read = 0  # tiles of ``name`` so far
    running: list[int | None] = []  # for each product that may still run, the tile of ``name`` that it reads
    last_read = None
    for iteration in range(-1, 2 * slots + 2):
        for step in prologue if iteration < 0 else body:
            if isinstance(step, _Copy) and step.allocation == name:
                overwritten = copied - slots
                if overwritten >= read or any(tile is not None and tile <= overwritten for tile in running):
                    return True
                copied += 1
            elif isinstance(step, _Product):
                view = next((view for view, root in step.slots if root == name), None)
                if view and (iteration, view) != last_read:
                    last_read, read = (iteration, view), read + 1
                running.append(read - 1 if view else None)
            elif isinstance(step, _Wait):
                running = running[len(running) - step.pendings :] if step.pendings else []
    return False
