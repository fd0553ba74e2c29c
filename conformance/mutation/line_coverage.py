"""Finds the lines of device functions that a run in the interpreter reaches: their source, with a call before each
statement."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping

from conformance.mutation.functions import DeviceFunction
from conformance.mutation.mutants import replace
from conformance.mutation.tree_walk import places

#: The name of what is called, among the globals of the functions.
CALLED = "_conformance_reached"


class LineCoverage:
    """The lines of ``functions`` that ran in this process since the last :meth:`forget`. They stay instrumented."""

    def __init__(self, functions: Iterable[DeviceFunction]) -> None:
        self._reached: dict[str, set[int]] = {}
        for function in functions:
            function.handle.fn.__globals__[CALLED] = self._reach
            replace(function, instrumented(function), f"{function.name} instrumented")

    def _reach(self, function: str, line: int) -> None:
        self._reached.setdefault(function, set()).add(line)

    def forget(self) -> None:
        """Forgets all lines."""
        self._reached.clear()

    def lines(self) -> dict[str, list[int]]:
        """By name of a function the lines in which a statement began that ran, counted from its first as 1."""
        return {name: sorted(lines) for name, lines in self._reached.items()}


def unreached(functions: Iterable[DeviceFunction], reached: Iterable[Mapping[str, list[int]]]) -> dict[str, str]:
    """Returns the statements of ``functions`` in none of ``reached``, as :meth:`LineCoverage.lines` gives them: the
    first line of each by an id such as ``tiles.swizzle:body5:unreached:1``."""
    lines: dict[str, set[int]] = {}
    for some in reached:
        for name, numbers in some.items():
            lines.setdefault(name, set()).update(numbers)
    return {
        f"{function.name}:{place.path}:unreached:1": function.source.split("\n")[place.node.lineno - 1].strip()
        for function in functions
        for place in places(function.tree)
        if isinstance(place.node, ast.stmt) and place.node.lineno not in lines.get(function.name, ())
    }


def instrumented(function: DeviceFunction) -> str:
    """Returns the source of ``function``, in which each statement tells its line before it runs."""
    tree = copy.deepcopy(function.tree)
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                told = [(_call(function.name, statement.lineno), statement) for statement in statements]
                setattr(node, field, [each for pair in told for each in pair])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _call(function: str, line: int) -> ast.Expr:
    arguments: list[ast.expr] = [ast.Constant(function), ast.Constant(line)]
    return ast.Expr(ast.Call(ast.Name(CALLED, ast.Load()), arguments, []), lineno=line)
