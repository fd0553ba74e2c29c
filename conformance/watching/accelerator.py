"""Lets torch's autograd differentiate fake tensors of type "cuda" in a torch without CUDA, for ``torch.compile``.

Autograd asks torch's hooks for CUDA whether there is a device, and the guard of the device for its streams. Both are
objects of C++ that begin with the address of a table of functions. Copies of the tables take their place, in which some
functions are replaced by one that returns 1. As a boolean that is true, as a kind of device CUDA, and as a stream one
of the first device. Which entries these are is found by trying, in a fork, so that it does not depend on the release.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from conformance.inductor.compile.deviceless import CUDA, GUARDS, META
from conformance.mutation.forked import ForkEnded, told

#: The symbol of the function that returns torch's hooks for CUDA.
_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
#: Words of a table before its first function, and bytes of a word.
_BEFORE, _WORD = 2, ctypes.sizeof(ctypes.c_void_p)
#: Seconds that the search may take.
SECONDS = 30.0
#: Returns 1 whatever it is given, and needs no lock.
_ONE: Any = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value


class _Replaced:
    """A copy of the table of the C++ object at ``address``, in which functions can be replaced."""

    def __init__(self, address: int) -> None:
        self.first = ctypes.c_void_p.from_address(address).value or 0
        self.count = 0
        while _is_code(ctypes.c_void_p.from_address(self.first + self.count * _WORD).value):
            self.count += 1
        self._table = (ctypes.c_void_p * (_BEFORE + self.count))()
        ctypes.memmove(self._table, self.first - _BEFORE * _WORD, ctypes.sizeof(self._table))
        #: What stands in for the object's first word.
        self.head = ctypes.c_void_p(ctypes.addressof(self._table) + _BEFORE * _WORD)

    def replace(self, number: int) -> None:
        """Entry ``number`` is the function that returns 1."""
        self._table[_BEFORE + number] = _ONE

    @property
    def replaced(self) -> list[int]:
        """The numbers of the entries that were replaced."""
        return [number for number in range(self.count) if self._table[_BEFORE + number] == _ONE]

    def find(self, done: Callable[[], bool]) -> bool:
        """Replaces the first entry after which ``done`` returns True. Returns False if there is none."""
        for number in range(self.count):
            before = self._table[_BEFORE + number]
            if before == _ONE:
                continue
            self.replace(number)
            if _holds(done):
                return True
            self._table[_BEFORE + number] = before
        return False


class _Device:
    """The hooks and the guard of a device that is not there. Raises OSError, AttributeError or ValueError if torch does
    not show its own."""

    def __init__(self) -> None:
        hooks = getattr(ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so")), _HOOKS)
        hooks.restype = ctypes.c_void_p
        self._own_hooks = int(hooks())
        self._hooks = _Replaced(self._own_hooks)
        self._slots = (ctypes.c_void_p * (META + 1)).in_dll(ctypes.CDLL("libc10.so"), GUARDS)
        self._guard = _Replaced(self._slots[META] or 0)
        self._guard.replace(0)  # what kind of device it guards

    @contextmanager
    def present(self) -> Iterator[None]:
        """Inside, autograd finds the device."""
        head, guard = ctypes.c_void_p.from_address(self._own_hooks), self._slots[CUDA]
        before = head.value
        head.value, self._slots[CUDA] = self._hooks.head.value, ctypes.addressof(self._guard.head)
        try:
            yield
        finally:
            head.value, self._slots[CUDA] = before, guard

    def find(self) -> bool:
        """Returns True if each function that is asked was found. Torch may crash if it was not."""
        with self.started():
            return (
                self._hooks.find(lambda: torch._C._accelerator_getAccelerator() == torch.device("cuda"))
                and self._guard.find(lambda: _stream().device == torch.device("cuda", 0))
                and self._guard.find(_records)
                and self._guard.find(_waits)
                and self._hooks.find(_differentiates)
            )

    @contextmanager
    def started(self) -> Iterator[None]:
        """Inside, autograd finds the device, and has a thread for it: the first backward pass starts it."""
        number = torch.ones(1, requires_grad=True)
        with self.present(), mock.patch.object(torch.cuda, "_lazy_init", return_value=None):
            (2 * number).backward()
            yield

    def replaced(self) -> tuple[list[int], list[int]]:
        return self._hooks.replaced, self._guard.replaced

    def replace(self, hooks: Iterable[int], guard: Iterable[int]) -> None:
        for table, numbers in ((self._hooks, hooks), (self._guard, guard)):
            for number in numbers:
                table.replace(number)


@functools.cache
def _device() -> _Device | None:
    if torch._C._has_cuda:
        return None

    def search(tell: Callable[[Any], None]) -> None:
        faulthandler.disable()  # a crash is an answer
        device = _Device()
        tell(device.replaced() if device.find() else None)

    try:
        (found,) = told(search, SECONDS)
        if found is None:
            return None
        device = _Device()
    except (ForkEnded, RuntimeError, OSError, AttributeError, ValueError):
        return None
    device.replace(*found)
    with device.started():
        return device


def prepare() -> bool:
    """Returns True if autograd can be made to find the device. It must be called before the first backward pass."""
    return _device() is not None


@contextmanager
def accelerator() -> Iterator[None]:
    """Inside, autograd finds the device. If that is not possible, nothing changes."""
    device = _device()
    if device is None:
        yield
        return
    with device.present():
        yield


def _holds(done: Callable[[], bool]) -> bool:
    try:
        return done()
    except (RuntimeError, NotImplementedError):
        return False


def _stream() -> Any:
    return torch._C._accelerator_getStream(0)


def _records() -> bool:
    torch.Event("cuda").record(_stream())
    return True


def _waits() -> bool:
    event = torch.Event("cuda")
    event.record(_stream())
    event.wait(_stream())
    return True


class _OnDevice(torch.Tensor):
    """A tensor of the device without memory; what is computed of it is one, too."""

    @staticmethod
    def __new__(cls, requires_grad: bool = False) -> _OnDevice:
        make: Any = torch.Tensor._make_wrapper_subclass
        tensor: _OnDevice = make(cls, (1,), device=torch.device("cuda", 0), requires_grad=requires_grad)
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return cls()


def _differentiates() -> bool:
    tensor = _OnDevice(requires_grad=True)
    torch.autograd.grad(tensor * 2, tensor, _OnDevice())
    return True


def _is_code(address: int | None) -> bool:
    """True if ``address`` lies in a library that is loaded."""
    found = (ctypes.c_void_p * 4)()
    return address is not None and bool(ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), found))
