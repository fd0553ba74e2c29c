"""Checks that the layouts of one kernel's TTGIR fit together, so that its values are what running it without layouts
gives.

Most operations move no element: they read the registers or the bytes of their operands as their result's layout says.
If that layout holds each element where the operand's layout has it, the operation does what it promises of the whole
tensor. Otherwise elements change places, and a :mod:`conformance.ttgir.executor` that ignores layouts does not see it.
Each rule here compares the two as linear maps over bits. Products are compared with the fragments of the instruction,
in :mod:`conformance.ttgir.fragments`.

How ``ttg.convert_layout``, ``ttg.local_load`` and ``ttg.local_store`` move elements is decided below TTGIR; here both
of their layouts must only hold every element.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from conformance.ttgir.arithmetic import MISREAD, attributes, operands, order_of
from conformance.ttgir.formats import Type, type_of
from conformance.ttgir.fragments import bits_of, product_faults
from conformance.ttgir.layouts import LinearMap, TtgirLayout, UnknownLayout, flat_index, layout_of
from conformance.ttgir.register_maps import register_map, scales_map, shared_map, tensor_memory_map
from conformance.ttgir.steps import called
from conformance.ttgir.text import TtgirModule, split_outside
from conformance.ttgir.typed_operations import TypedOperation, typed_operations

Check = Callable[["Layouts", TypedOperation], Iterator[str]]


class Layouts:
    """The maps of the types of one module."""

    def __init__(self, module: TtgirModule) -> None:
        self.aliases = module.layouts
        #: Lanes of a warp; 0 if the text does not say it.
        self.lanes = int(module.attributes.get("ttg.threads-per-warp", "0").split()[0])
        self.swizzles: dict[str, str] = {}
        self._layouts: dict[str, TtgirLayout] = {}
        #: What is wrong with single types, by their sizes and layouts.
        self.alone: dict[tuple[object, ...], list[str]] = {}

    def layout(self, kind: Type) -> TtgirLayout:
        """Returns the layout of a tensor, of memory or of a descriptor. Raises UnknownLayout."""
        if kind.layout not in self._layouts:
            words = split_outside(kind.layout)[0] if kind.layout else ""
            self._layouts[kind.layout] = layout_of(words, self.aliases)
        return self._layouts[kind.layout]

    def registers(self, kind: Type) -> LinearMap:
        """Returns the map of the registers that hold the elements of a tensor. Raises UnknownLayout."""
        return register_map(self.layout(kind), kind.shape)

    def memory(self, kind: Type) -> LinearMap:
        """Returns the map of the places of shared or tensor memory that hold the elements of one tile. The tile is of a
        memdesc, or is what a descriptor copies. A tile is what one slot of an allocation of several has. Raises
        UnknownLayout."""
        layout = self.layout(kind)
        shape = allocation(kind)[-rank_of(layout, allocation(kind)) :]
        if layout.kind.startswith("tensor_memory"):
            return tensor_memory_map(layout, shape)
        return shared_map(layout, shape)


def allocation(kind: Type) -> tuple[int, ...]:
    """The sizes of the allocation that a memdesc is a part of, or its own."""
    last = split_outside(kind.layout)[-1] if kind.layout else ""
    return tuple(map(int, last.split("x"))) if re.fullmatch(r"\d+(x\d+)*", last) else kind.shape


def rank_of(layout: TtgirLayout, shape: tuple[int, ...]) -> int:
    """Returns the number of dimensions that ``layout`` has of what is allocated in ``shape``."""
    if layout.get("rank") is not None:
        return int(layout["rank"])
    for word in ("order", "CTAOrder"):
        if layout.get(word) is not None:
            return len(layout[word])
    for word in ("offset", "CGALayout"):
        if layout.get(word):
            return len(layout[word][0])
    return min(2, len(shape))


@dataclass(frozen=True)
class VerifiedLayouts:
    """The known facts about one module's layouts: they are verified if both are empty."""

    #: One sentence for each operation at which two layouts do not fit.
    faults: list[str]
    #: Layouts, and operations on tensors or memory, of which nothing is known here: each once, sorted.
    unknown: list[str]


#: Dialects of Triton 3.2. It writes types and layouts in other words, which typed_operations would misread.
_OLDER_DIALECTS = ("triton_gpu", "triton_nvidia_gpu")


