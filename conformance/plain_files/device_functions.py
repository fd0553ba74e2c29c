"""The device functions of a file, built from its text and from nothing that its code has done.

The statements of a function are compiled where they stand, so that messages name the lines of the file. Its globals are
Triton's language, constants and other device functions. A function whose code names anything else is refused. So
neither the compiler nor the interpreter runs other code of the file.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import re
import textwrap
import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import triton
import triton.language as tl

from conformance.plain_files.tape import Callee, Constant, Dtype, Function, Global, Module, Namespace

#: Functions of Python that the language has, too.
_BUILTINS = frozenset({"range", "min", "max", "abs", "sum", "len", "int", "float", "bool", "str", "tuple", "list"})
_BUILTINS |= {"zip", "enumerate", "isinstance", "print", "slice", "ValueError", "AssertionError"}
#: Statements and expressions of device code, by their classes; those of other classes are refused.
_OF_DEVICE_CODE = (
    *(ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.With, ast.withitem),
    *(ast.Raise, ast.Assert, ast.Expr, ast.Pass, ast.Break, ast.Continue),
    *(ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.ListComp, ast.GeneratorExp),
    *(ast.comprehension, ast.Compare, ast.Call, ast.keyword, ast.JoinedStr, ast.FormattedValue, ast.Constant),
    *(ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice),
    *(ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop),
)
#: Arguments of ``triton.jit`` that change neither the code nor the launch: they name the kernel for a profiler.
_FOR_PROFILERS = frozenset({"launch_metadata", "repr"})
#: Attributes that values of the language have, and their classes lack.
_OF_VALUES = frozenset({"type", "dtype", "shape", "numel", "element_ty", "primitive_bitwidth", "itemsize", "strides"})
_OF_VALUES |= {"fp_mantissa_width", "int_bitwidth", "int_signedness", "block_shape", "value"}
#: Attributes of the package triton itself that device code may name.
_OF_TRITON = frozenset({"language", "cdiv", "next_power_of_2"})


class ForeignCode(Exception):
    """A device function names what is not of Triton's language."""


class Taken(Function, frozen=True, forbid_unknown_fields=True):
    """A device function with its ``text``, each line where it is in the file, and the ``options`` of its
    ``triton.jit``. ``is_own``: it is of this package."""

    text: str = ""
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    is_own: bool = False

    def renamed(self, name: str) -> Taken:
        """Returns the function with another name."""
        text = re.sub(rf"^def {self.name}\b", f"def {name}", self.text, count=1, flags=re.MULTILINE)
        return msgspec.structs.replace(self, name=name, text=text)


def taken(functions: Sequence[Function], root: Path, apart: Path) -> tuple[Taken, ...]:
    """Returns ``functions`` with their text. Each file is read once, after the process of the file's code has ended.

    Raises ForeignCode for a file that is not below ``root``, and for a function that the text lacks. A file in
    ``apart``, where that process could write, counts as no file."""
    texts: dict[str, str] = {}
    return tuple(_taken(function, root, apart, texts) for function in functions)


def _taken(function: Function, root: Path, apart: Path, texts: dict[str, str]) -> Taken:
    try:
        path = Path(function.path).resolve()
        if not path.is_relative_to(root):
            raise ForeignCode(f"{_place(function)} is of a library: only kernels below {root} are judged")
        if path.is_relative_to(apart.resolve()) or not path.is_file():
            raise ForeignCode(f"{_place(function)} is in no file of the user: it was made while the file ran")
        if function.path not in texts:
            with tokenize.open(path) as file:
                texts[function.path] = file.read()
        tree = ast.parse(texts[function.path])
    except (OSError, SyntaxError, ValueError) as error:
        raise ForeignCode(f"{_place(function)} cannot be read: {error}") from None
    for node in ast.walk(tree):
        first = min((each.lineno for each in getattr(node, "decorator_list", ())), default=0)
        if isinstance(node, ast.FunctionDef) and node.name == function.name and function.line in (first, node.lineno):
            # as Python counts lines: str.splitlines counts more
            lines = texts[function.path].split("\n")[node.lineno - 1 : node.end_lineno]
            text = "\n" * (node.lineno - 1) + textwrap.dedent("\n".join(lines)) + "\n"
            options = _options(function, node)
            text = _without_foreign_annotations(text, _definition(function, text))
            return Taken(**_fields(function), text=text, options=options)
    raise ForeignCode(f"{_place(function)} is not in the text of its file: it was made while the file ran")


def _fields(function: Function) -> dict[str, Any]:
    return {name: getattr(function, name) for name in Function.__struct_fields__}


