"""Watches the addresses that a kernel loads from and stores to in the interpreter: each must be an operand's element.

The interpreter reads and writes whatever address it is given. What a read outside the operands gives may reach no
output, or reach it times zero, so that no number shows it; on a device it may fault. The interpreter also gives zero
where the mask of a load is false and nothing stands for it; a device may give anything, so here it is NaN, or an
integer that differs from run to run.

What each program reads and stores of the operands is recorded here too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from conformance.execution.interpreter.numbers import add_atomically

if TYPE_CHECKING:
    from conformance.execution.interpreter.nan_tracing import NanTracing
    from conformance.execution.interpreter.overflow_tracing import OverflowTracing


class TensorRegion:
    """The elements of one tensor."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name = name
        self.size = tensor.element_size()
        self.shape, self.strides = tuple(tensor.shape), tuple(tensor.stride())
        self.first = tensor.data_ptr()
        steps = sorted(
            (
                (stride * self.size, extent)
                for stride, extent in zip(tensor.stride(), tensor.shape, strict=True)
                if stride and extent > 1
            ),
            reverse=True,
        )
        self.end = self.first + self.size + sum(step * (extent - 1) for step, extent in steps)
        self.steps = steps
        self.count = math.prod(extent for _, extent in steps)  # of elements
        self.dense = self.end - self.first == self.size * self.count

    def holds(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Returns a mask (bool) of the accesses to ``size`` bytes at ``addresses`` that lie in elements."""
        inside: np.ndarray = (addresses >= self.first) & (addresses + size <= self.end)
        if self.dense or not inside.any():
            return inside
        inside &= self._is_element(addresses) & self._is_element(addresses + size - 1)
        return inside

    def _is_element(self, addresses: np.ndarray) -> np.ndarray:
        """Returns a mask of the ``addresses`` that are a byte of an element: elements do not overlap, so the largest
        step comes first."""
        rest: np.ndarray = addresses - self.first
        inside: np.ndarray = np.ones(addresses.shape, dtype=bool)
        for step, extent in self.steps:
            index = rest // step
            inside &= (index >= 0) & (index < extent)
            rest = rest - index * step
        inside &= rest < self.size
        return inside

    def indices(self, addresses: np.ndarray) -> np.ndarray:
        """The number of the element at each of ``addresses``, which are elements."""
        rest: np.ndarray = addresses - self.first
        number: np.ndarray = np.zeros(addresses.shape, dtype=np.int64)
        for step, extent in self.steps:
            number = number * extent + rest // step
            rest = rest % step
        return number

    def distance(self, address: int) -> int:
        """Bytes from the nearest end of the memory between the first and the last element; 0 within it."""
        return max(self.first - address, address - (self.end - 1), 0)

    def place(self, address: int) -> str:
        """Returns a text of where ``address`` lies relative to this tensor."""
        if address < self.first:
            return f"{-((address - self.first) // self.size)} before the first element of {self.name!r}"
        if address >= self.end:
            return f"{(address - self.end) // self.size + 1} behind the last element of {self.name!r}"
        return f"{(address - self.first) // self.size} behind the first element of {self.name!r}, between its elements"

    def coordinates(self, addresses: np.ndarray) -> list[np.ndarray | None]:
        """The index along each dimension of the element at each of ``addresses``, which are elements; None along a
        dimension whose elements lie all in one place."""
        rest: np.ndarray = addresses - self.first
        places: list[np.ndarray | None] = [None] * len(self.shape)
        for dim in sorted(range(len(self.shape)), key=lambda dim: -self.strides[dim]):
            if self.strides[dim] and self.shape[dim] > 1:
                places[dim], rest = np.divmod(rest, self.strides[dim] * self.size)
        return places


#: For each dimension of a tensor, which of its indices were touched.
Touched = tuple[Tensor, ...]


@dataclass
class Footprint:
    """The accesses of one ``program`` of launch number ``launch``, by operand: the indices along each dimension.
    ``lines`` are those of the kernel, as file:line, that read it, ``changed`` the operands that it changes by atomic
    operations."""

    launch: int
    program: tuple[int, ...]
    loads: dict[str, Touched] = field(default_factory=dict)
    stores: dict[str, Touched] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)


class Footprints:
    """The footprints of all programs that run over the ``operands``, which include the outputs. ``unwritten`` has what
    was read of a workspace before any program had stored it, by workspace. ``added`` has the operands that an atomic
    operation changes before any program has stored to them, each with the line of the first one."""

    def __init__(self, operands: Mapping[str, Tensor]) -> None:
        self._regions = [TensorRegion(name, tensor) for name, tensor in operands.items() if tensor.numel()]
        self._launch = -1
        self._by_program: dict[tuple[int, tuple[int, ...]], Footprint] = {}
        self._workspaces: list[tuple[TensorRegion, np.ndarray]] = []  # and which elements have been stored
        self.unwritten: dict[str, str] = {}
        self.added: dict[str, str] = {}
        self._stored: set[str] = set()

    @property
    def footprints(self) -> list[Footprint]:
        return list(self._by_program.values())

    def workspace(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """New memory for intermediate results, which is watched."""
        memory = torch.empty(shape, dtype=dtype)
        if memory.numel() and dtype.is_floating_point:
            region = TensorRegion("a workspace", memory)
            self._workspaces.append((region, np.zeros(region.count, dtype=bool)))
        return memory

    def launch(self, tensors: Mapping[str, object]) -> None:
        """The next launch begins, over these arguments."""
        self._launch += 1
        names = {value.data_ptr(): name for name, value in tensors.items() if isinstance(value, Tensor)}
        for region, _ in self._workspaces:
            region.name = names.get(region.first, region.name)

    def touched(
        self, what: str, program: tuple[int, ...], addresses: np.ndarray, line: str, *, atomic: bool = False
    ) -> None:
        """``program`` "loads" or "stores" (``what``) at ``addresses``, in this ``line`` of the kernel."""
        if not addresses.size:
            return
        first, last = int(addresses.min()), int(addresses.max())
        for region in self._regions:
            if last < region.first or first >= region.end:
                continue
            inside = addresses[region.holds(addresses, 1)]
            if not inside.size:
                continue
            footprint = self._by_program.setdefault((self._launch, program), Footprint(self._launch, program))
            by_operand = getattr(footprint, what)
            footprint.changed |= {region.name} if atomic else set()
            if atomic and region.name not in self._stored:
                self.added.setdefault(region.name, line)
            elif what == "stores":
                self._stored.add(region.name)
            if region.name not in by_operand:
                by_operand[region.name] = tuple(torch.zeros(extent, dtype=torch.bool) for extent in region.shape)
            for axis, index in zip(by_operand[region.name], region.coordinates(inside), strict=True):
                axis[slice(None) if index is None else torch.from_numpy(np.unique(index))] = True
            lines = footprint.lines.setdefault(region.name, [])
            if what == "loads" and line not in lines:
                lines.append(line)
        for region, written in self._workspaces:
            if first < region.end and last >= region.first:
                elements = region.indices(addresses[region.holds(addresses, 1)])
                if what == "stores":
                    written[elements] = True
                elif not written[elements].all():
                    text = f"program {program} reads {region.name} where no program has stored, at {line}"
                    self.unwritten.setdefault(region.name, text)


#: Folders whose functions stand between an access and the kernel's line: NumPy's, this one and that of diagnoses.
_BETWEEN = (str(Path(np.__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "diagnosis"))
#: What starts a launch: the kernel's frames lie below it.
_LAUNCHES = str(Path(__file__).with_name("executor.py"))
#: Numbers from here on may be addresses: no size, stride or index is so large.
_ADDRESSES = 1 << 40


#: Of each operand, the indices along each dimension of lanes that a mask leaves without a value, and that lie past the
#: operand's ends.
UndefinedLanes = dict[str, list[set[int]]]


@dataclass
class Lanes:
    """The lanes of masked loads for which the kernel names no value. In loads on the lines of ``zero``, as
    "file.py:24", they are 0. ``undefined`` has those that were loaded, by line."""

    zero: frozenset[str] = frozenset()
    undefined: dict[str, UndefinedLanes] = field(default_factory=dict)


class Accesses:
    """The accesses of launches that may touch ``operands``, and in each launch what else it was given. Each launch may
    store at most once to each element of the operands named in ``once``; an atomic operation is a store. ``written``
    names the operands that may be stored to (None: all). ``footprints`` are told what each program touches.
    ``undefined_lanes``: a masked load gives NaN where nothing stands for what is masked. Integers have none: there
    every bit is set, or with ``plausible`` such a lane holds the last number that the load reads. ``lanes`` says on
    which lines such lanes are 0, and takes what is seen of them. ``tracing`` is told what every operation computes."""

    def __init__(
        self,
        operands: Mapping[str, Tensor],
        once: Iterable[str] = (),
        *,
        written: Iterable[str] | None = None,
        undefined_lanes: bool = True,
        plausible: bool = False,
        lanes: Lanes | None = None,
        footprints: Footprints | None = None,
        tracing: NanTracing | OverflowTracing | None = None,
    ) -> None:
        self.tracing = tracing
        self.undefined_lanes = undefined_lanes
        self.lanes = Lanes() if lanes is None else lanes
        self._footprints = footprints
        self.plausible = plausible
        self._operands = regions(operands)
        self._written = None if written is None else set(written)
        self._once = [region for region in self._operands if region.name in set(once)]
        self._regions = self._operands
        self._programs: list[tuple[int, ...]] = []  # of this launch, the last of which runs
        self._writers: list[np.ndarray] = []  # which program stored each element of `once`, from 1; 0: none has
        self._told: int | None = None  # memory from here on may be known to the launch alone
        #: What strayed: each line of the kernel once, with the first address.
        self.strays: dict[tuple[str, str], str] = {}

    def launch(self, arguments: Mapping[str, Any]) -> None:
        """A launch over ``arguments`` begins. One of them may hold the address of memory that nothing here knows, as
        the table of a grouped product may. Accesses of that memory are not judged."""
        tensors = {name: getattr(value, "base", value) for name, value in arguments.items()}
        self._regions = [*self._operands, *regions(tensors)]
        self._writers = [np.zeros(region.count, dtype=np.int32) for region in self._once]
        self._programs = []
        if self._footprints is not None:
            self._footprints.launch(tensors)
        if self.tracing is not None:
            self.tracing.launch(tensors)
        self._told = min(_addresses(tensors.values(), self._regions), default=None)

    def program(self, index: tuple[int, ...]) -> None:
        """The program at ``index`` of the grid begins."""
        self._programs.append(index)

    def stored(self, pointers: Any, mask: Any, *, atomic: bool = False) -> None:
        """Elements at ``pointers`` that the ``mask`` has are stored to. A second store to one of ``once`` is noted."""
        addresses = np.asarray(pointers).view(np.int64)[np.asarray(mask, dtype=bool)]
        if addresses.size and self._written is not None:
            self._into_inputs(addresses)
        if self._footprints is not None and self._programs:
            self._footprints.touched("stores", self._programs[-1], addresses, kernel_line(), atomic=atomic)
        for region, writers in zip(self._once, self._writers, strict=True):
            inside = addresses[region.holds(addresses, 1)]
            if not inside.size:
                continue
            elements = region.indices(inside)
            earlier, places = writers[elements], np.arange(elements.size, dtype=writers.dtype)
            writers[elements] = places  # of several stores to one element a single one stays
            if earlier.any() or not np.array_equal(writers[elements], places):
                writers[elements] = earlier
                self._stored_again(region, writers, elements)
            writers[elements] = len(self._programs)

    def _stored_again(self, region: TensorRegion, writers: np.ndarray, stored: np.ndarray) -> None:
        """Notes which elements of ``region`` are stored again by a store to ``stored``, the numbers of elements."""
        elements, counts = np.unique(stored, return_counts=True)
        again = elements[(writers[elements] > 0) | (counts > 1)]
        before = self._programs[int(writers[again[0]]) - 1]  # the last is the program that runs
        text = f"{self._program()} stores {again.size} elements of {region.name!r} again"
        self._note("stores again", f"{text}: program {before} has stored element {int(again[0])}")

    def _into_inputs(self, addresses: np.ndarray) -> None:
        """Notes a store to an operand that is only read, unless an operand that may be written has the element too."""
        first, last = int(addresses.min()), int(addresses.max())
        for region in self._operands:
            if region.name in (self._written or ()) or last < region.first or first >= region.end:
                continue
            inside = addresses[region.holds(addresses, 1)]
            for other in self._operands:
                if other.name in (self._written or ()):
                    inside = inside[~other.holds(inside, 1)]
            if inside.size:
                element = int(region.indices(inside[:1])[0])
                text = f"{self._program()} stores to {inside.size} elements of {region.name!r}, which is no output"
                self._note("stores to", f"{text}, one of them element {element}")

    def broke_a_rule(self, what: str, address: int, text: str) -> None:
        """Notes that the kernel ``what`` (a verb) the operand at ``address`` in a way that ``text`` forbids."""
        nearest = min(self._regions, key=lambda region: region.distance(address), default=None)
        name = "memory" if nearest is None else repr(nearest.name)
        self._note(what, f"{self._program()} {what} {name} with {text}")

    def _program(self) -> str:
        return f"program {self._programs[-1]}" if self._programs else "the launch"

    def judge(self, what: str, pointers: Any, mask: Any, size: int) -> np.ndarray | None:
        """Returns a mask of the accesses, of ``size`` bytes each, that lie outside; None if none does."""
        requested = np.asarray(pointers).view(np.int64)
        some = np.asarray(mask, dtype=bool)
        addresses = requested if some.all() else requested[some]
        if not addresses.size:
            return None
        if self._footprints is not None and self._programs and what == "loads":
            self._footprints.touched(what, self._programs[-1], addresses, kernel_line())
        first, last = int(addresses.min()), int(addresses.max()) + size
        for region in self._regions:
            if region.first <= first and last <= region.end and (region.dense or region.holds(addresses, size).all()):
                return None
        outside = ~np.logical_or.reduce([region.holds(addresses, size) for region in self._regions])
        if self._told is not None:
            outside &= addresses < self._told
        if not outside.any():
            return None
        address, count = int(addresses[outside].flat[0]), int(outside.sum())
        nearest = min(self._regions, key=lambda region: region.distance(address), default=None)
        place = "where the launch has no operand" if nearest is None else nearest.place(address)
        text = f"{self._program()} {what} {count} elements outside the operands, one of them {place}"
        self._note(what, text)
        whole = np.zeros(requested.shape, dtype=bool)
        whole[some] = outside.ravel() if addresses is requested else outside
        return whole

    def without_value(self, pointers: np.ndarray, mask: np.ndarray) -> str:
        """Notes that a load of ``pointers`` has no value for the lanes that its ``mask`` leaves out. Returns the line
        of the kernel, as "file.py:24"."""
        line = kernel_line().partition(" ")[0]
        lanes = self.lanes.undefined.setdefault(line, {})
        addresses = np.atleast_1d(pointers).view(np.int64)
        mask = np.broadcast_to(mask, addresses.shape)
        if mask.any():
            first = tuple(int(place) for place in np.argwhere(mask)[0])
            for region in self._operands:
                if region.holds(addresses[first].reshape(1), 1)[0]:
                    _add_lanes(lanes.setdefault(region.name, [set() for _ in region.shape]), region, addresses, mask)
        return line

    def _note(self, what: str, text: str) -> None:
        line = kernel_line()
        self.strays.setdefault((what, line), f"{line}: {text}")


def _add_lanes(lanes: list[set[int]], region: TensorRegion, addresses: np.ndarray, mask: np.ndarray) -> None:
    """Adds to ``lanes`` the indices in ``region`` of a block of ``addresses`` which the ``mask`` leaves out. They are
    counted from the first lane that is read. A direction of the block is the dimension of the region that has its
    stride, if there is one."""
    first = tuple(int(place) for place in np.argwhere(mask)[0])
    start = region.coordinates(addresses[first].reshape(1))
    for direction, extent in enumerate(addresses.shape):
        if extent == 1:
            continue
        line = np.moveaxis(addresses, direction, 0).reshape(extent, -1)[:, 0]
        step = int(line[1] - line[0])
        place = next((dim for dim, stride in enumerate(region.strides) if stride * region.size == step), None)
        if place is None or not step or (np.diff(line) != step).any():
            continue
        begin = start[place]
        others = tuple(axis for axis in range(mask.ndim) if axis != direction)
        left_out = np.flatnonzero(~mask.any(axis=others)) - first[direction] + (0 if begin is None else int(begin[0]))
        lanes[place] |= {int(index) for index in left_out if not 0 <= index < region.shape[place]}


def regions(tensors: Mapping[str, Any]) -> list[TensorRegion]:
    """Returns the elements of each tensor among ``tensors`` that has any."""
    return [TensorRegion(name, value) for name, value in tensors.items() if isinstance(value, Tensor) and value.numel()]


def _addresses(values: Iterable[Any], regions: Sequence[TensorRegion]) -> list[int]:
    """Returns the numbers in ``values`` (numbers and tensors of int64) that may be addresses and lie in none of the
    ``regions``."""
    numbers = {value for value in values if isinstance(value, int) and value >= _ADDRESSES}
    for value in values:
        if isinstance(value, Tensor) and value.dtype in (torch.int64, torch.uint64):
            numbers |= {number for number in value.flatten().tolist() if number >= _ADDRESSES}
    return [number for number in numbers if all(region.distance(number) for region in regions)]


def kernel_line() -> str:
    """Returns the line of the kernel that accesses memory, as file:line. If it is one of a function that the kernel
    calls, the line of the call is added."""
    frame: FrameType | None = sys._getframe(1)
    triton = str(Path(sys.modules["triton"].__file__ or "").parent)
    lines: list[str] = []
    while frame is not None and frame.f_code.co_filename != _LAUNCHES and len(lines) < 2:
        file = frame.f_code.co_filename
        if not file.startswith((triton, *_BETWEEN)):
            lines.append(f"{Path(file).name.split('#')[0]}:{frame.f_lineno}")
        frame = frame.f_back
    return f"{lines[0]} (called at {lines[1]})" if len(lines) > 1 else "".join(lines)


def undefined(shape: tuple[int, ...], dtype: np.dtype, byte: int = 0xFF) -> np.ndarray:
    """Returns an array of a value that no kernel may use: NaN, and in integers and booleans copies of the ``byte``. All
    ones are NaN in bf16 and fp8, which NumPy holds as integers."""
    if dtype.kind in "fb":
        return np.full(shape, np.nan if dtype.kind == "f" else bool(byte & 1), dtype)
    return np.full(shape, np.frombuffer(bytes([byte]) * dtype.itemsize, dtype)[0], dtype)


#: NaN of fp8 formats that have one NaN only, which is not all ones.
_OTHER_NAN = {"fp8e4b8": 0x80, "fp8e5b16": 0x80}


def with_undefined_lanes(interpreter: Any, accesses: Accesses) -> Callable[..., Any]:
    """Returns a replacement for the builder's masked load. Lanes that the mask leaves without a value are
    :func:`undefined`, or 0 on the lines whose lanes are 0. If the ``accesses`` are ``plausible``, an integer there is
    the last one that the load reads: a comparison takes it for a real one. A byte is then 0."""
    original, plausible = interpreter.InterpreterBuilder.create_masked_load, accesses.plausible

    def create_masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *more: Any, **named: Any) -> Any:
        if other is not None or np.asarray(mask.data).all():  # of a block pointer, the mask is no handle
            return original(self, ptrs, mask, other, *more, **named)
        if accesses.without_value(ptrs.data, np.asarray(mask.data)) in accesses.lanes.zero:
            return original(self, ptrs, mask, other, *more, **named)
        element = ptrs.get_element_ty()
        byte = 0xFF
        if element.is_floating():
            byte = _OTHER_NAN.get(element.name, byte)
        elif plausible:
            byte = 0  # booleans are loaded as int8: true in one run, false in another
        lanes = undefined(ptrs.data.shape, np.dtype(interpreter._get_np_dtype(element)), byte)
        loaded = original(self, ptrs, mask, interpreter.TensorHandle(lanes, element), *more, **named)
        if plausible and not element.is_floating() and element.primitive_bitwidth > 8:
            read = np.broadcast_to(mask.data, loaded.data.shape)
            if read.any():
                loaded.data = np.where(read, loaded.data, loaded.data[read][-1])
        return loaded

    return create_masked_load


def watched(native: Any, accesses: Accesses) -> dict[str, Callable[..., Any]]:
    """The replacements for the loads, stores and atomics of ``native``, Triton's ``_interpreter``. An access outside
    the operands is noted and left out; a load there gives what is :func:`undefined`."""
    load, store, rmw, cas = native.load, native.store, native.atomic_rmw, native.atomic_cas

    def watched_load(pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        outside = accesses.judge("loads", pointers, mask, np.dtype(dtype).itemsize)
        if outside is None:
            return load(pointers, mask, other, dtype)
        loaded = load(pointers, np.asarray(mask) & ~outside, other, dtype)
        return np.where(outside, undefined(loaded.shape, loaded.dtype), loaded)

    def watched_store(pointers: Any, values: Any, mask: Any) -> Any:
        outside = accesses.judge("stores", pointers, mask, values.dtype.itemsize)
        mask = mask if outside is None else np.asarray(mask) & ~outside
        accesses.stored(pointers, mask)
        return store(pointers, values, mask)

    def changes(pointers: Any, mask: Any, size: int) -> Any:
        """The part of the ``mask`` that an atomic operation may change."""
        outside = accesses.judge("changes", pointers, mask, size)
        mask = mask if outside is None else np.asarray(mask) & ~outside
        accesses.stored(pointers, mask, atomic=True)
        return mask

    def watched_rmw(operation: Any, pointers: Any, values: Any, mask: Any, semantic: Any) -> Any:
        return rmw(operation, pointers, values, changes(pointers, mask, values.dtype.itemsize), semantic)

    def watched_cas(pointers: Any, compared: Any, values: Any, semantic: Any) -> Any:
        everywhere = np.ones(np.shape(pointers), dtype=bool)
        inside = changes(pointers, everywhere, values.dtype.itemsize)
        return cas(pointers, compared, values, semantic) if inside.all() else values

    def watched_add(pointers: Any, values: Any, mask: Any, name: str) -> Any:
        memory = SimpleNamespace(load=load, store=store)
        return add_atomically(memory, pointers, values, changes(pointers, mask, values.dtype.itemsize), name)

    return {
        "load": watched_load,
        "store": watched_store,
        "atomic_rmw": watched_rmw,
        "atomic_cas": watched_cas,
        "add_atomically": watched_add,
    }
