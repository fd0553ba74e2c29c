"""Judges the order of a kernel's compiled code, and whether every wgmma is waited for.

wgmma.mma_async returns at once. wgmma.commit_group closes a group of them, and wgmma.wait_group N waits for all groups
but the N youngest; until then no instruction may use the registers of the sums (PTX ISA, "Asynchronous wgmma"). All
paths are followed. A move only renames a register or the halves of one, as the compiler does between a product and its
wait. A loop that brings tiles and waits for none of its products copies over what some of them still read.

Sums that are used right after the product, before a commit and a wait, are no fault. Triton promotes fp8 sums so, and
ptxas waits by itself there (WARPGROUP.DEPBAR.LE gsb0, 0x0 in the machine code of 3.7.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from conformance.execution.compile.code_structure import AssemblyCode, parsed
from conformance.execution.order.lds_accesses import lds_answer
from conformance.execution.order.proxy_fences import fence_answer
from conformance.execution.order.walks import BlockGraph, OrderAnswer

_PRODUCT = re.compile(r"wgmma\.mma_async")
_COMMIT = re.compile(r"wgmma\.commit_group")
_WAIT = re.compile(r"wgmma\.wait_group")
_END = re.compile(r"(ret|exit)(?![a-z_])")
_COPY = re.compile(r"cp\.async\.(c[ag]\.|bulk\.(?:[\w:]+\.)*shared(::\w+)?\.global)")
_MOVE = re.compile(r"mov\.[bufs]\d+$")
_REGISTER = re.compile(r"%\w+")
#: Groups of products that are told apart by their age.
_AGES = 10


@dataclass(frozen=True)
class _Open:
    """Products that nothing has waited for, as bits of instruction numbers ``by_age`` of their group, those of no group
    yet first; those that were of no group yet at a wait, ``missed``; and by register the bits of the products that
    write it or what was moved to it."""

    by_age: tuple[int, ...] = (0,) * _AGES
    missed: int = 0
    of: Mapping[str, int] = field(default_factory=dict)

    def __or__(self, other: _Open) -> _Open:
        ages = tuple(one | two for one, two in zip(self.by_age, other.by_age, strict=True))
        of = dict(self.of)
        for name, products in other.of.items():
            of[name] = of.get(name, 0) | products
        return _Open(ages, self.missed | other.missed, of)

    @property
    def products(self) -> int:
        bits = 0
        for age in self.by_age:
            bits |= age
        return bits


def wait_answer(code: AssemblyCode) -> OrderAnswer:
    """Judges whether PTX ``code`` waits for each wgmma."""
    if not code.numbers(_PRODUCT):
        return OrderAnswer("wait")
    graph = BlockGraph(code)
    loops = [loop for loop in _loops(graph) if not any(_WAIT.match(code.operations[at]) for at in loop)]
    faults: dict[int, str] = {}

    def through(number: int, state: _Open) -> _Open:
        for at in graph.blocks[number]:
            state = _after(code, at, state, loops, faults)
        return state

    graph.states(_Open(), _Open.__or__, through)
    return OrderAnswer("wait", fault=faults[min(faults)] if faults else "")


def _loops(graph: BlockGraph) -> Iterator[set[int]]:
    """Yields the instructions of each loop, wherever they stand in the text."""
    ends: dict[int, list[int]] = {}
    for number, following in enumerate(graph.following):
        for head in following:
            if head <= number:
                ends.setdefault(head, []).append(number)
    for head, numbers in ends.items():
        others = [end for end in numbers if end != head]
        within = [
            number for number in range(len(graph.blocks)) if any(graph.leads(number, end, head) for end in others)
        ]
        yield {at for number in (head, *within) for at in graph.blocks[number]}


def _after(code: AssemblyCode, at: int, state: _Open, loops: list[set[int]], faults: dict[int, str]) -> _Open:
    """Returns the operations that are open after an instruction. A use of what is open goes into ``faults``; ``loops``
    are those that wait for no product."""
    operation = code.operations[at]
    if operation.startswith("wgmma"):
        ages = state.by_age
        if _PRODUCT.match(operation):
            sums = _REGISTER.findall(code.operands[at].partition("}")[0])
            written = {name: state.of.get(name, 0) | 1 << at for name in sums}
            return _Open((ages[0] | 1 << at, *ages[1:]), state.missed & ~(1 << at), {**state.of, **written})
        if _COMMIT.match(operation):
            return replace(state, by_age=(0, *ages[:-2], ages[-2] | ages[-1]))
        if _WAIT.match(operation):
            first = min(int(code.operands[at].split()[0], 0) + 1, _AGES - 1)
            left = _Open(ages[:first] + (0,) * (_AGES - first), ages[0])
            open_products = left.products
            of = {name: products & open_products for name, products in state.of.items() if products & open_products}
            return replace(left, of=of)
        return state
    if not state.by_age.count(0) < _AGES:
        return state
    if _END.match(operation):
        faults.setdefault(at, f"nothing waits for {_first(code, state.products)}")
        return state
    if _COPY.match(operation) and state.by_age[-1]:
        oldest = 0
        for loop in loops:
            if at in loop:
                oldest |= sum(1 << one for one in loop if state.by_age[-1] >> one & 1)
        if oldest:
            text = f"copies over what {_first(code, oldest)} still reads: its loop never waits for it"
            faults.setdefault(at, f"line {code.lines[at]} {text}")
        return state
    registers = _REGISTER.findall(code.operands[at]) if state.of else []
    return _used(code, at, state, registers, faults) if any(one in state.of for one in registers) else state


def _used(code: AssemblyCode, at: int, state: _Open, registers: list[str], faults: dict[int, str]) -> _Open:
    """Returns the operations that are open after an instruction that has registers of open products among its
    ``registers``."""
    operation, operands, of = code.operations[at], code.operands[at], dict(state.of)
    if _MOVE.match(operation):
        target, _, source = operands.partition("}" if operands.startswith("{") else ",")
        names, moved = _REGISTER.findall(target), 0
        for register in _REGISTER.findall(source):
            moved |= of.get(register, 0)
        for name in names:
            of.pop(name, None)
        return replace(state, of={**of, **dict.fromkeys(names, moved)} if moved else of)
    writes = not operands.startswith("[")
    read = registers[1:] if writes and not operands.startswith("{") else registers
    for register in read:
        if early := of.get(register, 0) & (state.missed | ~state.by_age[0]):
            text = f"{operation} uses a sum of {_first(code, early)} before the wait for it"
            faults.setdefault(at, f"line {code.lines[at]}: {text}")
    if writes:
        of.pop(registers[0], None)
    return replace(state, of=of)


def _first(code: AssemblyCode, products: int) -> str:
    return f"wgmma.mma_async at line {code.lines[(products & -products).bit_length() - 1]}"


#: The compiler stages whose text shows the order.
STAGES = ("ptx", "amdgcn")


def order_answers(stage: str, text: str) -> list[OrderAnswer]:
    """Returns the answers for the kernel in ``text`` of ``stage``, one of :data:`STAGES`. All kernels of a stage have
    the same kinds of answers, so that a comparison misses none."""
    code = parsed(stage, text)
    return [fence_answer(code, text), wait_answer(code)] if stage == "ptx" else [lds_answer(code, text)]


def fenced(ptx: str) -> bool:
    """Returns True if no fence is missing in ``ptx``, as far as that is known."""
    return all(answer.right for answer in order_answers("ptx", ptx) if answer.subject == "fence")
