"""Launches a compiled kernel on the GPU: over guarded copies of its tensors, and then over the tensors themselves.

The bytes around each copy have one value in the first launch and another in the second. A byte that changed was written
to. Results that differ depend on what lies around the tensors. Then each copy in turn touches a page that is not
mapped, with its last byte and with its first. A launch that goes beyond it ends in an error, and the process has lost
the device.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.execution.device.page_edges import ALIGNMENT, Edge, MappedRegion, Unmappable, VirtualMemory
from conformance.inputs.guarded_memory import POISON, REDZONE_LIMIT
from conformance.machine.device_state import device_fault
from conformance.problems import BASE_ALIGNMENT
from conformance.records import Check, CheckKind, Verdict
from conformance.watching.launch_run import LaunchRun

#: Calls the compiled kernel, with what a function makes of each argument.
Again = Callable[[Callable[[Any], Any]], None]

#: Bytes of all tensors of a launch up to which they are copied. Six copies are held at once.
COPY_LIMIT = 2 << 30
#: Bytes of a tensor up to which it is put at a page that is not mapped.
EDGE_LIMIT = 256 << 20

#: Memory of the host that a kernel is given is that of pinned tensors.
_HOST = "cpu"
_TESTS_OWN = "the tensors of the test"
_MEMORY = str(Check(CheckKind.MEMORY, "bounds"))
_REPEAT = str(Check(CheckKind.REPEAT))


class DeviceLost(BaseException):
    """A launch left the GPU of this process in an error. It is no Exception: no test goes on."""


class Unguarded(Exception):
    """The kernel was launched over the test's tensors alone; the message says why."""


class _Refused(Exception):
    """The kernel cannot be launched over copies; the message says why."""


class _Fault(Exception):
    """The launch ended in an error of the device; the message says where its tensors were, and which error."""


@dataclass(frozen=True)
class _Storage:
    """Memory of the launch: ``name`` is that of the first parameter whose tensor lies in it."""

    name: str
    memory: Tensor  # bytes

    @property
    def start(self) -> int:
        return self.memory.data_ptr()

    @property
    def size(self) -> int:
        return self.memory.numel()


