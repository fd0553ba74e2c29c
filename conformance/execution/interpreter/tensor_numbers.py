"""Numbers that are tensors when a kernel is compiled, and plain Python numbers in Triton's interpreter.

The compiler makes a tensor of a loop's index, of a float argument and of each number in ``a, b = 0, 1.0``. ``min`` and
``max`` of tensors are tensors, too. So ``i.to(tl.int64)`` compiles, and ``i * stride`` is a product of 32 bits. What is
constant when it compiles, such as ``tl.constexpr`` and the index of ``tl.static_range``, stays a number.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from conformance.execution.interpreter.savings import Replacements

#: The interpreter's variable through which the code of a kernel calls the methods that are added to the builder.
_BUILDER = "interpreter_builder"
#: Types that the compiler takes from the annotation of an argument: of Triton's name -> NumPy's.
_ANNOTATED = {
    "int1": np.bool_,
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": np.dtype(f"float{bits}").type for bits in (16, 32, 64)},
}
#: Normal numbers of fp32: a float outside of them is one of fp64, unless it is 0, infinite or NaN.
_LEAST_FP32 = 2.0**-126
_MOST_FP32 = (2 - 2.0**-23) * 2.0**127


def number_type(value: Any) -> str:
    """Returns the type that the compiler gives to a Python number, as NumPy names it.

    >>> number_type(1), number_type(2**31), number_type(0.5), number_type(True)
    ('int32', 'uint32', 'float32', 'int1')
    """
    if isinstance(value, bool):
        return "int1"
    if isinstance(value, float):
        normal = _LEAST_FP32 <= abs(value) <= _MOST_FP32
        return "float32" if normal or not np.isfinite(value) or value == 0 else "float64"
    for name in ("int32", "uint32", "int64", "uint64"):
        if np.iinfo(name).min <= value <= np.iinfo(name).max:
            return name
    raise ValueError(f"{value} has more than 64 bits")


def promoted(first: str, second: str) -> str:
    """Returns the type of an index whose bounds have these two integer types, as Triton promotes them.

    >>> promoted("int32", "int64"), promoted("int32", "uint32"), promoted("uint32", "int64")
    ('int64', 'uint32', 'int64')
    """
    if first.startswith("u") == second.startswith("u"):
        return max(first, second, key=lambda name: np.iinfo(name).bits)
    unsigned, signed = sorted((first, second), reverse=True)
    return unsigned if np.iinfo(unsigned).bits >= np.iinfo(signed).bits else signed


class TensorNumbers:
    """Makes tensors of numbers for ``interpreter``, the module ``triton.runtime.interpreter``."""

    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter
        self._tl = interpreter.tl
        #: The functions that were rewritten for the compiler's numbers; Triton keeps others for its own launches.
        self._rewritten: dict[Any, Any] = {}

    def tensor(self, value: Any) -> Any:
        """Returns the tensor that the compiler makes of a number; what is none is returned as it is."""
        value = getattr(value, "value", value) if isinstance(value, self._tl.constexpr) else value
        return self._typed(value, number_type(value)) if isinstance(value, (bool, int, float)) else value

    def _typed(self, value: Any, name: str) -> Any:
        tl, kind = self._tl, getattr(self._tl, name)
        return tl.tensor(self._interpreter.TensorHandle(np.array([value]).astype(_ANNOTATED[name]), kind), kind)

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Returns the methods of the builder that the code of a kernel calls."""
        return {
            "loop_indices": lambda _, function, *bounds, **named: self._loop(function, bounds, named),
            "of_numbers": lambda _, function, *values, **named: self._extreme(function, values, named),
            "assigned": lambda _, value: self.tensor(value),
            "assigned_each": lambda _, values: tuple(map(self.tensor, values)) if isinstance(values, tuple) else values,
        }

    def replacements(self) -> Replacements:
        """Returns what is replaced while a launch runs."""
        transformer, executor = self._interpreter.ASTTransformer, self._interpreter.GridExecutor
        return [
            (executor, {"__call__": self._call(executor.__call__)}),
            (self._interpreter.InterpretedFunction, {"rewritten_fn": self._rewritten}),
            (transformer, {"visit_Assign": _visit_assign, "visit_AnnAssign": _visit_ann_assign}),
            (transformer, {"visit_For": _visit_for, "visit_Call": _visit_call}),
        ]

    def _call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a replacement for what runs a launch: floats, booleans and numbers whose parameter has a type become
        tensors first."""

        def call(executor: Any, *values: Any, **named: Any) -> Any:
            parameters = inspect.signature(executor.fn).parameters
            arguments = {**dict(zip(executor.arg_names, values, strict=False)), **named}
            for name in arguments.keys() & parameters.keys() - {*executor.constexprs}:
                arguments[name] = self._argument(arguments[name], _annotation(parameters[name].annotation))
            return original(executor, **arguments)

        return call

    def _argument(self, value: Any, annotation: str) -> Any:
        if isinstance(value, tuple):
            values = [self._argument(each, "") for each in value]
            return type(value)(*values) if hasattr(value, "_fields") else tuple(values)
        if not isinstance(value, (bool, int, float)):
            return value
        if annotation in _ANNOTATED:
            return self._typed(value, annotation)
        if isinstance(value, float):
            return self._typed(value, "float32")  # whatever its size
        return self.tensor(value) if isinstance(value, bool) else value

    def _loop(self, function: Any, bounds: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return self.indices(*bounds) if function is builtins.range else function(*bounds, **named)

    def indices(self, first: Any, last: Any = None, step: Any = None, **_: Any) -> Iterator[Any]:
        """Yields the indices of ``range`` and ``tl.range``, each a tensor of the type to which the bounds are
        promoted."""
        bounds = (0, first) if last is None else (first, last)
        tensors = [self.tensor(bound) for bound in (*bounds, 1 if step is None else step)]
        name = functools.reduce(promoted, (str(tensor.handle.data.dtype) for tensor in tensors))
        for index in range(*map(int, tensors)):
            yield self._typed(index, name)

    def _extreme(self, function: Any, values: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Returns min or max of ``values``, as the compiler computes it if one of them is a tensor."""
        of_tensors = {builtins.min: self._tl.minimum, builtins.max: self._tl.maximum}.get(function)
        if of_tensors is None or not any(isinstance(value, self._tl.tensor) for value in values):
            return function(*values, **named)
        return functools.reduce(functools.partial(of_tensors, **named), map(self.tensor, values))


