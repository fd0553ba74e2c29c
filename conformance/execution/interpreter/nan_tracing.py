"""Traces NaN and infinity through Triton's interpreter, so that a wrong element names the line where its NaN begins.

Only a launch that is run again is traced, after an element was NaN that should not be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from conformance.diagnosis.nan_origins import HELD, OUTSIDE, Origin, Origins, Value
from conformance.execution.interpreter.accesses import TensorRegion, kernel_line, regions
from conformance.execution.interpreter.numbers import as_numbers, scaled_operand
from conformance.execution.interpreter.savings import Replacements

#: Methods of the builder that only move elements.
MOVING = ("reshape", "trans", "splat", "unsplat", "broadcast", "expand_dims", "cat", "join", "split", "gather")
#: Methods that are traced in a way of their own.
_OTHERS = ("create_select", "create_dot", "create_dot_scaled", "create_masked_load", "create_masked_store",
           "create_atomic_rmw", "create_descriptor_gather")  # fmt: skip
#: Methods whose result is a number that the kernel names.
CONSTANTS = ("get_fp16", "get_bf16", "get_fp32", "get_fp64", "assigned", "assigned_each")


class TracedMemory:
    """The origins of what programs store in launches over ``operands``, the outputs included. ``outputs`` are the names
    of those that programs write."""

    def __init__(self, operands: Mapping[str, Tensor], outputs: Sequence[str]) -> None:
        self.origins = Origins()
        self._operands, self._outputs = regions(operands), list(outputs)
        self._tensors = {name: operands[name] for name in outputs}
        self._regions: list[TensorRegion] = []

    def of_output(self, name: str, element: tuple[int, ...]) -> int:
        """Returns the number of the origin of one element of an output; 0 if no program has stored one."""
        tensor = self._tensors[name]
        offset = sum(index * stride for index, stride in zip(element, tensor.stride(), strict=True))
        return self.origins.stored.get(tensor.data_ptr() + offset * tensor.element_size(), 0)

    def launch(self, arguments: Mapping[str, Any]) -> None:
        """A launch over ``arguments`` begins."""
        self._regions = [*self._operands, *regions(arguments)]

    def place(self, address: int, value: float, line: str) -> Origin:
        """Returns the origin of a ``value`` at an address where no program has stored one that is not finite."""
        for region in self._regions:
            if not region.holds(np.array([address]), 1)[0]:
                continue
            if region.name not in self._outputs and any(region is operand for operand in self._operands):
                places = [0 if index is None else int(index[0]) for index in region.coordinates(np.array([address]))]
                held = "NaN" if np.isnan(value) else f"{value:g}"
                return Origin("operand", line, f"{region.name}{HELD}{held}", ("", tuple(places)))
            return Origin("not stored", line, f"{region.name} is read where no program has stored")
        return Origin("outside", line, OUTSIDE)


class NanTracing(TracedMemory):
    """Traces the launches that run in Triton's interpreter meanwhile."""

    def __init__(self, operands: Mapping[str, Tensor], outputs: Sequence[str]) -> None:
        super().__init__(operands, outputs)
        self._interpreter: Any = None
        self._rows: list[Any] = []  # what a gather by a descriptor has loaded

    def replacements(self, interpreter: Any) -> Replacements:
        """Returns what is replaced while a launch runs: everything that makes a tensor of others."""
        self._interpreter = interpreter
        builder = interpreter.InterpreterBuilder
        names = [name for name in dir(builder) if name.startswith("create_") or name in CONSTANTS]
        methods = {name: self._traced(name, getattr(builder, name)) for name in names}
        reduce, scan = interpreter.ReduceOps, interpreter.ScanOps
        return [
            (builder, methods),
            (reduce, {"apply_impl": self._reducing("reduction", reduce.apply_impl)}),
            (scan, {"apply_impl": self._reducing("scan", scan.apply_impl)}),
        ]

    def _value(self, handle: Any) -> Value:
        name = handle.dtype.scalar.name
        return as_numbers(np.asarray(handle.data), name), handle.data

    def _handles(self, values: Any) -> list[Any]:
        """The tensors among ``values`` of a floating type, as the interpreter keeps them."""
        kept = [getattr(value, "handle", value) for value in values]
        return [
            value for value in kept if isinstance(value, self._interpreter.TensorHandle) and _is_floating(value.dtype)
        ]

    def _traced(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        short = name.removeprefix("create_")

        def traced(builder: Any, *arguments: Any, **named: Any) -> Any:
            if name == "create_descriptor_gather":
                self._rows = []
            result = method(builder, *arguments, **named)
            given = (*arguments, *named.values())
            if name == "create_masked_store":
                self._store(*given[:3])
                return result
            results = self._handles(result if isinstance(result, (tuple, list)) else (result,))
            for index, handle in enumerate(results):
                if short in MOVING:
                    self._moved(method, builder, arguments, named, handle, index)
                elif name in CONSTANTS:
                    self.origins.constant(self._value(handle), kernel_line)
                elif name in _OTHERS:
                    getattr(self, f"_{short}")(handle, *given)
                else:
                    inputs = [self._value(each) for each in self._handles(given)]
                    self.origins.computed(short, inputs, self._value(handle), kernel_line)
            return result

        return traced

    def _moved(
        self, method: Any, builder: Any, arguments: tuple[Any, ...], named: dict[str, Any], handle: Any, index: int
    ) -> None:
        handle_type, int32 = self._interpreter.TensorHandle, self._interpreter.tl.int32
        floats = {id(each) for each in self._handles((*arguments, *named.values()))}

        def moved(value: Any) -> Any:
            if id(value) not in floats:
                return value
            numbers = self.origins.of(value.data)
            return handle_type(np.zeros(value.data.shape, np.int32) if numbers is None else numbers.copy(), int32)

        output = self._value(handle)
        bad = ~np.isfinite(output[0])
        if not bad.any() or self.origins.known(handle.data, bad):
            return
        result = method(builder, *map(moved, arguments), **{name: moved(value) for name, value in named.items()})
        of_result = result[index] if isinstance(result, (tuple, list)) else result
        self.origins.put(handle.data, np.where(bad, of_result.data, 0))

    def _select(self, handle: Any, condition: Any, first: Any, second: Any) -> None:
        self.origins.selected(condition.data, first.data, second.data, self._value(handle), kernel_line)

    def _dot(self, handle: Any, a: Any, b: Any, start: Any, *_: Any) -> None:
        left, right, before, after = map(self._value, (a, b, start, handle))
        self.origins.product(left, right, before, after, kernel_line)

    def _dot_scaled(
        self, handle: Any, a: Any, a_scale: Any, _a: Any, b: Any, b_scale: Any, _b: Any, fast: Any, a_k: Any, b_k: Any,
        start: Any,
    ) -> None:  # fmt: skip
        left = scaled_operand(a, a_scale, -1, -1 if a_k else -2)
        right = scaled_operand(b, b_scale, -2, -2 if b_k else -1)
        for values, codes, scale, which in ((left, a, a_scale, "first"), (right, b, b_scale, "second")):
            what = f"a scale of the {which} operand is NaN" if scale is not None else f"the {which} operand is NaN"
            self._scaled(values, codes, what)
        self.origins.product((left, left), (right, right), self._value(start), self._value(handle), kernel_line)

    def _scaled(self, values: np.ndarray, codes: Any, what: str) -> None:
        """Notes an operand of a product, scales times codes: NaN of a code has its origin, that of a scale begins."""
        bad = ~np.isfinite(values)
        if bad.any():
            held = self.origins.of(codes.data) if codes.data.shape == values.shape else None
            begun = self.origins.number(Origin("scale", kernel_line(), what))
            numbers = np.zeros(values.shape, np.int32) if held is None else held
            self.origins.put(values, np.where(bad, np.where(numbers, numbers, begun), 0))

    def _masked_load(self, handle: Any, pointers: Any, mask: Any, other: Any, *_: Any) -> None:
        self._rows.append(handle)
        of_other = None if other is None else other.data
        enabled = np.asarray(getattr(mask, "data", mask), bool)
        addresses = pointers.data.view(np.int64)
        self.origins.loaded(self._value(handle), addresses, enabled, of_other, kernel_line, self._place)

    def _descriptor_gather(self, handle: Any, *_: Any) -> None:
        rows = [self.origins.of(row.data) for row in self._rows]
        if any(row is not None for row in rows):
            shape = handle.data.shape[1:]
            self.origins.put(handle.data, np.stack([np.zeros(shape, np.int32) if row is None else row.reshape(shape)
                                                    for row in rows]))  # fmt: skip

    def _store(self, pointers: Any, value: Any, mask: Any) -> None:
        if _is_floating(value.dtype):
            enabled = np.asarray(getattr(mask, "data", mask), bool)
            self.origins.stores(pointers.data.view(np.int64), self._value(value), enabled, kernel_line)

    def _atomic_rmw(self, before: Any, operation: Any, pointers: Any, value: Any, mask: Any, *_: Any) -> None:
        """``before`` is what memory held. A sum is made of it and of ``value``; of other operations ``value`` stays if
        it is not finite."""
        enabled, addresses = np.asarray(mask.data, bool), pointers.data.view(np.int64)
        self.origins.loaded(self._value(before), addresses, enabled, None, kernel_line, self._place)
        held, given = self._value(before), self._value(value)
        if "FADD" in str(operation):
            total = held[0] + given[0]
            self.origins.computed("atomic fadd", [held, given], (total, total), kernel_line)
            self.origins.stores(addresses, (total, total), enabled, kernel_line)
        else:
            self.origins.stores(addresses, given, enabled & ~np.isfinite(given[0]), kernel_line)

    def _reducing(self, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def apply_impl(operation: Any, given: Any) -> Any:
            begun = self.origins.count
            result = original(operation, given)
            name = "sum" if operation.combine_fn is self._interpreter.tl.standard._sum_combine else kind
            inside = self.origins.latest(begun)
            results = result if isinstance(result, (tuple, list)) else (result,)
            for source, output in zip(self._handles(given), self._handles(results), strict=False):
                values = self._value(source), self._value(output)
                if kind == "scan":
                    self.origins.scanned(name, *values, operation.axis, operation.reverse, kernel_line, inside)
                else:
                    self.origins.reduced(name, *values, operation.axis, kernel_line, inside)
            return result

        return apply_impl

    def _place(self, address: int, value: float) -> Origin:
        return self.place(address, value, kernel_line())


def _is_floating(kind: Any) -> bool:
    return bool(kind.scalar.is_floating()) if hasattr(kind, "scalar") and not kind.scalar.is_ptr() else False
