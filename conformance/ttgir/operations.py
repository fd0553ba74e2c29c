"""Operations that touch memory, wait, or hold other operations: what each does to an agent and its names."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.ttgir.arithmetic import (
    MAKERS,
    NAMES,
    UnknownOperation,
    attributes,
    operands,
    order_of,
    product,
    result_type,
)
from conformance.ttgir.formats import Type, bits_type, encoded, rounded, size_of, type_of
from conformance.ttgir.machine import Agent, Barrier, Pending, Promise, Running
from conformance.ttgir.memory import Fault, NoPart, View, allocated
from conformance.ttgir.text import Operation, Region, split_outside

Names = dict[str, Any]
#: One operation, ready to run: it returns what must be run to its end, if it can wait.
Step = Callable[[Agent, Names], "Generator[None, None, Any] | None"]


@dataclass(frozen=True)
class Descriptor:
    """A tensor as TMA sees it: where it begins, its sizes, the bytes from one element to the next along each of its
    dimensions, and the box that one copy moves. Dimensions are outermost first."""

    base: int
    sizes: tuple[int, ...]
    pitches: tuple[int, ...]
    element: str
    box: tuple[int, ...] = ()

    def addresses(self, starts: list[int], box: tuple[int, ...]) -> tuple[Any, Any]:
        """Addresses of a box at ``starts``, and which of them are inside of the tensor."""
        where, inside = np.zeros(box, np.int64) + self.base, np.ones(box, np.bool_)
        for axis, (start, size, pitch) in enumerate(zip(starts, self.sizes, self.pitches, strict=True)):
            index = np.arange(start, start + box[axis], dtype=np.int64)
            shape = [1] * len(box)
            shape[axis] = box[axis]
            where = where + (index * pitch).reshape(shape)
            inside = inside & ((index >= 0) & (index < size)).reshape(shape)
        return where, inside


def _taken(value: Any) -> Any:
    if isinstance(value, Promise):
        if value.pending.over:
            return value.value
        raise Fault(f"the result of {value.pending.what} is read before anybody waited for it")
    return value


def _what(operation: Operation) -> str:
    short = operation.name.partition(".")[2]
    return f"{short} ({operation.place})" if operation.place else short


def _parts(operation: Operation) -> list[str]:
    """Its operands as they are written, brackets included, without attributes and types."""
    words = operation.words
    if not operation.tail:
        words = words[: len(words) - len(operation.types)].rstrip().removesuffix(":")
    return split_outside(re.sub(r"<?\{[^{}]*\}>?\s*$", "", words.strip()).strip())


# --- regions ----------------------------------------------------------------------------------------------------------


def prepared(region: Region) -> list[Step]:
    """The operations of ``region``, each ready to run. Raises UnknownOperation."""
    return [_prepare(operation) for operation in region.operations]


def run_steps(steps: list[Step], agent: Agent, names: Names) -> Running:
    """Runs ``steps`` in order; what the last one returned is the region's result."""
    result = None
    for step in steps:
        waits = step(agent, names)
        if waits is not None:
            result = yield from waits if isinstance(waits, Generator) else _given(waits)
    return result


def _given(values: Any) -> Running:
    return values
    yield


def _prepare(operation: Operation) -> Step:
    if operation.name not in MAKERS and operation.name not in STEPS:
        raise UnknownOperation(operation.name)
    try:
        return _computed(operation) if operation.name in MAKERS else STEPS[operation.name](operation)
    except (KeyError, IndexError, ValueError, TypeError) as error:  # its text is not as any known release prints it
        raise UnknownOperation(f"{operation.name} {operation.words[:120]}") from error


def _computed(operation: Operation) -> Step:
    wanted, compute = MAKERS[operation.name](operation)
    results = operation.results

    def step(agent: Agent, names: Names) -> None:
        value = compute(*[_taken(names[name]) for name in wanted])
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
            names[result] = np.where(condition, _taken(names[first]), _taken(names[second]))
        else:
            names[result] = names[first if condition else second]

    return step


def _yields(operation: Operation) -> Step:
    wanted = operands(operation)

    def step(agent: Agent, names: Names) -> Any:
        return _given(tuple(names[name] for name in wanted))

    return step