def verified(module: TtgirModule) -> VerifiedLayouts:
    """Checks every operation of ``module``."""
    faults: list[str] = []
    unknown: set[str] = set()
    try:
        layouts = Layouts(module)
        for typed in typed_operations(module):
            dialect = typed.operation.name.partition(".")[0]
            if dialect in _OLDER_DIALECTS:
                return VerifiedLayouts([], [f"dialect {dialect} of Triton 3.2"])
            _verify(layouts, typed, faults, unknown)
    except MISREAD as error:  # types or attributes of the module that no known release prints
        unknown.add(f"types of the form {error}")
    return VerifiedLayouts(faults, sorted(unknown))


def _verify(layouts: Layouts, typed: TypedOperation, faults: list[str], unknown: set[str]) -> None:
    """Adds to ``faults`` and ``unknown`` what the layouts of one operation show."""
    what = called(typed.operation)
    for defined, used in typed.mismatches():
        faults.append(f"{what} takes {defined!r} in {defined.layout} as {used!r} in {used.layout}")
    try:
        for text in _operation_faults(layouts, typed):
            faults.append(f"{what}: {text}")  # those before what is unknown count
    except UnknownLayout as error:
        unknown.add(str(error))
    except MISREAD:  # words or types in other numbers than its rule expects
        unknown.add(f"operation {typed.operation.name} in the form {typed.operation.words[:120]}")


