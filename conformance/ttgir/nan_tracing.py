"""Traces NaN and infinity through executed TTGIR, so that a wrong element names the line where its NaN begins.

Only a launch that is run again is traced, after an element was NaN that should not be: parts of this room are replaced
meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from conformance.diagnosis.nan_origins import Origin, Value, not_finite
from conformance.execution.interpreter.nan_tracing import TracedMemory
from conformance.execution.interpreter.savings import replaced_in
from conformance.ttgir import arithmetic, chip_memory, copies, products, regions, scaled
from conformance.ttgir.arithmetic import attributes, operands
from conformance.ttgir.chip_memory import Combine
from conformance.ttgir.formats import Type
from conformance.ttgir.machine import Agent, Pending
from conformance.ttgir.memory import GlobalMemory, View
from conformance.ttgir.steps import Names, Step, taken
from conformance.ttgir.text import Operation

#: Operations that only move elements.
MOVING = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.join", "tt.split", "tt.unsplat",
          "tt.cat", "tt.gather", "amdg.in_thread_transpose", "ttg.convert_layout")  # fmt: skip
#: Operations whose products are traced apart.
PRODUCTS = ("tt.dot", "tt.dot_scaled")
#: Modules in which products are computed.
_MULTIPLY = (arithmetic, products, scaled)


class TtgirTracing(TracedMemory):
    """Traces the launches whose TTGIR runs meanwhile."""

    _line = ""
    _within = ""  # the line of a reduction, whose function runs

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Replaces, inside, what computes values and moves them through memory."""
        replacements: dict[Any, dict[str, Callable[[Any], Any]]] = {
            regions: {"_prepare": self._preparing},
            View: {"read": self._reading, "write": self._writing},
            GlobalMemory: {"load": self._loading, "store": self._storing},
            Agent: {"begin": self._beginning},
            chip_memory: {"rounded": self._rounding, "COMBINED": self._combining},
            copies: {"rounded": self._rounding, "COMBINED": self._combining},
            **{module: {"product": self._multiplying, "accumulated": self._accumulating} for module in _MULTIPLY},
        }
        replacements[scaled]["_scaled"] = self._scaling
        with contextlib.ExitStack() as stack:
            for owner, makers in replacements.items():
                methods = {name: make(getattr(owner, name)) for name, make in makers.items()}
                stack.enter_context(replaced_in(owner, methods))
            yield

    def line(self) -> str:
        """Returns the line of the operation that runs."""
        return self._within or self._line

    def _preparing(self, original: Callable[[Operation], Step]) -> Callable[[Operation], Step]:
        def prepare(operation: Operation) -> Step:
            step = original(operation)
            reduces = operation.name in ("tt.reduce", "tt.scan", "tt.map_elementwise")

            def traced(agent: Agent, names: Names) -> Any:
                self._line = operation.place
                begun = self.origins.count
                self._within = operation.place if reduces else ""
                waits = step(agent, names)
                self._within = ""
                self._after(operation, names, self.origins.latest(begun) if reduces else 0)
                return waits

            return traced

        return prepare

    def _after(self, operation: Operation, names: Names, begun: int) -> None:
        """Notes the results of an operation that has run. ``begun`` is the origin that the function of a reduction
        made."""
        for index, result in enumerate(operation.results):
            value = names.get(result)
            if not isinstance(value, (np.ndarray, np.generic)) or not (bad := not_finite(np.asarray(value))).any():
                continue
            array = names[result] = np.asarray(value)  # a scalar has no memory
            if self.origins.known(array, bad):
                continue
            if operation.name == "arith.constant":
                self.origins.constant((array, array), self.line)
            elif operation.name == "arith.select":
                condition, *both = (np.asarray(taken(names[name])) for name in operands(operation))
                self.origins.selected(condition, both[0], both[1], (array, array), self.line)
            elif operation.name in ("tt.reduce", "tt.scan"):
                self._reduced(operation, _value(taken(names[operands(operation)[index]])), (array, array), begun)
            elif operation.name in MOVING:
                self._moved(operation, names, array, bad, index)
            elif operation.name in regions.MAKERS and operation.name not in PRODUCTS:
                given = [_value(taken(names[name])) for name in operands(operation)]
                symbol = attributes(operation).get("symbol", "") if "extern" in operation.name else ""
                self.origins.computed(f"{operation.name} {symbol}".strip(), given, (array, array), self.line)

    def _reduced(self, operation: Operation, source: Value, output: Value, begun: int) -> None:
        words, name = attributes(operation), operation.name.removeprefix("tt.")
        axis = int(words["axis"])
        if name == "scan":
            self.origins.scanned(name, source, output, axis, words["reverse"] == "true", self.line, begun)
        else:
            self.origins.reduced("reduction", source, output, axis, self.line, begun)

    def _moved(self, operation: Operation, names: Names, array: np.ndarray, bad: np.ndarray, index: int) -> None:
        operand_names, compute = regions.MAKERS[operation.name](operation)
        values = [np.asarray(taken(names[name])) for name in operand_names]
        of = [self.origins.of(value) for value in values]
        moved = compute(*[_or_zeros(held, value) if value.dtype.kind == "f" else value
                          for held, value in zip(of, values, strict=True)])  # fmt: skip
        numbers = moved[index] if isinstance(moved, tuple) else moved
        self.origins.put(array, np.where(bad, numbers, 0))

    def _multiplying(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def product(a: Any, b: Any, kind: Type) -> Any:
            result = np.asarray(original(a, b, kind))
            self.origins.product(_value(a), _value(b), _value(np.zeros(())), _value(result), self.line)
            return result

        return product

    def _accumulating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def accumulated(values: Any, start: Any, element: str) -> Any:
            result = original(values, start, element)
            given = [_value(each) for each in (values, start) if each is not None]
            self.origins.computed("addf", given, _value(result), self.line)
            return result

        return accumulated

    def _combining(self, original: dict[str, Combine]) -> dict[str, Combine]:
        def traced(word: str, combine: Combine) -> Combine:
            def combined(old: Any, new: Any) -> Any:
                total = np.asarray(combine(old, new))
                name = "atomic addf" if combine is np.add else f"atomic {word}"
                self.origins.computed(name, [_value(old), _value(new)], _value(total), self.line)
                return total

            return combined

        return {word: traced(word, combine) for word, combine in original.items()}

    def _rounding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Rounds what an atomic operation makes of two values."""

        def rounded(values: Any, element: str) -> Any:
            result = original(values, element)
            self.origins.computed("addf", [_value(values)], _value(result), self.line)
            return result

        return rounded

    def _scaling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def scale(values: Any, scales: Any, *how: Any) -> Any:
            result = original(values, scales, *how)
            if (bad := not_finite(result)).any():
                values = np.asarray(values)
                held = _or_zeros(self.origins.of(values), values) if values.shape == result.shape else np.int32(0)
                begun = self.origins.number(Origin("scale", self.line(), "a scale of a product is NaN"))
                self.origins.put(result, np.where(bad, np.where(held, held, begun), 0))
            return result

        return scale

    def _reading(self, original: Callable[[View], Any]) -> Callable[[View], Any]:
        def read(view: View) -> Any:
            values = original(view)
            if (bad := not_finite(values)).any():
                held = _or_zeros(self.origins.of(view.bits), view.bits).reshape(values.shape)
                what = f"{view.buffer.name} is read where nothing was written"
                begun = self.origins.number(Origin("not written", self.line(), what))
                self.origins.put(values, np.where(bad, np.where(held, held, begun), 0))
            return values

        return read

    def _writing(self, original: Callable[..., None]) -> Callable[..., None]:
        def write(view: View, values: Any) -> None:
            original(view, values)
            values = np.asarray(values)
            held = np.broadcast_to(_or_zeros(self.origins.of(values), values), view.shape)
            if held.any() or self.origins.of(view.bits) is not None:
                self.origins.put(view.bits, held.reshape(view.bits.shape))

        return write

    def _loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(memory: GlobalMemory, addresses: Any, mask: Any, other: Any, element: str, **options: Any) -> Any:
            values = original(memory, addresses, mask, other, element, **options)
            enabled, of_other = np.asarray(True if mask is None else mask), None if other is None else np.asarray(other)
            self.origins.loaded(_value(values), np.asarray(addresses), enabled, of_other, self.line, self._place)
            return values

        return load

    def _storing(self, original: Callable[..., None]) -> Callable[..., None]:
        def store(memory: GlobalMemory, addresses: Any, values: Any, mask: Any, element: str) -> None:
            original(memory, addresses, values, mask, element)
            self.origins.stores(np.asarray(addresses), _value(values), np.asarray(mask is None or mask), self.line)

        return store

    def _beginning(self, original: Callable[..., Pending]) -> Callable[..., Pending]:
        """The effect of an asynchronous operation comes later: it has the line at which it was issued."""

        def begin(agent: Agent, kind: str, what: str, effect: Callable[[], None], views: Sequence[Any]) -> Pending:
            line = self._line

            def traced() -> None:
                before, self._line = self._line, line
                effect()
                self._line = before

            return original(agent, kind, what, traced, views)

        return begin

    def _place(self, address: int, value: float) -> Origin:
        return self.place(address, value, self.line())


def _value(values: Any) -> Value:
    array = np.asarray(values)
    return array, array


def _or_zeros(numbers: np.ndarray | None, array: np.ndarray) -> np.ndarray:
    return np.zeros(array.shape, np.int32) if numbers is None else numbers
