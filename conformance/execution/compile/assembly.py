"""The instructions of a kernel's PTX or AMD assembly, as a graph of what may follow what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

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
