"""Puts a mutant in the place of its function, in this process: every launch and every caller then runs the fault."""

from __future__ import annotations

import ast
import contextlib
import linecache
from collections.abc import Iterator
from typing import Any

from conformance.mutation.functions import DeviceFunction, known_functions
from conformance.mutation.mutants import Mutant


class NotPlantable(Exception):
    """The function is not one of a module, so that it cannot be made again from its source."""


def plant(mutant: Mutant) -> None:
    """Makes Triton's object of the mutant's function compile and interpret the mutant's source. It stays so: this is
    meant for a process that ends afterwards, in which nothing that calls the function was compiled before.

    The object stays the same one, because other functions, launches and kernels hold it. Raises NotPlantable for a
    function inside another.
    """
    replace(mutant.function, mutant.source, mutant.id)


def replace(function: DeviceFunction, source: str, name: str) -> None:
    """Gives the Triton object of ``function`` another ``source``, as :func:`plant` does. ``name`` stands for the file
    in error messages."""
    original = function.handle.fn
    if original.__closure__ or "<locals>" in original.__qualname__:
        raise NotPlantable(f"{function.name} is defined inside another function")
    lines = linecache.getlines(str(function.path))
    end = function.first - 1 + len(function.source.splitlines())
    text = "".join([*lines[: function.first - 1], source, *lines[end:]])
    file = f"{function.path}#{name}"
    # Triton reads the source of a function through inspect, which asks this cache
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    tree = ast.parse("\n" * (function.first - 1) + source)
    kind: Any = type(function.handle)
    with _constructed(kind) as constructed:
        exec(compile(tree, file, "exec"), original.__globals__, {})
    arguments, named = constructed[-1]
    vars(function.handle).clear()
    kind.__init__(function.handle, *arguments, **named)
    for device_function in known_functions():
        # a caller's hash tells Triton's cache of what it calls, too
        if getattr(device_function.handle, "hash", None) is not None:
            device_function.handle.hash = None


@contextlib.contextmanager
def _constructed(kind: Any) -> Iterator[list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    """The arguments of every construction of a ``kind`` meanwhile, as tuples and words."""
    original = kind.__init__
    constructed = []

    def recorded(self: Any, *arguments: Any, **named: Any) -> None:
        constructed.append((arguments, named))
        original(self, *arguments, **named)

    kind.__init__ = recorded
    try:
        yield constructed
    finally:
        kind.__init__ = original
