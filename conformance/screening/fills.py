"""Operands whose products and sums are exact in any order, and the bits that each result must have.

An operand is an integer times a power of two that its row of A, or column of B, has in common, with a sign. Sums begin
at one and a half times the accumulator's leading bit, and stay in the range in which the last bit counts one. So a flip
of any bit of the accumulator stays to the end. No factor is zero, and the factors' own last bits count one in a product
where the sums leave room for it. So a flip of an operand's bit is seen, too.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.problems import DTYPES
from conformance.screening.units import EDGE, Unit

#: The integers that hold the bits of a dtype, by bytes.
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
#: Exponents of the powers of two of which an operand with one digit has the range, by format.
_EXPONENTS = {"fp16": (-14, 15), "e4m3": (-6, 7), "e5m2": (-14, 15), "e4m3fnuz": (-7, 7), "e5m2fnuz": (-15, 15)}
#: The exponents of a row or column in any format lie within these.
_MOST_EXPONENT = 20
_INTEGER_START = 0x15555555
#: Rows that are multiplied again in 64-bit integers.
_CHECKED = 2


@dataclass(frozen=True)
class Fill:
    """One set of operands of a unit, on the CPU. ``left`` (EDGE, K) and ``right`` (EDGE, K) are the integers;
    ``row_scale`` and ``column_scale`` their signed powers of two, and ``start`` the integer at which sums begin."""

    name: str
    left: Tensor
    right: Tensor
    row_scale: Tensor
    column_scale: Tensor
    start: int

    def operands(self, unit: Unit) -> tuple[Tensor, Tensor, Tensor]:
        """Returns A, B with a row for each column, and the matrix of starts. Raises ValueError if one is rounded."""
        a = _exactly(self.left.double() * self.row_scale[:, None], unit.stored)
        b = _exactly(self.right.double() * self.column_scale[:, None], unit.stored)
        start = torch.full((EDGE, EDGE), float(self.start), dtype=torch.float64)
        return a, b, _exactly(self._scaled(start), unit.sum_dtype)

    def expected(self, unit: Unit) -> Tensor:
        """Returns the bits of the results by tile, (tiles, rows, columns), as integers. Raises ValueError if the sums
        leave the range in which they are exact, or if fp64 and 64-bit integers disagree."""
        most = int(self.left.abs().max()) * int(self.right.abs().max()) * unit.depth
        if most > 1 << 53:
            raise ValueError(f"{unit.name}, {self.name}: sums up to {most} are not exact in fp64")
        sums = self.left.double() @ self.right.double().T
        again = self.left[:_CHECKED] @ self.right.T
        if not torch.equal(sums[:_CHECKED].long(), again):
            raise ValueError(f"{unit.name}, {self.name}: this machine's CPU adds the same integers differently")
        if unit.digits and float(sums.abs().max()) >= 2.0 ** (unit.room - 1):
            raise ValueError(f"{unit.name}, {self.name}: sums up to {float(sums.abs().max()):g} leave the exact range")
        rows, columns, _ = unit.block
        results = bits_of(_exactly(self._scaled(sums + self.start), unit.sum_dtype))
        tiles = results.reshape(EDGE // rows, rows, EDGE // columns, columns).transpose(1, 2)
        return tiles.reshape(unit.tiles, rows, columns).contiguous()

    def _scaled(self, integers: Tensor) -> Tensor:
        return integers * self.row_scale[:, None] * self.column_scale[None, :]


def bits_of(values: Tensor) -> Tensor:
    """Returns the bits of each value as an integer."""
    return values.view(BITS[values.element_size()])


def fills(unit: Unit) -> tuple[Fill, ...]:
    """Returns the fills of ``unit``, always the same ones: full significands in A, in both, or in B; stripes of bits.
    A unit that adds in the order of k has two more, with factors of all digits of fp32."""
    if not unit.digits:
        return tuple(_integers(unit, name) for name in ("random", "stripes"))
    wide = min(unit.products, unit.digits - 1)
    splits = {"wide A": wide, "balanced": unit.products - unit.products // 2, "wide B": unit.products - wide}
    chosen = [(name, bits, False) for name, bits in splits.items()]
    if wide == unit.products - wide:  # both operands are full already
        chosen = [("wide", wide, False)]
    chosen.append(("stripes", wide, True))
    chosen_fills = [_floats(unit, name, bits, stripes) for name, bits, stripes in chosen]
    return (*chosen_fills, _swing(unit, "swing A"), _swing(unit, "swing B")) if unit.ordered else tuple(chosen_fills)


def _floats(unit: Unit, name: str, bits: int, stripes: bool) -> Fill:
    """Factors of A from two to ``bits`` on, below twice that, and factors of B so that products have the unit's."""
    dice = _dice(unit, name)
    left, right = (_factors(dice, unit.depth, n, stripes) for n in (bits, unit.products - bits))
    rows = _scales(dice, unit.dtype, bits)
    columns = _scales(dice, unit.dtype, unit.products - bits)
    return Fill(name, left, right, rows, columns, 3 << (unit.room - 1))


