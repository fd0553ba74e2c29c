"""A real device as an executor: launches on the accelerator this process is bound to."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from conformance.execution.compile.specialisation import source_hash
from conformance.execution.device.grid_capture import CaptureError, GridCapture
from conformance.execution.device.page_edges import NoEdge, PageEdges, page_edges
from conformance.kernels.launch import Launch, Programs, Ran
from conformance.records import ExecutorName

#: Runs of one launch that is timed: by their order, an interval of the median that holds in 98 of 100 cases.
REPEATS = 20
#: Seconds for which it runs before, lest the clock of an idle device be low. After 0.005 s on an H200 one of 213
#: kernels took 1.74 times as long as in other runs. Its clock rose while it was timed.
WARM_SECONDS = 0.02
#: Seconds of idleness for which the device stays warm. An H200 kept its clock over each pause tried, up to 1 s.
STILL_WARM_SECONDS = 0.01
#: Bytes that are overwritten before each timed run: more than the caches of a GPU hold. With operands in the cache
#: one int_mm takes 203 or 236 us on an H200, depending on the process; without them it takes 240 to 247 us in each.
CACHE_BYTES = 256 << 20


class NoDevice(RuntimeError):
    """There is no accelerator."""


class DeviceExecutor:
    """Runs launches on accelerator ``index`` and waits for them; a fault surfaces as the launch's own exception."""

    name = ExecutorName.DEVICE
    on_device = True

    def __init__(self, index: int = 0) -> None:
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is None or not torch.accelerator.is_available():
            raise NoDevice("torch sees no accelerator here; check the driver, or the build of torch")
        self.device = torch.device(accelerator.type, index)

    @property
    def page_edges(self) -> PageEdges | NoEdge:
        """Returns the pages at whose edges operands can lie, or the reason why there are none."""
        return page_edges(self.device)

    @functools.cached_property
    def identity(self) -> str | None:
        """Twelve hexadecimal digits that tell this device from others of its kind: a digest of its UUID. None where
        torch gives none."""
        module = getattr(torch, self.device.type)
        uuid = getattr(module.get_device_properties(self.device), "uuid", None)
        return None if uuid is None else hashlib.sha256(str(uuid).encode()).hexdigest()[:12]

    def run(self, launch: Launch, programs: Programs | None = None, *, observe: bool = False) -> Ran:
        """Runs ``launch``. With ``observe`` the result has the grid that the driver was given. Where launches cannot be
        captured, it is the one that the profiler saw on the device.

        Raises ValueError if ``programs`` is given: a device runs whole grids only.
        """
        if programs is not None:
            raise ValueError("a device cannot run part of a grid: use the interpreter")
        ran = self.start(launch, observe=observe)
        torch.accelerator.synchronize(self.device)
        return ran

    def start(self, launch: Launch, *, observe: bool = False) -> Ran:
        """As :meth:`run`, but does not wait: who reads what the launch wrote has a fault of it raised there."""
        if launch.empty:
            return Ran(self.name, launch.grid, 0, 0.0)
        _offer_scratch()
        started = time.perf_counter()
        for step in launch.before:
            self._launch(step)
        if observe:
            compiled, grid = self._observed(launch)
        else:
            compiled, grid = self._launch(launch), None
        for step in launch.after:
            self._launch(step)
        return Ran(self.name, grid, None, time.perf_counter() - started, compiled)

    def _launch(self, launch: Launch) -> Any:
        if launch.empty:
            return None
        for value in (launch.function, *launch.arguments.values()):
            source_hash(value)  # the compile stage has looked for the kernel under this hash
        return launch.function[launch.grid](**launch.arguments, **launch.options)

    def _observed(self, launch: Launch) -> tuple[Any, tuple[int, ...]]:
        """Launches and observes: by capture if it can be, else by the profiler."""
        name = launch.function.fn.__name__
        if self._capture is not None:
            try:
                compiled, grid = self._capture.run(name, lambda: self._launch(launch))
            except CaptureError:
                pass  # nothing has run
            else:
                return compiled, grid[: len(launch.grid)]
        with self._profile() as profiler:
            compiled = self._launch(launch)
            torch.accelerator.synchronize(self.device)
        events = [event for event in kernel_events(profiler) if event["name"] == name]
        if len(events) != 1:
            raise RuntimeError(f"the profiler saw {len(events)} launches of {name}, one was made")
        return compiled, tuple(events[0]["args"]["grid"])[: len(launch.grid)]

    @functools.cached_property
    def _capture(self) -> GridCapture | None:
        """Returns the object that captures launches; None if there is none, as on a GPU of another vendor."""
        try:
            return GridCapture(self.device) if self.device.type == "cuda" else None
        except CaptureError:
            return None

    def _profile(self) -> Any:
        from torch.profiler import ProfilerActivity, profile

        return profile(activities=[ProfilerActivity.CUDA if self.device.type == "cuda" else ProfilerActivity.XPU])

    def microseconds(
        self,
        launches: Sequence[Launch],
        repeats: int = REPEATS,
        alone: contextlib.AbstractContextManager[float] | None = None,
    ) -> list[float]:
        """Device times of a launch with all that belongs to it, by the profiler, once the device is warm. Its caches
        hold nothing of the operands when a run begins. ``launches`` are the launch on operands in several places, which
        take turns.

        They run within ``alone``, which gives the seconds for which the device has been idle. The profiler, which takes
        longer to start and to stop, sees this process only and need not be alone.
        """
        runs = 0
        with self._profile() as profiler, alone or contextlib.nullcontext(math.inf) as idle_s:
            larger_than_caches = torch.empty(CACHE_BYTES, dtype=torch.uint8, device=self.device)
            is_warm = 0 <= idle_s < STILL_WARM_SECONDS
            warm = time.perf_counter() + (0.0 if is_warm else WARM_SECONDS)
            while not runs or time.perf_counter() < warm:
                self.run(launches[runs % len(launches)])
                runs += 1
            for number in range(repeats):
                larger_than_caches.zero_()
                self.run(launches[number % len(launches)])
        runs += repeats
        names = {step.function.fn.__name__ for step in launches[0].steps}
        events = [event for event in kernel_events(profiler) if event["name"] in names]
        durations = [float(event["dur"]) for event in sorted(events, key=lambda event: event["ts"])]
        steps = len(durations) // runs
        if not steps or len(durations) != steps * runs:
            raise RuntimeError(f"the profiler saw {len(durations)} kernels in {runs} runs of one launch")
        return [sum(durations[first : first + steps]) for first in range(0, len(durations), steps)][-repeats:]


def kernel_events(profiler: Any) -> list[Any]:
    """Returns the events of kernels in the exported trace: only there has an event its grid. They bear the names of
    functions, also where the runtime names a kernel by its descriptor, whose symbol AMD's compiler ends in ".kd"."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return [{**event, "name": event["name"].removesuffix(".kd")} for event in events if event.get("cat") == "kernel"]


def _offer_scratch() -> None:
    """Device-side descriptors live in scratch memory that the caller must provide."""
    import triton

    if hasattr(triton, "set_allocator"):
        triton.set_allocator(_scratch)


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    # torch's allocations start at multiples of 512 bytes, more than any descriptor asks for.
    return torch.empty(size, dtype=torch.int8, device=torch.accelerator.current_accelerator())