_FOR = re.compile(r"(unsigned )?(%\S+) = (%\S+) to (%\S+) step (%\S+)\s*(?:iter_args\((.*?)\)(?= ->| :|\s*$))?", re.DOTALL)


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
        taken = 0 if bool(_taken(names[condition])) else 1
        values: Any = ()
        if taken < len(branches):
            values = (yield from run_steps(branches[taken], agent, names)) or ()
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


def _reduce(operation: Operation) -> Step:
    axis, wanted = int(attributes(operation)["axis"]), operands(operation)
    steps, arguments = prepared(operation.regions[0]), operation.regions[0].arguments
    results = operation.results

    def combined(agent: Agent, first: list[Any], second: list[Any]) -> list[Any]:
        names = dict(zip(arguments, [*first, *second], strict=True))
        running = run_steps(steps, agent, names)
        try:
            next(running)
        except StopIteration as stop:
            return list(stop.value)
        raise UnknownOperation("a reduction that waits")

    def step(agent: Agent, names: Names) -> None:
        values = [np.moveaxis(np.asarray(_taken(names[name])), axis, 0) for name in wanted]
        while (length := len(values[0])) > 1:
            half = length // 2
            both = combined(agent, [value[:half] for value in values], [value[half : 2 * half] for value in values])
            values = [
                np.concatenate([new, value[2 * half :]]) if length % 2 else np.asarray(new)
                for new, value in zip(both, values, strict=True)
            ]
        names.update(zip(results, [value[0] for value in values], strict=True))

    return step


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
            partition.fenced = dict(agent.fenced)
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


# --- global memory ----------------------------------------------------------------------------------------------------


def _pointee(text: str) -> str:
    kind = type_of(text)
    if kind.pointee is None:
        raise UnknownOperation(f"a pointer of type {text}")
    return kind.pointee


def _load(operation: Operation) -> Step:
    wanted, kind = operands(operation), _pointee(split_outside(operation.types)[0])
    result, what = operation.results[0], _what(operation)

    def step(agent: Agent, names: Names) -> None:
        pointers, mask, other = [*[_taken(names[name]) for name in wanted], None, None][:3]
        try:
            names[result] = agent.program.memory.load(pointers, mask, other, kind)
        except Fault as fault:
            raise Fault(f"{what} {fault}") from None

    return step


def _store(operation: Operation) -> Step:
    wanted, kind = operands(operation), _pointee(split_outside(operation.types)[0])
    what = _what(operation)

    def step(agent: Agent, names: Names) -> None:
        pointers, values, mask = [*[_taken(names[name]) for name in wanted], None][:3]
        try:
            agent.program.memory.store(pointers, values, mask, kind)
        except Fault as fault:
            raise Fault(f"{what} {fault}") from None

    return step


_BUFFER = re.compile(r"(%\S+)\[(%[^\]]+)\]")


def _buffer_operands(operation: Operation) -> tuple[str, str, list[str]]:
    words = operation.words[: len(operation.words) - len(operation.types)]
    match = _BUFFER.search(words)
    if match is None:
        raise UnknownOperation(f"{operation.name} {operation.words[:60]}")
    words = re.sub(r"(stride|cacheModifier|cache) = \S+", "", words[: match.start()] + words[match.end() :])
    return match[1].lstrip(","), match[2], NAMES.findall(words)


def _buffer_load(operation: Operation) -> Step:
    base, offset, more = _buffer_operands(operation)
    kind, result = result_type(operation), operation.results[0]
    what = _what(operation)

    def step(agent: Agent, names: Names) -> None:
        mask, other = [*[_taken(names[name]) for name in more], None, None][:2]
        pointers = np.asarray(names[base]) + np.asarray(names[offset]).astype(np.int64) * size_of(kind.element)
        try:
            names[result] = agent.program.memory.load(pointers, mask, other, kind.element)
        except Fault as fault:
            raise Fault(f"{what} {fault}") from None

    return step


def _buffer_store(operation: Operation) -> Step:
    base, offset, more = _buffer_operands(operation)
    kind = type_of(split_outside(operation.types)[-1])

    def step(agent: Agent, names: Names) -> None:
        values, mask = [*[_taken(names[name]) for name in more], None][:2]
        pointers = np.asarray(names[base]) + np.asarray(names[offset]).astype(np.int64) * size_of(kind.element)
        agent.program.memory.store(pointers, values, mask, kind.element)

    return step


_COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "fadd": np.add, "add": np.add, "max": np.maximum, "min": np.minimum, "umax": np.maximum, "umin": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "exch": lambda old, new: new,
}  # fmt: skip


