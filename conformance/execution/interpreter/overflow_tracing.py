"""Traces integers of 32 bits that overflow in Triton's interpreter to the addresses and results that depend on them.

Only a launch that is run again is traced, after something was wrong that an overflow may explain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from conformance.diagnosis.nan_origins import Origin
from conformance.execution.interpreter.accesses import kernel_line
from conformance.execution.interpreter.nan_tracing import MOVING, TracedMemory
from conformance.execution.interpreter.savings import Replacements

#: Operations that overflow: the sign in words, and the exact result.
_EXACT: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("+", np.add),
    "sub": ("-", np.subtract),
    "mul": ("*", np.multiply),
    "shl": ("<<", np.left_shift),
}
#: Operations whose result says no more of the number that overflowed than true or false.
_COMPARING = ("icmp", "fcmp")


class OverflowTracing(TracedMemory):
    """The integers of 32 bits that overflow in launches over ``operands``, and what depends on them."""

    def __init__(self, operands: Mapping[str, Tensor], outputs: Sequence[str]) -> None:
        super().__init__(operands, outputs)
        self._interpreter: Any = None
        #: Sentences about addresses that depend on an overflow, by the lines of the overflow and of the access.
        self.addresses: dict[tuple[str, str], str] = {}

    def replacements(self, interpreter: Any) -> Replacements:
        """Returns what is replaced while a launch runs: everything that makes a tensor of others."""
        self._interpreter = interpreter
        builder, reduce = interpreter.InterpreterBuilder, interpreter.ReduceOps
        names = [name for name in dir(builder) if name.startswith("create_")]
        methods = {name: self._traced(name.removeprefix("create_"), getattr(builder, name)) for name in names}
        return [(builder, methods), (reduce, {"sum": self._summing(reduce.sum)})]

    def sentences(self, elements: Sequence[int]) -> list[str]:
        """Returns sentences about the overflows with these numbers, one for each element that depends on it, and about
        the addresses that do."""
        counts: dict[str, list[int]] = {}
        for number in elements:
            counts.setdefault(self.origins.origin(number).line, []).append(number)
        texts = list(self.addresses.values())
        for line, numbers in counts.items():
            if not any(line == at for at, _ in self.addresses):
                origin = self.origins.origin(numbers[0])
                texts.append(f"32-bit overflow at {line}: {origin.what} [{len(numbers)} elements]")
        return texts

    def _traced(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def traced(builder: Any, *arguments: Any, **named: Any) -> Any:
            result = method(builder, *arguments, **named)
            given = [value for value in (*arguments, *named.values()) if self._is_tensor(value)]
            if name == "masked_store":
                self._store(*given[:3])
                return result
            for index, handle in enumerate(result if isinstance(result, (tuple, list)) else (result,)):
                if self._is_tensor(handle) and not name.startswith(_COMPARING):
                    self._note(name, method, builder, arguments, named, given, handle, index)
            return result

        return traced

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._interpreter.TensorHandle)

    def _note(
        self,
        name: str,
        method: Any,
        builder: Any,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        given: list[Any],
        handle: Any,
        index: int,
    ) -> None:
        """Notes which elements of one result depend on an overflow, and those that overflow in this operation."""
        held = [self.origins.of(each.data) for each in given]
        numbers = np.zeros(handle.data.shape, np.int32)
        if name in MOVING and any(each is not None for each in held):
            replaced = {id(each): self._numbers_of(each) for each in given}
            moved = method(
                builder,
                *(replaced.get(id(value), value) for value in arguments),
                **{key: replaced.get(id(value), value) for key, value in named.items()},
            )
            numbers = np.asarray((moved[index] if isinstance(moved, (tuple, list)) else moved).data, np.int32)
        elif name == "dot":
            numbers = self._of_product(given, held, handle)
        elif name == "select":
            first, second = (0 if each is None else each for each in held[1:3])
            numbers = np.broadcast_to(np.where(given[0].data, first, second).astype(np.int32), numbers.shape)
        elif name == "masked_load":
            numbers = self._loaded(given[0], given[1])
        else:
            for each in held:
                if each is not None and np.broadcast_shapes(each.shape, numbers.shape) == numbers.shape:
                    numbers = np.where(numbers, numbers, each)
        if name in _EXACT and len(given) == 2:
            numbers = np.where(numbers, numbers, self._overflowing(name, given, handle))
        if numbers.any():
            self.origins.put(handle.data, numbers)

    def _numbers_of(self, handle: Any) -> Any:
        numbers = self.origins.of(handle.data)
        if numbers is None and handle.data.dtype.kind in "iu" and handle.data.dtype.itemsize != 8:
            return handle  # an index, or a number that did not overflow
        zeros = np.zeros(handle.data.shape, np.int32) if numbers is None else numbers.copy()
        return self._interpreter.TensorHandle(zeros, self._interpreter.tl.int32)

    def _overflowing(self, name: str, given: list[Any], handle: Any) -> Any:
        """Returns the number of an origin where the exact result does not fit, else 0."""
        data = handle.data
        if data.dtype.kind not in "iu" or data.dtype.itemsize != 4:
            return 0
        sign, operation = _EXACT[name]
        first, second = (np.broadcast_to(each.data.astype(np.int64), data.shape) for each in given)
        if name == "shl":
            second = np.minimum(second, 31)
        exact = operation(first, second)
        wrong = exact != data
        if not wrong.any():
            return 0
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        what = f"{first[place]} {sign} {second[place]} = {exact[place]}, and became {data[place]}"
        return np.where(wrong, self.origins.number(Origin("32-bit overflow", kernel_line(), what)), 0)

    def _of_product(self, given: list[Any], held: list[Any], handle: Any) -> np.ndarray:
        """Each element depends on a row of the first operand, a column of the second, and on what it is added to."""
        a, b, start = (each if each is not None else np.zeros(value.data.shape, np.int32)
                       for each, value in zip(held[:3], given[:3], strict=True))  # fmt: skip
        rows, columns = a.max(-1)[..., :, None], b.max(-2)[..., None, :]
        numbers = np.where(start, start, np.where(rows, rows, columns))
        first, second, before = (each.data for each in given[:3])
        if handle.data.dtype == np.int32 and first.dtype.kind in "iu":
            exact = np.matmul(first.astype(np.int64), second.astype(np.int64)) + before
            if (wrong := exact != handle.data).any():
                what = f"a sum of products is {exact[wrong][0]}, and became {handle.data[wrong][0]}"
                numbers = np.where(numbers, numbers, wrong * self.origins.number(
                    Origin("32-bit overflow", kernel_line(), what)))  # fmt: skip
        return np.broadcast_to(numbers, handle.data.shape)

    def _loaded(self, pointers: Any, mask: Any) -> np.ndarray:
        enabled = np.broadcast_to(np.asarray(getattr(mask, "data", mask), bool), pointers.data.shape)
        numbers = self._addressed("loads from", pointers, enabled)
        if self.origins.stored:
            stored = [self.origins.stored.get(address, 0) for address in pointers.data.view(np.int64).ravel().tolist()]
            numbers = np.where(numbers, numbers, np.reshape(stored, numbers.shape) * enabled)
        return numbers

    def _store(self, pointers: Any, value: Any, mask: Any) -> None:
        enabled = np.broadcast_to(np.asarray(getattr(mask, "data", mask), bool), pointers.data.shape)
        numbers, held = self._addressed("stores to", pointers, enabled), self.origins.of(value.data)
        if held is not None:
            numbers = np.where(numbers, numbers, np.broadcast_to(held, numbers.shape) * enabled)
        addresses = pointers.data.view(np.int64)
        self.origins.stored.update(zip(addresses[enabled].tolist(), numbers[enabled].tolist(), strict=True))

    def _addressed(self, what: str, pointers: Any, enabled: np.ndarray) -> np.ndarray:
        """Returns the overflows on which addresses depend that are used."""
        held = self.origins.of(pointers.data)
        if held is None or not (numbers := held * enabled).any():
            return np.zeros(pointers.data.shape, np.int32)
        line, origin = kernel_line(), self.origins.origin(int(numbers[numbers > 0][0]))
        text = f"32-bit overflow at {origin.line}: {origin.what}; {line} {what} an address that depends on it"
        self.addresses.setdefault((origin.line, line), text)
        return np.asarray(numbers, np.int32)

    def _summing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def total(operation: Any, given: Any) -> Any:
            result = original(operation, given)
            values, handle = given.handle.data, result.handle
            held = self.origins.of(values)
            if held is not None:
                numbers = held.max(axis=operation.axis, keepdims=operation.keep_dims)
                self.origins.put(handle.data, np.reshape(numbers, handle.data.shape))
            if values.dtype == np.int32:
                exact = np.sum(values.astype(np.int64), axis=operation.axis, keepdims=operation.keep_dims)
                exact = np.reshape(exact, handle.data.shape)
                if (wrong := exact != handle.data).any():
                    what = f"a sum is {exact[wrong][0]}, and became {handle.data[wrong][0]}"
                    number = self.origins.number(Origin("32-bit overflow", kernel_line(), what))
                    self.origins.put(handle.data, np.where(wrong, number, 0))
            return result

        return total
