"""The grid of a launch as the CUDA driver received it: the launch is captured into a graph, which is then run.

What runs is the graph, so the observed grid is that of the run itself. Nothing here waits for the device. The profiler
sees the same grid, but starts and exports a trace for it, which takes a hundred times as long.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

import torch

#: CU_STREAM_CAPTURE_MODE_RELAXED: memory may be allocated meanwhile.
RELAXED = 2
#: CU_GRAPH_NODE_TYPE_KERNEL
KERNEL_NODE = 0

#: What the driver must have.
FUNCTIONS = (
    *("cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphDestroy"),
    *("cuGraphGetNodes", "cuGraphNodeGetType", "cuGraphKernelNodeGetParams"),
    *("cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphExecDestroy"),
)

Result = TypeVar("Result")


class CaptureError(Exception):
    """The driver cannot capture, or what it captured is not one kernel. Nothing has run."""


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS in its longest version; older drivers leave the last two fields alone."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class GridCapture:
    """Runs launches as captured graphs. ``driver`` is the library of the CUDA driver.

    Raises CaptureError if it lacks a function.
    """

    def __init__(self, device: torch.device, driver: Any = None) -> None:
        try:
            self._driver = ctypes.CDLL("libcuda.so.1") if driver is None else driver
            for name in FUNCTIONS:
                getattr(self._driver, name)
        except (OSError, AttributeError) as error:
            raise CaptureError(str(error)) from error
        # the default stream cannot be captured
        self._stream = torch.cuda.Stream(device)

    def run(self, name: str, launch: Callable[[], Result]) -> tuple[Result, tuple[int, int, int]]:
        """The result of ``launch``, which launches the kernel ``name`` once, and the grid that the driver got.

        The kernel runs on the current stream. Its module must have been loaded: it has run before. Raises
        CaptureError if it cannot be observed; it has not run then.
        """
        target = torch.cuda.current_stream().cuda_stream
        with contextlib.ExitStack() as cleanup:
            result, graph = self._captured(launch)
            cleanup.callback(self._driver.cuGraphDestroy, graph)
            grid = self._grid(graph, name)
            runnable = ctypes.c_void_p()
            self._call("cuGraphInstantiateWithFlags", ctypes.byref(runnable), graph, ctypes.c_ulonglong(0))
            # one that is still running is freed when it has finished
            cleanup.callback(self._driver.cuGraphExecDestroy, runnable)
            self._call("cuGraphLaunch", runnable, ctypes.c_void_p(target))
        return result, grid

    def _captured(self, launch: Callable[[], Result]) -> tuple[Result, ctypes.c_void_p]:
        stream, graph = ctypes.c_void_p(self._stream.cuda_stream), ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", stream, RELAXED)
        try:
            with torch.cuda.stream(self._stream):
                result = launch()
        except Exception as error:
            if not self._driver.cuStreamEndCapture(stream, ctypes.byref(graph)) and graph:
                self._driver.cuGraphDestroy(graph)
            raise CaptureError(f"the launch cannot be captured: {error}") from error
        self._call("cuStreamEndCapture", stream, ctypes.byref(graph))
        return result, graph

    def _grid(self, graph: ctypes.c_void_p, name: str) -> tuple[int, int, int]:
        count = ctypes.c_size_t()
        self._call("cuGraphGetNodes", graph, None, ctypes.byref(count))
        nodes = (ctypes.c_void_p * count.value)()
        self._call("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
        kernels = []
        for node in map(ctypes.c_void_p, nodes):
            kind = ctypes.c_int(-1)
            self._call("cuGraphNodeGetType", node, ctypes.byref(kind))
            if kind.value == KERNEL_NODE:
                kernels.append(KernelNode())
                self._call(self._read_kernel, node, ctypes.byref(kernels[-1]))
        names = [self._name(kernel) for kernel in kernels]
        if len(kernels) != 1 or names[0] not in (name, None):
            raise CaptureError(f"the driver was given the kernels {names}, {name} alone was launched")
        x, y, z = kernels[0].grid
        return x, y, z

    @property
    def _read_kernel(self) -> str:
        newer = "cuGraphKernelNodeGetParams_v2"
        return newer if hasattr(self._driver, newer) else "cuGraphKernelNodeGetParams"

    def _name(self, kernel: KernelNode) -> str | None:
        """The kernel's name; None if the driver, older than 12.3, does not tell it."""
        function, handle = ("cuFuncGetName", kernel.func) if kernel.func else ("cuKernelGetName", kernel.kernel)
        if not hasattr(self._driver, function):
            return None
        name = ctypes.c_char_p()
        self._call(function, ctypes.byref(name), ctypes.c_void_p(handle))
        return name.value.decode() if name.value is not None else None

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._driver, function)(*arguments)
        if code:
            raise CaptureError(f"{function} gave the driver's error {code}")
