"""Builtins of Triton's language that a kernel's module imports by name: ``from triton.language.math import rsqrt``.

The interpreter replaces them as attributes of ``triton.language`` alone, so that such a name leads to the compiler's
function. While a kernel runs, the names lead to what the interpreter has put there.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import triton.language as tl

#: A name of a module's globals, and what stands there while a kernel runs.
_Names = tuple[tuple[dict[str, Any], str, Any], ...]


@contextlib.contextmanager
def builtins_by_name(function: Any) -> Iterator[None]:
    """Inside, ``function`` of ``triton.jit`` and those that it calls find the interpreter's builtins by their names."""
    names = _names_of(function.fn)
    before = [scope[name] for scope, name, _ in names]
    for scope, name, late in names:
        scope[name] = late
    try:
        yield
    finally:
        for (scope, name, _), value in zip(names, before, strict=True):
            scope[name] = value


@functools.cache
def _names_of(python: Any) -> _Names:
    """Returns the names of builtins in the module of ``python`` and in those of its callees."""
    found: list[tuple[dict[str, Any], str, Any]] = []
    scopes: dict[int, dict[str, Any]] = {}

    def visit(called: Any) -> None:
        scope = called.__globals__
        if id(scope) in scopes or scope["__name__"].startswith("triton."):
            return
        scopes[id(scope)] = scope
        for name, value in list(scope.items()):
            if isinstance(value, FunctionType):
                if tl.core.is_builtin(value):
                    found.append((scope, name, _late(value)))
            elif inspect.getattr_static(value, "arg_names", None) is not None:  # no code of the value runs
                function = inspect.getattr_static(value, "fn", None)
                if isinstance(function, FunctionType):
                    visit(function)

    visit(python)
    return tuple(found)


def _late(builtin: Any) -> Any:
    """Returns a function that looks ``builtin`` up when it is called."""
    name = builtin.__name__
    owner = tl if getattr(tl, name, None) is builtin else sys.modules[builtin.__module__]

    def called(*arguments: Any, **named: Any) -> Any:
        return getattr(owner, name)(*arguments, **named)

    return called
