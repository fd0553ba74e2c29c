"""The shared memory that a tensor core reads for an operand: the descriptor of a wgmma or tcgen05.mma, in pieces of 16
bytes.

The layouts and the fields are the canonical ones of the PTX ISA (wgmma: "Matrix Descriptor", tcgen05: "Shared memory
descriptor"). The start is in bits 0 to 13, in units of 16 bytes. The leading and the stride offset are in bits 16 to 29
and 32 to 45, in the same units. The swizzle is in the top bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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
