"""Mutants: one fault in one device function each, with an id that stays when lines move.

Each can be put in the place of its function in this process.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import linecache
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from conformance.mutation.functions import DeviceFunction, known_functions
from conformance.mutation.operators import Exchange, faults
from conformance.mutation.tree_walk import places

#: Expressions that need no brackets, wherever they stand.
_ATOMS = (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript)


@dataclass(frozen=True, eq=False)
class Mutant:
    """``function`` with a fault of class ``kind``. ``path`` names the changed node in the function's syntax tree,
    ``number`` tells the faults of one class apart there. ``lines`` are the first and the last line of the statement
    with the fault, or of its header. They are counted from the function's first line as 1. ``source`` is the text of
    the function with the fault; its lines have the numbers that they had."""

    function: DeviceFunction
    path: str
    kind: str
    number: int
    lines: tuple[int, int]
    source: str

    @property
    def id(self) -> str:
        return f"{self.function.name}:{self.path}:{self.kind}:{self.number}"

    @cached_property
    def digest(self) -> str:
        """Tells apart what the fault does, and nothing else."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    @property
    def diff(self) -> list[str]:
        """The lines that differ: those of the original begin with "-", those with the fault with "+"."""
        old, new = (text.split("\n") for text in (self.function.source, self.source))
        lines = list(difflib.ndiff(old, new))
        return [line[0] + line[2:] for line in lines if line[:2] in ("- ", "+ ") and line[2:].strip()]


def mutants_of(function: DeviceFunction) -> Iterator[Mutant]:
    """Yields every mutant of ``function``; none has the same source as another."""
    numbers: Counter[tuple[str, str]] = Counter()
    seen = {function.source}
    for place in places(function.tree):
        for kind, replacement in faults(place):
            node = place.node
            source = replaced(function.source, node, replacement)
            numbers[place.path, kind] += 1
            if source in seen:
                continue
            seen.add(source)
            lines = _lines(place.statement)
            yield Mutant(function, place.path, kind, numbers[place.path, kind], lines, source)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """The lines of a statement, of a compound one those of its header: one of them runs if it is reached."""
    last = statement.end_lineno or statement.lineno
    body = getattr(statement, "body", None)
    return statement.lineno, max(statement.lineno, body[0].lineno - 1) if body else last


def replaced(source: str, node: ast.AST, replacement: ast.AST | Exchange | None) -> str:
    """``source`` with ``replacement`` where ``node`` stands. Later lines keep their numbers."""
    if isinstance(replacement, Exchange):
        assert isinstance(node, ast.Call)
        first, second = node.args[replacement.number : replacement.number + 2]
        return replaced(replaced(source, second, first), first, second)
    if isinstance(node, ast.If) and isinstance(replacement, ast.If):
        return replaced(source, node.test, replacement.test)
    assert isinstance(node, (ast.stmt, ast.expr))
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lost = "\n" * (node.end_lineno - node.lineno)
    text = "pass" if replacement is None else ast.unparse(ast.fix_missing_locations(replacement))
    if isinstance(node, ast.stmt):
        text += lost
    elif lost or not isinstance(replacement, _ATOMS):
        text = f"({text}{lost})"
    lines = [line.encode() for line in source.split("\n")]
    before = b"\n".join([*lines[: node.lineno - 1], lines[node.lineno - 1][: node.col_offset]])
    after = b"\n".join([lines[node.end_lineno - 1][node.end_col_offset :], *lines[node.end_lineno :]])
    if after.startswith(b".") and isinstance(replacement, ast.Constant):
        text = f"({text})"  # "0.to" is no Python
    return (before + text.encode() + after).decode()


def mutants_of_all(functions: Iterable[DeviceFunction], kinds: Iterable[str] = ()) -> list[Mutant]:
    """Returns the mutants of ``functions``, of all classes or of ``kinds``."""
    chosen = frozenset(kinds)
    return [mutant for function in functions for mutant in mutants_of(function) if not chosen or mutant.kind in chosen]


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
