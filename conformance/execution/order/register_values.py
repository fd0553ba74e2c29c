"""The values of a kernel's PTX registers, and the shared memory that a tensor core reads by descriptors in them.

:class:`Registers` executes one instruction at a time. A value is an array (uint64, or bool for a predicate) with one
element per thread, or None if it is not known. Unknown are loaded values, parameters, and the number of the block.

The layouts and the fields are the canonical ones of the PTX ISA (wgmma: "Matrix Descriptor", tcgen05: "Shared memory
descriptor"). The start is in bits 0 to 13, in units of 16 bytes. The leading and the stride offset are in bits 16 to 29
and 32 to 45, in the same units. The swizzle is in the top bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Value: TypeAlias = NDArray[Any]

#: Where shared memory is assumed to begin, in bytes; a multiple of every alignment that Triton asks for.
SHARED_BASE = 1 << 10
WARP = 32

REGISTER = re.compile(r"%\w+(?:\.\w)?|complete")
_WIDTH = re.compile(r"\.[busf](8|16|32|64)$")
_COMPARED: dict[str, Callable[[Value, Value], NDArray[np.bool_]]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    **dict.fromkeys(("lt", "lo"), np.less),
    **dict.fromkeys(("le", "ls"), np.less_equal),
    **dict.fromkeys(("gt", "hi"), np.greater),
    **dict.fromkeys(("ge", "hs"), np.greater_equal),
}


def split_operands(text: str) -> list[str]:
    """The operands of an instruction; a list in braces or brackets is one of them.

    >>> split_operands("{%f1, %f2}, [%rd3+16], 0")
    ['{%f1, %f2}', '[%rd3+16]', '0']
    """
    operands, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and not depth:
            operands.append(text[start:at].strip())
            start = at + 1
    return [*operands, text[start:].strip()]


def written(operation: str, operands: list[str]) -> list[str]:
    """Returns the registers that an instruction writes.

    >>> written("add.s32", ["%r1", "%r2", "%r3"])
    ['%r1']
    >>> written("st.shared.b32", ["[%r1]", "%r2"])
    []
    """
    first = operands[0] if operands else ""
    if first.startswith("[") or operation.startswith(("st.", "bra", "bar", "red.")):
        return []
    return REGISTER.findall(first)


class Registers:
    """The registers of a block of ``threads`` threads, of which none is known at first."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._values: dict[str, Value | None] = {}
        self._thread = np.arange(threads, dtype=np.uint64)

    def value(self, operand: str, width: int = 64) -> Value | None:
        """Returns the value of a register, number or symbol of shared memory, as an unsigned number of
        ``width`` bits."""
        if operand.startswith("%"):
            if operand == "%tid.x":
                return self._thread
            return self._values.get(operand)
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", operand):
            return self._constant(int(operand.rstrip("U"), 0) & ((1 << width) - 1))
        if re.fullmatch(r"[A-Za-z_$][\w$]*", operand) and "smem" in operand:
            return self._constant(SHARED_BASE)
        return self._values.get(operand)

    def _constant(self, number: int) -> Value:
        return np.full(self.threads, number, np.uint64)

    def guard(self, text: str) -> NDArray[np.bool_] | None:
        """The threads for which the predicate ``text``, such as "!%p1", holds; all if it is empty, None if it is not
        known."""
        if not text:
            return np.ones(self.threads, np.bool_)
        value = self._values.get(text.lstrip("!"))
        if value is None:
            return None
        return ~value.astype(np.bool_) if text.startswith("!") else value.astype(np.bool_)

    def execute(self, operation: str, operands: list[str], guard: str) -> None:
        """Executes an instruction. What it writes is not known afterwards if the instruction, one of its operands or
        the predicate that guards it is not."""
        targets = written(operation, operands)
        if not targets:
            return
        held = self.guard(guard)
        if operation.startswith("elect.sync"):
            results: list[Value | None] = [None] * (len(targets) - 1) + [self._thread % WARP == 0]
        elif operation.startswith("mov.b64") and operands[0].startswith("{"):
            value = self.value(operands[1])
            halves = (None, None) if value is None else (value & np.uint64(0xFFFFFFFF), value >> np.uint64(32))
            names = [part.strip() for part in operands[0].strip("{} ").split(",")]
            results = [halves[names.index(target)] if len(names) == 2 else None for target in targets]
        elif len(targets) == 1 or (operation.startswith("shfl.sync.idx") and len(targets) == 2):
            results = [self._result(operation, operands), *[None] * (len(targets) - 1)]
        else:
            results = [None] * len(targets)
        for target, result in zip(targets, results, strict=True):
            before = self._values.get(target)
            if held is not None and held.all():
                self._values[target] = result
            elif held is None or result is None or before is None:
                self._values[target] = None
            else:
                self._values[target] = np.where(held, result, before)

    def _result(self, operation: str, operands: list[str]) -> Value | None:
        name, *modifiers = operation.split(".")
        match = _WIDTH.search(operation)
        width = int(match[1]) if match else 64
        sources = operands[1:]
        if name == "mov" and sources[0].startswith("{"):
            return self._joined(sources[0], width)
        if name == "setp":
            return self._comparison(modifiers, sources, width)
        if modifiers[-1:] == ["pred"]:
            return self._logic(name, sources)
        if name == "selp":
            return self._selection(sources, width)
        compute, read = _COMPUTED.get(name), width
        values = [self.value(source, read) for source in sources]
        unmodelled = "hi" in modifiers or (name == "mad" and "wide" in modifiers) or ".f" in operation
        if compute is None or unmodelled or any(one is None for one in values):
            return None
        if "wide" in modifiers:
            width *= 2
        signed = modifiers[-1].startswith("s")
        if name == "cvt":
            source = modifiers[-1]
            signed, read = source.startswith("s"), int(source[1:]) if source[1:].isdigit() else 64
            width = int(modifiers[-2][1:]) if len(modifiers) > 1 and modifiers[-2][1:].isdigit() else width
        numbers = [_as_signed(one, read) if signed else one for one in values if one is not None]
        with np.errstate(all="ignore"):
            result = compute([one.view(np.uint64) if signed else one.astype(np.uint64) for one in numbers], signed)
        return None if result is None else _cut(result, width)

    def _joined(self, parts: str, width: int) -> Value | None:
        values = [self.value(part.strip(), 32) for part in parts.strip("{} ").split(",")]
        halves = [one.astype(np.uint64) for one in values if one is not None]
        return halves[0] | (halves[1] << np.uint64(32)) if width == 64 and len(halves) == len(values) == 2 else None

    def _comparison(self, modifiers: list[str], sources: list[str], width: int) -> Value | None:
        kind, of = modifiers[0], modifiers[-1]
        left, right = (self.value(source, width) for source in sources[:2])
        if kind not in _COMPARED or of.startswith("f") or len(sources) != 2 or left is None or right is None:
            return None
        if of.startswith("s"):
            left, right = _as_signed(left, width), _as_signed(right, width)
        return _COMPARED[kind](left.astype(np.int64), right.astype(np.int64))

    def _logic(self, name: str, sources: list[str]) -> Value | None:
        values = [self.value(source, 1) for source in sources]
        if any(one is None for one in values):
            return None
        operands = [one.astype(np.bool_) for one in values if one is not None]
        result = {"mov": lambda: operands[0], "not": lambda: ~operands[0], "and": lambda: operands[0] & operands[1]}
        result |= {"or": lambda: operands[0] | operands[1], "xor": lambda: operands[0] ^ operands[1]}
        return result[name]() if name in result else None

    def _selection(self, sources: list[str], width: int) -> Value | None:
        chosen, other, predicate = self.value(sources[0], width), self.value(sources[1], width), self.value(sources[2])
        if chosen is None or other is None or predicate is None:
            return None
        return np.where(predicate.astype(np.bool_), chosen, other)


