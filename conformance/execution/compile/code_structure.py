"""The instructions of a kernel's PTX or AMD assembly as a graph, and counts of how the code synchronises.

The text of one kernel becomes a graph of instructions. An access is followed along all paths until something settles
it, so a scheduler that only moves other instructions changes no count. A loop is the range from a label to a jump back
to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from conformance.record_figures import BARE_COMMITS, LATE_WAITS, PRIORITY, ROUND_TRIPS

_LABEL = re.compile(r"([$\w.]+):(?!:)")
_PREDICATE = re.compile(r"@(!?%?\w+)\s+")
#: What does not simply go on with the next instruction.
_LEAVES = re.compile(r"(bra|brx|ret|exit|trap|s_c?branch\w*|s_endpgm|s_setpc_b64)(?![a-z_])")


@dataclass
class AssemblyCode:
    """A kernel's instructions. Each has its operation, its operands as text, and the predicate that guards it ("" if
    none). It also has its line in the text from 1 on, and the numbers of those that may follow."""

    operations: list[str] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    successors: list[tuple[int, ...]] = field(default_factory=list)

    def loops(self) -> list[range]:
        """Returns the instructions of each loop."""
        return [range(to, at + 1) for at, nexts in enumerate(self.successors) for to in nexts if to <= at]

    def predecessors(self) -> dict[int, list[int]]:
        """For each instruction those that may come before it."""
        before: dict[int, list[int]] = {}
        for at, following in enumerate(self.successors):
            for to in following:
                before.setdefault(to, []).append(at)
        return before

    def numbers(self, pattern: re.Pattern[str]) -> list[int]:
        """Returns the numbers of the instructions whose operation matches."""
        matching = {operation for operation in set(self.operations) if pattern.match(operation)}
        return [at for at, operation in enumerate(self.operations) if operation in matching] if matching else []

    def blocks(self) -> tuple[range, ...]:
        """Returns the basic blocks: instructions that run one after the other, whatever happens."""
        firsts = {0} if self.operations else set()
        for at, following in enumerate(self.successors):
            if following != (at + 1,):
                firsts.update(following, (at + 1,))
        bounds = [*sorted(firsts - {len(self.operations)}), len(self.operations)]
        return tuple(range(first, end) for first, end in pairwise(bounds))


def parsed(stage: str, text: str) -> AssemblyCode:
    """The instructions of ``text``, which is PTX or AMD's assembly, with their successors."""
    comment, code = ("//" if stage == "ptx" else ";"), AssemblyCode()
    labels: dict[str, dict[int, int]] = {}  # by name and block of braces, the number of the instruction
    tables: dict[str, list[str]] = {}
    table: list[str] | None = None
    label, braces, within, scopes = "", 0, [0], list[int]()
    for number, full in enumerate(text.split("\n"), 1):
        line = full.partition(comment)[0].strip()
        if line == ".amdgpu_metadata":
            break
        if ":" in line and (match := _LABEL.match(line)):
            label = match[1]
            labels.setdefault(label, {})[within[-1]] = len(code.operations)
            line = line[match.end() :].strip()
        if line.startswith(".branchtargets"):
            table, line = tables.setdefault(label, []), line.partition(" ")[2]
        if table is not None:
            table += re.findall(r"[$\w]+", line)
            table = None if line.endswith(";") else table
            continue
        for _ in range(line.count("{") - line.count("}")):
            braces += 1
            within.append(braces)
        del within[max(len(within) - max(line.count("}") - line.count("{"), 0), 1) :]
        for statement in map(str.strip, line.split(";")):
            guard = _PREDICATE.match(statement) if statement.startswith("@") else None
            bare = statement[guard.end() :] if guard else statement
            if bare[:1].isalpha():
                operation, *operands = bare.split(None, 1)
                code.operations.append(operation)
                code.operands.append(operands[0] if operands else "")
                code.guards.append(guard[1] if guard else "")
                code.lines.append(number)
                scopes.append(within[-1])
    leaving = {operation for operation in set(code.operations) if _LEAVES.match(operation)}
    for at, operation in enumerate(code.operations):
        following = (at + 1,) if at + 1 < len(code.operations) else ()
        if operation in leaving:
            stays = code.guards[at] or operation.startswith("s_cbranch")
            following = (*_targets(code.operands[at], scopes[at], labels, tables), *(following if stays else ()))
        code.successors.append(following)
    return code


def _targets(
    operands: str, scope: int, labels: Mapping[str, Mapping[int, int]], tables: Mapping[str, list[str]]
) -> Iterator[int]:
    """Returns the labels to which a jump in the block of braces ``scope`` may go. Each block of inline assembly has its
    own labels."""
    for named in re.findall(r"[$\w.]+", operands)[-1:]:
        for label in tables.get(named, [named]):
            if places := labels.get(label):
                yield places.get(scope, max(places.values()))


