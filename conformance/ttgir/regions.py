"""Operations that hold others: loops, conditions, reductions and partitions; and all tables together."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.ttgir import arithmetic, chip_memory, copies, products, scaled, tensor_copies
from conformance.ttgir.arithmetic import MISREAD, NAMES, UnknownOperation, attributes, operands, result_type
from conformance.ttgir.machine import Agent, Promise, Running
from conformance.ttgir.memory import ProgramFault
from conformance.ttgir.steps import Names, Step, called, nothing, taken
from conformance.ttgir.text import BLOCK, Operation, Region, split_outside
from conformance.ttgir.typed_operations import refuse_other_words

#: How each operation without memory is made.
MAKERS = {**arithmetic.MAKERS, **scaled.MAKERS}


def prepared(region: Region) -> list[Step]:
    """Returns the operations of ``region``, each ready to run. Raises UnknownOperation."""
    if any(operation.name == BLOCK for operation in region.operations):
        return [_blocks(region)]
    return [_prepare(operation) for operation in region.operations]


@dataclass(frozen=True)
class _Jump:
    """The end of a block: the next block, and the values of its arguments."""

    label: str
    values: tuple[Any, ...]


_TARGET = re.compile(r"(\^\w+)(?:\((.*?) :.*?\))?")


def _branch(operation: Operation) -> Step:
    targets = [(match[1], NAMES.findall(match[2] or "")) for match in _TARGET.finditer(operation.words)]
    conditions = NAMES.findall(operation.words.partition("^")[0])

    def step(agent: Agent, names: Names) -> Any:
        label, given = targets[1 if conditions and not bool(names[conditions[0]]) else 0]
        return _given(_Jump(label, tuple(names[name] for name in given)))

    return step


def _blocks(region: Region) -> Step:
    """A region of several blocks, which runs from the first until one does not jump."""
    parts: dict[str, tuple[list[str], list[Operation]]] = {"": (region.arguments, [])}
    for operation in region.operations:
        if operation.name == BLOCK:
            parts[operation.words] = (operation.results, [])
        else:
            list(parts.values())[-1][1].append(operation)
    blocks = {label: (arguments, [_prepare(each) for each in inside]) for label, (arguments, inside) in parts.items()}

    def run(agent: Agent, names: Names) -> Running:
        jump: Any = _Jump("", ())
        while isinstance(jump, _Jump):
            arguments, steps = blocks[jump.label]
            names.update(zip(arguments, jump.values, strict=False))
            jump = yield from run_steps(steps, agent, names)
        return jump

    return run


def run_steps(steps: list[Step], agent: Agent, names: Names) -> Running:
    """Runs ``steps`` in order; what the last one returned is the region's result."""
    result = None
    for step in steps:
        waits = step(agent, names)
        if waits is not None:
            result = yield from waits if isinstance(waits, Generator) else _given(waits)
    return result


def _given(values: Any) -> Running:
    """Returns a region's result that takes no waiting."""
    yield from ()
    return values


def _prepare(operation: Operation) -> Step:
    if operation.name not in MAKERS and operation.name not in STEPS:
        raise UnknownOperation(operation.name)
    refuse_other_words(operation)
    try:
        return _computed(operation) if operation.name in MAKERS else STEPS[operation.name](operation)
    except MISREAD as error:  # not as any known release prints it
        raise UnknownOperation(f"{operation.name} {operation.words[:120]}") from error


#: Operations that only say another name of each register, so that they need no value.
_RENAMES = ("tt.trans",)


def _computed(operation: Operation) -> Step:
    operand_names, compute = MAKERS[operation.name](operation)
    results, renames = operation.results, operation.name in _RENAMES

    def step(agent: Agent, names: Names) -> None:
        if renames and isinstance(names[operand_names[0]], Promise) and not names[operand_names[0]].pending.over:
            names[results[0]] = names[operand_names[0]].renamed(compute)
            return
        value = compute(*[taken(names[name]) for name in operand_names])
        if len(results) == 1:
            names[results[0]] = value
        else:
            names.update(zip(results, value, strict=True))

    return step


def _select(operation: Operation) -> Step:
    """A scalar condition passes one of two values on, even an accumulator whose wgmma is under way: ptxas makes that
    one register, or waits."""
    which, first, second = operands(operation)
    result = operation.results[0]

    def step(agent: Agent, names: Names) -> None:
        condition = np.asarray(names[which])
        if condition.ndim:
            names[result] = np.where(condition, taken(names[first]), taken(names[second]))
        else:
            names[result] = names[first if condition else second]

    return step


def _yields(operation: Operation) -> Step:
    operand_names = operands(operation)

    def step(agent: Agent, names: Names) -> Any:
        return _given(tuple(names[name] for name in operand_names))

    return step