def _atomic(operation: Operation) -> Step:
    word = operation.words.split(",")[0].strip()
    if word not in _COMBINED:
        raise UnknownOperation(f"tt.atomic_rmw {word}")
    combine, wanted = _COMBINED[word], operands(operation)
    kind = _pointee(split_outside(operation.types.strip("()"))[0].lstrip("("))

    def step(agent: Agent, names: Names) -> None:
        pointers, values, mask = (np.asarray(_taken(value)) for value in [*[names[n] for n in wanted], True][:3])
        memory = agent.program.memory
        mask, values = np.broadcast_to(mask, pointers.shape), np.broadcast_to(values, pointers.shape)
        old = np.zeros(pointers.shape, type_of(kind).array)
        for index in np.ndindex(pointers.shape):
            if mask[index]:
                old[index] = memory.load(pointers[index], None, None, kind)
                memory.store(pointers[index], rounded(combine(old[index], values[index]), kind), None, kind)
        agent.tick()
        if operation.results:
            names[operation.results[0]] = old if pointers.shape else old[()]

    return step


def _exchange(operation: Operation) -> Step:
    wanted = operands(operation)
    kind = _pointee(split_outside(operation.types.partition("->")[0].strip().strip("()"))[0])

    def step(agent: Agent, names: Names) -> Any:
        pointer, expected, new = (_taken(names[name]) for name in wanted)
        old = agent.program.memory.load(pointer, None, None, kind)
        if old == expected:
            agent.program.memory.store(pointer, new, None, kind)
        names[operation.results[0]] = old

    return step


# --- shared and tensor memory -----------------------------------------------------------------------------------------


def _alloc(operation: Operation) -> Step:
    kind, wanted, result = result_type(operation), operands(operation), operation.results[0]
    name, what = f"{result} ({operation.place})", _what(operation)

    def step(agent: Agent, names: Names) -> None:
        view = allocated(name, kind.shape, kind.element)
        if wanted:
            agent.touch(view, what, writes=True)
            view.write(_taken(names[wanted[0]]))
        names[result] = view

    return step


def _local_load(operation: Operation) -> Step:
    source, result, what = operands(operation)[0], operation.results[0], _what(operation)

    def step(agent: Agent, names: Names) -> None:
        agent.touch(names[source], what, writes=False)
        names[result] = names[source].read()

    return step


def _local_store(operation: Operation) -> Step:
    wanted, what = operands(operation), _what(operation)

    def step(agent: Agent, names: Names) -> None:
        if len(wanted) > 2 and not bool(names[wanted[2]]):
            return
        view = names[wanted[1]]
        agent.touch(view, what, writes=True)
        view.write(_taken(names[wanted[0]]))

    return step


def _view(make: Callable[[Operation], Callable[[list[Any]], Callable[[Any], Any]]]) -> Callable[[Operation], Step]:
    def prepare(operation: Operation) -> Step:
        source, *rest = operands(operation)
        made, result = make(operation), operation.results[0]

        def step(agent: Agent, names: Names) -> None:
            names[result] = names[source].part(made([names[name] for name in rest]))

        return step

    return prepare


def _index(operation: Operation) -> Callable[[list[Any]], Callable[[Any], Any]]:
    what = _what(operation)

    def made(values: list[Any]) -> Callable[[Any], Any]:
        index = int(values[0])

        def take(array: Any) -> Any:
            if not 0 <= index < len(array):
                raise NoPart(f"{what} takes slot {index} of {len(array)}")
            return array[index]

        return take

    return made


def _subview(operation: Operation) -> Callable[[list[Any]], Callable[[Any], Any]]:
    """Of Triton up to 3.4: offsets along every dimension, the first ones dropped."""
    shape = result_type(operation).shape

    def made(values: list[Any]) -> Callable[[Any], Any]:
        offsets = [int(value) for value in values]
        dropped = len(offsets) - len(shape)
        sizes = (1,) * max(dropped, 0) + shape

        def take(array: Any) -> Any:
            parts = tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=False))
            return array[parts].reshape(shape) if dropped > 0 else array[parts]

        return take

    return made


