"""Triton's hash of a function and all that it calls, which chooses the place of a compiled kernel in Triton's cache.

Up to Triton 3.8 the hash of a caller misses the module's constants that a callee uses, unless the callee was hashed
before (triton-lang/triton#10494). Processes that compile kernels in different orders then have different hashes, and
miss each other's kernels. Where callees are hashed first, the order no longer counts. Constants of one name in several
modules are hashed in the order of their modules' addresses. A kernel that uses such, with unlike values, gets a hash of
ours.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def source_hash(function: Any) -> str | None:
    """The hash of Triton's ``function``, alike in every process; None for one that is interpreted, which has none.

    To be called before Triton hashes ``function`` itself: a hash that is there stays.
    """
    hashed: set[int] = set()

    def visit(caller: Any) -> str:
        if id(caller) not in hashed and caller.hash is None:
            hashed.add(id(caller))
            callees = [visit(callee) for callee in _named(caller.fn)]
            caller.cache_key  # noqa: B018  # Triton makes the hash when it is read
            constants = _constants(caller)
            if len({name for name, _, _ in constants}) < len({(name, value) for name, _, value in constants}):
                parts = [inspect.getsource(caller.fn), caller.starting_line_number, callees, constants]
                caller.hash = hashlib.sha256(repr(parts).encode()).hexdigest()
        return str(caller.cache_key)

    return visit(function) if _is_hashed(function) else None


def _named(function: Any) -> Iterator[Any]:
    """Triton's functions that the Python ``function`` names, also as attributes of modules."""
    names = inspect.getclosurevars(function)
    for value in (*names.nonlocals.values(), *names.globals.values()):
        if isinstance(value, ModuleType):
            yield from filter(_is_hashed, (getattr(value, name, None) for name in sorted(names.unbound)))
        elif _is_hashed(value):
            yield value


def _constants(function: Any) -> list[tuple[str, str, str]]:
    """Returns the constants that Triton has seen ``function`` use, also through callees: name, module and value,
    sorted."""
    seen = getattr(function, "used_global_vals", {}).items()
    return sorted((name, str(scope.get("__name__")), repr(value)) for (name, _), (value, scope) in seen)


def _is_hashed(value: Any) -> bool:
    """True if Triton has or makes a hash of ``value``. Asked of its type: to read the hash would make it."""
    return hasattr(type(value), "cache_key") and inspect.isfunction(value.fn)
