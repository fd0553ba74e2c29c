"""Maps from places of shared and of tensor memory to elements, for each layout of memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from conformance.ttgir.layouts import TtgirLayout, UnknownLayout, cluster_bases
from conformance.ttgir.linear_maps import LinearMap, MapBuilder, coordinates, map_of, own_shape, with_blocks

# Shared memory


@functools.lru_cache(maxsize=65536)
def shared_map(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    """Returns the map from offsets in shared memory, in elements without padding, to the elements of a tile of
    ``shape``. Raises UnknownLayout."""
    if layout.kind not in _SHARED:
        raise UnknownLayout(f"shared memory in {layout.kind}: {layout.text}")
    try:
        return _SHARED[layout.kind](layout, shape)
    except (IndexError, ValueError) as error:  # a layout of other dimensions than the memory
        raise UnknownLayout(f"memory of {shape} in {layout.text}") from error


def _swizzled(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    """Row r of a tile has the phase r / perPhase % maxPhase. Each of its groups of ``vec`` columns lies at the
    exclusive or of the group's number and the phase. Rotated tiles add the phase's own number, r / perPhase / maxPhase.
    """
    order, vec = layout["order"], layout.get("vec", 1)
    per_phase, phases = layout.get("perPhase", 1), layout.get("maxPhase", 1)
    blocks = cluster_bases(layout)
    builder = MapBuilder(len(shape), ("offset",))
    own = own_shape(shape, blocks)
    for axis in order:
        builder.add("offset", axis, own[axis])
    if len(order) > 1:
        column, row = order[:2]
        swizzled = []
        for basis in builder.bases["offset"]:
            phase = basis[row] // per_phase % phases
            if layout.kind == "amd_rotating_shared":
                phase ^= basis[row] // per_phase // phases % phases
            changed = list(basis)
            changed[column] ^= phase * vec % own[column]
            swizzled.append(tuple(changed))
        builder.bases["offset"] = swizzled
    return with_blocks(builder.bases, blocks, own, shape)


def _nvmma(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    """TMA's and wgmma's tiles: columns of ``swizzlingByteWidth`` bytes, one next to the other. In them the bits from 7
    on of an address are xored into bits 4 to 6 (PTX ISA, tensor map's swizzle modes). ``transposed`` has rows for
    columns. Tiles of more than two dimensions have the outer ones in their rows."""
    width, bits = layout["swizzlingByteWidth"], layout["elementBitWidth"]
    rank, blocks = len(shape), cluster_bases(layout)
    own = own_shape(shape, blocks)
    if rank == 1:
        return with_blocks({"offset": [(bit,) for bit in _powers(1, own[0])]}, blocks, own, shape)
    if layout["transposed"] and not width:
        raise UnknownLayout(f"transposed without a swizzle, which releases read in two ways: {layout.text}")
    axes = [*range(rank - 2), rank - 1, rank - 2] if layout["transposed"] else list(range(rank))
    *outer, columns = (own[axis] for axis in axes)
    # where ``fp4Padded`` is set, eight bytes of codes and eight empty ones follow each other
    gaps = 2 if layout.get("fp4Padded", False) else 1
    row_bytes = columns * gaps * bits // 8
    if width > row_bytes:
        raise UnknownLayout(f"rows of {row_bytes} bytes swizzled by {width}: {layout.text}")
    tile_bytes = width or row_bytes

    def base(row: int, byte: int) -> tuple[int, ...]:
        """The coordinates of the element of ``row`` whose byte it is, gaps included."""
        if gaps == 2:
            byte = byte // 16 * 8 + byte % 16 % 8
        place = (*coordinates(row, outer), byte * 8 // bits)
        return tuple(place[axes.index(axis)] for axis in range(rank))

    def phase(row: int) -> int:
        """The bits by which the address of a byte in ``row`` is changed."""
        return row * tile_bytes >> 7 << 4 & width - 16 if width else 0

    bases = [
        *(base(0, byte) for byte in _powers(bits // 8, tile_bytes)),
        *(base(row, phase(row)) for row in _powers(1, math.prod(outer))),
        *(base(0, byte) for byte in _powers(tile_bytes, row_bytes)),
    ]
    return with_blocks({"offset": bases}, blocks, own, shape)


def _powers(first: int, end: int) -> list[int]:
    """``first``, and each double of the one before that is below ``end``."""
    return [first << bit for bit in range((end // first).bit_length() - 1)]


def _written_out(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    return map_of(shape, {"offset": layout["offset"], "block": layout.get("block", [])})


def _padded(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    """Returns the places of elements before gaps are put between them."""
    return _swizzled(layout, shape) if layout.get("order") is not None else _written_out(layout, shape)


_SHARED: dict[str, Callable[[TtgirLayout, tuple[int, ...]], LinearMap]] = {
    "swizzled_shared": _swizzled, "amd_rotating_shared": _swizzled, "nvmma_shared": _nvmma,
    "shared_linear": _written_out, "padded_shared": _padded,
}  # fmt: skip


# Tensor memory


@functools.lru_cache(maxsize=65536)
def tensor_memory_map(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    """Returns the map from the lanes ("row") and places of a lane ("column") of tensor memory to the elements of a tile
    of ``shape``. A place has the size of an element. Raises UnknownLayout."""
    if layout.kind == "tensor_memory_scales_encoding":
        return _scales(layout, shape)
    if layout.kind != "tensor_memory_encoding":
        raise UnknownLayout(f"tensor memory in {layout.kind}: {layout.text}")
    if len(shape) != 2:
        raise UnknownLayout(f"tensor memory of {shape} in {layout.text}")
    rows, columns, blocks = layout["blockM"], layout["blockN"], cluster_bases(layout)
    own = own_shape(shape, blocks)
    builder = MapBuilder(2, ("row", "column"))
    builder.repeat("column", layout.get("colStride", 1))
    if rows == 64:
        # 16 rows lie in the first half of each warp's 32 lanes; the second half has the next tile, if there is one
        builder.add("row", 0, 16)
        builder.repeat("row", 2)
        builder.add("row", 0, 4)
        builder.add("column", 1, min(columns, own[1]))
        for axis in (0, 1):
            if own[axis] > builder.sizes[axis]:
                builder.bases["row"][4] = (builder.sizes[0], 0) if axis == 0 else (0, builder.sizes[1])
                builder.sizes[axis] *= 2
                break
    else:
        builder.add("row", 0, rows)
        builder.add("column", 1, min(columns, own[1]))
    builder.fill("column", 0, own[0])
    builder.fill("column", 1, own[1])
    return with_blocks(builder.bases, blocks, own, shape)


def _scales(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    """Scales of tcgen05: 32 rows in the lanes of each warp, and the four warps have the same; four scales of a row side
    by side, then its rows 32 further on (PTX ISA, scale factor's layout in tensor memory)."""
    if len(shape) != 2 or cluster_bases(layout):
        raise UnknownLayout(f"scales of {shape} in {layout.text}")
    builder = MapBuilder(2, ("row", "column"))
    builder.add("row", 0, 32)
    builder.repeat("row", 4)
    for axis, count in ((1, 4), (0, 64)):
        size = min(count, shape[axis])
        missing = count // max(size, builder.sizes[axis])
        builder.fill("column", axis, size)
        builder.repeat("column", missing)
    for axis in (1, 0) if layout.get("blockRepOrder") == "kThenMn" else (0, 1):
        builder.fill("column", axis, shape[axis])
    return map_of(shape, builder.bases)
