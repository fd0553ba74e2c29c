"""Maps from registers, and from places of shared and tensor memory, to elements of a tensor, for each layout.

The fragments of matrix instructions are those of NVIDIA's PTX ISA (mma.m16n8k*, mma.m8n8k4, wgmma.m64nNk*) and of AMD's
matrix instruction calculator (mfma, wmma). Where a tensor is larger than the layout's tile, each layout has its own
order in which registers go on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from conformance.ttgir.layouts import (
    LinearMap,
    MapBuilder,
    TtgirLayout,
    UnknownLayout,
    cluster_bases,
    coordinates,
    map_of,
    own_shape,
    with_blocks,
)

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


@functools.lru_cache(maxsize=65536)
def register_map(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    """Returns the map from each register of each lane of each warp to the element of a tensor of ``shape`` that it
    holds. Raises UnknownLayout."""
    if layout.kind not in _REGISTERS:
        raise UnknownLayout(f"registers in {layout.kind}: {layout.text}")
    try:
        return _REGISTERS[layout.kind](layout, shape)
    except (IndexError, ValueError) as error:  # a layout of other dimensions than the tensor
        raise UnknownLayout(f"a tensor of {shape} in {layout.text}") from error


def _blocked(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    order, builder = layout["order"], MapBuilder(len(shape))
    words = {"register": "sizePerThread", "lane": "threadsPerWarp", "warp": "warpsPerCTA"}
    for holder, word in words.items():
        for axis in order:
            builder.add(holder, axis, layout[word][axis])
    return builder.finished(shape, order, cluster_bases(layout))


def _linear(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    """Returns the map that the layout writes out. Where the tensor is larger, registers go on along its axes, in the
    order in which those that are written out do."""
    builder = MapBuilder(len(shape))
    builder.bases = {holder: [tuple(basis) for basis in layout[holder]] for holder in builder.bases}
    of_registers = [axis for basis in builder.bases["register"] for axis, value in enumerate(basis) if value]
    for axis in dict.fromkeys([*of_registers, *_rows_first(len(shape))]):
        builder.sizes[axis] = max([1, *(2 * basis[axis] for bases in builder.bases.values() for basis in bases)])
        builder.fill("register", axis, shape[axis])
    return map_of(shape, builder.bases)


def _slice(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    axis = layout["dim"]
    return register_map(layout["parent"], (*shape[:axis], 1, *shape[axis:])).without(axis)


def _rows_first(rank: int) -> list[int]:
    """Returns the axes, the last one running fastest."""
    return list(reversed(range(rank)))


def _warps(builder: MapBuilder, warps: Sequence[int], order: Sequence[int], without: int | None = None) -> None:
    """Warps along the axes in ``order``; those along ``without`` hold the same."""
    for axis in order:
        if axis == without:
            builder.repeat("warp", warps[axis])
        else:
            builder.add("warp", axis, warps[axis])


def _nvidia_tile(builder: MapBuilder, rows: int, columns: int, width: int, outer: int, inner: int) -> None:
    """Returns a tile of ``rows`` x ``columns`` along the axes ``outer`` and ``inner``, as mma's fragments have it. Four
    lanes hold ``width`` elements each of one row, and eight such rows make a warp. Registers hold the rest, rows first.
    """
    builder.add("register", inner, width)
    builder.add("lane", inner, 4)
    builder.add("lane", outer, 8)
    builder.fill("register", outer, rows)
    builder.fill("register", inner, columns)


def _nvidia_instruction(layout: TtgirLayout) -> tuple[int, int]:
    """Rows and columns of one instruction's result for one warp."""
    shape = layout.get("instrShape", [16, 8])
    rows, columns = shape[:2] if layout["versionMajor"] >= 3 else shape[-2:]
    return rows, columns


def _nvidia_warp_order(layout: TtgirLayout, rank: int) -> list[int]:
    return list(range(rank)) if layout["versionMajor"] == 3 else _rows_first(rank)


