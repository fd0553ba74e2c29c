"""Operands at the edges of mapped device memory: a launch that reads or writes outside one ends in an error.

Guarded memory shows a read outside an operand only if what was read reaches an output, and only up to the guards. Here
the access itself is the fault, whatever becomes of the value. A fault costs the process its device, so
:mod:`conformance.execution.device.fault_search` looks for the operand in another one.

The device memory between pages that are not mapped is here too.

The drivers of CUDA and HIP have the same calls under other names. HIP's have not been tried.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import torch
from torch import Tensor

from conformance.inputs.guarded_memory import distinct
from conformance.numerics.rounding import bits
from conformance.problems import DTYPES, Operand, Problem, itemsize

#: The values of the drivers' enumerations, the same in CUDA and HIP: pinned memory, on a device, readable and writable.
PINNED = 1
ON_DEVICE = 1
READ_AND_WRITE = 3
#: The smallest granularity of mappings, not the fastest one.
MINIMUM = 0


class Unmappable(Exception):
    """The driver maps no such memory; the message says why."""


@dataclass(frozen=True)
class DriverLibrary:
    """The place of a driver's calls: the ``prefix`` of the calls, and names of its ``library``. The first that can be
    loaded is taken."""

    library: Sequence[str]
    prefix: str


CUDA = DriverLibrary(("libcuda.so.1",), "cuMem")
#: torch has loaded the library under one of these names.
HIP = DriverLibrary(("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"), "hipMem")


class Location(ctypes.Structure):
    """CUmemLocation, hipMemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp; hipMemAllocationProp is its beginning."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32_metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class AccessDescription(ctypes.Structure):
    """CUmemAccessDesc, hipMemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


@dataclass(frozen=True, eq=False)
class MappedRegion:
    """``memory``: bytes (size,) on the device. The pages before its first and behind its last byte are not mapped."""

    memory: Tensor

    @property
    def begin(self) -> int:
        """Address of the first byte, a multiple of the granularity."""
        return self.memory.data_ptr()

    @property
    def size(self) -> int:
        return self.memory.numel()


class VirtualMemory:
    """Maps regions on ``device``, whose context is current. They stay mapped as long as the process lives.

    ``library`` is the driver's, loaded unless given. Raises Unmappable if there is none, or it lacks a call.
    """

    def __init__(self, device: torch.device, library: Any = None) -> None:
        self._device = device
        driver = HIP if torch.version.hip else CUDA
        self._library, self._prefix = library or _loaded(driver), driver.prefix
        where = Location(ON_DEVICE, device.index or 0)
        self._properties = AllocationProperties(type=PINNED, location=where)
        self._access = AccessDescription(where, READ_AND_WRITE)
        granularity = ctypes.c_size_t()
        self._call(
            "GetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(self._properties), ctypes.c_int(MINIMUM)
        )
        #: Bytes of which the size of a region is a multiple
        self.granularity = granularity.value

    def region(self, size: int) -> MappedRegion:
        """Returns a new region of ``size`` bytes at least. Raises Unmappable, for want of memory, too."""
        granule = self.granularity
        length = max(1, -(-size // granule)) * granule
        start, handle = ctypes.c_void_p(), ctypes.c_ulonglong()
        whole = ctypes.c_size_t(length + 2 * granule)  # one granule on each side is never mapped
        with contextlib.ExitStack() as undo:
            self._call("AddressReserve", ctypes.byref(start), whole, ctypes.c_size_t(granule), None, _NO_FLAGS)
            undo.callback(self._call, "AddressFree", start, whole)
            assert start.value is not None  # the driver gave an address
            begin, mapped = ctypes.c_void_p(start.value + granule), ctypes.c_size_t(length)
            self._call("Create", ctypes.byref(handle), mapped, ctypes.byref(self._properties), _NO_FLAGS)
            undo.callback(self._call, "Release", handle)
            self._call("Map", begin, mapped, ctypes.c_size_t(0), handle, _NO_FLAGS)
            undo.callback(self._call, "Unmap", begin, mapped)
            self._call("SetAccess", begin, mapped, ctypes.byref(self._access), ctypes.c_size_t(1))
            undo.pop_all()
        return MappedRegion(self._tensor(start.value + granule, length))

    def _tensor(self, address: int, length: int) -> Tensor:
        return torch.as_tensor(_Bytes(address, length), device=self._device)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, self._prefix + name)
        except AttributeError as error:
            raise Unmappable(f"the driver has no {self._prefix}{name}") from error
        code = function(*arguments)
        if code:
            raise Unmappable(f"{self._prefix}{name} gave the driver's error {code}")


_NO_FLAGS = ctypes.c_ulonglong(0)


class _Bytes:
    """Bytes at an address, as torch takes them from other libraries."""

    def __init__(self, address: int, length: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (length,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


def _loaded(driver: DriverLibrary) -> Any:
    for name in driver.library:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    raise Unmappable(f"none of the libraries {', '.join(driver.library)} can be loaded")


#: Bytes to whose multiples the first element keeps its distance: code is compiled for pointers with or without this
#: alignment, and descriptors need it. So up to 15 mapped bytes may lie between an operand and the edge.
ALIGNMENT = 16
#: Bytes that a process maps for regions at most. Operands that need more have no edge.
LIMIT = 128 << 20


class Edge(str, Enum):
    """The unmapped page that an operand touches: the one after its last element, or the one before its first."""

    END = "behind the last element"
    BEGIN = "before the first element"


class NoEdge(Exception):
    """Operands cannot lie at the edge of mapped memory; the message says why."""


class Memory(Protocol):
    """An object that maps regions, as :class:`VirtualMemory` does."""

    def region(self, size: int) -> MappedRegion: ...


def start(operand: Operand, begin: int, end: int, edge: Edge) -> int:
    """Returns the address of the first element of ``operand`` at this ``edge`` of the mapped bytes from ``begin``, a
    multiple of 16, to ``end``. It is as far from a multiple of 16 as the operand's layout asks."""
    size = itemsize(operand.dtype)
    lead = operand.offset * size % ALIGNMENT
    if edge is Edge.BEGIN:
        return begin + lead
    latest = end - operand.span * size
    return latest - (latest - lead) % ALIGNMENT


