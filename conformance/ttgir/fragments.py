"""Checks that the operands of a matrix product hold what its instruction reads: each depth once, A and B alike.

An operand in registers has the layout ``dot_op``. Its map is the fragment of the instruction that its parent names, and
``kWidth`` says how many neighbours along the depth a lane has. The depths may be in any order that A and B share, so
``kWidth`` may be larger than the instruction's own. The further conditions are here.

Where a tile has fewer depths than AMD's instruction, A and B repeat them alike; that the product counts each once is
decided below TTGIR.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from conformance.ttgir.formats import Type
from conformance.ttgir.layouts import TtgirLayout, UnknownLayout
from conformance.ttgir.text import Operation

_UNITS = ("nvidia_mma", "amd_mfma", "amd_wmma")


def product_faults(operation: Operation, kinds: Sequence[Type], layouts: Sequence[TtgirLayout]) -> Iterator[str]:
    """Yields the faults in the layouts of A, B and the result of one product; ``kinds`` and ``layouts`` are theirs in
    this order. Raises UnknownLayout for a result that no unit here makes."""
    result = layouts[2]
    if result.kind == "nvidia_mma" and result["versionMajor"] == 3:
        yield from _warp_group_faults(kinds[0], result)
    for index, name in enumerate("AB"):
        kind, layout = kinds[index], layouts[index]
        if kind.kind == "tensor":
            yield from _register_faults(operation, name, kind, layout, result)
        elif result.kind in ("nvidia_mma", "tensor_memory_encoding"):
            yield from _memory_faults(name, kind, layout, result)
        else:
            raise UnknownLayout(f"a product of {name} in {layout.text} and a result in {result.text}")
    if result.kind == "tensor_memory_encoding" and not _strides_fit(kinds[2], result, 32):
        yield f"the sum has 32 bits for each element of {bits_of(kinds[2])}, and {result.text} gives it others"
    one, other = layouts[0].get("kWidth"), layouts[1].get("kWidth")
    if {layout.kind for layout in layouts[:2]} == {"dot_op"} and one != other:
        yield f"A has kWidth {one} and B {other}: their lanes hold other depths"


def _warp_group_faults(kind: Type, result: TtgirLayout) -> Iterator[str]:
    """Faults of wgmma's result: four warps side by side have 64 rows, and one instruction takes 32 bytes of depth."""
    if result["warpsPerCTA"][0] % 4:
        yield f"the sum is in {result.text}, whose warps along its rows make no group of four"
    if result["instrShape"][2] * bits_of(kind) != 256:
        yield f"the sum is in {result.text}, and one instruction takes {256 // bits_of(kind)} depths"


def bits_of(kind: Type) -> int:
    """Returns the bits of one element."""
    match = re.search(r"\d+", kind.element)
    if match is None:
        raise UnknownLayout(f"elements of {kind.element}")
    return int(match[0])


def _register_faults(
    operation: Operation, name: str, kind: Type, layout: TtgirLayout, result: TtgirLayout
) -> Iterator[str]:
    if result.kind not in (*_UNITS, "blocked"):
        raise UnknownLayout(f"a product whose result is in {result.text}")
    if result.kind == "blocked" and operation.name == "tt.dot_scaled":
        raise UnknownLayout(f"a scaled product without a unit, in {result.text}")
    index, side = "AB".index(name), {"A": "lhs", "B": "rhs"}[name]
    packed = re.search(rf"\b{side} = e2m1\b", operation.words) is not None
    if layout.kind != "dot_op" or layout["opIdx"] != index or not _same_unit(layout["parent"], result, packed):
        yield f"{name} is in {layout.text}, which is no operand {name} of a product in {result.text}"
        return
    if packed and f"{side}_k_pack = false" in operation.words:
        yield f"{name} has two rows or columns in a byte, and the unit reads two depths from it"
    if result.kind == "nvidia_mma":
        yield from _width_faults(name, kind, layout, result)


def _same_unit(parent: TtgirLayout, result: TtgirLayout, packed: bool) -> bool:
    """True if ``parent`` names the instruction of ``result``. Where two depths are packed in a byte, it may count bytes
    of its depth."""
    if parent == result:
        return True
    shape, bytes_ = result.get("instrShape", []), parent.get("instrShape", [])
    others = [{k: v for k, v in unit.words.items() if k != "instrShape"} for unit in (parent, result)]
    return packed and others[0] == others[1] and shape[:2] == bytes_[:2] and shape[2:] == [2 * d for d in bytes_[2:]]


def _width_faults(name: str, kind: Type, layout: TtgirLayout, result: TtgirLayout) -> Iterator[str]:
    """Faults of ``kWidth``: a register of mma.sync and of wgmma has 32 bits of neighbours."""
    width, bits = layout["kWidth"], bits_of(kind)
    if width * bits < 32 or (result["versionMajor"] == 3 and width * bits != 32):
        yield f"{name} has kWidth {width}, and a register holds {32 // bits} of its depths"
        return
    depth = kind.shape[-1 if name == "A" else -2]
    used = used_depths(depth, width)
    if len(set(used)) < depth:
        lost = depth - len(set(used))
        yield f"{name} in a layout of kWidth {width} has tiles of {depth} depths: {lost} are left out, others repeat"


def used_depths(depth: int, width: int) -> list[int]:
    """Returns the depths that the four lanes of one row give to mma.sync, of a tile of ``depth``, in a layout of
    ``kWidth`` ``width``. Lane t has ``width`` neighbours from ``width`` t on, and again 4 ``width`` further, until the
    tile is through; where it is smaller, they repeat. As many registers as the tile has depths are read, the first
    ones.

    >>> used_depths(16, 2)
    [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]
    """
    read = max(1, depth // 4)
    return [
        (4 * width * (register // width) + width * lane + register % width) % depth
        for lane in range(4)
        for register in range(read)
    ]


def _strides_fit(kind: Type, layout: TtgirLayout, bits: int) -> bool:
    """True if an element in tensor memory takes ``bits``. Up to 3.5 ``unpacked`` means 32."""
    if layout.get("colStride") is not None:
        return int(layout["colStride"]) * bits_of(kind) == bits
    return bits_of(kind) == 32 or bool(layout["unpacked"]) == (bits == 32)


def _memory_faults(name: str, kind: Type, layout: TtgirLayout, result: TtgirLayout) -> Iterator[str]:
    """Faults of an operand in shared or tensor memory."""
    bits = bits_of(kind)
    if layout.kind == "tensor_memory_encoding" and result.kind == layout.kind and name == "A":
        if not _strides_fit(kind, layout, bits):
            yield f"A has its elements of {bits} bits side by side in tensor memory, and {layout.text} has other places"
        return
    if layout.kind != "nvmma_shared":
        raise UnknownLayout(f"operand {name} of a product in {layout.text}")
    if layout["elementBitWidth"] != bits:
        yield f"{name} has elements of {bits} bits in {layout.text}"
    # wgmma takes rows of A and columns of B in either order if they have 16 bits (PTX ISA, wgmma's imm-trans-a and -b).
    # tcgen05 does so up to 16 bits, if no other swizzle is set (PTX ISA, tcgen05's canonical layouts).
    either = bits == 16 or (bits < 16 and result.kind == "tensor_memory_encoding")
    if not either and layout["transposed"] != (name == "B"):
        yield f"{name} has elements of {bits} bits, whose depths must be side by side in memory, in {layout.text}"