def _factors(dice: torch.Generator, depth: int, bits: int, stripes: bool) -> Tensor:
    shape = (EDGE, depth)
    if stripes:  # 10101..., 11010...
        some = torch.tensor([int(("10" * 32)[: bits + 1], 2), int(("1" + "10" * 32)[: bits + 1], 2)])
        magnitudes = some[torch.randint(0, 2, shape, generator=dice)]
    else:
        magnitudes = torch.randint(1 << bits, 2 << bits, shape, generator=dice)
    return magnitudes * _signs(dice, shape)


def _swing(unit: Unit, name: str) -> Fill:
    """Factors of 24 bits, in turn added and subtracted: right only if a sum is made in the order of k."""
    dice = _dice(unit, name)
    wide = (1 << 23) + torch.randint(0, 1 << 16, (EDGE, unit.depth), generator=dice)
    signs = torch.ones(EDGE, unit.depth, dtype=torch.int64)
    signs[:, 1::2] = -1
    left, right = (wide, signs) if name == "swing A" else (signs, wide)
    rows, columns = (_scales(dice, unit.dtype, 0) for _ in range(2))
    return Fill(name, left, right, rows, columns, -(3 << 22))


def _integers(unit: Unit, name: str) -> Fill:
    dice = _dice(unit, name)
    shape = (EDGE, unit.depth)
    if name == "stripes":
        some = torch.tensor([0x55, -0x56, -0x55, 0x33])
        left, right = (some[torch.randint(0, 4, shape, generator=dice)] for _ in range(2))
    else:
        left, right = (torch.randint(1, 128, shape, generator=dice) * _signs(dice, shape) for _ in range(2))
    one = torch.ones(EDGE, dtype=torch.float64)
    return Fill(name, left, right, one, one, _INTEGER_START)


def _dice(unit: Unit, name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(f"{unit.name}/{name}".encode()))


def _signs(dice: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.randint(0, 2, shape, generator=dice) * 2 - 1


def _scales(dice: torch.Generator, dtype: str, bits: int) -> Tensor:
    """Returns a signed power of two for each row, with which integers of ``bits`` + 1 digits fit the format."""
    low, high = _EXPONENTS.get(dtype, (-_MOST_EXPONENT + bits, _MOST_EXPONENT + bits))
    low, high = max(low - bits, -_MOST_EXPONENT), min(high - bits, _MOST_EXPONENT)
    exponents = torch.randint(low, high + 1, (EDGE,), generator=dice)
    return torch.ldexp(_signs(dice, (EDGE,)).double(), exponents)


def _exactly(values: Tensor, dtype: str) -> Tensor:
    """Returns ``values`` (fp64) in ``dtype``. Raises ValueError if one is rounded."""
    narrow = values if dtype == "fp64" else values.long() if dtype in ("int8", "int32") else values.float()
    converted = narrow.to(DTYPES[dtype])
    back = converted.float().double() if converted.element_size() < 4 else converted.double()
    if not torch.equal(back, values):
        raise ValueError(f"a value of a fill is not exact in {dtype}")
    return converted.contiguous()
