"""Codes with block scales: their values, the operations that multiply them, and those that unpack or move them.

A code of four bits is the half of a byte, the first one the low half. A scale is a byte of E8M0 (2 to the byte less
127, 255 is NaN) or a number of its own; each covers as many values along K as their counts tell. OCP's specification of
MX formats has both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.ttgir.arithmetic import (
    Compute,
    Maker,
    UnknownOperation,
    accumulated,
    attributes,
    operands,
    product,
    result_type,
)
from conformance.ttgir.formats import Type, rounded, type_of
from conformance.ttgir.machine import Agent, Pending
from conformance.ttgir.products import in_queue, issued
from conformance.ttgir.steps import Names, Step, called, parts_of
from conformance.ttgir.text import Operation

#: The values of e2m1's codes.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def unpacked(codes: Any, axis: int) -> Any:
    """Returns the halves of each byte of ``codes``, which lie side by side along ``axis``."""
    codes = np.asarray(codes).astype(np.uint8)
    axis %= codes.ndim
    halves = np.stack([codes & 15, codes >> 4], axis=axis + 1)
    return halves.reshape([size * 2 if at == axis else size for at, size in enumerate(codes.shape)])


def _packed(halves: Any, axis: int) -> Any:
    low, high = (np.take(halves, range(first, halves.shape[axis], 2), axis) for first in (0, 1))
    return (low | high << 4).astype(np.int8)


def e2m1(codes: Any, axis: int) -> Any:
    """The values of two codes a byte, which lie side by side along ``axis``."""
    return _E2M1[unpacked(codes, axis)]


def _fp4_to_fp(operation: Operation) -> tuple[list[str], Compute]:
    axis = int(attributes(operation)["axis"])
    return operands(operation), lambda codes: e2m1(codes, axis)


def _scales(values: Any) -> Any:
    """The numbers that scales stand for: bytes are E8M0."""
    values = np.asarray(values)
    if values.dtype != np.int8:
        return values.astype(np.float64)
    exponents = values.astype(np.uint8).astype(np.int64)
    return np.where(exponents == 255, np.nan, np.ldexp(1.0, exponents - 127))


#: The axis of K, in A and in B, which may have a batch in front.
_K_OF_A, _K_OF_B = -1, -2


def _scaled(values: Any, scales: Any, form: str, k_axis: int, packed_axis: int) -> Any:
    """One operand in fp64. ``scales`` has a row of blocks along K for each of its lines; None: there are none."""
    values = (e2m1(values, packed_axis) if form == "e2m1" else np.asarray(values)).astype(np.float64)
    if scales is None:
        return values
    factors = _scales(scales)
    factors = np.repeat(factors, values.shape[k_axis] // factors.shape[-1], axis=-1)
    return values * (factors.swapaxes(-1, -2) if k_axis == _K_OF_B else factors)


_DOT_SCALED = re.compile(
    r"(%\S+?)(?: scale (%\S+?))?, (%\S+?)(?: scale (%\S+?))?, (%\S+) lhs = (\w+) rhs = (\w+)", re.DOTALL
)


def _dot_scaled(operation: Operation) -> tuple[list[str], Compute]:
    match = _DOT_SCALED.match(operation.words)
    if match is None:
        raise UnknownOperation(f"{operation.name} {operation.words[:60]}")
    a, scale_a, b, scale_b, c, form_a, form_b = match.groups()
    along_rows, along_columns = (attributes(operation).get(f"{side}_k_pack") == "false" for side in ("lhs", "rhs"))
    kind, operand_names = result_type(operation), [name for name in (a, b, c, scale_a, scale_b) if name]

    def compute(left: Any, right: Any, start: Any, *scales: Any) -> Any:
        of_left = scales[0] if scale_a else None
        of_right = scales[-1] if scale_b else None
        left = _scaled(left, of_left, form_a, _K_OF_A, -2 if along_rows else _K_OF_A)
        right = _scaled(right, of_right, form_b, _K_OF_B, -1 if along_columns else _K_OF_B)
        return accumulated(product(left, right, kind), start, kind.element)

    return operand_names, compute


def _upcast(operation: Operation) -> tuple[list[str], Compute]:
    """AMD's operations of 3.8 and later: a value times the scale at its place."""
    kind, axis = result_type(operation), attributes(operation).get("axis")

    def compute(values: Any, scales: Any) -> Any:
        plain = np.asarray(values) if axis is None else e2m1(values, int(axis))
        return rounded(plain * _scales(scales), kind.element)

    return operands(operation), compute