@dataclass(frozen=True)
class _Copy:
    """A copy of a storage: it begins at byte ``first`` of ``memory``, whose other bytes hold ``fill``."""

    storage: _Storage
    memory: Tensor  # bytes
    first: int
    fill: int

    @property
    def own(self) -> Tensor:
        return self.memory[self.first : self.first + self.storage.size]

    def strays(self) -> Iterator[str]:
        """Yields a sentence for each side on which bytes have changed."""
        before, behind = self.memory[: self.first], self.memory[self.first + self.storage.size :]
        for where, guard, nearest in (("before", before.flip(0), "begins"), ("behind", behind, "ends")):
            changed = (guard != self.fill).nonzero()
            if len(changed):
                distance = int(changed[0])
                far = f"the nearest {distance} bytes from where its storage {nearest}"
                yield f"{len(changed)} bytes {where} {self.storage.name!r} are written, {far}"

    def view(self, tensor: Tensor) -> Tensor:
        """Returns ``tensor``, which lies in the storage, in the copy."""
        size = tensor.dtype.itemsize
        place = self.memory.storage_offset() + self.first + tensor.storage_offset() * size
        moved = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return moved.set_(self.memory.untyped_storage(), place // size, tensor.shape, tensor.stride())


class DeviceRunner:
    """Launches a kernel whose ``arguments`` have these names, by ``again``. ``ttgir`` is its code, "" if that is not
    known. ``foresee`` takes a sentence before each launch over copies that may end the process."""

    def __init__(self, arguments: Mapping[str, Any], again: Again, ttgir: str, foresee: Callable[[str], None]) -> None:
        self._again, self._foresee = again, foresee
        self._atomic = "atomic" in ttgir or not ttgir
        self._objection = "its code takes addresses from memory" if "int_to_ptr" in ttgir else ""
        self._storages: dict[int, _Storage] = {}
        self._integers: set[str] = set()  # names of storages in which a tensor of integers lies
        for name, value in arguments.items():
            self._find(name, value)

    def run(self) -> LaunchRun:
        """Returns what the launch showed. The test's tensors hold its results, unless the device was lost. Raises
        Unguarded if the launch was made, and not over copies; and what the launch over the test's tensors raises."""
        try:
            return self._run()
        except _Fault as fault:
            return LaunchRun((Verdict(_MEMORY, False, str(fault)),), None, lost=True)

    def _run(self) -> LaunchRun:
        started = time.monotonic()
        if torch.cuda.is_current_stream_capturing():
            self._again(_as_it_is)  # a capture allows no wait
            raise Unguarded("a CUDA graph is captured")
        try:
            verdicts, notes, before, result = self._over_copies()
        except _Refused as refused:
            self._launch(_as_it_is, _TESTS_OWN)
            raise Unguarded(str(refused)) from refused
        self._launch(_as_it_is, _TESTS_OWN)
        own = {start: storage.memory for start, storage in self._storages.items()}
        outputs: dict[str, str] = {}
        if changed := self._first_difference(result, own):
            notes["repeat"] = f"{changed} has other bits than in a copy of the launch"
        if "repeat" not in notes:
            verdicts.append(Verdict(_REPEAT, True, "each launch gives the same bits"))
            outputs = self._digests(before, result)
        elif not self._atomic and all(verdict.passed for verdict in verdicts):
            verdicts.append(Verdict(_REPEAT, False, f"{notes['repeat']}, and the code has no atomic operation"))
        notes["seconds"] = round(time.monotonic() - started, 3)
        integers = {name: digest for name, digest in outputs.items() if name in self._integers}
        return LaunchRun(tuple(verdicts), None, outputs, integers, notes)

    # --- what is launched

    def _find(self, name: str, value: Any) -> None:
        """Notes the storage of ``value``, an argument."""
        if isinstance(value, (tuple, list)):
            for each in value:
                self._find(name, each)
            return
        tensor = _tensor_of(value)
        if tensor is None:
            if hasattr(value, "data_ptr") or hasattr(value, "tma_desc_cpu_ptr"):
                self._objection = self._objection or f"the size of the memory behind {name!r} is not known"
            return
        if tensor.device.type == _HOST:
            self._objection = self._objection or f"{name!r} lies in memory of the host"
            return
        storage = tensor.untyped_storage()
        if storage.nbytes():
            memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            self._storages.setdefault(storage.data_ptr(), _Storage(name, memory))
            if not tensor.dtype.is_floating_point and not tensor.dtype.is_complex:
                self._integers.add(self._storages[storage.data_ptr()].name)

    def _why_not(self) -> str:
        """Returns why the kernel cannot be launched over copies; "" if it can."""
        if self._objection:
            return self._objection
        spans = sorted((one.start, one.start + one.size) for one in self._storages.values())
        if any(first[1] > second[0] for first, second in itertools.pairwise(spans)):
            return "two of its tensors share memory and no storage"
        size = sum(one.size for one in self._storages.values())
        return f"its tensors have {size} bytes: {COPY_LIMIT} are copied at most" if size > COPY_LIMIT else ""

    # --- launches

    def _over_copies(self) -> tuple[list[Verdict], dict[str, Any], dict[int, Tensor], dict[int, Tensor]]:
        """Returns the verdicts, notes about them, the bytes of the storages before the launch, and after it. Raises
        _Refused if the launch cannot be made so."""
        if why := self._why_not():
            raise _Refused(why)
        notes: dict[str, Any] = {}
        try:
            before = {start: storage.memory.clone() for start, storage in self._storages.items()}
            strays: dict[str, None] = {}
            results = [self._guarded(before, fill, strays) for fill in POISON]
            verdicts = [Verdict(_MEMORY, False, text) for text in list(strays)[:4]]
            if changed := self._first_difference(*results):
                if again := self._first_difference(results[0], self._guarded(before, POISON[0], strays)):
                    notes["repeat"] = f"{again} has other bits in a second launch over the same memory"
                else:
                    text = f"{changed} depends on the bytes around the tensors: a load reaches beyond one of them"
                    verdicts.append(Verdict(_MEMORY, False, text))
            if not verdicts:
                notes["edges"] = self._at_edges(before)
        except torch.OutOfMemoryError as error:
            raise _Refused(f"there is no memory for copies: {str(error).splitlines()[0]}") from None
        right = "no launch writes beyond a tensor, or depends on what lies there"
        return verdicts or [Verdict(_MEMORY, True, right)], notes, before, results[0]

    def _guarded(self, before: Mapping[int, Tensor], fill: int, strays: dict[str, None]) -> dict[int, Tensor]:
        """Launches over copies between guards of ``fill``, and returns what their bytes are then."""
        copies = self._copies(before, fill)
        self._launch(_moved_to(copies), "copies between guards")
        for one in copies.values():
            strays.update(dict.fromkeys(one.strays()))
        return {start: one.own.clone() for start, one in copies.items()}

    def _copies(self, before: Mapping[int, Tensor], fill: int) -> dict[int, _Copy]:
        copies = {}
        for start, data in before.items():
            memory = torch.empty(2 * REDZONE_LIMIT + BASE_ALIGNMENT + len(data), dtype=torch.uint8, device=data.device)
            first = REDZONE_LIMIT + (start - memory.data_ptr() - REDZONE_LIMIT) % BASE_ALIGNMENT
            copies[start] = _filled(_Copy(self._storages[start], memory, first, fill), data)
        return copies

    def _at_edges(self, before: Mapping[int, Tensor]) -> int:
        """Launches with each storage at both edges of mapped memory in turn. Returns how many launches that were."""
        copies, count = self._copies(before, POISON[0]), 0
        for start, data in before.items():
            storage = self._storages[start]
            region = _edges(data.device.index).region(len(data))
            if region is None:
                continue
            for edge in Edge:
                for one in copies.values():
                    one.own.copy_(before[one.storage.start])
                lead = start % ALIGNMENT
                latest = region.size - len(data)
                first = lead if edge is Edge.BEGIN else latest - (latest - lead) % ALIGNMENT
                moved = copies | {start: _filled(_Copy(storage, region.memory, first, POISON[0]), data)}
                what = f"{storage.name!r} at an unmapped page {edge.value.replace('element', 'byte')}"
                self._launch(_moved_to(moved), what)
                count += 1
        return count

    def _launch(self, change: Callable[[Any], Any], where: str) -> None:
        """Launches with what ``change`` makes of each argument, and waits. Raises _Fault if that ends in an error of
        the device, and _Refused if it only cannot be launched over copies."""
        torch.cuda.synchronize()
        self._foresee(f"pytest's process died in a launch over {where}")
        try:
            self._again(change)
            torch.cuda.synchronize()
        except Exception as error:  # whatever torch and Triton make of the driver's error
            if device_fault() is not None:
                first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                text = f"with {where} the launch ends in an error of the device: {first}"
                raise _Fault(text) from error
            if where == _TESTS_OWN:
                raise
            raise _Refused(f"it cannot be launched over copies: {error}") from error

    # --- results

    def _first_difference(self, first: Mapping[int, Tensor], second: Mapping[int, Tensor]) -> str:
        """Returns the name of a storage whose bytes differ, and the first of them; "" if there is none."""
        for start, data in first.items():
            different = data != second[start]
            if bool(different.any()):
                return f"byte {int(different.nonzero()[0])} of {self._storages[start].name!r}"
        return ""

    def _digests(self, before: Mapping[int, Tensor], result: Mapping[int, Tensor]) -> dict[str, str]:
        """Returns the digests of storages that the launch changed."""
        return {
            self._storages[start].name: hashlib.sha256(data.cpu().numpy().tobytes()).hexdigest()[:16]
            for start, data in result.items()
            if not torch.equal(data, before[start])
        }


class _Edges:
    """One region of a device at a time, large enough for what lies at its edge."""

    def __init__(self, index: int) -> None:
        self._region: MappedRegion | None = None
        self._memory: VirtualMemory | None = None
        with contextlib.suppress(Unmappable):
            self._memory = VirtualMemory(torch.device("cuda", index))

    def region(self, size: int) -> MappedRegion | None:
        """Returns a region of ``size`` bytes at least, the same one if it is large enough; None if the driver maps
        none."""
        size += ALIGNMENT
        if self._memory is None or size > EDGE_LIMIT:
            return None
        if self._region is None or self._region.size < size:
            try:
                self._region = self._memory.region(1 << (size - 1).bit_length())
            except Unmappable:
                return None
        return self._region


_edges = functools.cache(_Edges)


def _as_it_is(value: Any) -> Any:
    return value


def _filled(one: _Copy, data: Tensor) -> _Copy:
    """Writes ``data`` and the guards around it, and returns the copy."""
    one.memory.fill_(one.fill)
    one.own.copy_(data)
    return one


def _tensor_of(value: Any) -> Tensor | None:
    """Returns the tensor of an argument: itself, or that of a descriptor or of a wrapper of Triton's."""
    value = value if isinstance(value, Tensor) else getattr(value, "base", None)
    return value if isinstance(value, Tensor) else None


def _moved_to(copies: Mapping[int, _Copy]) -> Callable[[Any], Any]:
    """Returns the function that puts an argument into ``copies``."""

    def moved(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(*map(moved, value)) if hasattr(value, "_fields") else type(value)(map(moved, value))
        tensor = _tensor_of(value)
        if tensor is None or not tensor.untyped_storage().nbytes():
            return value
        view = copies[tensor.untyped_storage().data_ptr()].view(tensor)
        if isinstance(value, Tensor):
            return view
        other = copy.copy(value)
        object.__setattr__(other, "base", view)
        return other

    return moved