def device_functions(functions: Sequence[Taken], folder: Path) -> list[Any]:
    """Returns what ``triton.jit`` makes of each of ``functions``. Their text is written to ``folder``, from where
    Triton reads it. Raises ForeignCode for one that names anything but the language."""
    definitions = [_definition(function, function.text) for function in functions]
    built: list[Any] = []
    scopes: list[dict[str, Any]] = []
    for number, (function, node) in enumerate(zip(functions, definitions, strict=True)):
        scope: dict[str, Any] = {"__name__": f"judged_{number}", "__builtins__": _python(), "tl": tl, "triton": triton}
        scope["__annotations__"] = dict.fromkeys(function.annotated, tl.constexpr)
        python = _compiled(function, node, folder / f"{number}" / Path(function.path).name, scope)
        try:
            built.append(triton.jit(**function.options)(python))
        except Exception as error:
            raise ForeignCode(f"{_place(function)} is no function of triton.jit: {error}") from None
        scopes.append(scope)
    for function, node, scope in zip(functions, definitions, scopes, strict=True):
        if hidden := {name for name in _of_parts(node) if hasattr(builtins, name)} - _BUILTINS:
            text = f"names {min(hidden)}, which only a part of it makes and Python has, too"
            raise ForeignCode(f"{_place(function)} {text}")
        for name in _named(node):
            if name in function.module_globals:
                scope[name] = _value(function, name, function.module_globals[name], built)
            elif name not in _BUILTINS:
                raise ForeignCode(
                    f"{_place(function)} names {name}, which is neither a constant nor of Triton's language"
                )
        _check(function, node, scope, built)
    return built


def _of_parts(node: ast.FunctionDef) -> set[str]:
    """Returns the names that a comprehension makes: outside, they are others."""
    inner = [each.target for each in ast.walk(node) if isinstance(each, ast.comprehension)]
    return {each.id for target in inner for each in ast.walk(target) if isinstance(each, ast.Name)}


def _python() -> dict[str, Any]:
    """Returns what device code may have of Python: a name that only a part of a function makes is looked up here."""
    return {name: getattr(builtins, name) for name in _BUILTINS}


def _place(function: Function) -> str:
    return f"{function.name} ({Path(function.path).name}:{function.line})"


def _definition(function: Function, text: str) -> ast.FunctionDef:
    """Returns the one statement of ``text``."""
    try:
        (node,) = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise ForeignCode(f"{_place(function)} cannot be taken from its file: {error}") from None
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        raise ForeignCode(f"{_place(function)} cannot be taken from its file: it is no function there")
    return node


def _options(function: Function, node: ast.FunctionDef) -> dict[str, Any]:
    """Returns the arguments of the function's ``triton.jit``."""
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        name = ast.unparse(call.func if call is not None else decorator)
        if name.rpartition(".")[2] != "jit":
            continue
        try:
            given = {each.arg: each.value for each in (call.keywords if call else ()) if each.arg}
            return {name: ast.literal_eval(value) for name, value in given.items() if name not in _FOR_PROFILERS}
        except ValueError:
            raise ForeignCode(f"{_place(function)}: the arguments of its jit must be literals") from None
    raise ForeignCode(f"{_place(function)} has no decorator triton.jit in the text of its file")