def _annotation(annotation: Any) -> str:
    """Returns the name of the type of a parameter, without ``tl.``; "" if it has none."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "name", None)
    text = getattr(annotation, "__name__", "") if text is None else text
    short = text.strip().rpartition(".")[2]
    return {"fp16": "float16", "fp32": "float32", "fp64": "float64", "bool": "int1"}.get(short, short)


def _calling(method: str, node: ast.expr, *arguments: ast.expr, keywords: Any = ()) -> ast.Call:
    function = ast.Attribute(ast.Name(_BUILDER, ast.Load()), method, ast.Load())
    return ast.copy_location(ast.Call(function, list(arguments), list(keywords)), node)


def _visit_assign(self: Any, node: ast.Assign) -> ast.Assign:
    if len(node.targets) > 1:
        raise ValueError("Multiple assignments are not supported")
    each = isinstance(node.targets[0], ast.Tuple)
    node.value = _calling("assigned_each" if each else "assigned", node.value, self.visit(node.value))
    return node


def _visit_ann_assign(self: Any, node: ast.AnnAssign) -> ast.AnnAssign:
    if node.value is not None:
        node.value = self.visit(node.value)
        if not ast.unparse(node.annotation).endswith("constexpr"):
            node.value = _calling("assigned", node.value, node.value)
    return node


def _visit_for(self: Any, node: ast.For) -> ast.For:
    self.generic_visit(node)
    loop = node.iter
    if isinstance(loop, ast.Call) and isinstance(loop.func, ast.Name):
        node.iter = _calling("loop_indices", loop, loop.func, *loop.args, keywords=loop.keywords)
    return node


def _visit_call(self: Any, node: ast.Call) -> ast.Call:
    self.generic_visit(node)
    if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        return _calling("of_numbers", node, node.func, *node.args, keywords=node.keywords)
    return node
