"""Walks over the syntax tree of a device function, and says where in it each node stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

#: Calls whose arguments are the bounds of a loop.
RANGES = ("range", "tl.range", "tl.static_range")
#: Calls that read or write memory.
ACCESSES = ("tl.load", "tl.store")


@dataclass(frozen=True)
class Place:
    """A node of a function. ``path`` names it by fields and numbers, never by lines; ``parents`` lead to it, the
    function first."""

    node: ast.AST
    path: str
    parents: tuple[ast.AST, ...]
    names: FunctionNames

    @property
    def parent(self) -> ast.AST:
        return self.parents[-1]

    @cached_property
    def statement(self) -> ast.stmt:
        """The innermost statement that it belongs to; itself if it is one."""
        return next(node for node in (self.node, *reversed(self.parents)) if isinstance(node, ast.stmt))

    @cached_property
    def surroundings(self) -> str:
        """Returns the use of the value: "mask", "other", "loop", "test", "bound", "address" or "value"."""
        chain = (*self.parents, self.node)
        for outer, inner in zip(chain[-2::-1], chain[:0:-1], strict=True):
            if isinstance(outer, ast.keyword) and outer.arg in ("mask", "other"):
                return outer.arg
            if isinstance(outer, ast.For) and inner is outer.iter:
                return "loop"
            if isinstance(outer, (ast.If, ast.IfExp)) and inner is outer.test:
                return "test"
            if isinstance(outer, ast.Call) and called(outer) == "tl.cdiv":
                return "bound"
            if isinstance(outer, ast.Call) and called(outer) in ACCESSES and outer.args and inner is outer.args[0]:
                return "address"
        return self._by_target()

    def _by_target(self) -> str:
        targets = {name.id for target in assigned(self.statement) for name in names_in(target)}
        if targets & self.names.masks:
            return "mask"
        return "address" if targets & self.names.addresses else "value"


@dataclass(frozen=True)
class FunctionNames:
    """Names of a function by use. ``first_line`` holds the line from which on each name has a value."""

    parameters: frozenset[str]
    first_line: dict[str, int]
    masks: frozenset[str]
    addresses: frozenset[str]

    def before(self, node: ast.AST) -> frozenset[str]:
        """The names that have a value where ``node`` stands."""
        line = getattr(node, "lineno", 0)
        return frozenset(name for name, first in self.first_line.items() if first < line)


def called(call: ast.Call) -> str:
    """The dotted name of what ``call`` calls, with "tl" for the language; the method alone, with a dot before it,
    for one of a value."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute):
        language = ast.unparse(function.value) in ("tl", "triton.language")
        return f"{'tl' * language}.{function.attr}"
    return ""


def names_in(node: ast.AST | None) -> Iterator[ast.Name]:
    """The names in ``node``; nothing in None."""
    return (inner for inner in (ast.walk(node) if node else ()) if isinstance(inner, ast.Name))


def assigned(statement: ast.AST) -> Sequence[ast.expr]:
    """Returns the targets of an assignment; nothing for another statement."""
    if isinstance(statement, ast.Assign):
        return statement.targets
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return [statement.target]
    return [statement.target] if isinstance(statement, ast.For) else []


def function_names(tree: ast.FunctionDef) -> FunctionNames:
    """The names of ``tree`` by use: what reaches a ``mask=``, or the address of an access, through assignments."""
    parameters = frozenset(
        argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)
    )
    first = dict.fromkeys(parameters, 0)
    sources: dict[str, set[str]] = {}
    masks: set[str] = set()
    addresses: set[str] = set()
    for node in ast.walk(tree):
        for target in assigned(node):
            for name in names_in(target):
                first[name.id] = min(first.get(name.id, name.lineno), name.lineno)
                value = getattr(node, "value", None)
                sources.setdefault(name.id, set()).update(used.id for used in names_in(value))
        if isinstance(node, ast.Call) and called(node) in ACCESSES:
            masks |= {name for word in node.keywords if word.arg == "mask" for name in _conditions(word.value)}
            addresses |= {name.id for argument in node.args[:1] for name in names_in(argument)}
    return FunctionNames(
        parameters,
        first,
        frozenset(masks - parameters),
        frozenset(_with_sources(addresses, sources) - parameters - masks),
    )


def _conditions(mask: ast.AST) -> Iterator[str]:
    """The names in ``mask`` that are conditions themselves, and not compared in it."""
    if isinstance(mask, ast.Name):
        yield mask.id
    elif not isinstance(mask, ast.Compare):
        for child in ast.iter_child_nodes(mask):
            yield from _conditions(child)


def _with_sources(names: set[str], sources: dict[str, set[str]]) -> set[str]:
    reached, waiting = set(names), list(names)
    while waiting:
        for name in sources.get(waiting.pop(), set()) - reached:
            reached.add(name)
            waiting.append(name)
    return reached


def places(tree: ast.FunctionDef) -> Iterator[Place]:
    """Yields every statement and expression of the body of ``tree``, outermost first. Left out: its docstring,
    annotations, and targets of assignments."""
    names = function_names(tree)
    docstring = ast.get_docstring(tree) is not None

    def walk(node: ast.AST, path: str, parents: tuple[ast.AST, ...]) -> Iterator[Place]:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "target", "targets", "ctx", "op", "ops", "func") and not (
                field == "func" and isinstance(value, ast.Attribute)
            ):
                continue
            children = (
                [(f"{field}{number}", item) for number, item in enumerate(value)]
                if isinstance(value, list)
                else [(field, value)]
            )
            for label, child in children:
                if not isinstance(child, ast.AST):
                    continue
                here = f"{path}.{label}" if path else label
                if isinstance(child, (ast.stmt, ast.expr)):
                    yield Place(child, here, (*parents, node), names)
                yield from walk(child, here, (*parents, node))

    for number, statement in enumerate(tree.body):
        if number or not docstring:
            yield Place(statement, f"body{number}", (tree,), names)
            yield from walk(statement, f"body{number}", (tree,))