def _subslice(operation: Operation) -> Callable[[list[Any]], Callable[[Any], Any]]:
    shape = result_type(operation).shape
    match = re.search(r"%\S+?\[([\d, ]+)\]", operation.words)
    if match is None:
        raise UnknownOperation(f"{operation.name} {operation.words[:60]}")
    offsets = [int(part) for part in match[1].split(",")]
    parts = tuple(slice(offset, offset + size) for offset, size in zip(offsets, shape, strict=True))
    return lambda values: lambda array: array[parts]


def _tmem_subslice(operation: Operation) -> Callable[[list[Any]], Callable[[Any], Any]]:
    words = attributes(operation)
    first, width = int(words["offset"] if "offset" in words else words["N"]), result_type(operation).shape[-1]
    return lambda values: lambda array: array[..., first : first + width]


def _memdesc_trans(operation: Operation) -> Callable[[list[Any]], Callable[[Any], Any]]:
    order = order_of(operation)
    return lambda values: lambda array: array.transpose(order)


def _memdesc_reshape(operation: Operation) -> Callable[[list[Any]], Callable[[Any], Any]]:
    shape = result_type(operation).shape

    def take(array: Any) -> Any:
        made = array.view()
        try:
            made.shape = shape
        except AttributeError:
            raise UnknownOperation(f"{operation.name} of a view that is not contiguous") from None
        return made

    return lambda values: take


def _tmem_load(operation: Operation) -> Step:
    return _local_load(operation)


def _tmem_store(operation: Operation) -> Step:
    return _local_store(operation)


def _nothing(operation: Operation) -> Step:
    return lambda agent, names: None


def _fence(operation: Operation) -> Step:
    def step(agent: Agent, names: Names) -> None:
        agent.fenced = dict(agent.clock)

    return step


# --- copies -----------------------------------------------------------------------------------------------------------


def _copy(operation: Operation) -> Step:
    """cp.async, and what AMD has in its place."""
    words = operation.words[: len(operation.words) - len(operation.types)]
    source, target = NAMES.findall(words)[:2]
    named = dict(re.findall(r"\b(mask|other) (%\S+)", words.replace(",", " ")))
    kind, what = _pointee(split_outside(operation.types.partition("->")[0].strip())[0]), _what(operation)

    def step(agent: Agent, names: Names) -> None:
        mask, other = (names[named[word]] if word in named else None for word in ("mask", "other"))
        values, view = agent.program.memory.load(names[source], mask, other, kind), names[target]
        pending = agent.begin("copy", what, lambda: view.write(values), [(view, True)])
        agent.copies[-1].append(pending)
        if not agent.program.is_late("copy"):
            pending.finish()
        for result in operation.results:
            names[result] = None

    return step


def _commit(operation: Operation) -> Step:
    def step(agent: Agent, names: Names) -> None:
        agent.copies.append([])
        for result in operation.results:
            names[result] = None

    return step


def _async_wait(operation: Operation) -> Step:
    left = int(attributes(operation)["num"])

    def step(agent: Agent, names: Names) -> None:
        groups = agent.copies[:-1]
        over = groups[: max(len(groups) - left, 0)]
        for group in over:
            for pending in group:
                agent.end(pending)
        agent.copies = agent.copies[len(over) :]
        for result in operation.results:
            names[result] = None

    return step


_TMA = re.compile(r"(%\S+)\[(.*?)\]\s*(.*)", re.DOTALL)


def _tma_operands(operation: Operation) -> tuple[str, list[str], list[str]]:
    words = operation.words[: len(operation.words) - len(operation.types)]
    words = re.sub(r"<?\{[^{}]*\}>?", "", words)
    match = _TMA.search(words)
    if match is None:
        raise UnknownOperation(f"{operation.name} {operation.words[:60]}")
    return match[1], NAMES.findall(match[2]), NAMES.findall(match[3])


def _tma_load(operation: Operation) -> Step:
    descriptor, coordinates, (target, barrier, predicate, *_) = _tma_operands(operation)
    _known_attributes(operation, {"isVolatile", "cache", "evict"})
    what = _what(operation)

    def step(agent: Agent, names: Names) -> None:
        if not bool(names[predicate]):
            return
        tensor, view = names[descriptor], names[target]
        starts = [int(names[name]) for name in coordinates]
        box = (1,) * (len(starts) - view.bits.ndim) + view.bits.shape
        where, inside = tensor.addresses(starts, box)
        values = agent.program.memory.load(where, inside, None, tensor.element).reshape(view.bits.shape)
        _loads(agent, what, view, values, names[barrier])

    return step