#: Instructions after which the paths from one place are given up on.
STEPS_LIMIT = 4000

#: The kinds of instructions that are counted, everywhere and in loops: patterns of their names by stage.
_COUNTED = {
    "ptx": {
        "barrier": re.compile(r"bar(rier)?\."),
        "mbarrier wait": re.compile(r"mbarrier\.(try|test)_wait"),
        "mbarrier arrive": re.compile(r"mbarrier\.arrive"),
        "fence": re.compile(r"fence\.|membar\."),
        "cp.async wait": re.compile(r"cp\.async\.(bulk\.)?wait"),
        "wgmma wait": re.compile(r"wgmma\.wait"),
        "wgmma fence": re.compile(r"wgmma\.(fence|commit)"),
        "tcgen05 wait": re.compile(r"tcgen05\.wait"),
        "tcgen05 commit": re.compile(r"tcgen05\.(commit|fence)"),
    },
    "amdgcn": {
        "barrier": re.compile(r"s_barrier(_signal)?$"),
        "wait": re.compile(r"s_waitcnt|s_wait_(?!alu|xcnt)\w*cnt"),
        "cache control": re.compile(r"buffer_(gl|inv|wbl)|global_(inv|wb)"),
        PRIORITY: re.compile(r"s_setprio$"),
    },
}
_IN_LOOPS = {
    "tcgen05.ld in loops": re.compile(r"tcgen05\.ld\b"),
    "tcgen05.st in loops": re.compile(r"tcgen05\.st\b"),
}
#: Of both stages: a barrier, a wait for copies to shared memory, and what uses it.
_BARRIER = re.compile(r"m?bar(rier)?\.|s_barrier")
_BLOCK_BARRIER = re.compile(r"bar(rier)?\.")
_ASYNC_WAIT = re.compile(r"cp\.async\.(bulk\.)?wait|s_wait_(async|tensor)cnt")
_MMA = re.compile(r"tcgen05\.mma\b")
_COMMIT = re.compile(r"tcgen05\.commit")
_MBARRIER_WAIT = re.compile(r"mbarrier\.(try|test)_wait")
#: Operands of PTX: an address, and a register that is no predicate.
_ADDRESS = re.compile(r"\[[^\]]*\]")
_VALUE = re.compile(r"%(?!p\d)\w+")
_SHARED_MEMORY = re.compile(r"(ld|st)\.shared|(ld|st)matrix|wgmma\.mma_async|tcgen05\.mma\b|ds_(read|load|write|store)")
_WAITCNT = re.compile(r"s_waitcnt$")
_VMCNT = re.compile(r"\bvmcnt\((\d+)\)")
_MEMORY = re.compile(r"(buffer|global|flat|scratch)_(load|store|atomic)")
_GLOBAL_LOAD = re.compile(r"(buffer|global)_load")


def structure(stage: str, text: str) -> dict[str, int]:
    """Counts, in the kernel in ``text`` of ``stage`` ("ptx" or "amdgcn"), the synchronising instructions by kind. Also
    counts its accesses of tensor memory in loops, and what may go wrong. Zeros are left out.

    >>> structure("ptx", "\\n".join(["cp.async.wait_group 0;", "bar.sync 0;", "bar.sync 0;"]))
    {'barrier': 2, 'cp.async wait': 1}
    """
    code = parsed(stage, text)
    counts = {name: len(code.numbers(pattern)) for name, pattern in _COUNTED[stage].items()}
    waits = set(code.numbers(_ASYNC_WAIT))
    if stage == "ptx":
        counts[LATE_WAITS] = sum(_is_behind_its_barrier(code, wait, waits) for wait in waits)
        loops = code.loops()
        inside = {at for loop in loops for at in loop}
        counts |= {name: len(inside.intersection(code.numbers(pattern))) for name, pattern in _IN_LOOPS.items()}
        counts[ROUND_TRIPS] = sum(_moves_accumulators(code, loop) for loop in _smallest(loops, code.numbers(_MMA)))
        counts[BARE_COMMITS] = _bare_commits(code)
    elif code.numbers(_COUNTED[stage]["barrier"]):  # a block of one wave has none, and needs none
        before = code.predecessors()
        waits |= _waits_for_copies(code, before)
        counts[LATE_WAITS] = sum(_is_behind_its_barrier(code, wait, waits) for wait in waits)
    return {name: count for name, count in counts.items() if count}