_FOR = re.compile(
    r"(unsigned )?(%\S+) = (%\S+) to (%\S+) step (%\S+)\s*(?:iter_args\((.*?)\)(?= ->| :|\s*$))?", re.DOTALL
)


def _for(operation: Operation) -> Step:
    match = _FOR.match(operation.words)
    if match is None:
        raise UnknownOperation(f"scf.for {operation.words[:60]}")
    _, variable, first, last, by, carried = match.groups()
    pairs = [part.split(" = ") for part in split_outside(carried or "")]
    inner, outer = [pair[0].strip() for pair in pairs], [pair[1].strip() for pair in pairs]
    steps, results = prepared(operation.regions[0]), operation.results

    def run(agent: Agent, names: Names) -> Running:
        values = tuple(names[name] for name in outer)
        at, end, stride = (int(names[name]) for name in (first, last, by))
        if stride <= 0:
            raise UnknownOperation(f"scf.for with a step of {stride}")
        kind = np.asarray(names[first]).dtype.type
        while at < end:
            names[variable] = kind(at)
            names.update(zip(inner, values, strict=True))
            values = (yield from run_steps(steps, agent, names)) or ()
            at += stride
        names.update(zip(results, values, strict=True))

    return run


def _if(operation: Operation) -> Step:
    condition = operands(operation)[0] if operation.tail else NAMES.findall(operation.words)[0]
    branches, results = [prepared(region) for region in operation.regions], operation.results

    def run(agent: Agent, names: Names) -> Running:
        branch = 0 if bool(taken(names[condition])) else 1
        values: Any = ()
        if branch < len(branches):
            values = (yield from run_steps(branches[branch], agent, names)) or ()
        names.update(zip(results, values, strict=True))

    return run


def _while(operation: Operation) -> Step:
    match = re.match(r"\((.*?)\) :", operation.words)
    pairs = [part.split(" = ") for part in split_outside(match[1] if match else "")]
    inner, outer = [pair[0].strip() for pair in pairs], [pair[1].strip() for pair in pairs]
    before, after = (prepared(region) for region in operation.regions)
    arguments, results = operation.regions[1].arguments, operation.results

    def run(agent: Agent, names: Names) -> Running:
        values = tuple(names[name] for name in outer)
        while True:
            names.update(zip(inner, values, strict=True))
            again, *values = yield from run_steps(before, agent, names)
            if not bool(again):
                break
            names.update(zip(arguments, values, strict=True))
            values = (yield from run_steps(after, agent, names)) or ()
        names.update(zip(results, values, strict=True))

    return run


#: Combines lists of arrays, where names have the values that are known outside of its region.
Combination = Callable[[Agent, Names, list[Any]], list[Any]]


def _combination(operation: Operation) -> Combination:
    """Returns the function by which the region of ``operation`` combines the values of its arguments."""
    steps, arguments = prepared(operation.regions[0]), operation.regions[0].arguments

    def combined(agent: Agent, names: Names, values: list[Any]) -> list[Any]:
        running = run_steps(steps, agent, names | dict(zip(arguments, values, strict=True)))
        try:
            next(running)
        except StopIteration as stop:
            return list(stop.value)
        raise UnknownOperation(f"{operation.name} whose region waits")

    return combined


def _reduce(operation: Operation) -> Step:
    axis, operand_names, combined = int(attributes(operation)["axis"]), operands(operation), _combination(operation)
    results = operation.results

    def step(agent: Agent, names: Names) -> None:
        values = [np.moveaxis(np.asarray(taken(names[name])), axis, 0) for name in operand_names]
        while (length := len(values[0])) > 1:
            half = length // 2
            halves = [value[part] for part in (slice(half), slice(half, 2 * half)) for value in values]
            values = [
                np.concatenate([new, value[2 * half :]]) if length % 2 else np.asarray(new)
                for new, value in zip(combined(agent, names, halves), values, strict=True)
            ]
        names.update(zip(results, [value[0] for value in values], strict=True))

    return step


def _scan(operation: Operation) -> Step:
    axis, operand_names, combined = int(attributes(operation)["axis"]), operands(operation), _combination(operation)
    results, turned = operation.results, slice(None, None, -1 if attributes(operation)["reverse"] == "true" else 1)

    def step(agent: Agent, names: Names) -> None:
        values = [np.moveaxis(np.asarray(taken(names[name])), axis, 0)[turned] for name in operand_names]
        rows = [[value[0] for value in values]]
        for index in range(1, len(values[0])):
            rows.append(combined(agent, names, [*rows[-1], *(value[index] for value in values)]))
        for name, of_each in zip(results, zip(*rows, strict=True), strict=True):
            names[name] = np.moveaxis(np.stack(of_each)[turned], 0, axis)

    return step