def slack(operand: Operand, edge: Edge) -> int:
    """Mapped bytes between ``operand`` and the edge, 0 to 15: an access that stays in them is no fault."""
    far = 1 << 40  # any two multiples of 16 far enough apart
    first = start(operand, 0, far, edge)
    return first if edge is Edge.BEGIN else far - (first + operand.span * itemsize(operand.dtype))


class PageEdges:
    """Regions of one device, made once and used for one launch after another in the order of its stream.

    ``memory`` maps them. An operand's region has a granule at least, so that neither edge is near the other.
    """

    def __init__(self, memory: Memory, limit: int = LIMIT) -> None:
        self._memory, self._limit = memory, limit
        self._regions: list[MappedRegion] = []
        self._free: list[MappedRegion] = []  # those that nothing of the launch lies in that is being made

    @classmethod
    def of(cls, device: torch.device) -> PageEdges:
        """Returns the regions of ``device``. Raises NoEdge if it cannot map any."""
        if device.type != "cuda":
            raise NoEdge(f"nothing is known of how to map pages of a device of type {device.type}")
        try:
            return cls(VirtualMemory(device))
        except Unmappable as error:
            raise NoEdge(str(error)) from error

    def objection(self, problem: Problem) -> str:
        """Returns the reason for which the operands and outputs of ``problem`` cannot lie at edges; empty if
        they can."""
        self._free = sorted(self._regions, key=lambda region: region.size)
        try:
            for operand in _largest_first(problem):
                self._taken(operand)
        except NoEdge as error:
            return str(error)
        return ""

    def views(self, problem: Problem, filled: Mapping[str, Tensor], edge: Edge) -> dict[str, Tensor]:
        """Returns the operands and outputs of ``problem`` by name, each at this ``edge`` of a separate region. They are
        strided and aligned as the problem asks, with the values of ``filled``, its tensors elsewhere on the device.

        What an earlier call gave must no longer be used, but by launches of the same stream. Raises NoEdge if the
        regions would take too much memory.
        """
        self._free = sorted(self._regions, key=lambda region: region.size)
        views = {operand.name: self.view(operand, self._taken(operand), edge) for operand in _largest_first(problem)}
        self.copy(problem.tensors, filled, views)
        return views

    @staticmethod
    def copy(operands: Iterable[Operand], from_: Mapping[str, Tensor], to: Mapping[str, Tensor]) -> None:
        """Copies the bits of each of ``operands``, given by name."""
        for operand in operands:
            _elements(to[operand.name], operand).copy_(_elements(from_[operand.name], operand))

    def view(self, operand: Operand, region: MappedRegion, edge: Edge) -> Tensor:
        """``operand`` at this ``edge`` of ``region``."""
        first = start(operand, region.begin, region.begin + region.size, edge) - region.begin
        memory = region.memory.view(DTYPES[operand.dtype])
        place = memory.storage_offset() + first // itemsize(operand.dtype)
        return memory.as_strided(operand.shape, operand.strides, place)

    def workspace(self, shape: tuple[int, ...], dtype: torch.dtype, edge: Edge) -> Tensor:
        """Memory for intermediate results of the launch whose operands :meth:`views` gave last, at this ``edge`` of a
        region of its own. Raises NoEdge as that does."""
        operand = workspace_operand(shape, dtype)
        return self.view(operand, self._taken(operand), edge)

    def _taken(self, operand: Operand) -> MappedRegion:
        """Returns the smallest free region that has room for ``operand``, or a new one, and takes it from the free
        ones."""
        for place, region in enumerate(self._free):
            if region.size >= _bytes(operand):
                return self._free.pop(place)
        return self._new(operand)

    def _new(self, operand: Operand) -> MappedRegion:
        mapped = sum(region.size for region in self._regions)
        if mapped + _bytes(operand) > self._limit:
            raise NoEdge(
                f"{operand.name} spans {operand.span * itemsize(operand.dtype)} bytes: {self._limit} bytes are mapped "
                f"at most, {mapped} are"
            )
        try:
            region = self._memory.region(_bytes(operand))
        except Unmappable as error:
            raise NoEdge(str(error)) from error
        self._regions.append(region)
        return region


@functools.cache
def page_edges(device: torch.device) -> PageEdges | NoEdge:
    """Returns the regions of this process on ``device``, or why it has none."""
    try:
        return PageEdges.of(device)
    except NoEdge as error:
        return error


def workspace_operand(shape: tuple[int, ...], dtype: torch.dtype) -> Operand:
    """Returns a workspace as if it were an operand. Raises NoEdge for a dtype that no operand has."""
    name = next((name for name, form in DTYPES.items() if form == dtype), None)
    if name is None:
        raise NoEdge(f"a workspace is of {dtype}, which no operand is")
    strides = tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))
    return Operand("workspace", shape, strides, name)


def _largest_first(problem: Problem) -> list[Operand]:
    return sorted(problem.tensors, key=_bytes, reverse=True)


def _bytes(operand: Operand) -> int:
    """Bytes of a region that ``operand`` needs."""
    return operand.span * itemsize(operand.dtype) + 2 * ALIGNMENT


def _elements(view: Tensor, operand: Operand) -> Tensor:
    """Returns the bits of the elements that ``view``, of ``operand``, has in memory: one along a dimension of
    stride 0."""
    shape, strides = distinct(operand)
    return bits(view).as_strided(shape, strides)
