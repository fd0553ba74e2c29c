"""Reads the modules that Inductor generates: their Triton kernels, and verdicts about patterns, launches and calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from conformance.filecheck import filecheck
from conformance.records import Verdict


def exactly(count: int, pattern: str) -> str:
    """FileCheck directives for a regular expression that matches ``count`` times, no more and no less."""
    present = [f"CHECK-COUNT-{count}: {{{{{pattern}}}}}"] if count else []
    return "\n".join([*present, f"CHECK-NOT: {{{{{pattern}}}}}"])


def in_source(check: str, directives: str, text: str, where: str | None = None) -> Verdict:
    """Returns the verdict of FileCheck ``directives`` on ``text``. ``where`` tells a reproducer which text it is. It is
    "kernel" (the source of the template's kernel), "module" (the module around it) or a stage that the kernel was
    compiled to. A verdict that failed holds it and the directives."""
    result = filecheck(directives, text)
    details = {} if result.passed or where is None else {"directives": directives, "where": where}
    return Verdict(check, result.passed, result.message, details)


def launched(*modules: str) -> list[str]:
    """Returns the Triton kernels that generated modules launch, in their order, each as often as they do."""
    return re.findall(r"^\s*(triton_\w+)\.run\(", "\n".join(modules), flags=re.MULTILINE)


def extern_calls(*modules: str) -> list[str]:
    """Returns the kernels of ATen that generated modules call, in their order."""
    return re.findall(r"\bextern_kernels\.(\w+)\(", "\n".join(modules))


def kernels_of(module_source: str) -> dict[str, str]:
    """Returns the Triton kernels of a generated module: the name that the module gives each, and its source.

    A module holds them as ``name = async_compile.triton("function", '''source''', ...)``. Raises ValueError if such a
    call does not have this form, and SyntaxError if ``module_source`` is not Python.
    """
    nodes = list(ast.walk(ast.parse(module_source)))
    sources = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and _is_triton_call(node.value):
            name = ast.unparse(node.targets[0])
            sources[name] = _second_text(node.value, name)
    calls = sum(map(_is_triton_call, nodes))
    if calls != len(sources):
        raise ValueError(f"{calls} calls of async_compile.triton, and {len(sources)} of them assigned to a name")
    return sources


def function_of(kernel_source: str) -> str:
    """The name of the decorated function in the source of one kernel. Raises ValueError for none or several."""
    return _kernel_definition(kernel_source)[0].name


def kind_of(kernel_source: str) -> str:
    """Returns the heuristic that decorates the kernel: "template", "pointwise", "reduction" and so on.

    Raises ValueError if ``kernel_source`` has none or several functions with such a decorator.
    """
    return _kernel_definition(kernel_source)[1]


def _kernel_definition(source: str) -> tuple[ast.FunctionDef, str]:
    definitions = [
        (node, heuristic)
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        for heuristic in _heuristics(node)
    ]
    if len(definitions) != 1:
        raise ValueError(f"{len(definitions)} functions are decorated by triton_heuristics, a kernel's source has one")
    return definitions[0]


def _heuristics(function: ast.FunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Attribute) and ast.unparse(called.value) == "triton_heuristics":
            yield called.attr


def _is_triton_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "async_compile.triton"


def _second_text(call: ast.AST, name: str) -> str:
    arguments = call.args if isinstance(call, ast.Call) else []
    source = arguments[1] if len(arguments) > 1 else None
    if isinstance(source, ast.Constant) and isinstance(source.value, str):
        return source.value
    raise ValueError(f"the source of {name} is not a literal text in its call of async_compile.triton")
