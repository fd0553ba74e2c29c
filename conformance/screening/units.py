"""The arithmetic that a screen tests on a target: dtypes, and for each the tiles that reach another matrix unit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.targets import Target

#: Rows of A and columns of B: each tile of a product is one of the few tiles of this square.
EDGE = 256
#: How compiled code spells its products, by the name of the unit.
_SPELLINGS = {
    "wgmma": r"\bwgmma\.mma_async\b",
    "tcgen05": r"\btcgen05\.mma\b",
    "mma.sync": r"\bmma\.sync\b",
    "mfma": r"\bv_mfma_",
    "wmma": r"\bv_s?wmmac?_",
    "fma": r"\bfma\.rn\b|\bv_(pk_)?(fma|mad|fmac|dot)",
}


@dataclass(frozen=True)
class Unit:
    """One kind of product. ``dtype`` is the operands' format, "tf32" for fp32 operands that are rounded to it.

    ``block``: rows, columns and k of a tile. ``depth``: the length of the sums. ``digits``: bits of an operand's
    significand, 0 for integers. ``room``: the bits of the accumulator in which the sums are exact. ``products``: a
    product of two operands is below two to this number plus 2. ``owed``: names of matrix units, of which the code must
    use one; empty if any code is right. ``promote``: products that are summed before they are added to an fp32 sum.
    ``ordered``: products are added one after another, in the order of k.
    """

    dtype: str
    block: tuple[int, int, int]
    depth: int
    digits: int
    room: int
    products: int
    owed: tuple[str, ...] = ()
    warps: int = 4
    stages: int = 3
    promote: int | None = None
    ordered: bool = False

    @property
    def name(self) -> str:
        """Such as "fp16 128x128"."""
        rows, columns, _ = self.block
        return f"{self.dtype} {rows}x{columns}{' promoted' if self.promote else ''}"

    @property
    def stored(self) -> str:
        """The dtype in which operands lie in memory."""
        return "fp32" if self.dtype == "tf32" else self.dtype

    @property
    def sum_dtype(self) -> str:
        return {"int8": "int32", "fp64": "fp64"}.get(self.dtype, "fp32")

    @property
    def tiles(self) -> int:
        return (EDGE // self.block[0]) * (EDGE // self.block[1])


#: Bits of the significand of each format, with the one that is not stored.
DIGITS = {"fp16": 11, "bf16": 8, "tf32": 11, "e4m3": 4, "e5m2": 3, "e4m3fnuz": 4, "e5m2fnuz": 3, "int8": 0}
FP8 = ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")
#: Products of the 8-bit formats whose partial sums a matrix unit keeps exactly although it keeps few bits of them.
_NARROW = {"e4m3": 3, "e5m2": 4, "e4m3fnuz": 3, "e5m2fnuz": 4}
_WIDE = {"fp16": 11, "tf32": 11, "bf16": 12, "e4m3": 6, "e5m2": 4, "e4m3fnuz": 6, "e5m2fnuz": 4}


def units(target: Target) -> tuple[Unit, ...]:
    """Returns the units of ``target``, as its capabilities say: each matrix format with large tiles and with small
    ones, fp32 multiply-adds, and fp64."""
    return tuple(_units(target))


def _units(target: Target) -> Iterator[Unit]:
    large, small = _owed(target)
    for dtype, digits in DIGITS.items():
        if dtype != "int8" and not target.capability(dtype).available:
            continue
        deep = dtype in FP8 or dtype == "int8"
        k = 128 if deep else 32 if dtype == "tf32" else 64
        bits = target.matrix_unit.fp8_bits if dtype in FP8 else None
        few = bits is not None
        room, products = (23, _WIDE.get(dtype, 0)) if bits is None else (bits, _NARROW[dtype])
        depth = 512 if few else 2048 if dtype == "tf32" else 4096
        # Some compilers choose mma.sync for int8 where there is tcgen05.
        owed = () if dtype == "int8" and "tcgen05" in large else large
        yield Unit(dtype, (128, 128, k), depth, digits, room, products, owed, warps=8)
        if few and "wgmma" in large:  # the only one whose sums Triton promotes
            yield Unit(dtype, (128, 128, k), 4096, digits, 23, _WIDE[dtype], owed, warps=8, promote=k)
        yield Unit(dtype, (32, 64, k), depth, digits, room, products, small)
    yield Unit("fp32", (64, 64, 32), 512, 24, 23, 13, warps=8, ordered=target.vendor == "nvidia")
    if target.capability("fp64").available:
        yield Unit("fp64", (32, 32, 16), 256, 53, 52, 43)


def _owed(target: Target) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the matrix units that large tiles must use, and those for small tiles."""
    for unit in ("mfma", "wmma"):
        if target.capability(unit).available:
            return (unit,), (unit,)
    if target.vendor != "nvidia":
        return (), ()
    large = next((unit for unit in ("wgmma", "tcgen05") if target.capability(unit).available), "mma.sync")
    return (large,), ("mma.sync",)


def unit_of_code(code: str) -> str:
    """Returns the name of the matrix unit that assembly text uses, "fma" for multiply-adds, "" if there are neither.

    >>> unit_of_code("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16")
    'wgmma'
    """
    return next((name for name, spelling in _SPELLINGS.items() if re.search(spelling, code)), "")