def _as_signed(value: Value, width: int) -> Value:
    shift = np.int64(64 - width)
    extended: Value = (value.astype(np.uint64).view(np.int64) << shift) >> shift
    return extended


def _cut(value: Value, width: int) -> Value:
    return value if width >= 64 else value & np.uint64((1 << width) - 1)


_Words = list[Value]


def _shift_right(words: _Words, signed: bool) -> Value:
    count = np.minimum(words[1], np.uint64(63))
    shifted: Value = words[0].view(np.int64) >> count.view(np.int64) if signed else words[0] >> count
    return shifted.view(np.uint64)


def _field(words: _Words, signed: bool) -> Value:
    word, start, length = words
    field: Value = (word >> start) & ((np.uint64(1) << length) - np.uint64(1))
    if signed:
        shift = (np.uint64(64) - length).view(np.int64)
        field = ((field.view(np.int64) << shift) >> shift).view(np.uint64)
    return field


def _operands(words: _Words, signed: bool) -> list[Value]:
    return [word.view(np.int64) for word in words] if signed else words


def _division(words: _Words, signed: bool) -> Value | None:
    if not words[1].all():
        return None
    left, right = _operands(words, signed)
    quotient: Value = np.sign(left) * np.sign(right) * (abs(left) // abs(right)) if signed else left // right
    return quotient.view(np.uint64)


def _remainder(words: _Words, signed: bool) -> Value | None:
    quotient = _division(words, signed)
    return None if quotient is None else words[0] - quotient * words[1]


def _extreme(words: _Words, signed: bool, choose: Callable[[Value, Value], Value]) -> Value:
    left, right = _operands(words, signed)
    return choose(left, right).view(np.uint64)


def _shuffled(words: _Words, signed: bool) -> Value:
    lanes = np.arange(len(words[0])) // WARP * WARP + (words[1] % np.uint64(WARP)).astype(np.int64)
    shuffled: Value = words[0][np.minimum(lanes, len(words[0]) - 1)]
    return shuffled


#: By the first word of an operation what it computes of 64-bit words, which are signed or not.
_COMPUTED: dict[str, Callable[[_Words, bool], Value | None]] = {
    "mov": lambda words, signed: words[0],
    "cvt": lambda words, signed: words[0],
    "cvta": lambda words, signed: words[0],
    "add": lambda words, signed: words[0] + words[1],
    "sub": lambda words, signed: words[0] - words[1],
    "mul": lambda words, signed: words[0] * words[1],
    "mad": lambda words, signed: words[0] * words[1] + words[2],
    "and": lambda words, signed: words[0] & words[1],
    "or": lambda words, signed: words[0] | words[1],
    "xor": lambda words, signed: words[0] ^ words[1],
    "not": lambda words, signed: ~words[0],
    "neg": lambda words, signed: np.uint64(0) - words[0],
    "shl": lambda words, signed: np.where(
        words[1] < np.uint64(64), words[0] << np.minimum(words[1], np.uint64(63)), np.uint64(0)
    ),
    "shr": _shift_right,
    "bfe": _field,
    "div": _division,
    "rem": _remainder,
    "min": lambda words, signed: _extreme(words, signed, np.minimum),
    "max": lambda words, signed: _extreme(words, signed, np.maximum),
    "shfl": _shuffled,
}


#: Bytes of a piece: the unit of every layout, of TMA and of the widest store of a thread.
PIECE = 16
#: Bytes of a row of one instruction's operand along k, of any dtype.
_DEPTH = 32
_WGMMA = re.compile(r"wgmma\.mma_async.*\.m(\d+)n(\d+)k(\d+)\.")
_KIND = re.compile(r"\.kind::(\w+)")
#: Bytes of an element by the kind of a tcgen05.mma.
_ELEMENT = {"f16": 2, "tf32": 4, "f8f6f4": 1, "i8": 1, "mxf8f6f4": 1}
#: Pieces of a swizzled row by the swizzle field: of two bits in wgmma's descriptors, of three in tcgen05's.
_WGMMA_ROWS = {0: 1, 1: 8, 2: 4, 3: 2}
_TCGEN05_ROWS = {0: 1, 2: 8, 4: 4, 6: 2}
_SWIZZLE_BITS = {1: 0, 2: 1, 4: 2, 8: 3}


@dataclass(frozen=True)
class SharedOperand:
    """An operand of one product: its ``rows`` of M or N, and whether they lie next to each other (``transposed``). It
    has the bytes of an element, and the instruction whose descriptor it has. ``element`` is 0 where the layout is not
    known: then only the first piece counts."""

    rows: int
    transposed: bool
    element: int
    tcgen05: bool

    def pieces(self, descriptor: int) -> NDArray[np.int64]:
        """Returns the numbers of the pieces of shared memory, counted from address 0, that ``descriptor`` names."""
        return _pieces(self, descriptor)


def wgmma_operands(operation: str, operands: list[str]) -> Iterator[tuple[str, SharedOperand]]:
    """Yields the registers with descriptors of a wgmma, each with its operand."""
    match = _WGMMA.match(operation)
    rows, columns, depth = (int(number) for number in match.groups()) if match else (0, 0, 0)
    element = _DEPTH // depth if depth in (8, 16, 32) else 0
    flags = [text.lstrip("-") for text in operands[-2:]] if element == 2 and len(operands) > 6 else ["0", "0"]
    if not operands[1].startswith("{"):
        yield operands[1], SharedOperand(rows, flags[0] == "1", element, False)
        yield operands[2], SharedOperand(columns, flags[-1] == "1", element, False)
    else:  # A lies in registers, and has no flag
        yield operands[2], SharedOperand(columns, flags[-1] == "1", element, False)


def tcgen05_operands(
    operation: str, operands: list[str], instruction: int | None
) -> Iterator[tuple[str, SharedOperand]]:
    """Yields the registers with descriptors of a tcgen05.mma, each with its operand. ``instruction`` is the value of
    its instruction descriptor, None if it is not known."""
    kind = _KIND.search(operation)
    element = _ELEMENT.get(kind[1], 0) if kind and instruction is not None and ".ws" not in operation else 0
    bits = instruction or 0
    halves = 2 if "cta_group::2" in operation else 1  # each block of the pair holds its half of the rows
    rows, columns = (bits >> 24 & 31) * 16 // halves, (bits >> 17 & 63) * 8 // halves
    if not operands[1].startswith("["):  # not in tensor memory
        yield operands[1], SharedOperand(rows, bool(bits >> 15 & 1), element, True)
    yield operands[2], SharedOperand(columns, bool(bits >> 16 & 1), element, True)


@lru_cache(maxsize=1024)
def _pieces(operand: SharedOperand, descriptor: int) -> NDArray[np.int64]:
    start = (descriptor & 0x3FFF) * PIECE
    leading, stride = (descriptor >> 16 & 0x3FFF) * PIECE, (descriptor >> 32 & 0x3FFF) * PIECE
    top = descriptor >> 61 & 7 if operand.tcgen05 else descriptor >> 62 & 3
    width = (_TCGEN05_ROWS if operand.tcgen05 else _WGMMA_ROWS).get(top)
    first = np.array([start // PIECE])
    if width is None or not operand.element or not operand.rows:
        return first
    if operand.transposed:
        if operand.element == 4 or operand.rows * operand.element % PIECE:
            return first
        across = np.arange(operand.rows * operand.element // PIECE)[:, None]
        depth = np.arange(_DEPTH // operand.element)[None, :]
        if width == 1:
            offsets = across * stride + depth % 8 * PIECE + depth // 8 * leading
        else:
            offsets = across % width * PIECE + across // width * leading
            offsets = offsets + depth % 8 * width * PIECE + depth // 8 * stride
    else:
        row, piece = np.arange(operand.rows)[:, None], np.arange(_DEPTH // PIECE)[None, :]
        offsets = row % 8 * width * PIECE + row // 8 * stride + piece * (leading if width == 1 else PIECE)
    addresses = start + offsets
    swizzle = (1 << _SWIZZLE_BITS[width]) - 1
    addresses ^= (addresses >> 7 & swizzle) << 4
    return np.unique(addresses // PIECE)