def _loads(agent: Agent, what: str, view: View, values: Any, barrier_view: View) -> None:
    barrier = _barrier(agent, barrier_view, what)

    def effect() -> None:
        view.write(values)
        barrier.deliver(view.bits.size * view.bits.itemsize, pending.clock)

    pending = agent.begin("copy", what, effect, [(view, True)])
    agent.program.launch(pending)


def _tma_gather(operation: Operation) -> Step:
    descriptor, coordinates, (target, barrier, predicate, *_) = _tma_operands(operation)
    what = _what(operation)

    def step(agent: Agent, names: Names) -> None:
        if not bool(names[predicate]):
            return
        tensor, view = names[descriptor], names[target]
        rows, column = np.asarray(names[coordinates[0]]).astype(np.int64), int(names[coordinates[1]])
        columns = np.arange(column, column + view.bits.shape[1], dtype=np.int64)
        where = tensor.base + rows[:, None] * tensor.pitches[0] + columns[None, :] * tensor.pitches[1]
        inside = ((rows >= 0) & (rows < tensor.sizes[0]))[:, None] & ((columns >= 0) & (columns < tensor.sizes[1]))
        values = agent.program.memory.load(where, inside, None, tensor.element)
        _loads(agent, what, view, values, names[barrier])

    return step


def _tma_store(operation: Operation) -> Step:
    descriptor, coordinates, (source, *_) = _tma_operands(operation)
    what = _what(operation)

    def step(agent: Agent, names: Names) -> None:
        tensor, view = names[descriptor], names[source]
        starts = [int(names[name]) for name in coordinates]
        box = (1,) * (len(starts) - view.bits.ndim) + view.bits.shape

        def effect() -> None:
            where, inside = tensor.addresses(starts, box)
            agent.program.memory.store(where, view.read().reshape(box), inside, tensor.element)

        pending = agent.begin("store", what, effect, [(view, False)])
        agent.stores.append(pending)
        if not agent.program.is_late("store"):
            pending.finish()

    return step


def _store_wait(operation: Operation) -> Step:
    left = int(attributes(operation)["pendings"])

    def step(agent: Agent, names: Names) -> None:
        over = agent.stores[: max(len(agent.stores) - left, 0)]
        for pending in over:
            agent.end(pending)
        agent.stores = agent.stores[len(over) :]

    return step


def _scratch(operation: Operation) -> Step:
    size, result = int(attributes(operation)["nbytes"]), operation.results[0]

    def step(agent: Agent, names: Names) -> None:
        names[result] = np.int64(agent.program.new_scratch(size))

    return step


def _tensormap(operation: Operation) -> Step:
    parts = _parts(operation)
    target, base = parts[:2]
    box, sizes, pitches = (NAMES.findall(part) for part in parts[2:5])

    def step(agent: Agent, names: Names) -> None:
        def values(of: list[str]) -> tuple[int, ...]:
            return tuple(int(names[name]) for name in reversed(of))

        agent.program.scratch[int(names[target])] = (int(names[base]), values(sizes), values(pitches), values(box))

    return step


def _reinterpret(operation: Operation) -> Step:
    source, result = operands(operation)[0], operation.results[0]
    kind, what = type_of(operation.types.rpartition(" to ")[2].strip()), _what(operation)

    def step(agent: Agent, names: Names) -> None:
        address = int(names[source])
        if address not in agent.program.scratch:
            raise Fault(f"{what} takes a descriptor that nobody made")
        base, sizes, pitches, box = agent.program.scratch[address]
        names[result] = Descriptor(base, sizes, (*pitches, size_of(kind.element)), kind.element, box)

    return step


# --- barriers ---------------------------------------------------------------------------------------------------------


def _barrier(agent: Agent, view: View, what: str) -> Barrier:
    key = view.bits.__array_interface__["data"][0]
    if key not in agent.program.barriers:
        raise Fault(f"{what} uses {view.buffer.name} as a barrier, and nobody made it one")
    return agent.program.barriers[key]


def _init(operation: Operation) -> Step:
    name, count = operands(operation)[0], int(_parts(operation)[1])
    what = _what(operation)

    def step(agent: Agent, names: Names) -> None:
        view = names[name]
        agent.touch(view, what, writes=True)
        view.written[...] = True
        key = view.bits.__array_interface__["data"][0]
        agent.program.barriers[key] = Barrier(f"the barrier {view.buffer.name}", count)

    return step