def _upcast_mxfp(operation: Operation) -> tuple[list[str], Compute]:
    """AMD's operation up to 3.7: blocks along K have a scale each. Which axis is K, the operand's place in a product
    says."""
    kind, form = result_type(operation), re.search(r"fp_type = (\w+)", operation.words)
    place = re.search(r"opIdx = (\d)", operation.types.rpartition("->")[2])
    if form is None or place is None:
        raise UnknownOperation(f"{operation.name} {operation.words[:60]}")
    k_axis = _K_OF_B if int(place[1]) else _K_OF_A
    return operands(operation), lambda values, scales: rounded(
        _scaled(values, scales, form[1], k_axis, k_axis), kind.element
    )


def _load_packed(operation: Operation) -> Step:
    """Codes that lie packed along M or N, loaded packed along K."""
    source, result, what = operands(operation)[0], operation.results[0], called(operation)
    shape, result_shape = (type_of(part.strip()).shape for part in operation.types.split("->"))
    (axis,) = [at for at, (have, want) in enumerate(zip(shape, result_shape, strict=True)) if want == 2 * have]

    def step(agent: Agent, names: Names) -> None:
        agent.touch(names[source], what, writes=False)
        names[result] = _packed(unpacked(names[source].read(), axis), 1 - axis)

    return step


def _tcgen05_scaled(operation: Operation) -> Step:
    words, forms = re.subn(r" lhs = (\w+) rhs = (\w+)", "", operation.words)
    formats = re.search(r" lhs = (\w+) rhs = (\w+)", operation.words)
    if forms != 1 or formats is None:
        raise UnknownOperation(f"{operation.name} {operation.words[:60]}")
    form_a, form_b = formats.groups()
    plain = Operation(operation.name, operation.results, words, operation.place)
    a, b, d, scale_a, scale_b, keep, predicate, *rest = parts_of(plain)
    names_of = [a, b, d.partition("[")[0], scale_a, scale_b]

    def values(left: Any, right: Any, of_left: Any, of_right: Any, kind: Type) -> Any:
        if of_left.ndim > 2:  # Triton 3.4 leaves scales in shared memory, and copies them behind TTGIR
            of_left, of_right = in_lines(of_left, left.shape[0]), in_lines(of_right, right.shape[1])
        left, right = (
            _scaled(values, scales, form, k_axis, k_axis)
            for values, scales, form, k_axis in ((left, of_left, form_a, _K_OF_A), (right, of_right, form_b, _K_OF_B))
        )
        return product(left, right, kind)

    return issued(operation, names_of, keep, predicate, rest, values)


def in_lines(scales: Any, rows: int) -> Any:
    """Returns scales in four or more dimensions, which lie as the instruction reads them, as one line for each of
    ``rows``. They come in blocks of 128 rows and four columns, in which rows 32 apart are neighbours."""
    return scales.reshape(rows // 128, -1, 32, 4, 4).transpose(0, 3, 2, 1, 4).reshape(rows, -1)


def _tmem_copy(operation: Operation) -> Step:
    """Scales from shared to tensor memory, in the queue of the products."""
    source, target, *rest = parts_of(operation)
    what = called(operation)

    def step(agent: Agent, names: Names) -> None:
        view, into = names[source], names[target]

        def effect(_: Pending) -> None:
            values = view.read()
            into.write(values if values.shape == into.shape else in_lines(values, into.shape[0]))

        # a loop of no steps copies unwritten memory and waits for nothing: the copy is not used
        in_queue(agent, what, effect, [(view, False), (into, True)] if view.written else [])

    if rest:
        raise UnknownOperation(f"{operation.name} with a barrier")
    return step


#: How each operation without memory is made.
MAKERS: dict[str, Maker] = {
    "tt.dot_scaled": _dot_scaled,
    "ttg.fp4_to_fp": _fp4_to_fp,
    "amdg.upcast_mxfp": _upcast_mxfp,
    "amdg.scaled_upcast_fp4": _upcast,
    "amdg.scaled_upcast_fp8": _upcast,
}
#: How each operation on memory is made ready.
STEPS: dict[str, Callable[[Operation], Step]] = {
    "ttng.tc_gen5_mma_scaled": _tcgen05_scaled,
    "ttng.tmem_copy": _tmem_copy,
    "amdg.local_load_packed_tranposed": _load_packed,  # as Triton writes it up to 3.8
    "amdg.local_load_packed_transposed": _load_packed,
}