def _nvidia_mma(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    if layout["versionMajor"] not in (2, 3):
        raise UnknownLayout(f"nvidia_mma of version {layout['versionMajor']}: {layout.text}")
    rank, builder = len(shape), MapBuilder(len(shape))
    rows, columns = _nvidia_instruction(layout)
    _nvidia_tile(builder, rows, columns, 2, rank - 2, rank - 1)
    _warps(builder, layout["warpsPerCTA"], _nvidia_warp_order(layout, rank))
    return builder.finished(shape, _rows_first(rank), cluster_bases(layout))


def _operand_axes(layout: TtgirLayout, rank: int) -> tuple[int, int]:
    """The axis of an operand that is summed over, and the other one."""
    if layout["opIdx"] not in (0, 1):
        raise UnknownLayout(f"operand {layout['opIdx']}: {layout.text}")
    return (rank - 1, rank - 2) if layout["opIdx"] == 0 else (rank - 2, rank - 1)


def _operand_cluster(parent: TtgirLayout, rank: int, depth: int) -> list[Sequence[int]]:
    """The parent's blocks; those along the axis that is summed over hold the same."""
    return [[value * (axis != depth) for axis, value in enumerate(basis)] for basis in cluster_bases(parent)]


def _operand(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    parent = layout["parent"]
    if parent.kind not in _OPERANDS:
        raise UnknownLayout(f"an operand of {parent.kind}: {layout.text}")
    return _OPERANDS[parent.kind](layout, parent, shape)


def _nvidia_operand(layout: TtgirLayout, parent: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    rank, width = len(shape), layout["kWidth"]
    version = parent["versionMajor"]
    if version not in (2, 3) or (version == 3 and layout["opIdx"] != 0):
        raise UnknownLayout(f"operand {layout['opIdx']} of nvidia_mma of version {version}: {layout.text}")
    depth, other = _operand_axes(layout, rank)
    builder = MapBuilder(rank)
    rows = _nvidia_instruction(parent)[layout["opIdx"]]
    # mma.m8n8k4 of fp64 has one k for each lane
    depths = 4 * width if rows == 8 and layout["opIdx"] == 0 else 8 * width
    _nvidia_tile(builder, rows, depths, width, other, depth)
    _warps(builder, parent["warpsPerCTA"], _nvidia_warp_order(parent, rank), depth)
    order = [depth, other, *reversed(range(rank - 2))]
    return builder.finished(shape, order, _operand_cluster(parent, rank, depth))


def _fma_operand(layout: TtgirLayout, parent: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    """Returns an operand of products without a matrix unit: each thread has the whole depth of its rows or columns."""
    depth, _ = _operand_axes(layout, len(shape))
    order, builder = parent["order"], MapBuilder(len(shape))
    for axis in order:
        builder.add("register", axis, shape[depth] if axis == depth else parent["sizePerThread"][axis])
    for holder, word in (("lane", "threadsPerWarp"), ("warp", "warpsPerCTA")):
        for axis in order:
            if axis == depth:
                builder.repeat(holder, parent[word][axis])
            else:
                builder.add(holder, axis, parent[word][axis])
    return builder.finished(shape, order, _operand_cluster(parent, len(shape), depth))


def _mfma(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    rank, builder = len(shape), MapBuilder(len(shape))
    rows, columns = layout["instrShape"][:2]
    row, column = (rank - 1, rank - 2) if layout["isTransposed"] else (rank - 2, rank - 1)
    if layout["isTransposed"]:
        rows, columns = columns, rows
    wide = layout.get("elementBitWidth", 32) == 64
    builder.add("register", row, 1 if wide else 4)
    builder.add("lane", column, columns)
    builder.add("lane", row, 64 // columns)
    builder.fill("register", row, rows)
    _tiles_and_warps(layout, builder, own_shape(shape, cluster_bases(layout)))
    return builder.finished(shape, _rows_first(rank), cluster_bases(layout))


def _tiles_and_warps(layout: TtgirLayout, builder: MapBuilder, shape: Sequence[int], depth: int | None = None) -> None:
    """Along each axis, the last one first: the tiles of one warp, the warps, and registers for the rest of ``shape``.
    Along ``depth`` all warps hold the same."""
    for axis in _rows_first(len(shape)):
        if axis == depth:
            builder.repeat("warp", layout["warpsPerCTA"][axis])
        else:
            builder.add("register", axis, layout.get("tilesPerWarp", [1] * len(shape))[axis])
            builder.add("warp", axis, layout["warpsPerCTA"][axis])
        builder.fill("register", axis, shape[axis])


def _mfma_operand(layout: TtgirLayout, parent: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    rank, width = len(shape), layout["kWidth"]
    depth, other = _operand_axes(layout, rank)
    rows = parent["instrShape"][layout["opIdx"]]
    if rows not in (16, 32):
        raise UnknownLayout(f"an operand of mfma with {rows} rows: {layout.text}")
    builder = MapBuilder(rank)
    builder.add("register", depth, width)
    builder.add("lane", other, rows)
    builder.add("lane", depth, 64 // rows)
    blocks = _operand_cluster(parent, rank, depth)
    builder.fill("register", depth, own_shape(shape, blocks)[depth])
    _tiles_and_warps(parent, builder, own_shape(shape, blocks), depth)
    return builder.finished(shape, _rows_first(rank), blocks)


def _wmma_warps(parent: TtgirLayout, builder: MapBuilder, rank: int, depth: int | None = None) -> None:
    """Warps as ``ctaLayout`` or ``warpsPerCTA`` places them, in tiles of one instruction."""
    if parent.get("warpsPerCTA") is not None:
        _warps(builder, parent["warpsPerCTA"], _rows_first(rank), depth)
        return
    tile = list(builder.sizes)
    for holder in ("register", "warp"):
        for basis in parent["ctaLayout"].get(holder, []):
            kept = [value * (axis != depth) for axis, value in enumerate(basis)]
            builder.bases[holder].append(tuple(value * size for value, size in zip(kept, tile, strict=True)))
            for axis, value in enumerate(kept):
                builder.sizes[axis] = max(builder.sizes[axis], 2 * value * tile[axis])


def _wmma(layout: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    rank, builder = len(shape), MapBuilder(len(shape))
    version = layout["version"]
    row, column = (rank - 1, rank - 2) if layout.get("isTranspose", False) else (rank - 2, rank - 1)
    if version == 1:  # rows alternate between the two halves of a wave
        builder.add("lane", column, 16)
        builder.add("lane", row, 2)
        builder.add("register", row, 8)
    elif version in (2, 3):
        builder.add("register", row, 8)
        builder.add("lane", column, 16)
        builder.add("lane", row, 2)
    else:
        raise UnknownLayout(f"amd_wmma of version {version}: {layout.text}")
    _wmma_warps(layout, builder, rank)
    return builder.finished(shape, _rows_first(rank), cluster_bases(layout))


def _wmma_operand(layout: TtgirLayout, parent: TtgirLayout, shape: tuple[int, ...]) -> LinearMap:
    rank, width = len(shape), layout["kWidth"]
    depth, other = _operand_axes(layout, rank)
    builder = MapBuilder(rank)
    builder.add("register", depth, width)
    builder.add("lane", other, 16)
    if parent["version"] == 1:  # both halves of a wave hold the same
        builder.repeat("lane", 2)
    else:
        builder.add("lane", depth, 2)
    builder.fill("register", depth, parent.get("instrShape", [16, 16, 16])[2])
    _wmma_warps(parent, builder, rank, depth)
    order = [depth, other, *reversed(range(rank - 2))]
    return builder.finished(shape, order, _operand_cluster(parent, rank, depth))


@functools.lru_cache(maxsize=65536)
def scales_map(unit: TtgirLayout, index: int, shape: tuple[int, ...]) -> LinearMap:
    """Returns the map of the scales of operand ``index`` that a block-scaled product with its result in ``unit`` reads.
    They are a tensor of ``shape``: its rows, or B's columns, by blocks of its depth, after the dimensions of a batch.
    Raises UnknownLayout."""
    rank = len(shape)
    depth, other = (rank - 1, rank - 2) if index == 0 else (rank - 2, rank - 1)
    builder, sizes = MapBuilder(rank), (shape if index == 0 else (*shape[:-2], shape[-1], shape[-2]))
    if unit.kind == "nvidia_mma":
        # of mma.sync lane 4 g has the scales of row g, and of A lane 4 g + 1 has those of row g + 8
        builder.repeat("lane", 4)
        builder.add("lane", other, 8)
        if index == 0:
            builder.bases["lane"][0] = tuple(8 * (axis == other) for axis in range(rank))
            builder.sizes[other] = 16
        _warps(builder, unit["warpsPerCTA"], _rows_first(rank), depth)
    elif rank > 2:
        raise UnknownLayout(f"scales of a batch of products in {unit.text}")
    elif unit.kind == "amd_mfma":
        rows = unit["instrShape"][index]
        builder.add("lane", other, rows)
        builder.add("lane", depth, 64 // rows)
        builder.fill("register", depth, sizes[depth])
        _tiles_and_warps(unit, builder, sizes, depth)
    elif unit.kind == "amd_wmma":
        builder.add("lane", other, 16)
        builder.fill("register", depth, sizes[depth])
        _wmma_warps(unit, builder, 2, depth)
        if builder.sizes[other] < sizes[other]:  # the other half of a wave has the next tile
            builder.add("lane", other, 2)
        else:
            builder.repeat("lane", 2)
    else:
        raise UnknownLayout(f"scales of a product in {unit.text}")
    held = builder.finished(sizes, [depth, other, *reversed(range(rank - 2))])
    return held if index == 0 else held.transposed([*range(rank - 2), rank - 1, rank - 2])


_REGISTERS: dict[str, Callable[[TtgirLayout, tuple[int, ...]], LinearMap]] = {
    "blocked": _blocked, "linear": _linear, "slice": _slice, "dot_op": _operand, "nvidia_mma": _nvidia_mma,
    "amd_mfma": _mfma, "amd_wmma": _wmma,
}  # fmt: skip
_OPERANDS: dict[str, Callable[[TtgirLayout, TtgirLayout, tuple[int, ...]], LinearMap]] = {
    "blocked": _fma_operand, "nvidia_mma": _nvidia_operand, "amd_mfma": _mfma_operand, "amd_wmma": _wmma_operand,
}  # fmt: skip