def _operation_faults(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    """Yields the faults in the layouts of one operation. Raises UnknownLayout for an operation or a layout that is not
    known."""
    name = typed.operation.name
    check = _CHECKS.get(name, _CHECKS.get(name.partition(".")[0] + ".*"))
    if check is None:
        if any(kind.layout for kind in (*typed.held(), *typed.results)):
            raise UnknownLayout(f"operation {name}")
        return
    for kind in typed.results:
        if kind.kind in ("tensor", "memdesc"):
            key = kind.kind, kind.shape, kind.layout, typed.warps
            if key not in layouts.alone:
                layouts.alone[key] = [*_holds_all(layouts, kind), *_threads_fit(layouts, kind, typed.warps)]
            yield from layouts.alone[key]
    yield from check(layouts, typed)


def _holds_all(layouts: Layouts, kind: Type) -> Iterator[str]:
    """A fault of a result whose layout does not hold every element, or holds some at several places of memory."""
    if kind.kind == "tensor":
        held = layouts.registers(kind)
        if not held.covers:
            yield f"{kind!r} in {kind.layout} lacks elements: registers hold 2^{held.rank()} of them"
        elif not held.repeats_by_zeros_alone:
            yield f"{kind!r} in {kind.layout} has registers that repeat an element in another place"
    elif kind.kind == "memdesc" and rank_of(layouts.layout(kind), allocation(kind)) > 1:
        held = layouts.memory(kind)
        if not held.covers or not held.repeats_by_zeros_alone:
            yield f"{kind!r} in {kind.layout} has two elements at one place"


def _threads_fit(layouts: Layouts, kind: Type, warps: int) -> Iterator[str]:
    """Yields a fault of a tensor in another number of warps, or of lanes, than those that run."""
    if kind.kind == "tensor":
        held = layouts.registers(kind)
        for holder, count in (("warp", warps), ("lane", layouts.lanes)):
            if count and 1 << len(held.of(holder)) != count:
                yield f"{kind!r} in {kind.layout} is in {1 << len(held.of(holder))} {holder}s, and {count} run"


# Operations on registers


def _same_registers(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    """Elementwise operations: every operand has the result's layout."""
    kinds = [kind for kind in (*typed.held(), *typed.shown, *typed.results) if kind.kind == "tensor"]
    for kind in kinds[1:]:
        if kind.shape == kinds[0].shape and kind.layout != kinds[0].layout:
            one, other = layouts.registers(kinds[0]), layouts.registers(kind)
            yield from _differ(kinds[0], one, kind, other, ordered=True)


def _differ(first: Type, one: LinearMap, second: Type, other: LinearMap, *, ordered: bool = False) -> Iterator[str]:
    """Yields a fault if the two maps hold elements in different places. Registers of one lane may have another order
    unless ``ordered``."""
    one, other = one.without_zero_registers, other.without_zero_registers
    for holder in ("register", "lane", "warp", "block"):
        mine, theirs = one.flat(holder), other.flat(holder)
        if holder == "register" and not ordered:
            mine, theirs = tuple(sorted(mine)), tuple(sorted(theirs))
        if mine != theirs:
            yield f"{first!r} in {first.layout} and {second!r} in {second.layout} differ in what a {holder} holds"
            return


def _expand(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    (source,), (result,) = typed.held(), typed.results
    axis = int(attributes(typed.operation)["axis"])
    yield from _differ(source, layouts.registers(source), result, layouts.registers(result).without(axis))


def _broadcast(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    (source,), (result,) = typed.held(), typed.results
    narrowed = layouts.registers(result).moved(
        source.shape, lambda basis: tuple(v * (v < size) for v, size in zip(basis, source.shape, strict=True))
    )
    yield from _differ(source, layouts.registers(source), result, narrowed)


def _reduce(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    axis = int(attributes(typed.operation)["axis"])
    for source, result in zip(typed.held(), typed.results, strict=True):
        if result.kind == "tensor":
            yield from _differ(source, layouts.registers(source).without(axis), result, layouts.registers(result))


def _trans(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    (source,), (result,) = typed.held(), typed.results
    moved = layouts.registers(source).transposed(order_of(typed.operation))
    yield from _differ(source, moved, result, layouts.registers(result), ordered=True)


def _reshape(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    (source,), (result,) = typed.held(), typed.results
    if "allow_reorder" not in typed.operation.words:
        moved = layouts.registers(source).reshaped(result.shape)
        yield from _differ(source, moved, result, layouts.registers(result), ordered=True)


def _pair_faults(layouts: Layouts, single: Type, pair: Type) -> Iterator[str]:
    """Of ``pair``, which has one more dimension of 2: both elements are in one thread, and each as in ``single``."""
    both = layouts.registers(pair)
    for holder in ("lane", "warp", "block"):
        if any(basis[-1] for basis in both.of(holder)):
            yield f"{pair!r} in {pair.layout} has the two elements of a pair in different {holder}s"
            return
    yield from _differ(single, layouts.registers(single), pair, both.without(len(pair.shape) - 1), ordered=True)


def _join(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    for source in typed.held():
        yield from _pair_faults(layouts, source, typed.results[0])


def _split(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    yield from _pair_faults(layouts, typed.results[0], typed.held()[0])


def _fp4(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    """Each byte becomes two neighbours along the axis, in two registers of the same thread."""
    source, result = typed.held()[0], typed.results[0]
    axis = int(attributes(typed.operation)["axis"])
    pairs = layouts.registers(result)
    for holder in ("lane", "warp", "block"):
        if any(basis[axis] & 1 for basis in pairs.of(holder)):
            yield f"{result!r} in {result.layout} has the two numbers of a byte in different {holder}s"
            return
    halves = pairs.moved(source.shape, lambda basis: tuple(v >> (i == axis) for i, v in enumerate(basis)))
    yield from _differ(source, layouts.registers(source), result, halves, ordered=True)


def _within_thread(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    (source,), (result,) = typed.held(), typed.results
    yield from _differ(source, layouts.registers(source), result, layouts.registers(result))


def _any_layout(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    """Operations that may move elements, and those that make the same value everywhere."""
    return iter(())


def _converted(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    (source,), (result,) = typed.held(), typed.results
    if source.shape != result.shape:
        yield f"{source!r} becomes {result!r}"


# Memory


def _copied(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    """Registers to or from memory: of the same sizes, and in tensor memory each warp its own quarter of the lanes."""
    kinds = [*typed.held(), *typed.results]
    reduced = typed.results[-1:] if "redOp" in typed.operation.words else []
    tensors = [kind for kind in kinds if kind.kind == "tensor" and kind.shape and kind not in reduced]
    memories = [kind for kind in kinds if kind.kind == "memdesc"]
    for tensor in tensors:
        for memory in memories:
            if math.prod(tensor.shape) != math.prod(memory.shape):
                yield f"{tensor!r} and {memory!r} have different sizes"
            if "tmem" in typed.operation.name:
                yield from _tensor_memory_lanes(layouts, tensor, memory)


#: The lane of tensor memory that each bit of a lane's number reads, for 32x32b and 16x32bx2. In the latter the upper
#: half of a warp reads other columns of the same lanes (PTX ISA, tcgen05.ld's shapes).
_MESSAGES = ((1, 2, 4, 8, 16), (1, 2, 4, 8, 0))


def _tensor_memory_lanes(layouts: Layouts, tensor: Type, memory: Type) -> Iterator[str]:
    """Yields a fault if a warp holds elements in lanes of tensor memory which it cannot reach. Warp w of four has lanes
    32 w to 32 w + 31 (PTX ISA, tcgen05.ld)."""
    held, places = layouts.registers(tensor), layouts.memory(memory)
    if layouts.layout(memory).kind == "tensor_memory_scales_encoding":
        if any(any(basis) for basis in held.of("warp")[:2]):
            yield f"{tensor!r} in {tensor.layout} has other scales in each warp, and {memory.layout} the same"
        return
    rows = {value: 1 << bit for bit, value in enumerate(places.flat("row")) if value}
    reached = {
        holder: tuple(_lane(flat_index(basis, places.shape), rows) for basis in held.of(holder))
        for holder in ("register", "lane", "warp")
    }
    for holder, lanes in reached.items():
        for bit, lane in enumerate(lanes):
            if lane >> 5 != ((1 << bit) & 3 if holder == "warp" else 0):
                yield (
                    f"{tensor!r} in {tensor.layout} has {holder} {1 << bit} in lanes of {memory.layout} that belong to "
                    "another warp"
                )
                return
    if reached["lane"] not in _MESSAGES:
        raise UnknownLayout(f"{tensor!r} in {tensor.layout}, whose lanes read lanes {reached['lane']} of tensor memory")


def _lane(element: int, lanes: Mapping[int, int]) -> int:
    """Returns the lane of tensor memory in which ``element`` lies."""
    lane, bit = 0, 1
    while bit <= element:
        if element & bit:
            lane |= lanes.get(bit, 0)
        bit *= 2
    return lane


def _memory_faults(first: Type, one: LinearMap, second: Type, other: LinearMap) -> Iterator[str]:
    for holder, _ in one.bases:
        if one.flat(holder) != other.flat(holder):
            yield f"{first!r} in {first.layout} and {second!r} in {second.layout} have elements at different places"
            return


def _padding(layouts: Layouts, first: Type, second: Type) -> Iterator[str]:
    one, other = (layouts.layout(kind).get("padding") for kind in (first, second))
    if one != other:
        yield f"{first!r} in {first.layout} and {second!r} in {second.layout} are padded differently"


def _memory_trans(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    source, result = typed.held()[0], typed.results[0]
    order, one, other = order_of(typed.operation), layouts.memory(source), layouts.memory(result)
    more = len(order) - len(one.shape)
    if list(order[:more]) != list(range(more)):
        raise UnknownLayout(f"a transposition of slots: {order} of {source!r} in {source.layout}")
    yield from _memory_faults(source, one.transposed([axis - more for axis in order[more:]]), result, other)
    yield from _padding(layouts, source, result)


def _memory_reshape(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    source, result = typed.held()[0], typed.results[0]
    one, other = layouts.memory(source), layouts.memory(result)
    if math.prod(one.shape) != math.prod(other.shape):
        raise UnknownLayout(f"a reshape of {source!r} in {source.layout} to {result!r} in {result.layout}")
    yield from _memory_faults(source, one.reshaped(other.shape), result, other)
    yield from _padding(layouts, source, result)


def _memory_part(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    source, result = typed.held()[0], typed.results[0]
    if rank_of(layouts.layout(source), allocation(source)) == 1:
        return  # nothing is swizzled
    one, other = layouts.memory(source), layouts.memory(result)
    if one.shape != other.shape:
        raise UnknownLayout(f"a part of {source!r} in {source.layout} as {result!r} in {result.layout}")
    yield from _memory_faults(source, one, result, other)
    yield from _padding(layouts, source, result)


def _tensor_memory_part(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    source, result = typed.held()[0], typed.results[0]
    one, other = layouts.layout(source), layouts.layout(result)
    if (one.kind, one.get("blockM"), one.get("colStride")) != (other.kind, other.get("blockM"), other.get("colStride")):
        yield f"{source!r} in {source.layout} and {result!r} in {result.layout} have elements at different places"


# Descriptors

#: Bytes of a row that TMA swizzles together, by the mode that a descriptor names.
_SWIZZLE_MODES = {"0": 0, "1": 32, "2": 64, "3": 128}


def _descriptor_copy(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    """TMA swizzles by its descriptor. What reads or wrote the memory swizzles by the memory's layout."""
    kinds = [*typed.held(), *typed.results]
    descriptors = [kind for kind in kinds if kind.kind == "tensordesc" and kind.layout]
    memories = [kind for kind in kinds if kind.kind == "memdesc" and kind.element != "i64"]
    for descriptor in descriptors:
        if len(descriptor.shape) > 1 and layouts.layout(descriptor).get("transposed", False):
            yield f"{descriptor!r} in {descriptor.layout} is transposed, and a copy keeps rows together"
        width = layouts.layout(descriptor).get("elementBitWidth")
        if width is not None and width != bits_of(descriptor):
            yield f"{descriptor!r} has elements of {bits_of(descriptor)} bits in {descriptor.layout}"
        for memory in memories:
            one, other = layouts.memory(descriptor), layouts.memory(memory)
            if math.prod(one.shape) != math.prod(other.shape):
                raise UnknownLayout(f"a copy of {descriptor!r} to {memory!r} in {memory.layout}")
            yield from _memory_faults(descriptor, one, memory, other)
            yield from _padding(layouts, descriptor, memory)


def _descriptor_rows(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    """Gathers and scatters: rows of a descriptor go to rows of memory, whose swizzle must be the descriptor's."""
    kinds = typed.held()
    descriptors = [kind for kind in kinds if kind.kind == "tensordesc" and kind.layout]
    memories = [kind for kind in kinds if kind.kind == "memdesc" and kind.element != "i64"]
    for descriptor in descriptors:
        for memory in memories:
            words = ("swizzlingByteWidth", "elementBitWidth", "transposed", "padding")
            one, other = (layouts.layout(kind) for kind in (descriptor, memory))
            if [one.get(word) for word in words] != [other.get(word) for word in words]:
                yield f"{descriptor!r} in {descriptor.layout}, {memory!r} in {memory.layout}: swizzled differently"


def _descriptor_written(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    """Notes how a descriptor that is written to memory swizzles."""
    layouts.swizzles[operands(typed.operation)[0]] = attributes(typed.operation).get("swizzle_mode", "")
    return iter(())


def _descriptor_read(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    """Yields a descriptor in memory swizzles as its type says."""
    (descriptor,), source = typed.results, operands(typed.operation)[0]
    width = layouts.layout(descriptor).get("swizzlingByteWidth", 0)
    if source in layouts.swizzles and _SWIZZLE_MODES.get(layouts.swizzles[source]) != width:
        yield f"{descriptor!r} in {descriptor.layout} was written with swizzle_mode {layouts.swizzles[source]}"


def _scales_copied(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    """A tcgen05.cp copies a block of 512 bytes: 16 that are side by side to each of 32 lanes (PTX ISA,
    tcgen05.cp.32x128b). Each block has a copy with its own addresses, so blocks may be in any order."""
    source, target = typed.held()[:2]
    one, other = layouts.memory(source), layouts.memory(target)
    if one.shape != other.shape:
        return  # bytes in the order of tensor memory, not scales by row and depth
    columns, rows = other.of("column"), other.of("row")[:5]
    offsets, block = one.of("offset"), (*columns[:4], *rows)
    if offsets[: len(block)] != block or sorted(offsets[len(block) :]) != sorted(columns[4:]):
        yield f"{source!r} in {source.layout} and {target!r} in {target.layout} have elements at different places"


# Products


def _product(layouts: Layouts, typed: TypedOperation) -> Iterator[str]:
    if typed.operation.name.startswith("ttng.tc_gen5"):
        kinds = typed.held()[:3]
        yield from product_faults(typed.operation, kinds, [layouts.layout(kind) for kind in kinds])
        return
    # shown as A * B -> result, each with its scales behind it, if it has any
    sides = split_outside(typed.operation.types.partition("->")[0], "*")
    (a, *scales_a), (b, *scales_b) = ([type_of(part) for part in split_outside(side)] for side in sides)
    kinds = [a, b, typed.results[0]]
    yield from product_faults(typed.operation, kinds, [layouts.layout(kind) for kind in kinds])
    for index, scales in enumerate((scales_a, scales_b)):
        for kind in scales:
            read = scales_map(layouts.layout(typed.results[0]), index, kind.shape)
            yield from _differ(kind, layouts.registers(kind), typed.results[0], read, ordered=True)


#: How each operation on tensors or memory is checked. ``arith.*`` stands for all of a dialect that has no own line.
_CHECKS: dict[str, Check] = {
    "arith.*": _same_registers, "math.*": _same_registers,
    **dict.fromkeys(
        ("tt.addptr", "tt.load", "tt.store", "tt.bitcast", "tt.fp_to_fp", "tt.clampf", "tt.mulhiui", "tt.precise_sqrt",
         "tt.precise_divf", "tt.elementwise_inline_asm", "tt.extern_elementwise", "tt.atomic_rmw", "tt.atomic_cas",
         "tt.int_to_ptr", "tt.ptr_to_int", "amdg.buffer_load", "amdg.buffer_store", "amdg.buffer_atomic_rmw",
         "amdg.scaled_upcast_fp8", "tt.scan"),
        _same_registers,
    ),
    **dict.fromkeys(
        ("arith.constant", "tt.splat", "tt.make_range", "tt.unsplat", "tt.assert", "tt.print", "ub.poison",
         "scf.for", "scf.if", "scf.yield", "scf.while", "scf.condition", "ttg.warp_specialize", "ttg.warp_yield",
         "ttg.local_dealloc", "tt.reduce.return", "tt.scan.return", "ttng.init_barrier", "ttng.inval_barrier",
         "ttng.wait_barrier", "ttng.arrive_barrier", "ttng.barrier_expect", "ttng.tc_gen5_commit",
         "ttng.warp_group_dot_wait", "ttg.memdesc_reinterpret", "tt.make_tensor_descriptor",
         "tt.descriptor_load", "tt.descriptor_store", "tt.descriptor_gather", "tt.descriptor_scatter",
         "tt.descriptor_reduce",
         "amdg.update_tensor_descriptor", "llvm.intr.assume"),
        _any_layout,
    ),
    "ttg.convert_layout": _converted, "tt.expand_dims": _expand, "tt.broadcast": _broadcast, "tt.reduce": _reduce,
    "tt.trans": _trans, "tt.reshape": _reshape, "tt.join": _join, "tt.split": _split, "ttg.fp4_to_fp": _fp4,
    "amdg.scaled_upcast_fp4": _fp4,
    "amdg.in_thread_transpose": _within_thread,
    **dict.fromkeys(
        ("ttg.local_alloc", "ttg.local_load", "ttg.local_store", "ttng.tmem_alloc", "ttng.tmem_load",
         "ttng.tmem_store", "ttg.async_copy_global_to_local", "amdg.buffer_load_to_local",
         "amdg.local_load_packed_tranposed", "amdg.local_load_packed_transposed"),
        _copied,
    ),
    "ttg.memdesc_trans": _memory_trans, "ttg.memdesc_reshape": _memory_reshape, "ttg.memdesc_index": _memory_part,
    "ttg.memdesc_subview": _memory_part, "ttg.memdesc_subslice": _memory_part,
    "ttng.tensormap_create": _descriptor_written,
    "ttng.reinterpret_tensor_descriptor": _descriptor_read,
    "ttng.tmem_copy": _scales_copied,
    "ttng.tmem_subslice": _tensor_memory_part,
    **dict.fromkeys(
        ("ttng.async_tma_copy_global_to_local", "ttng.async_tma_copy_local_to_global", "ttng.async_tma_reduce",
         "amdg.async_tdm_copy_global_to_local", "amdg.async_tdm_copy_local_to_global"),
        _descriptor_copy,
    ),
    **dict.fromkeys(
        ("ttng.async_tma_gather", "ttng.async_tma_scatter", "amdg.async_tdm_gather", "amdg.async_tdm_scatter"),
        _descriptor_rows,
    ),
    **dict.fromkeys(
        ("tt.dot", "tt.dot_scaled", "ttng.warp_group_dot", "ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled"), _product
    ),
}  # fmt: skip
