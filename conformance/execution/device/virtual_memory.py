"""Device memory between pages that are not mapped: an access outside it ends the kernel with the driver's error.

The drivers of CUDA and HIP have the same calls under other names. HIP's have not been tried.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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