def _inval(operation: Operation) -> Step:
    name, what = operands(operation)[0], _what(operation)

    def step(agent: Agent, names: Names) -> None:
        _barrier(agent, names[name], what)
        del agent.program.barriers[names[name].bits.__array_interface__["data"][0]]

    return step


def _wait(operation: Operation) -> Step:
    words = operation.words.partition(" deps ")[0]
    wanted = NAMES.findall(words[: len(words) - len(operation.types)] if words == operation.words else words)
    what = _what(operation)

    def run(agent: Agent, names: Names) -> Running:
        if len(wanted) > 2 and not bool(names[wanted[2]]):
            return
        barrier, phase = _barrier(agent, names[wanted[0]], what), int(names[wanted[1]]) & 1
        while barrier.phase & 1 == phase:
            agent.waiting = f"waits for {barrier.name} at {what}"
            yield
        agent.learn(barrier.complete)
        agent.tick()
        agent.fenced = {**agent.fenced, **barrier.fenced}

    return run


def _arrive(operation: Operation) -> Step:
    parts, what = _parts(operation), _what(operation)
    count, predicate = int(parts[1]), (parts[2] if len(parts) > 2 else None)

    def step(agent: Agent, names: Names) -> None:
        if predicate is not None and not bool(names[predicate]):
            return
        barrier = _barrier(agent, names[parts[0]], what)
        barrier.fenced = {**barrier.fenced, **agent.fenced}
        barrier.arrive(count, agent.clock, what)
        agent.tick()

    return step


def _expect(operation: Operation) -> Step:
    parts, what = _parts(operation), _what(operation)

    def step(agent: Agent, names: Names) -> None:
        if bool(names[parts[2]]):
            _barrier(agent, names[parts[0]], what).expect(int(parts[1]), agent.clock, what)
            agent.tick()

    return step


# --- matrix products --------------------------------------------------------------------------------------------------


def _known_attributes(operation: Operation, known: set[str]) -> None:
    if unknown := set(attributes(operation)) - known:
        raise UnknownOperation(f"{operation.name} with {', '.join(sorted(unknown))}")


def _tcgen05(operation: Operation) -> Step:
    _known_attributes(operation, {"is_async", "inputPrecision", "ttg.partition", "tt.self_latency", "loop.stage", "loop.cluster"})
    a, b, d, keep, predicate, *rest = _parts(operation)
    d = d.partition("[")[0]
    signals = [(NAMES.findall(part)[0], NAMES.findall(part)[1:]) for part in rest]
    synchronous, what = "is_async" not in attributes(operation), _what(operation)

    def step(agent: Agent, names: Names) -> None:
        if not bool(names[predicate]):
            return
        left, right, into = names[a], names[b], names[d]
        keeps = bool(names[keep])
        barriers = [
            _barrier(agent, names[name], what) for name, given in signals if not given or bool(names[given[0]])
        ]
        kind = Type("tensor", into.bits.shape, into.element)

        def effect() -> None:
            values = product(left.read(), right.read(), kind)
            into.write(values + into.read() if keeps else values)
            for barrier in barriers:
                barrier.arrive(1, pending.clock, what)

        before = agent.program.products[-1].clock if agent.program.products else {}
        clock, agent.clock = agent.clock, {**before, **agent.clock}
        pending = agent.begin("mma", what, effect, [(left, False), (right, False), (into, True)])
        agent.clock = {**clock, agent.number: agent.time}
        agent.program.launch_product(pending)
        if synchronous:
            agent.program.finish_products(len(agent.program.products))
            agent.end(pending)

    return step


def _tcgen05_commit(operation: Operation) -> Step:
    wanted, what = operands(operation), _what(operation)

    def step(agent: Agent, names: Names) -> None:
        if len(wanted) > 1 and not bool(names[wanted[1]]):
            return
        barrier = _barrier(agent, names[wanted[0]], what)
        pending = agent.begin("mma", what, lambda: barrier.arrive(1, pending.clock, what), [])
        agent.program.launch_product(pending)

    return step


