"""The device functions that a launch runs: Triton functions found through the names that they call each other by."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.execution.compile.specialisation import functions_named

#: Where the functions of the catalogue lie; their names leave it out.
OWN = "conformance.kernels.device."


@dataclass(frozen=True, eq=False)
class DeviceFunction:
    """A function that ``triton.jit`` made. ``handle`` is Triton's object, ``name`` such as ``tiles.swizzle``; ``first``
    is the line of ``path`` in which ``source`` begins, decorators included."""

    name: str
    handle: Any
    path: Path
    first: int
    source: str

    @functools.cached_property
    def tree(self) -> ast.FunctionDef:
        """Its syntax tree, in which the first line of ``source`` is line 1."""
        (definition,) = ast.parse(self.source).body
        assert isinstance(definition, ast.FunctionDef)
        return definition

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]


def is_device_function(value: Any) -> bool:
    """True if ``value`` is a Triton function, compiled or interpreted, that does not belong to Triton."""
    function = getattr(value, "fn", None)
    return (
        inspect.isfunction(function)
        and hasattr(type(value), "run")
        and function.__module__.partition(".")[0] != "triton"
    )


#: The device functions of this process by the address of Triton's object, which each of them holds.
_KNOWN: dict[int, DeviceFunction] = {}


def device_function(handle: Any) -> DeviceFunction:
    """Returns the :class:`DeviceFunction` of a Triton object; the same one each time."""
    if id(handle) not in _KNOWN:
        _KNOWN[id(handle)] = _device_function(handle)
    return _KNOWN[id(handle)]


def known_functions() -> list[DeviceFunction]:
    """Returns every one that :func:`device_function` has made in this process."""
    return list(_KNOWN.values())


def _device_function(handle: Any) -> DeviceFunction:
    function = handle.fn
    lines, first = inspect.getsourcelines(function)
    name = f"{function.__module__}.{function.__qualname__}".removeprefix(OWN)
    path = Path(inspect.getfile(function))
    return DeviceFunction(name, handle, path, first, textwrap.dedent("".join(lines)))


def reachable(handles: Iterable[Any]) -> list[DeviceFunction]:
    """Returns the functions of ``handles`` and all that they call, each once, sorted by name."""
    seen: dict[int, Any] = {}
    waiting = list(handles)
    while waiting:
        handle = waiting.pop()
        if id(handle) not in seen:
            seen[id(handle)] = handle
            waiting += functions_named(handle.fn, is_device_function)
    return sorted(map(device_function, seen.values()), key=lambda function: function.name)