def _bare_commits(code: AssemblyCode) -> int:
    """Counts the commits that have no barrier between them and a wait.

    One thread commits the products of all warps, which is an arrival at an mbarrier. Where all of them wait and no
    barrier follows, one that is slow may miss a phase (triton #9871). A partition of one warp needs none.
    """
    commits = code.numbers(_COMMIT)
    before = code.predecessors() if commits else {}
    return sum(_reaches(code, before, at, _MBARRIER_WAIT, _BLOCK_BARRIER) for at in commits)


def _reaches(
    code: AssemblyCode,
    nexts: Mapping[int, Sequence[int]],
    start: int,
    pattern: re.Pattern[str],
    settles: re.Pattern[str],
) -> bool:
    """Returns True if a path along ``nexts`` leads from ``start`` to an instruction of ``pattern`` past none that
    ``settles``; it looks at STEPS_LIMIT instructions at most."""
    waiting, seen = [*nexts.get(start, ())], set[int]()
    while waiting and len(seen) < STEPS_LIMIT:
        at = waiting.pop()
        if at in seen or settles.match(code.operations[at]):
            continue
        if pattern.match(code.operations[at]):
            return True
        seen.add(at)
        waiting += nexts.get(at, ())
    return False


def _moves_accumulators(code: AssemblyCode, loop: range) -> bool:
    """Returns True if ``loop`` stores values to tensor memory that it has loaded from there, or made of such values.
    They are followed from register to register, and not through other memory. An epilogue only loads, and what a sum
    begins with was not loaded."""
    load, store = _IN_LOOPS.values()
    operations = {code.operations[at] for at in loop}
    if not all(any(pattern.match(one) for one in operations) for pattern in (load, store)):
        return False
    of = [(code.operations[at], *_written_and_read(code.operands[at])) for at in loop]
    stored = {register for operation, _, read in of if store.match(operation) for register in read}
    loaded = {register for operation, written, _ in of if load.match(operation) for register in written}
    uses: dict[str, set[str]] = {}
    for _, written, read in of:
        for register in read:
            uses.setdefault(register, set()).update(written)
    waiting = [*loaded]
    while waiting:
        new = uses.get(waiting.pop(), set()) - loaded
        loaded |= new
        waiting += new
    return not stored.isdisjoint(loaded)


def _written_and_read(operands: str) -> tuple[list[str], list[str]]:
    """Returns the registers that a PTX instruction writes and those that it reads: its first operand, and the others.
    Those of addresses and predicates are left out."""
    plain = _ADDRESS.sub("", operands)
    first, _, others = plain.partition("}" if plain.startswith("{") else ",")
    return _VALUE.findall(first), _VALUE.findall(others)


def _smallest(loops: Iterable[range], numbers: Iterable[int]) -> set[range]:
    """The innermost loop of each instruction of ``numbers`` that is in one."""
    around = ([loop for loop in loops if number in loop] for number in numbers)
    return {min(each, key=len) for each in around if each}


def _is_behind_its_barrier(code: AssemblyCode, wait: int, waits: set[int]) -> bool:
    """Returns True if shared memory is used after ``wait``, one of the ``waits`` for asynchronous copies, before a
    barrier. What other threads copied is there only after a barrier."""
    waiting, seen = [*code.successors[wait]], set[int]()
    while waiting and len(seen) < STEPS_LIMIT:
        at = waiting.pop()
        operation = code.operations[at]
        if at in seen or at in waits or _BARRIER.match(operation):
            continue
        if _SHARED_MEMORY.match(operation):
            return True
        seen.add(at)
        waiting += code.successors[at]
    return False


def _waits_for_copies(code: AssemblyCode, before: Mapping[int, Sequence[int]]) -> set[int]:
    """The waits of AMD's code for loads that go to LDS, on all paths."""
    loads = {at for at in code.numbers(_GLOBAL_LOAD) if "lds" in re.split(r"[\s_]", _text(code, at))}
    waits = set()
    for wait in code.numbers(_WAITCNT) if loads else ():
        left = _VMCNT.search(code.operands[wait])
        if left and (ended := _ended_by(code, before, wait, int(left[1]))) and ended <= loads:
            waits.add(wait)
    return waits


def _ended_by(code: AssemblyCode, before: Mapping[int, Sequence[int]], wait: int, left: int) -> set[int]:
    """Returns the latest accesses of memory, one on each path, that have ended behind a ``wait`` that leaves ``left``
    open: accesses end in their order."""
    waiting, seen, ended = [(at, left) for at in before.get(wait, ())], set[int](), set[int]()
    while waiting and len(seen) < STEPS_LIMIT:
        at, later = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if _MEMORY.match(code.operations[at]):
            if not later:
                ended.add(at)
                continue
            later -= 1
        waiting += [(to, later) for to in before.get(at, ())]
    return ended


def _text(code: AssemblyCode, at: int) -> str:
    return f"{code.operations[at]} {code.operands[at]}"
