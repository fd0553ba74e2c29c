"""Checks whether tensor cores and TMA read tiles that threads wrote to shared memory, without a proxy fence between.

Stores of threads, and the copies of cp.async that are no bulk copies, write through the generic proxy. A wgmma, a
tcgen05.mma and a bulk copy read through the asynchronous one. The PTX ISA orders the two only by fence.proxy.async
(memory consistency model, "Proxies"). It may stand at any place between, in the thread that wrote or in one that it has
released.

First all paths are followed, whatever is written where: a read before which nothing is left without a fence is in
order. The others are judged on walks, on which the tiles are known by their addresses. A read of what was written and
not fenced there is a fault. Where the tiles are other ones on every walk, the read is in order, too. What remains is
not known.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from conformance.execution.compile.code_structure import AssemblyCode
from conformance.execution.order.register_values import PIECE, WARP, Registers, tcgen05_operands, wgmma_operands
from conformance.execution.order.walks import BlockGraph, Manner, OrderAnswer, Step, Walker

_WRITE = re.compile(r"st\.(?!async)[\w.:]*shared|stmatrix|(atom|red)\.(?!async)[\w.:]*shared")
_COPY = re.compile(r"cp\.async\.c[ag]\.")
_COMMIT = re.compile(r"cp\.async\.commit_group")
_WAIT = re.compile(r"cp\.async\.wait_(group|all)")
#: A fence of the proxies that covers shared memory.
_FENCE = re.compile(r"fence\.proxy\.async(?!::)(?!\.global)")
_PRODUCT = re.compile(r"wgmma\.mma_async|tcgen05\.mma")
_BULK_READ = re.compile(r"cp\.(reduce\.)?async\.bulk\.(?:[\w:]+\.)*(global|shared::cluster)\.shared")
_SCALES = re.compile(r"tcgen05\.cp\.")
_BULK_WRITE = re.compile(r"cp\.async\.bulk\.(?:[\w:]+\.)*shared(::\w+)?\.global")
_EXPECTED = re.compile(r"mbarrier\.arrive\.expect_tx")
_COPIES_ARRIVE = re.compile(r"cp\.async\.mbarrier\.arrive")
_ARRIVE = re.compile(r"mbarrier\.arrive|cp\.async\.mbarrier\.arrive")
_MBARRIER_WAIT = re.compile(r"mbarrier\.(try|test)_wait")
_BARRIER = re.compile(r"bar(rier)?(\.cta)?\.(sync|arrive|red)")
_STATE_OF_PARTITIONS = re.compile(r"ld\.shared(::cta)?\.[bsu]8$")
_KINDS = {
    "write": _WRITE,
    "copy": _COPY,
    "commit": _COMMIT,
    "wait": _WAIT,
    "fence": _FENCE,
    "product": _PRODUCT,
    "bulk read": _BULK_READ,
    "scales": _SCALES,
    "bulk write": _BULK_WRITE,
    "arrive": _ARRIVE,
    "mbarrier wait": _MBARRIER_WAIT,
    "barrier": _BARRIER,
}
#: What reads or writes shared memory through the asynchronous proxy.
_ASYNCHRONOUS = ("product", "bulk read", "scales", "bulk write")
_ADDRESS = re.compile(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\w+)\s*)?\]")
_MATRICES = re.compile(r"stmatrix\.sync\.aligned\.m8n8\.x(\d)")
_THREADS = re.compile(r"^\.(?:reqntid|maxntid)\s+(\d+)", re.MULTILINE)
_USUAL_THREADS = 128
#: Groups of copies that are told apart by their age.
_AGES = 16
#: Pieces of shared memory, from address 0 to past the most that a block can have.
_PIECES = 1 << 14
#: Bytes that a bulk copy may write where nothing says how many.
_MOST_BYTES = 1 << 16
#: Blocks to which walks lead, at most.
_TARGETS = 40


def fence_answer(code: AssemblyCode, text: str) -> OrderAnswer:
    """Judges whether what tensor cores and TMA read in the PTX ``code``, whose text is ``text``, is fenced."""
    events = {at: kind for kind, pattern in _KINDS.items() for at in code.numbers(pattern)}
    if not any(kind in _ASYNCHRONOUS for kind in events.values()):
        return OrderAnswer("fence")
    graph = BlockGraph(code)
    partitions = _Partitions(code, graph, events)
    suspects = _suspects(code, graph, events, partitions)
    if not suspects:
        return OrderAnswer("fence")
    match = _THREADS.search(text)
    return _judged(code, graph, events, partitions, suspects, int(match[1]) if match else _USUAL_THREADS)


class _Partitions:
    """The partitions of a warp-specialised kernel. No instruction of one leads to another one's, except through the
    place where warps learn what their work is."""

    def __init__(self, code: AssemblyCode, graph: BlockGraph, events: dict[int, str]) -> None:
        self.block_of = graph.block_of(events)
        states = [at for at in code.numbers(_STATE_OF_PARTITIONS) if _follows_barrier(code, at)]
        self.several = bool(states)
        dispatch = graph.block_of(states[:1]).get(states[0]) if states else None
        self._reached = graph.reached(without=dispatch) if self.several else []

    def apart(self, one: int, other: int) -> bool:
        """Returns True if the instructions ``one`` and ``other`` are of different partitions."""
        if not self.several:
            return False
        first, second = self.block_of[one], self.block_of[other]
        return first != second and not (self._reached[first] >> second | self._reached[second] >> first) & 1


def _follows_barrier(code: AssemblyCode, at: int) -> bool:
    return any(_BARRIER.match(code.operations[before]) for before in range(max(0, at - 4), at))


@dataclass(frozen=True)
class _Unfenced:
    """Says what was written through the generic proxy and not fenced, as bits of instruction numbers: ``written``;
    copies ``by_age`` of their group, those of no group yet first; those that an mbarrier will report, ``reported``."""

    written: int = 0
    by_age: tuple[int, ...] = (0,) * _AGES
    reported: int = 0

    def __or__(self, other: _Unfenced) -> _Unfenced:
        ages = tuple(one | two for one, two in zip(self.by_age, other.by_age, strict=True))
        return _Unfenced(self.written | other.written, ages, self.reported | other.reported)


def _suspects(
    code: AssemblyCode, graph: BlockGraph, events: dict[int, str], partitions: _Partitions
) -> dict[int, set[int]]:
    """The writes without a fence that some path leads from, by the number of the read that it leads to."""
    of_block: dict[int, list[int]] = defaultdict(list)
    for at in sorted(events):
        of_block[partitions.block_of[at]].append(at)
    released: dict[int, int] = {}
    suspects: dict[int, int] = {}

    def through(number: int, pending: _Unfenced) -> _Unfenced:
        for at in of_block.get(number, ()):
            kind = events[at]
            if kind in _ASYNCHRONOUS:
                suspects[at] = suspects.get(at, 0) | pending.written
                continue
            if partitions.several and kind in ("arrive", "mbarrier wait", "barrier"):
                if kind != "mbarrier wait":
                    released[at] = released.get(at, 0) | pending.written | pending.reported
                if kind != "arrive":
                    pending = replace(pending, written=pending.written | imported(at))
            pending = _after(pending, kind, code, at)
        return pending

    def imported(at: int) -> int:
        written = 0
        for place, what in released.items():
            if events[place] == "barrier" and events[at] == "barrier" and not _same_barrier(code, place, at):
                continue
            if (events[place] == "barrier") == (events[at] == "barrier") and partitions.apart(place, at):
                written |= what
        return written

    while True:
        before = dict(released)
        graph.states(_Unfenced(), _Unfenced.__or__, through)
        if released == before:
            break
    return {at: _numbers(written) for at, written in suspects.items() if written}


def _same_barrier(code: AssemblyCode, one: int, other: int) -> bool:
    return code.operands[one].split(",")[0].strip() == code.operands[other].split(",")[0].strip()


def _numbers(bits: int) -> set[int]:
    numbers = set()
    while bits:
        low = bits & -bits
        numbers.add(low.bit_length() - 1)
        bits ^= low
    return numbers


def _after(pending: _Unfenced, kind: str, code: AssemblyCode, at: int) -> _Unfenced:
    """Returns the writes that are pending after an instruction."""
    ages = pending.by_age
    if kind == "write":
        return replace(pending, written=pending.written | 1 << at)
    if kind == "fence":
        return replace(pending, written=0)
    if kind == "copy":
        return replace(pending, by_age=(ages[0] | 1 << at, *ages[1:]))
    if kind == "commit":
        return replace(pending, by_age=(0, *ages[:-2], ages[-2] | ages[-1]))
    if kind == "wait":
        first = _first_done(code, at)
        done = 0
        for age in ages[first:]:
            done |= age
        return replace(pending, written=pending.written | done, by_age=ages[:first] + (0,) * (_AGES - first))
    if kind == "arrive" and _COPIES_ARRIVE.match(code.operations[at]):
        for age in ages:
            pending = replace(pending, reported=pending.reported | age)
        return replace(pending, by_age=(0,) * _AGES)
    if kind == "mbarrier wait":
        return replace(pending, written=pending.written | pending.reported)
    return pending


def _first_done(code: AssemblyCode, at: int) -> int:
    """The age of the youngest group that a wait for copies ends; 0 if it ends those of no group, too."""
    if "wait_all" in code.operations[at]:
        return 0
    return min(int(code.operands[at].split()[0], 0) + 1, _AGES - 1)


#: What is known of a piece of shared memory: nothing without a fence, written without one, perhaps written over.
_FENCED, _UNFENCED, _UNSURE = 0, 1, 2


@dataclass
class _Shared:
    """Shared memory on a walk. ``wrote`` says who wrote each piece through the generic proxy (one more than the number
    of the instruction, 0 for none). ``state`` is its state."""

    wrote: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_PIECES, np.int64))
    state: NDArray[np.int8] = field(default_factory=lambda: np.zeros(_PIECES, np.int8))

    def write(self, at: int, pieces: NDArray[np.int64]) -> None:
        self.wrote[pieces] = at + 1
        self.state[pieces] = _UNFENCED


class _WalkJudge:
    """Takes walks through a kernel, and remembers what they show."""

    def __init__(self, walker: Walker, events: dict[int, str], partitions: _Partitions) -> None:
        self.walker, self.code, self.events, self.partitions = walker, walker.code, events, partitions
        self.faults: dict[int, int] = {}
        #: All pieces that an instruction may touch; None if its address was not known.
        self.touched: dict[int, NDArray[np.bool_] | None] = {}
        #: The first pieces of each bulk copy.
        self.starts: dict[int, list[int]] = {}
        #: What each arrival at a barrier released: whether each piece that its partition wrote is fenced.
        self._released: dict[tuple[int, int], _Shared] = {}

    def walk(self, manner: Manner) -> set[int]:
        """Takes a walk and returns the blocks with events that it passed."""
        passed: set[int] = set()
        registers, shared = Registers(self.walker.threads), _Shared()
        groups: list[list[tuple[int, NDArray[np.int64]]]] = [[]]
        reported: dict[int, list[tuple[int, NDArray[np.int64]]]] = defaultdict(list)
        expected = _MOST_BYTES
        for step in self.walker.walk(manner, registers):
            at, kind = step.at, self.events[step.at]
            passed.add(self.partitions.block_of[at])
            if kind == "fence":
                shared.state[:] = _FENCED
            elif kind in ("write", "copy"):
                pieces = self._pieces(step, registers)
                if pieces is not None and kind == "write":
                    shared.write(at, pieces)
                elif pieces is not None:
                    groups[-1].append((at, pieces))
            elif kind == "commit":
                groups.append([])
            elif kind == "wait":
                first = _first_done(self.code, at)
                keep = len(groups) - first if first else len(groups)
                for group in groups[:keep]:
                    for copy, pieces in group:
                        shared.write(copy, pieces)
                groups = groups[keep:] if first else [[]]
            elif kind in _ASYNCHRONOUS:
                self._asynchronous(step, registers, shared, expected)
            elif kind == "arrive" and _EXPECTED.match(self.code.operations[at]):
                amount = self.walker.operands[at][-1]
                expected = int(amount, 0) if amount.isdigit() else _MOST_BYTES
            if kind in ("arrive", "mbarrier wait"):
                self._synchronise(step, registers, shared, groups, reported)
        return passed

    def _synchronise(
        self,
        step: Step,
        registers: Registers,
        shared: _Shared,
        groups: list[list[tuple[int, NDArray[np.int64]]]],
        reported: dict[int, list[tuple[int, NDArray[np.int64]]]],
    ) -> None:
        """An mbarrier hands over what its arrivals released. A named barrier is passed by all warps with one work."""
        barriers = self._addresses(step, registers)
        at = step.at
        if barriers is None:
            return
        for barrier in {int(one) for one in barriers}:
            if self.events[at] == "arrive":
                if _COPIES_ARRIVE.match(self.code.operations[at]):
                    for group in groups:
                        reported[barrier] += group
                        group.clear()
                held = self._released.setdefault((at, barrier), _Shared())
                own = shared.wrote > 0
                held.wrote[own], held.state[own] = shared.wrote[own], np.maximum(shared.state, held.state)[own]
                for copy, pieces in reported[barrier]:
                    held.write(copy, pieces)
            else:
                for copy, pieces in reported.pop(barrier, ()):
                    shared.write(copy, pieces)
                for (place, other), held in self._released.items():
                    if other == barrier and self.partitions.apart(place, at):
                        own = held.wrote > 0
                        shared.wrote[own], shared.state[own] = held.wrote[own], held.state[own]

    def _asynchronous(self, step: Step, registers: Registers, shared: _Shared, expected: int) -> None:
        """A read or write through the asynchronous proxy. Of a bulk copy only the first pieces are known for certain;
        those to shared memory have at most the ``expected`` bytes."""
        pieces = self._pieces(step, registers)
        writes, bulk = self.events[step.at] == "bulk write", self.events[step.at].startswith("bulk")
        if pieces is None:
            shared.state[(shared.state == _UNFENCED) & writes] = _UNSURE
            return
        wrong = [piece for piece in pieces[shared.state[pieces] == _UNFENCED] if not self._copied_over(step.at, piece)]
        if wrong:
            self.faults.setdefault(step.at, int(shared.wrote[wrong[0]]) - 1)
        self.starts.setdefault(step.at, []).extend(pieces.tolist() if bulk else ())
        for start in pieces if bulk else ():
            end = start + expected // PIECE if writes else _PIECES
            touched = self.touched[step.at]
            if touched is not None:
                touched[start:end] = True
            if writes:
                span = shared.state[start:end]
                span[span == _UNFENCED] = _UNSURE
        if writes:
            shared.state[pieces] = _FENCED

    def _copied_over(self, at: int, piece: int) -> bool:
        """Returns True if a bulk copy of another partition may have filled ``piece`` before the access ``at``. Then
        threads stored there for another purpose, and the read is not of their stores."""
        copies = [one for one, kind in self.events.items() if kind == "bulk write" and self.partitions.apart(one, at)]
        touched = [self.touched.get(one) for one in copies]
        return any(pieces is None or bool(pieces[piece]) for pieces in touched)

    def _pieces(self, step: Step, registers: Registers) -> NDArray[np.int64] | None:
        """The pieces that an instruction touches, as far as they are certain: of bulk copies the first ones. They are
        remembered."""
        if self.events[step.at] in ("product", "scales"):
            pieces = self._operand_pieces(step, registers)
        else:
            width = _bytes_of(self.code.operations[step.at])
            addresses = self._addresses(step, registers)
            pieces = None
            if addresses is not None:
                pieces = np.unique(np.concatenate([addresses, addresses + width - 1]) // PIECE)
        if pieces is None or (len(pieces) and pieces[-1] >= _PIECES):
            self.touched[step.at] = None
            return None
        touched = self.touched.setdefault(step.at, np.zeros(_PIECES, np.bool_))
        if touched is not None:
            touched[pieces] = True
        return pieces

    def _operand_pieces(self, step: Step, registers: Registers) -> NDArray[np.int64] | None:
        operation, operands = self.code.operations[step.at], self.walker.operands[step.at]
        executing = self._executing(step, registers)
        if operation.startswith("wgmma"):
            named = list(wgmma_operands(operation, operands))
        elif operation.startswith("tcgen05.mma"):
            values = registers.value(operands[3], 32)
            instructions = set() if values is None else set(values[executing].tolist())
            named = list(tcgen05_operands(operation, operands, instructions.pop() if len(instructions) == 1 else None))
        else:
            named = list(tcgen05_operands("", ["", "[", operands[-1]], None))
        pieces = []
        for name, operand in named:
            descriptors = registers.value(name)
            if descriptors is None:
                return None
            pieces += [operand.pieces(int(one)) for one in np.unique(descriptors[executing])]
        return np.unique(np.concatenate(pieces)) if pieces else np.zeros(0, np.int64)

    def _addresses(self, step: Step, registers: Registers) -> NDArray[np.int64] | None:
        """The addresses in shared memory of the threads that execute an instruction; None if they are not known."""
        texts = [text for text in self.walker.operands[step.at] if text.startswith("[")]
        match = _ADDRESS.fullmatch(texts[1 if self.events[step.at] == "bulk read" else 0])
        base = registers.value(match[1], 32) if match else None
        if match is None or base is None:
            return None
        executing = self._executing(step, registers)
        if matrices := _MATRICES.match(self.code.operations[step.at]):  # the addresses of other lanes mean nothing
            executing = executing & (np.arange(len(executing)) % WARP < 8 * int(matrices[1]))
        return np.unique(base[executing].astype(np.int64) + int(match[2] or "0", 0))

    def _executing(self, step: Step, registers: Registers) -> NDArray[np.bool_]:
        held = registers.guard(self.code.guards[step.at])
        return step.active if held is None else step.active & held


def _bytes_of(operation: str) -> int:
    """Returns the bytes that each thread of a store writes."""
    if not operation.startswith(("st.", "atom.", "red.")):
        return PIECE
    count = re.search(r"\.v([248])\b", operation)
    size = re.search(r"\.[busf](8|16|32|64|128)\b", operation)
    return (int(count[1]) if count else 1) * (int(size[1]) // 8 if size else 4)


def _judged(
    code: AssemblyCode,
    graph: BlockGraph,
    events: dict[int, str],
    partitions: _Partitions,
    suspects: dict[int, set[int]],
    threads: int,
) -> OrderAnswer:
    judge = _WalkJudge(Walker(code, graph, events, threads), events, partitions)
    writes = {write for several in suspects.values() for write in several}
    # first those that write, so that what they release and copy is known
    copies = [at for at, kind in events.items() if kind == "bulk write"]
    places = [*sorted(writes), *sorted(copies), *sorted(suspects)] if partitions.several else sorted(suspects)
    targets = list(dict.fromkeys(partitions.block_of[place] for place in places))
    for jumps in (False, True):
        passed: set[int] = set()
        for target in targets[:_TARGETS]:
            if target not in passed:
                passed |= judge.walk(Manner(target, jumps))
            faults = [fault for fault in judge.faults.items() if fault[0] in suspects]
            if faults:
                at, write = min(faults)
                does = "writes over" if events[at] == "bulk write" else "reads"
                return OrderAnswer("fence", f"{_named(code, at)} {does} shared memory that {_named(code, write)} wrote")
    unknown = [read for read, writes in suspects.items() if not _elsewhere(judge, read, writes)]
    if not unknown:
        return OrderAnswer("fence")
    return OrderAnswer("fence", unknown=f"{_named(code, min(unknown))}, and {len(unknown) - 1} more")


def _elsewhere(judge: _WalkJudge, at: int, writes: Iterable[int]) -> bool:
    """Returns True if walks passed the asynchronous access ``at`` and all ``writes``, which touch no piece of its tile.
    A tile that a bulk copy brings for products is what these read."""
    tile = judge.touched.get(at)
    if tile is not None and judge.events[at] == "bulk write":
        read = np.zeros(_PIECES, np.bool_)
        for product, pieces in judge.touched.items():
            if judge.events[product] == "product" and pieces is not None:
                read |= pieces
        tile = tile & read if read[judge.starts[at]].all() else tile
    touched = [judge.touched.get(write) for write in writes]
    return tile is not None and all(other is not None and not (other & tile).any() for other in touched)


def _named(code: AssemblyCode, at: int) -> str:
    return f"{'.'.join(code.operations[at].split('.')[:2])} at line {code.lines[at]}"
