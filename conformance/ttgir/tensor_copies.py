"""Descriptors that a kernel of AMD makes, moves along its tensor and copies by: the tensor data mover of gfx1250."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.ttgir.arithmetic import NAMES, UnknownOperation, attributes
from conformance.ttgir.copies import stores
from conformance.ttgir.formats import size_of, type_of
from conformance.ttgir.machine import Agent
from conformance.ttgir.memory import View
from conformance.ttgir.steps import Descriptor, Names, Step, called, parts_of
from conformance.ttgir.text import Operation, split_outside


def _make(operation: Operation) -> Step:
    base, sizes, pitches = parts_of(operation)[:3]
    kind, result = type_of(f"!tt.tensordesc{split_outside(operation.types)[-1]}"), operation.results[0]
    size = size_of(kind.element)

    def step(agent: Agent, names: Names) -> None:
        of_sizes = tuple(int(names[name]) for name in NAMES.findall(sizes))
        of_pitches = tuple(int(names[name]) * size for name in NAMES.findall(pitches))
        names[result] = Descriptor(int(names[base]), of_sizes, of_pitches, kind.element, kind.shape)

    return step


_UPDATE = re.compile(r"(%\S+)(?: add_offsets = \[(.*?)\])?(?: pred = (%\S+))?(?: \{clamp_bounds\})? :")


def _update(operation: Operation) -> Step:
    moved, result = _moved(*_matched(_UPDATE, operation)), operation.results[0]

    def step(agent: Agent, names: Names) -> None:
        names[result] = moved(names)

    return step


def _moved(source: str, offsets: str | None, predicate: str | None) -> Callable[[Names], Descriptor]:
    """Returns the descriptor ``source``, from ``offsets`` further on, and only if ``predicate`` holds."""
    added = NAMES.findall(offsets or "")

    def moved(names: Names) -> Descriptor:
        descriptor: Descriptor = names[source]
        if added:
            steps = [int(names[name]) for name in added]
            descriptor = replace(descriptor, starts=tuple(a + b for a, b in zip(descriptor.origin, steps, strict=True)))
        if predicate is not None:
            descriptor = replace(descriptor, enabled=bool(names[predicate]))
        return descriptor

    return moved


#: Triton 3.7 moves a descriptor where it copies, later releases before.
_COPY = re.compile(r"(%\S+?)(?:\[(.*?)\])? (?:into|from) (%\S+?)(?:, (%\S+))? :")


def _copy(operation: Operation) -> tuple[Callable[[Names], Descriptor], str]:
    """Returns the descriptor of a copy, and the name of its tile in shared memory."""
    descriptor, offsets, tile, predicate = _matched(_COPY, operation)
    return _moved(descriptor, offsets, predicate), tile


def _matched(pattern: re.Pattern[str], operation: Operation) -> tuple[str, ...]:
    match = pattern.match(operation.words)
    if match is None:
        raise UnknownOperation(f"{operation.name} {operation.words[:60]}")
    return match.groups()


def _load(operation: Operation) -> Step:
    moved, target = _copy(operation)
    return _loaded(operation, moved, target, lambda tensor, view, _: tensor.box_at([*tensor.origin], view.shape))


_GATHER = re.compile(r"(%\S+?)\[(%\S+)\] to (%\S+)")


def _gather(operation: Operation) -> Step:
    descriptor, rows, target = _matched(_GATHER, operation)
    return _loaded(operation, _moved(descriptor, None, None), target, _rows_of(rows))


def _loaded(
    operation: Operation, moved: Callable[[Names], Descriptor], target: str, addresses: Callable[..., Any]
) -> Step:
    what, results = called(operation), operation.results

    def step(agent: Agent, names: Names) -> None:
        tensor, view = moved(names), names[target]
        names.update(dict.fromkeys(results))
        if tensor.enabled:
            where, inside = addresses(tensor, view, names)
            agent.program.memory.at_line(what)
            values = agent.program.memory.load(where, inside, None, tensor.element).reshape(view.shape)
            pending = agent.begin("copy", what, lambda: view.write(values), [(view, True)])
            agent.stores.append(pending)
            if not agent.program.is_late("copy"):
                pending.finish()

    return step


def _store(operation: Operation) -> Step:
    moved, source = _copy(operation)
    return _stored(operation, moved, source, lambda tensor, view, _: tensor.box_at([*tensor.origin], view.shape))


_SCATTER = re.compile(r"(%\S+?)\[(%\S+)\] from (%\S+)")


def _scatter(operation: Operation) -> Step:
    descriptor, rows, source = _matched(_SCATTER, operation)
    return _stored(operation, _moved(descriptor, None, None), source, _rows_of(rows))


def _rows_of(rows: str) -> Callable[..., Any]:
    """Addresses of the rows whose numbers ``rows`` names, from the column on at which the descriptor begins."""

    def addresses(tensor: Descriptor, view: View, names: Names) -> tuple[Any, Any]:
        first, column = tensor.origin
        return tensor.rows_at(np.asarray(names[rows]) + first, column, view.shape[1])

    return addresses


def _stored(
    operation: Operation, moved: Callable[[Names], Descriptor], source: str, addresses: Callable[..., Any]
) -> Step:
    what, results = called(operation), operation.results

    def step(agent: Agent, names: Names) -> None:
        tensor, view = moved(names), names[source]
        names.update(dict.fromkeys(results))
        if tensor.enabled:
            stores(agent, what, tensor, view, *addresses(tensor, view, names))

    return step


def _wait(operation: Operation) -> Step:
    """Copies in both directions are counted together, and end in order."""
    left, results = int(attributes(operation)["num"]), operation.results

    def step(agent: Agent, names: Names) -> None:
        agent.end_stores(left)
        names.update(dict.fromkeys(results))

    return step


#: How each operation of this module is made ready.
STEPS: dict[str, Callable[[Operation], Step]] = {
    "tt.make_tensor_descriptor": _make,
    "amdg.update_tensor_descriptor": _update,
    "amdg.async_tdm_copy_global_to_local": _load,
    "amdg.async_tdm_gather": _gather,
    "amdg.async_tdm_copy_local_to_global": _store,
    "amdg.async_tdm_scatter": _scatter,
    "amdg.async_tdm_wait": _wait,
}
