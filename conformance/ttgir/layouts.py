"""The layouts that TTGIR names, read from its text: which register of which lane and warp holds which element.

Each layout that is known becomes a :class:`conformance.ttgir.linear_maps.LinearMap`. The fragments of matrix
instructions are those of NVIDIA's PTX ISA (mma.m16n8k*, mma.m8n8k4, wgmma.m64nNk*) and of AMD's matrix instruction
calculator (mfma, wmma). Where a tensor is larger than the layout's tile, each layout says in which order its registers
go on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.ttgir.linear_maps import LinearMap, MapBuilder, coordinates, map_of, own_shape
from conformance.ttgir.text import split_outside


class UnknownLayout(ValueError):
    """A layout, or a form of one, that is in no table here; the message names it."""


@dataclass(frozen=True)
class Layout:
    """One layout: ``kind`` such as "blocked", and what its words say. Layouts in it are read, numbers are ints."""

    kind: str
    words: Mapping[str, Any]
    text: str

    def __getitem__(self, word: str) -> Any:
        if word not in self.words:
            raise UnknownLayout(f"{self.kind} without {word}: {self.text}")
        return self.words[word]

    def get(self, word: str, otherwise: Any = None) -> Any:
        return self.words.get(word, otherwise)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.text == other.text


_FORM = re.compile(r"#([\w.]+)(?:<(.*)>)?$", re.DOTALL)


def layout_of(text: str, aliases: Mapping[str, str]) -> Layout:
    """The layout that ``text`` spells or names, each alias replaced by what ``aliases`` has for it. Raises
    UnknownLayout for text of another form."""
    return _read(_expanded(text.strip(), aliases))


def _expanded(text: str, aliases: Mapping[str, str]) -> str:
    def one(match: re.Match[str]) -> str:
        name = match[0]
        return _expanded(aliases[name], aliases) if name in aliases else name

    return re.sub(r"#\w+(?![\w.<])", one, text)


@functools.lru_cache(maxsize=4096)
def _read(text: str) -> Layout:
    match = _FORM.match(text)
    if match is None:
        raise UnknownLayout(text)
    kind, inside = match[1].rpartition(".")[2], (match[2] or "").strip()
    words: dict[str, Any] = {}
    if kind == "padded_shared":
        intervals, _, inside = inside.partition("]")
        words["padding"] = [tuple(map(int, pair.split(":+"))) for pair in split_outside(intervals.strip("["))]
        inside = inside.strip()
    parts = split_outside(inside)
    if parts and parts[0].startswith("{"):
        parts = [*split_outside(parts[0][1:-1]), *parts[1:]]
    for part in parts:
        word, equals, value = part.partition(" = ")
        if not equals:
            raise UnknownLayout(text)
        words[word.strip()] = _value(value.strip())
    return Layout(kind, words, text)


def _value(text: str) -> Any:
    if text.startswith("["):
        return [_value(part) for part in split_outside(text[1:-1])]
    if text.startswith("{"):
        parts = (part.partition(" = ") for part in split_outside(text[1:-1]))
        return {word.strip(): _value(value.strip()) for word, _, value in parts}
    if text.startswith("#"):
        return _read(text)
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


# Registers


@functools.lru_cache(maxsize=65536)
def register_map(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    """Which element of a tensor of ``shape`` each register of each lane of each warp holds. Raises UnknownLayout."""
    if layout.kind not in _REGISTERS:
        raise UnknownLayout(f"registers in {layout.kind}: {layout.text}")
    return _REGISTERS[layout.kind](layout, shape)


def _cluster(layout: Layout, rank: int) -> list[Sequence[int]]:
    """The bases of a cluster's blocks, in numbers of blocks along each axis."""
    if layout.get("CGALayout") is not None:
        return list(layout["CGALayout"])
    if layout.get("CTAsPerCGA") is None:
        return []
    blocks = MapBuilder(rank, ("block",))
    for axis in layout["CTAOrder"]:
        blocks.add("block", axis, layout["CTASplitNum"][axis])
        blocks.repeat("block", layout["CTAsPerCGA"][axis] // layout["CTASplitNum"][axis])
    return list(blocks.bases["block"])


def _blocked(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    order, made = layout["order"], MapBuilder(len(shape))
    words = {"register": "sizePerThread", "lane": "threadsPerWarp", "warp": "warpsPerCTA"}
    for holder, word in words.items():
        for axis in order:
            made.add(holder, axis, layout[word][axis])
    return made.finished(shape, order, _cluster(layout, len(shape)))


def _linear(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    bases = {holder: [tuple(basis) for basis in layout[holder]] for holder in ("register", "lane", "warp", "block")}
    return map_of(shape, bases)


def _slice(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    axis = layout["dim"]
    return register_map(layout["parent"], (*shape[:axis], 1, *shape[axis:])).without(axis)


def _rows_first(rank: int) -> list[int]:
    """The axes, the last one running fastest."""
    return list(reversed(range(rank)))


def _warps(made: MapBuilder, warps: Sequence[int], order: Sequence[int], without: int | None = None) -> None:
    """Warps along the axes in ``order``; those along ``without`` hold the same."""
    for axis in order:
        if axis == without:
            made.repeat("warp", warps[axis])
        else:
            made.add("warp", axis, warps[axis])


def _nvidia_tile(made: MapBuilder, rows: int, columns: int, width: int, outer: int, inner: int) -> None:
    """A tile of ``rows`` x ``columns`` along the axes ``outer`` and ``inner``, as mma's fragments have it: four lanes
    side by side with ``width`` elements each, eight such rows, and registers for the rest, rows first."""
    made.add("register", inner, width)
    made.add("lane", inner, 4)
    made.add("lane", outer, 8)
    made.fill("register", outer, rows)
    made.fill("register", inner, columns)


def _nvidia_instruction(layout: Layout) -> tuple[int, int]:
    """Rows and columns of one instruction's result for one warp."""
    shape = layout.get("instrShape", [16, 8])
    rows, columns = shape[:2] if layout["versionMajor"] >= 3 else shape[-2:]
    return rows, columns


def _nvidia_warp_order(layout: Layout, rank: int) -> list[int]:
    return list(range(rank)) if layout["versionMajor"] == 3 else _rows_first(rank)


def _nvidia_mma(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    if layout["versionMajor"] not in (2, 3):
        raise UnknownLayout(f"nvidia_mma of version {layout['versionMajor']}: {layout.text}")
    rank, made = len(shape), MapBuilder(len(shape))
    rows, columns = _nvidia_instruction(layout)
    _nvidia_tile(made, rows, columns, 2, rank - 2, rank - 1)
    _warps(made, layout["warpsPerCTA"], _nvidia_warp_order(layout, rank))
    return made.finished(shape, _rows_first(rank), _cluster(layout, rank))


def _operand_axes(layout: Layout, rank: int) -> tuple[int, int]:
    """The axis of an operand that is summed over, and the other one."""
    if layout["opIdx"] not in (0, 1):
        raise UnknownLayout(f"operand {layout['opIdx']}: {layout.text}")
    return (rank - 1, rank - 2) if layout["opIdx"] == 0 else (rank - 2, rank - 1)


def _operand_cluster(parent: Layout, rank: int, depth: int) -> list[Sequence[int]]:
    """The parent's blocks; those along the axis that is summed over hold the same."""
    return [[value * (axis != depth) for axis, value in enumerate(basis)] for basis in _cluster(parent, rank)]


def _operand(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    parent = layout["parent"]
    if parent.kind not in _OPERANDS:
        raise UnknownLayout(f"an operand of {parent.kind}: {layout.text}")
    return _OPERANDS[parent.kind](layout, parent, shape)


def _nvidia_operand(layout: Layout, parent: Layout, shape: tuple[int, ...]) -> LinearMap:
    rank, width = len(shape), layout["kWidth"]
    version = parent["versionMajor"]
    if version not in (2, 3) or (version == 3 and layout["opIdx"] != 0):
        raise UnknownLayout(f"operand {layout['opIdx']} of nvidia_mma of version {version}: {layout.text}")
    depth, other = _operand_axes(layout, rank)
    made = MapBuilder(rank)
    rows = _nvidia_instruction(parent)[layout["opIdx"]]
    # mma.m8n8k4 of fp64 has one k for each lane
    depths = 4 * width if rows == 8 and layout["opIdx"] == 0 else 8 * width
    _nvidia_tile(made, rows, depths, width, other, depth)
    _warps(made, parent["warpsPerCTA"], _nvidia_warp_order(parent, rank), depth)
    order = [depth, other, *reversed(range(rank - 2))]
    return made.finished(shape, order, _operand_cluster(parent, rank, depth))


def _fma_operand(layout: Layout, parent: Layout, shape: tuple[int, ...]) -> LinearMap:
    """An operand of products without a matrix unit: each thread has the whole depth of its rows or columns."""
    depth, _ = _operand_axes(layout, len(shape))
    order, made = parent["order"], MapBuilder(len(shape))
    for axis in order:
        made.add("register", axis, shape[depth] if axis == depth else parent["sizePerThread"][axis])
    for holder, word in (("lane", "threadsPerWarp"), ("warp", "warpsPerCTA")):
        for axis in order:
            if axis == depth:
                made.repeat(holder, parent[word][axis])
            else:
                made.add(holder, axis, parent[word][axis])
    return made.finished(shape, order, _operand_cluster(parent, len(shape), depth))


def _mfma(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    rank, made = len(shape), MapBuilder(len(shape))
    rows, columns = layout["instrShape"][:2]
    row, column = (rank - 1, rank - 2) if layout["isTransposed"] else (rank - 2, rank - 1)
    if layout["isTransposed"]:
        rows, columns = columns, rows
    wide = layout.get("elementBitWidth", 32) == 64
    made.add("register", row, 1 if wide else 4)
    made.add("lane", column, columns)
    made.add("lane", row, 64 // columns)
    made.fill("register", row, rows)
    _tiles_and_warps(layout, made, own_shape(shape, _cluster(layout, rank)))
    return made.finished(shape, _rows_first(rank), _cluster(layout, rank))


def _tiles_and_warps(layout: Layout, made: MapBuilder, shape: Sequence[int], depth: int | None = None) -> None:
    """Along each axis, the last one first: the tiles of one warp, the warps, and registers for the rest of ``shape``.
    Along ``depth`` all warps hold the same."""
    for axis in _rows_first(len(shape)):
        if axis == depth:
            made.repeat("warp", layout["warpsPerCTA"][axis])
        else:
            made.add("register", axis, layout.get("tilesPerWarp", [1] * len(shape))[axis])
            made.add("warp", axis, layout["warpsPerCTA"][axis])
        made.fill("register", axis, shape[axis])


def _mfma_operand(layout: Layout, parent: Layout, shape: tuple[int, ...]) -> LinearMap:
    rank, width = len(shape), layout["kWidth"]
    depth, other = _operand_axes(layout, rank)
    rows = parent["instrShape"][layout["opIdx"]]
    if rows not in (16, 32):
        raise UnknownLayout(f"an operand of mfma with {rows} rows: {layout.text}")
    made = MapBuilder(rank)
    made.add("register", depth, width)
    made.add("lane", other, rows)
    made.add("lane", depth, 64 // rows)
    blocks = _operand_cluster(parent, rank, depth)
    made.fill("register", depth, own_shape(shape, blocks)[depth])
    _tiles_and_warps(parent, made, own_shape(shape, blocks), depth)
    return made.finished(shape, _rows_first(rank), blocks)


def _wmma_warps(parent: Layout, made: MapBuilder, rank: int, depth: int | None = None) -> None:
    """Warps as ``ctaLayout`` or ``warpsPerCTA`` places them, in tiles of one instruction."""
    if parent.get("warpsPerCTA") is not None:
        _warps(made, parent["warpsPerCTA"], _rows_first(rank), depth)
        return
    tile = list(made.sizes)
    for holder in ("register", "warp"):
        for basis in parent["ctaLayout"].get(holder, []):
            kept = [value * (axis != depth) for axis, value in enumerate(basis)]
            made.bases[holder].append(tuple(value * size for value, size in zip(kept, tile, strict=True)))
            for axis, value in enumerate(kept):
                made.sizes[axis] = max(made.sizes[axis], 2 * value * tile[axis])


def _wmma(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    rank, made = len(shape), MapBuilder(len(shape))
    version = layout["version"]
    row, column = (rank - 1, rank - 2) if layout.get("isTranspose", False) else (rank - 2, rank - 1)
    if version == 1:  # rows alternate between the two halves of a wave
        made.add("lane", column, 16)
        made.add("lane", row, 2)
        made.add("register", row, 8)
    elif version in (2, 3):
        made.add("register", row, 8)
        made.add("lane", column, 16)
        made.add("lane", row, 2)
    else:
        raise UnknownLayout(f"amd_wmma of version {version}: {layout.text}")
    _wmma_warps(layout, made, rank)
    return made.finished(shape, _rows_first(rank), _cluster(layout, rank))


def _wmma_operand(layout: Layout, parent: Layout, shape: tuple[int, ...]) -> LinearMap:
    rank, width = len(shape), layout["kWidth"]
    depth, other = _operand_axes(layout, rank)
    made = MapBuilder(rank)
    made.add("register", depth, width)
    made.add("lane", other, 16)
    if parent["version"] == 1:  # both halves of a wave hold the same
        made.repeat("lane", 2)
    else:
        made.add("lane", depth, 2)
    made.fill("register", depth, parent.get("instrShape", [16, 16, 16])[2])
    _wmma_warps(parent, made, rank, depth)
    order = [depth, other, *reversed(range(rank - 2))]
    return made.finished(shape, order, _operand_cluster(parent, rank, depth))


_REGISTERS: dict[str, Callable[[Layout, tuple[int, ...]], LinearMap]] = {
    "blocked": _blocked, "linear": _linear, "slice": _slice, "dot_op": _operand, "nvidia_mma": _nvidia_mma,
    "amd_mfma": _mfma, "amd_wmma": _wmma,
}  # fmt: skip
_OPERANDS: dict[str, Callable[[Layout, Layout, tuple[int, ...]], LinearMap]] = {
    "blocked": _fma_operand, "nvidia_mma": _nvidia_operand, "amd_mfma": _mfma_operand, "amd_wmma": _wmma_operand,
}  # fmt: skip


# Shared memory


@functools.lru_cache(maxsize=65536)
def shared_map(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    """Which element of a tile of ``shape`` lies at each offset in shared memory, in elements, padding left out. Raises
    UnknownLayout."""
    if layout.kind not in _SHARED:
        raise UnknownLayout(f"shared memory in {layout.kind}: {layout.text}")
    return _SHARED[layout.kind](layout, shape)


def _swizzled(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    """Row r of a tile has its groups of ``vec`` columns at the place that is the exclusive or of their number and of
    the row's phase, r / perPhase % maxPhase. Rotated tiles add the phase's own number, r / perPhase / maxPhase."""
    order, vec = layout["order"], layout["vec"]
    blocks = _cluster(layout, len(shape))
    made = MapBuilder(len(shape), ("offset", "block"))
    own = own_shape(shape, blocks)
    for axis in order:
        made.add("offset", axis, own[axis])
    if len(order) > 1:
        column, row = order[:2]
        swizzled = []
        for basis in made.bases["offset"]:
            phase = basis[row] // layout["perPhase"] % layout["maxPhase"]
            if layout.kind == "amd_rotating_shared":
                phase ^= basis[row] // layout["perPhase"] // layout["maxPhase"] % layout["maxPhase"]
            changed = list(basis)
            changed[column] ^= phase * vec % own[column]
            swizzled.append(tuple(changed))
        made.bases["offset"] = swizzled
    made.bases["block"] = [tuple(v * n for v, n in zip(basis, own, strict=True)) for basis in blocks]
    return map_of(shape, made.bases)


def _nvmma(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    """TMA's and wgmma's tiles: columns of ``swizzlingByteWidth`` bytes side by side, in which bits 4 to 6 of an
    address are exchanged by those from 7 on (PTX ISA, tensor map's swizzle modes). ``transposed`` has rows for columns.
    Tiles of more than two dimensions have the outer ones in their rows."""
    width, bits = layout["swizzlingByteWidth"], layout["elementBitWidth"]
    blocks, rank = _cluster(layout, len(shape)), len(shape)
    own = own_shape(shape, blocks)
    padded = 2 if layout.get("fp4Padded", False) else 1
    if rank == 1:
        made = MapBuilder(1, ("offset",))
        made.add("offset", 0, own[0])
        return _with_blocks(made.bases["offset"], blocks, own, shape)
    if layout["transposed"] and not width:
        raise UnknownLayout(f"transposed without a swizzle, which releases read in two ways: {layout.text}")
    axes = [*range(rank - 2), rank - 1, rank - 2] if layout["transposed"] else list(range(rank))
    order = [own[axis] for axis in axes]
    *outer, columns = order
    rows = 1
    for size in outer:
        rows *= size
    bytes_of_row = columns * padded * bits // 8
    if width and width > bytes_of_row:
        raise UnknownLayout(f"rows of {bytes_of_row} bytes swizzled by {width}: {layout.text}")
    tile = min(columns, (width or bytes_of_row) * 8 // bits // padded)
    chunk = 128 // bits  # elements of 16 bytes: what a swizzle exchanges
    bases = []

    def base(row: int, column: int) -> tuple[int, ...]:
        place = (*coordinates(row, outer), column)
        return tuple(place[axes.index(axis)] for axis in range(rank))

    bit = 1
    while bit < tile * padded:
        if padded == 2:  # eight bytes of codes, and eight that are empty
            half = bit if bit < 8 else bit // 2
            bases.append(base(0, 0 if bit == 8 else half))
        else:
            bases.append(base(0, bit))
        bit *= 2
    row = 1
    while row < rows:
        phase = 0
        if width:
            address = row * tile * padded * bits // 8  # of the row's first byte
            phase = (address >> 7) % (width // 16)
        bases.append(base(row, phase * chunk // padded))
        row *= 2
    column = tile
    while column < columns:
        bases.append(base(0, column))
        column *= 2
    return _with_blocks(bases, blocks, own, shape)


def _with_blocks(bases: Sequence[Any], blocks: Sequence[Any], own: Sequence[int], shape: Sequence[int]) -> LinearMap:
    spread = [tuple(v * n for v, n in zip(basis, own, strict=True)) for basis in blocks]
    return map_of(shape, {"offset": bases, "block": spread})


def _written_out(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    if layout.get("offset") is None:
        return _swizzled(
            _read(f"#swizzled_shared<{{vec = 1, perPhase = 1, maxPhase = 1, order = {layout['order']}}}>"), shape
        )
    return map_of(shape, {"offset": layout["offset"], "block": layout.get("block", [])})


_SHARED: dict[str, Callable[[Layout, tuple[int, ...]], LinearMap]] = {
    "swizzled_shared": _swizzled, "amd_rotating_shared": _swizzled, "nvmma_shared": _nvmma,
    "shared_linear": _written_out, "padded_shared": _written_out,
}  # fmt: skip


# Tensor memory


@functools.lru_cache(maxsize=65536)
def tensor_memory_map(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    """Which element of a tile of ``shape`` lies in each lane ("row") and place of a lane ("column") of tensor memory.
    A place has the size of an element. Raises UnknownLayout."""
    if layout.kind == "tensor_memory_scales_encoding":
        return _scales(layout, shape)
    if layout.kind != "tensor_memory_encoding":
        raise UnknownLayout(f"tensor memory in {layout.kind}: {layout.text}")
    rows, columns = layout["blockM"], layout["blockN"]
    if len(shape) != 2 or layout.get("CGALayout") or layout.get("CTASplitM", 1) > 1 or layout.get("CTASplitN", 1) > 1:
        raise UnknownLayout(f"tensor memory of {shape} in {layout.text}")
    made = MapBuilder(2, ("row", "column"))
    made.repeat("column", layout.get("colStride", 1))
    made.add("row", 0, 16 if rows == 64 else rows)
    if rows == 64:
        # 16 rows lie in the first half of each warp's 32 lanes; the second half has the next tile, if there is one
        tiles = [axis for axis, size in ((0, rows), (1, columns)) if shape[axis] > size]
        made.bases["row"].append((0, 0))
        made.add("row", 0, 4)
        made.add("column", 1, min(columns, shape[1]))
        if tiles:
            axis = tiles[0]
            basis = [0, 0]
            basis[axis] = (rows, columns)[axis]
            made.bases["row"][4] = tuple(basis)
            made.sizes[axis] *= 2
    else:
        made.add("column", 1, min(columns, shape[1]))
    made.fill("column", 0, shape[0])
    made.fill("column", 1, shape[1])
    return map_of(shape, made.bases)


def _scales(layout: Layout, shape: tuple[int, ...]) -> LinearMap:
    """Scales of tcgen05: 32 rows in the lanes of each warp, and the four warps have the same; four scales of a row side
    by side, then its rows 32 further on (PTX ISA, scale factor's layout in tensor memory)."""
    if len(shape) != 2 or layout.get("CGALayout") or layout.get("CTASplitM", 1) > 1 or layout.get("CTASplitN", 1) > 1:
        raise UnknownLayout(f"scales in tensor memory of {shape} in {layout.text}")
    made = MapBuilder(2, ("row", "column"))
    made.add("row", 0, 32)
    made.repeat("row", 4)
    for axis, count in ((1, 4), (0, 64)):
        size = min(count, shape[axis])
        missing = count // max(size, made.sizes[axis])
        made.fill("column", axis, size)
        made.repeat("column", missing)
    for axis in (1, 0) if layout.get("blockRepOrder") == "kThenMn" else (0, 1):
        made.fill("column", axis, shape[axis])
    return map_of(shape, made.bases)
