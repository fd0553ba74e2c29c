"""The functions that a library registers for operations of torch on the device, with ``torch.library``.

On a GPU torch's dispatcher calls them for the dispatch key of the device. The device's memory lies on the CPU here, so
they are remembered, and called for operations of marked memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch.library import Library

#: The dispatch key of the device.
_KEY = "CUDA"


class DeviceKernels:
    """The functions by the name of the operation, with its overload; the last one that was registered counts."""

    def __init__(self) -> None:
        self._functions: dict[str, list[tuple[Library, Callable[..., Any]]]] = {}

    def find(self, operation: Any) -> Callable[..., Any] | None:
        """Returns the function for ``operation``, an overload of torch's; None if there is none."""
        return self._functions[operation.name()][-1][1] if self._functions.get(operation.name()) else None

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Inside, what is registered for the device is remembered, until its library is destroyed."""
        implement, destroy = Library.impl, Library._destroy

        def impl(library: Library, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
            implement(library, op_name, fn, dispatch_key, **options)
            if (dispatch_key or library.dispatch_key) == _KEY and not options.get("with_keyset"):
                name = op_name if isinstance(op_name, str) else op_name.name()
                full = name if "::" in name else f"{library.ns}::{name}"
                self._functions.setdefault(full, []).append((library, fn))

        def forget(library: Library) -> None:
            destroy(library)
            for name, functions in self._functions.items():
                self._functions[name] = [each for each in functions if each[0] is not library]

        with mock.patch.object(Library, "impl", impl), mock.patch.object(Library, "_destroy", forget):
            yield