def _wgmma(operation: Operation) -> Step:
    wanted, kind, result = operands(operation), result_type(operation), operation.results[0]
    _known_attributes(operation, {"isAsync", "inputPrecision", "maxNumImpreciseAcc"})
    later, what = attributes(operation).get("isAsync") == "true", _what(operation)

    def step(agent: Agent, names: Names) -> None:
        left, right, before = (names[name] for name in wanted[:3])
        keeps = len(wanted) < 4 or bool(names[wanted[3]])
        promise: Promise

        def values(operand: Any) -> Any:
            return operand.read() if isinstance(operand, View) else _taken(operand)

        def effect() -> None:
            start = before.value if isinstance(before, Promise) else before
            made = product(values(left), values(right), kind)
            promise.value = rounded(made + start if keeps else made, kind.element)

        views = [(operand, False) for operand in (left, right) if isinstance(operand, View)]
        pending = agent.begin("mma", what, effect, views)
        promise = Promise(pending)
        agent.products.append(pending)
        if not later or not agent.program.is_late("mma"):
            for earlier in agent.products:
                earlier.finish()
        names[result] = promise
        if not later:
            _retire(agent, 0)
            names[result] = promise.value

    return step


def _retire(agent: Agent, left: int) -> None:
    over = agent.products[: max(len(agent.products) - left, 0)]
    for pending in over:
        agent.end(pending)
    agent.products = agent.products[len(over) :]


def _wgmma_wait(operation: Operation) -> Step:
    wanted, left = operands(operation), int(attributes(operation)["pendings"])

    def step(agent: Agent, names: Names) -> None:
        _retire(agent, left)
        for result, name in zip(operation.results, wanted, strict=True):
            value = names[name]
            names[result] = value.value if isinstance(value, Promise) and value.pending.over else value

    return step


# --- the rest ---------------------------------------------------------------------------------------------------------


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


STEPS: dict[str, Callable[[Operation], Step]] = {
    "arith.select": _select, "scf.for": _for, "scf.if": _if, "scf.while": _while, "tt.reduce": _reduce,
    "ttg.warp_specialize": _specialise,
    **dict.fromkeys(("scf.yield", "scf.condition", "tt.reduce.return", "ttg.warp_yield"), _yields),
    **dict.fromkeys(("tt.return", "ttg.warp_return", "ttg.local_dealloc", "ttg.barrier", "gpu.barrier"), _nothing),
    **dict.fromkeys(("rocdl.s.setprio", "rocdl.sched.barrier", "llvm.intr.assume"), _nothing),
    "ttng.tensormap_fenceproxy_acquire": _nothing,
    "tt.get_program_id": _place, "tt.get_num_programs": _place, "ub.poison": _undefined,
    "tt.load": _load, "tt.store": _store, "tt.atomic_rmw": _atomic, "tt.atomic_cas": _exchange,
    "amdg.buffer_load": _buffer_load, "amdg.buffer_store": _buffer_store,
    "ttg.local_alloc": _alloc, "ttng.tmem_alloc": _alloc, "ttg.local_load": _local_load, "ttg.local_store": _local_store,
    "ttng.tmem_load": _tmem_load, "ttng.tmem_store": _tmem_store,
    "ttg.memdesc_index": _view(_index), "ttg.memdesc_subview": _view(_subview), "ttg.memdesc_trans": _view(_memdesc_trans),
    "ttg.memdesc_subslice": _view(_subslice), "ttng.tmem_subslice": _view(_tmem_subslice),
    "ttg.memdesc_reshape": _view(_memdesc_reshape),
    "ttng.fence_async_shared": _fence,
    "ttg.async_copy_global_to_local": _copy, "ttg.async_commit_group": _commit, "ttg.async_wait": _async_wait,
    "ttng.async_tma_copy_global_to_local": _tma_load, "ttng.async_tma_gather": _tma_gather,
    "ttng.async_tma_copy_local_to_global": _tma_store, "ttng.async_tma_store_wait": _store_wait,
    "ttg.global_scratch_alloc": _scratch, "ttng.tensormap_create": _tensormap,
    "ttng.reinterpret_tensor_descriptor": _reinterpret,
    "ttng.init_barrier": _init, "ttng.inval_barrier": _inval, "ttng.wait_barrier": _wait,
    "ttng.arrive_barrier": _arrive, "ttng.barrier_expect": _expect,
    "ttng.tc_gen5_mma": _tcgen05, "ttng.tc_gen5_commit": _tcgen05_commit,
    "ttng.warp_group_dot": _wgmma, "ttng.warp_group_dot_wait": _wgmma_wait,
}  # fmt: skip
