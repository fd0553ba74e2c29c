"""Faults of the compiler that the code's own text shows: no kernel's code may have them, whatever its plan asks for.

*Operand slots*: a pipelined loop of a Hopper kernel may not overwrite tiles that a wgmma still reads, or has not read.
Such a loop of TTGIR keeps each operand's tiles in the slots of one allocation. A copy from global memory fills them in
turn, a product reads them in turn, and ``warp_group_dot_wait`` leaves its last ``pendings`` products running. The loop
is followed for enough iterations that each slot is filled again.

*Repeated k*: registers may not hold the operands of ``mma.sync`` so that some k are multiplied twice and others never.
In the layout ``dot_op`` with ``kWidth`` w, thread t of four holds w consecutive k from w t on. It holds w more from 4 w
+ w t on; together the four hold 8 w. If a tile has fewer k, they repeat. Triton multiplies a thread's first registers.
These hold each k once if the layout repeats it twice. If it repeats it more often, they hold some k twice and others
never.

Whether its instructions are in order is checked here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from conformance import codegen_checks
from conformance.codegen_checks import CompiledCode
from conformance.execution import order
from conformance.execution.compile import code_structure
from conformance.execution.order.answers import STAGES, order_answers
from conformance.execution.order.walks import OrderAnswer
from conformance.machine.kept_answers import kept_answer, package_digest, source_digest
from conformance.records import Check, CheckKind, Verdict


def fault_verdicts(code: str, artefact: CompiledCode) -> Iterator[Verdict]:
    """A failing verdict for each fault in ``artefact``, none if it has none or lacks the stage that shows them.
    ``code`` names the kernel, and the launch if it is not the main one."""
    if "ttgir" not in artefact.stages:
        return
    ttgir = codegen_checks.code_of(artefact.stages["ttgir"], "ttgir")
    for operand in sorted(overwritten_operands(ttgir)):
        text = f"{code} keeps {operand.slots} of the tiles {operand.allocation} in shared memory (ttgir)"
        yield _verdict("operand-slots", f"{text}: its loop copies the next tile into a slot before wgmma has read it")
    for depth, width in sorted(repeated_depths(ttgir)):
        text = f"{code} multiplies tiles of {depth} k in a layout of kWidth {width} (ttgir)"
        yield _verdict("repeated-k", f"{text}: its registers repeat some k, which are added twice, and lack others")


def _verdict(subject: str, text: str) -> Verdict:
    return Verdict(str(Check(CheckKind.CODEGEN, subject)), False, text)


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
class _SlotsRead:
    """A product that reads these slots, each the name of a view and of its allocation."""

    slots: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Wait:
    """A wait that leaves the last ``pendings`` products running."""

    pendings: int


_Step = _Copy | _SlotsRead | _Wait


@dataclass(frozen=True, order=True)
class Overwritten:
    """An operand with too few slots: the name of its allocation, and how many slots it has."""

    allocation: str
    slots: int


def overwritten_operands(ttgir: str) -> set[Overwritten]:
    """Returns the operands of products in ``ttgir`` that a loop's copies overwrite before a product has read them.

    A loop says nothing of an allocation that it fills or reads other than once in an iteration. It says nothing,
    either, of code whose copies stand in another loop than its products, as in warp-specialised kernels.
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
    """Yields each innermost loop: the lines of its function above it, without those of other loops, and its own
    lines."""
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
    """Yields the copies, products and waits in ``lines`` that concern allocations with slots."""
    for line in lines:
        if copy := _COPY.search(line):
            targets = [roots[name] for name in _NAME.findall(copy[1]) if roots.get(name)]
            yield from (_Copy(target) for target in targets[:1])
        elif product := _PRODUCT.search(line):
            yield _SlotsRead(tuple((view, roots[view]) for view in product.groups() if roots.get(view)))
        elif wait := _WAIT.search(line):
            yield _Wait(int(wait[1]))


def _is_overwritten(name: str, slots: int, prologue: Sequence[_Step], body: Sequence[_Step]) -> bool:
    """True if the loop ``body`` after ``prologue`` copies into a slot of ``name`` whose tile a product reads at that
    time, or has not read."""
    views = {view for step in body if isinstance(step, _SlotsRead) for view, root in step.slots if root == name}
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
            elif isinstance(step, _SlotsRead):
                view = next((view for view, root in step.slots if root == name), None)
                if view and (iteration, view) != last_read:
                    last_read, read = (iteration, view), read + 1
                running.append(read - 1 if view else None)
            elif isinstance(step, _Wait):
                running = running[len(running) - step.pendings :] if step.pendings else []
    return False


#: Times that each k may stand in the registers of four threads.
REPEATED_AT_MOST = 2

_DOT = re.compile(
    r"= tt\.dot [^:\n]*?: tensor<\d+x(?P<depth>\d+)x\w+, #ttg\.dot_op<\{opIdx = 0, parent = (?P<layout>#\w+), "
    r"kWidth = (?P<width>\d+)\}>>"
)


def repeated_depths(ttgir: str) -> set[tuple[int, int]]:
    """``(k of a tile, kWidth)`` of the products in ``ttgir`` whose registers repeat each k too often. Only those of
    ``mma.sync``, version 2 of NVIDIA's layouts."""
    versions = dict(re.findall(r"^(#\w+) = #ttg\.nvidia_mma<\{versionMajor = (\d+)", ttgir, re.M))
    dots = {
        (int(dot["depth"]), int(dot["width"])) for dot in _DOT.finditer(ttgir) if versions.get(dot["layout"]) == "2"
    }
    return {(depth, width) for depth, width in dots if 8 * width > REPEATED_AT_MOST * depth}


#: What is required of each kind of order, and what a fault leads to.
_REQUIRED = {
    "fence": (
        "no tensor core or TMA reads what threads wrote without a fence",
        "no fence.proxy.async stands between, so it may read what was there before",
    ),
    "wait": ("every wgmma is waited for", "its sums are read too early, its operands overwritten, or it is cut off"),
    "lds": (
        "no access of LDS is open across a barrier where other waves meet it",
        "nothing waits for it before the barrier",
    ),
}


def order_verdicts(code: str, artefact: CompiledCode) -> Iterator[Verdict]:
    """A verdict for each kind of order in the code of ``artefact``, none where it is not known. ``code`` names
    the kernel, and the launch if it is not the main one."""
    for answer in answers_of(artefact):
        required, consequence = _REQUIRED[answer.subject]
        check = str(Check(CheckKind.CODEGEN, f"order/{answer.subject}"))
        if answer.fault:
            yield Verdict(check, False, f"in {code}, {answer.fault}: {consequence}")
        elif answer.right:
            yield Verdict(check, True, f"in {code}, {required}")


def unknown_orders(artefacts: Iterable[CompiledCode]) -> dict[str, str]:
    """By kind of order, the first place in the code of ``artefacts`` where it is not known."""
    unknown: dict[str, str] = {}
    for artefact in artefacts:
        for answer in answers_of(artefact):
            if answer.unknown:
                unknown.setdefault(answer.subject, answer.unknown)
    return unknown


def answers_of(artefact: CompiledCode) -> list[OrderAnswer]:
    """The answers about the code of ``artefact``, which are kept next to its text."""
    stage = next((stage for stage in STAGES if stage in artefact.stages), None)
    if stage is None:
        return []
    path = artefact.stages[stage]

    def work_out() -> list[OrderAnswer]:
        return order_answers(stage, path.read_text())

    kept = kept_answer([path], "order", source_digest(code_structure) + package_digest(order), work_out)
    return [OrderAnswer(*one) for one in kept]