def _compiled(function: Taken, definition: ast.FunctionDef, path: Path, scope: dict[str, Any]) -> Any:
    """Returns the function of Python, whose lines have the numbers that they have in the user's file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(function.text, encoding="utf-8")
    arguments = definition.args
    for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
        try:
            ast.literal_eval(default)
        except ValueError:
            if not isinstance(_static(default, scope), tl.dtype):
                raise ForeignCode(
                    f"{_place(function)}: the default {ast.unparse(default)} must be a literal or a dtype of tl"
                ) from None
    if arguments.vararg or arguments.kwarg or getattr(definition, "type_params", None):
        raise ForeignCode(f"{_place(function)} has * or ** among its parameters, or parameters of types")
    exec(compile(ast.Module([definition], []), str(path), "exec", dont_inherit=True), scope)
    return scope[definition.name]


def _without_foreign_annotations(text: str, definition: ast.FunctionDef) -> str:
    """Returns the ``text`` of a function's ``definition``, in which each annotation that Triton does not read is blank.
    What says ``constexpr`` says ``tl.constexpr``. Lines stay: the interpreter evaluates what stands there."""
    starts = [0]  # of the lines, in bytes, as the columns of the tree are
    for line in text.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    data = text.encode()
    spans: list[tuple[int, int, bytes]] = []
    for argument in (*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs):
        said = argument.annotation
        if said is None or _is_type(said):
            continue
        first = starts[argument.lineno - 1] + argument.col_offset + len(argument.arg.encode())
        last = starts[(said.end_lineno or 1) - 1] + (said.end_col_offset or 0)
        spans.append((first, last, b": tl.constexpr" if "constexpr" in ast.unparse(said) else b""))
    if (said := definition.returns) is not None:
        last = starts[(said.end_lineno or 1) - 1] + (said.end_col_offset or 0)
        spans.append((starts[said.lineno - 1] + said.col_offset, last, b"None"))
    for first, last, instead in sorted(spans, reverse=True):
        data = data[:first] + instead + b"\n" * data[first:last].count(b"\n") + data[last:]
    return data.decode()


def _is_type(annotation: ast.expr) -> bool:
    """True for an annotation from which Triton reads a type, such as ``tl.int64`` or ``"fp32"``."""
    if isinstance(annotation, ast.Constant):
        return isinstance(annotation.value, str) and "constexpr" not in annotation.value
    return isinstance(_static(annotation, {"tl": tl, "triton": triton}), tl.dtype)


def _named(node: ast.FunctionDef) -> list[str]:
    """Returns the names that the statements of ``node`` read and do not make."""
    inside = [each for statement in node.body for each in ast.walk(statement)]
    built = {each.id for each in inside if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    built |= {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    read = [each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
    return [name for name in dict.fromkeys(read) if name not in built]


def _value(function: Function, name: str, value: Global, built: Sequence[Any]) -> Any:
    """Returns the value of a global."""
    if isinstance(value, Module):
        if value.name == "triton" or _is_language(value.name):
            return _module(function, value.name)
        raise ForeignCode(f"{_place(function)} names the module {value.name}, which is not Triton's language")
    if isinstance(value, Namespace):
        space = ModuleType(name)
        space.__dict__.update(
            {attribute: _value(function, name, each, built) for attribute, each in value.items.items()}
        )
        return space
    if isinstance(value, Callee) and value.name:
        module, _, attribute = value.name.partition(":")
        if module.partition(".")[0] == "triton" and attribute in _OF_TRITON:
            return getattr(triton, attribute)
        # the text is not trusted: what a module of the language imports is not the language
        of_language = getattr(_module(function, module), attribute, None) if _is_language(module) else None
        if of_language is None or attribute.startswith("_") or not _is_language(_module_of(of_language)):
            raise ForeignCode(f"{_place(function)} names {name} of {module}, which is not Triton's language")
        return of_language
    try:
        return _plain(value, built)
    except AssertionError:
        raise ForeignCode(f"{_place(function)} names {name}, which has a dtype that Triton lacks") from None


def _module(function: Function, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ForeignCode(f"{_place(function)} cannot have {name}: {error}") from None


def _is_language(module: str) -> bool:
    """True if ``module`` is Triton's language, or a part of it."""
    return f"{module}.".startswith("triton.language.")


def _plain(value: Any, built: Sequence[Any]) -> Any:
    if isinstance(value, Callee):
        return built[value.number]
    if isinstance(value, Constant):
        return tl.constexpr(_plain(value.value, built))
    return tl.dtype(value.name) if isinstance(value, Dtype) else value.python


def _check(function: Function, node: ast.FunctionDef, scope: Mapping[str, Any], built: Sequence[Any]) -> None:
    """Raises ForeignCode if the function's code leaves the language."""
    for each in (inside for statement in node.body for inside in ast.walk(statement)):
        line = f"{Path(function.path).name}:{getattr(each, 'lineno', node.lineno)}"
        if not isinstance(each, _OF_DEVICE_CODE):
            raise ForeignCode(f"{function.name} ({line}) has a statement that device code may not have")
        if isinstance(each, ast.Attribute):
            if each.attr.startswith("_"):
                raise ForeignCode(f"{function.name} ({line}) names the attribute {each.attr}, which begins with '_'")
            if _static(each.value, scope) is None and each.attr not in _attributes():
                raise ForeignCode(
                    f"{function.name} ({line}) names {each.attr}, which no value of Triton's language has"
                )
            named = _static(each, scope)
            if any(named is own for own in built):
                continue
            module = _module_of(named)
            if module != "triton" and not _is_language(module):
                raise ForeignCode(
                    f"{function.name} ({line}) names {each.attr} of {module}, which is not Triton's language"
                )


@functools.cache
def _attributes() -> frozenset[str]:
    """Returns the attributes that values of the language have. ``handle`` leads to NumPy's in the interpreter."""
    kinds = (
        tl.tensor,
        tl.dtype,
        tl.pointer_type,
        tl.block_type,
        tl.constexpr,
        getattr(tl, "tensor_descriptor", tl.tensor),
    )
    names = {*_OF_VALUES, *(name for kind in kinds for name in dir(kind))}
    return frozenset(name for name in names if not name.startswith("_")) - {"handle"}


def _module_of(value: Any) -> str:
    """Returns the module of ``value``, or its own name; "triton" for a plain value."""
    if isinstance(value, ModuleType):
        return value.__name__
    owner = getattr(value, "fn", value)  # a function of triton.jit, interpreted or not
    return (getattr(owner, "__module__", None) or "triton") if callable(value) else "triton"


def _static(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """Returns the value of a chain of names that begins with a module; None of any other expression."""
    if isinstance(node, ast.Name):
        value = scope.get(node.id)
        return value if isinstance(value, ModuleType) else None
    if isinstance(node, ast.Attribute):
        owner = _static(node.value, scope)
        if owner is triton and node.attr not in _OF_TRITON:
            return importlib.import_module("os")
        return getattr(owner, node.attr, None) if owner is not None else None
    return None
