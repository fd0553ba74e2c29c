"""The source of device functions and of all that they refer to, as text that stands on its own."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import itertools
import sys
import textwrap
from collections.abc import Container, Mapping
from types import ModuleType
from typing import Any

#: Packages that a script may import in addition to Python's own modules.
IMPORTED = ("torch", "triton", "numpy")


class NotReproducible(Exception):
    """No script can be written; the message says why."""


class Sources:
    """Collects definitions in the order in which they must be executed, each under the name that its users know.

    A thing that two modules call differently gets an alias; two things of one name cannot share a script.
    """

    def __init__(self) -> None:
        self._imports: dict[str, None] = {}
        self._definitions: list[str] = []
        self._names: dict[str, Any] = {}

    def add(self, name: str, value: Any, module: ModuleType | None = None) -> str:
        """Defines ``value`` as ``name``, which it has in ``module``, and before it all that it refers to. Returns the
        name. Raises :class:`NotReproducible`."""
        if name in self._names:
            if self._names[name] is not value and repr(self._names[name]) != repr(value):
                raise NotReproducible(f"two different things are called {name} in the functions of this case")
            return name
        self._names[name] = value
        imported = _import_of(name, value)
        if imported:
            self._imports[imported] = None
        elif defined := plain_function(value) or (value if inspect.isclass(value) else None):
            self._add_definition(name, value, defined)
        elif module is not None:
            self._add_assignment(name, module)
        else:
            raise NotReproducible(f"{name} is {value!r}, which cannot be written as source")
        return name

    def import_line(self, line: str) -> None:
        """Adds an import that what refers to these sources needs."""
        self._imports[line] = None

    @property
    def imports(self) -> str:
        """The import lines: whole modules, then names out of modules."""
        return "\n".join(sorted(self._imports, key=lambda line: (line.startswith("from"), line)))

    @property
    def text(self) -> str:
        """The definitions: constants on neighbouring lines, two empty lines around functions."""
        groups = itertools.groupby(self._definitions, lambda definition: "\n" in definition)
        return "\n\n\n".join(("\n\n\n" if functions else "\n").join(group) for functions, group in groups)

    def _add_definition(self, name: str, value: Any, defined: Any) -> None:
        own = defined.__name__
        if own != name:
            self._definitions.append(f"{name} = {self.add(own, value)}")
            return
        if getattr(defined, "__closure__", None):
            raise NotReproducible(f"{name} is a closure: its source does not say all that it is")
        module = inspect.getmodule(defined)
        try:
            source = textwrap.dedent(inspect.getsource(defined))
        except (OSError, TypeError) as error:
            raise NotReproducible(f"the source of {name} cannot be read: {error}") from None
        if defined is not value:
            source = _without_tuning(source)
        if defined is not value and not source.startswith("@"):
            self.add("triton", importlib.import_module("triton"))
            source = f"@triton.jit\n{source}"
        local = {own, *getattr(getattr(defined, "__code__", None), "co_varnames", ())}
        self._add_globals(ast.parse(source), module, getattr(defined, "__globals__", vars(module)), local)
        self._definitions.append(source.rstrip())

    def _add_assignment(self, name: str, module: ModuleType) -> None:
        source = inspect.getsource(module)
        for node in ast.parse(source).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                self._add_globals(node, module, vars(module))
                self._definitions.append(ast.get_source_segment(source, node) or ast.unparse(node))
                return
            if isinstance(node, ast.ImportFrom) and any(
                alias.name == name and not alias.asname for alias in node.names
            ):
                origin = importlib.util.resolve_name("." * node.level + (node.module or ""), module.__package__)
                self._add_assignment(name, importlib.import_module(origin))
                return
        raise NotReproducible(f"{module.__name__} does not say at its top level what {name} is")

    def _add_globals(
        self, tree: ast.AST, module: ModuleType | None, values: Mapping[str, Any], local: Container[str] = ()
    ) -> None:
        read = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        for name in dict.fromkeys(read):
            if name in values and name not in local and not name.startswith("__"):
                self.add(name, values[name], module)


def _without_tuning(source: str) -> str:
    """Returns the source of a function without decorators that choose its arguments: a launch has one config
    already."""
    (node,) = ast.parse(source).body
    lines = source.splitlines(keepends=True)
    for decorator in reversed(getattr(node, "decorator_list", ())):
        made_by = ast.unparse(getattr(decorator, "func", decorator)).rpartition(".")[2]
        if made_by in ("autotune", "heuristics"):
            del lines[decorator.lineno - 1 : decorator.end_lineno]
    return "".join(lines)


def plain_function(value: Any) -> Any:
    """Returns the Python function behind a ``triton.jit`` function, compiled or interpreted, or a plain one;
    else None."""
    inner = getattr(value, "fn", value)
    return inner if inspect.isfunction(inner) else None


def _import_of(name: str, value: Any) -> str | None:
    """The line that imports ``value`` as ``name``, if it comes from Python, torch, triton or numpy."""
    if isinstance(value, ModuleType):
        if not _may_import(value.__name__):
            raise NotReproducible(f"{name} is the module {value.__name__}, which a script alone does not have")
        return f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}")
    inner = plain_function(value) or value
    own = getattr(inner, "__name__", None)
    for home in ("triton.language", "typing", "collections.abc", getattr(inner, "__module__", None)):
        if not isinstance(own, str) or not isinstance(home, str) or not _may_import(home):
            continue
        if getattr(importlib.import_module(home), own, None) is value:
            return f"from {home} import {own}" + ("" if own == name else f" as {name}")
    return None


def _may_import(module: str) -> bool:
    root = module.partition(".")[0]
    return root in IMPORTED or root in sys.stdlib_module_names