def _map(operation: Operation) -> Step:
    """Returns a function of numbers, called for each element, or for ``pack`` of them at a time."""
    pack, operand_names, combined = int(attributes(operation)["pack"]), operands(operation), _combination(operation)
    results = operation.results

    def step(agent: Agent, names: Names) -> None:
        values = [np.asarray(taken(names[name])) for name in operand_names]
        packs = zip(*(value.reshape(-1, pack) for value in values), strict=True)
        rows = [combined(agent, names, [each for pack_of in together for each in pack_of]) for together in packs]
        for index, name in enumerate(results):
            own = [row[index * pack : (index + 1) * pack] for row in rows]
            names[name] = np.array(own).reshape(values[0].shape)

    return step


def _call(operation: Operation) -> Step:
    """A call of a function that is not inlined."""
    region, results = operation.regions[0], operation.results
    steps, operand_names = prepared(region), NAMES.findall(operation.words.rpartition(") :")[0].rpartition("(")[2])

    def run(agent: Agent, names: Names) -> Running:
        inside = dict(zip(region.arguments, (names[name] for name in operand_names), strict=True))
        returned = yield from run_steps(steps, agent, inside)
        names.update(zip(results, returned, strict=True))

    return run


def _specialise(operation: Operation) -> Step:
    given = operands(operation)
    default, *others = operation.regions
    own = prepared(default)
    partitions = [(region.label.split("(")[0], region.arguments, prepared(region)) for region in others]
    results = operation.results

    def run(agent: Agent, names: Names) -> Running:
        values = [names[name] for name in given]
        spawned = []
        for label, arguments, steps in partitions:
            partition = Agent(agent.program, label, agent.clock)
            inside = dict(zip(arguments, values, strict=True))
            over: list[bool] = []

            def body(partition: Agent = partition, steps: list[Step] = steps, inside: Names = inside,
                     over: list[bool] = over) -> Running:  # fmt: skip
                yield from run_steps(steps, partition, inside)
                over.append(True)

            agent.program.spawn(partition, body())
            spawned.append((partition, over))
        agent.tick()
        yielded = (yield from run_steps(own, agent, names)) or ()
        for partition, over in spawned:
            while not over:
                agent.waiting = f"waits for {partition.name} to end"
                yield
            agent.learn(partition.clock)
            agent.tick()
        names.update(zip(results, yielded, strict=True))

    return run


def _assert(operation: Operation) -> Step:
    condition, what = operands(operation)[0], called(operation)

    def step(agent: Agent, names: Names) -> None:
        if not np.all(taken(names[condition])):
            raise ProgramFault(f"{what} does not hold: {operation.words.partition(', ')[2][:120]}")

    return step


def _place(operation: Operation) -> Step:
    axis, result = "xyz".index(operation.words[0]), operation.results[0]
    own = operation.name == "tt.get_program_id"

    def step(agent: Agent, names: Names) -> None:
        names[result] = np.int32((agent.program.place if own else agent.program.grid)[axis])

    return step


def _undefined(operation: Operation) -> Step:
    kind, result = result_type(operation), operation.results[0]

    def step(agent: Agent, names: Names) -> None:
        names[result] = np.zeros(kind.shape, kind.array)

    return step


#: How each operation of this module is made ready.
STEPS: dict[str, Callable[[Operation], Step]] = {
    **chip_memory.GLOBAL_STEPS,
    **chip_memory.STEPS,
    **copies.STEPS,
    **copies.BARRIER_STEPS,
    **products.STEPS,
    **scaled.STEPS,
    **tensor_copies.STEPS,
    "arith.select": _select,
    "cf.br": _branch,
    "cf.cond_br": _branch,
    "tt.assert": _assert,
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "tt.call": _call,
    "tt.map_elementwise": _map,
    "tt.reduce": _reduce,
    "tt.scan": _scan,
    "ttg.warp_specialize": _specialise,
    **dict.fromkeys(("scf.yield", "scf.condition", "ttg.warp_yield", "tt.return"), _yields),
    **dict.fromkeys(("tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return"), _yields),
    **dict.fromkeys(("tt.print", "ttg.warp_return", "ttg.barrier", "gpu.barrier"), nothing),
    **dict.fromkeys(("rocdl.s.setprio", "rocdl.sched.barrier", "llvm.intr.assume"), nothing),
    # which of two groups of warps waits for the other: both have the same values
    "rocdl.workitem.id.x": _undefined,
    **dict.fromkeys(("amdg.cond_barrier", "rocdl.s.barrier"), nothing),
    "tt.get_program_id": _place,
    "tt.get_num_programs": _place,
    "ub.poison": _undefined,
}
