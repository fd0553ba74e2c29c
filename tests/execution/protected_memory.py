"""Host memory between protected pages, and an executor over it that does without a device what a device does."""

from __future__ import annotations

import ctypes
import mmap

import torch

from conformance.execution.device.page_edges import MappedRegion, PageEdges, Unmappable
from conformance.records import ExecutorName
from tests.execution.test_trial import TorchExecutor

GRANULE = mmap.PAGESIZE


class ProtectedMemory:
    """Maps regions as :class:`conformance.execution.device.page_edges.VirtualMemory` does. ``most`` of them at
    most."""

    def __init__(self, most=100):
        self.most, self.regions = most, []

    def region(self, size):
        if len(self.regions) == self.most:
            raise Unmappable("cuMemCreate gave the driver's error 2")
        length = -(-size // GRANULE) * GRANULE
        whole = mmap.mmap(-1, length + 2 * GRANULE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(whole))
        protect = ctypes.CDLL(None).mprotect
        for address in (start, start + GRANULE + length):
            assert protect(ctypes.c_void_p(address), ctypes.c_size_t(GRANULE), 0) == 0
        memory = torch.frombuffer(whole, dtype=torch.uint8, offset=GRANULE, count=length)
        self.regions.append(MappedRegion(memory))
        return self.regions[-1]


class EdgeExecutor(TorchExecutor):
    """Computes with torch, and reads one byte next to an operand. ``beside`` maps the argument of the launch to the
    distance after its last byte, or before its first one if negative."""

    name = ExecutorName.DEVICE
    on_device = True

    def __init__(self, beside=None, fault=None, memory=None):
        super().__init__(fault)
        self.beside = beside or {}
        self.page_edges = PageEdges(memory or ProtectedMemory())
        self.starts = []

    def run(self, launch, programs=None, *, observe=False):
        self.starts.append({name: launch.arguments[name].data_ptr() for name in ("a_ptr", "b_ptr", "c_ptr")})
        for name, far in self.beside.items():
            tensor = launch.arguments[name]
            span = 1 + sum((e - 1) * s for e, s in zip(tensor.shape, tensor.stride(), strict=True))
            last = tensor.data_ptr() + span * tensor.element_size() - 1
            ctypes.string_at(last + far if far > 0 else tensor.data_ptr() + far, 1)
        return super().run(launch, programs, observe=observe)
