"""A few lines about a file of kernels: which operation it computes, and the call that launches it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Annotated, Any

import msgspec

#: The name of the table in the file itself.
VARIABLE = "CONFORMANCE"


class DescriptionError(Exception):
    """The description cannot be used; the message says what is required."""


class Described(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One operation of a file.

    ``operation`` is that of a family, such as "mm". ``call`` is an expression in the names of the file, of the
    operands and of the problem's fields, such as "matmul(a, b)". ``dtypes`` are those of the operands, ``fields`` those
    of every problem, such as a mask. ``contract`` has fields of the contract. ``shapes`` are the shape classes that are
    asked for, in one order of memory; without them all are, and the other orders. ``configs`` are the numbers of those
    configs of a tuner that are judged; without them all are.
    """

    operation: str
    call: str
    name: str = ""
    dtypes: tuple[str, ...] = ("fp16", "bf16")
    fields: dict[str, Any] = {}
    contract: dict[str, Any] = {}
    outputs: tuple[str, ...] = ()
    tile: tuple[int, ...] = ()
    shapes: tuple[str, ...] = ()
    configs: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] = ()


#: The calls of functions with the usual names, by what they compute.
USUAL = {
    "mm": ("matmul", "mm", "gemm"),
    "bmm": ("bmm", "batched_matmul"),
    "addmm": ("addmm",),
    "attention": ("attention", "flash_attention", "flash_attn"),
}
_OPERANDS = {"attention": "q, k, v", "addmm": "bias, a, b"}


def root_of(path: Path) -> Path:
    """Returns the folder from which the file at ``path`` is imported: that above the packages in which it lies."""
    folder = path.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def described(path: Path) -> list[Described]:
    """Returns the description of the file at ``path``: FILE.conformance.toml next to it, or its own variable
    CONFORMANCE. Without either, functions with a usual name such as ``matmul(a, b)`` are described.

    Raises DescriptionError if nothing is said, or if that cannot be used."""
    beside = path.with_suffix(".conformance.toml")
    if beside.is_file():
        return checked(beside.name, _toml(beside).get("kernel"))
    try:
        tree = ast.parse(path.read_text())
    except OSError as error:
        raise DescriptionError(f"{path} cannot be read: {error.strerror or error}") from None
    except (SyntaxError, ValueError) as error:
        raise DescriptionError(f"{path} is not a file of Python: {error}") from None
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [VARIABLE]:
            try:
                table = ast.literal_eval(node.value)
            except ValueError:
                raise DescriptionError(
                    f"{path.name}: {VARIABLE} must be a literal: a dict, or a list of them"
                ) from None
            return checked(f"{path.name}: {VARIABLE}", table)
    usual = [entry for node in tree.body if isinstance(node, ast.FunctionDef) for entry in _usual(node)]
    if not usual:
        raise DescriptionError(
            f'nothing says what {path.name} computes: write {beside.name} with [[kernel]], operation = "mm" and call = '
            f'"matmul(a, b)", or the same as a dict {VARIABLE} in the file'
        )
    return usual


def _usual(node: ast.FunctionDef) -> list[Described]:
    for operation, names in USUAL.items():
        operands = _OPERANDS.get(operation, "a, b")
        if node.name in names and len(node.args.args) - len(node.args.defaults) == len(operands.split(", ")):
            return [Described(operation=operation, call=f"{node.name}({operands})")]
    return []


def _toml(path: Path) -> dict[str, Any]:
    try:
        return dict(msgspec.toml.decode(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise DescriptionError(f"{path.name} cannot be read: {error}") from None


def checked(where: str, tables: Any) -> list[Described]:
    """Returns the descriptions in ``tables``, a mapping or several. Raises DescriptionError, which names ``where``."""
    try:
        entries = msgspec.convert(tables if isinstance(tables, list) else [tables], list[Described])
    except msgspec.ValidationError as error:
        raise DescriptionError(f"{where}: {error}; each kernel needs an operation and a call") from None
    for entry in entries:
        try:
            ast.parse(entry.call, mode="eval")
        except SyntaxError:
            raise DescriptionError(f"{where}: the call {entry.call!r} is not one expression of Python") from None
        if entry.name and not re.fullmatch(r"\w[\w.]*", entry.name):
            raise DescriptionError(f"{where}: a kernel is called {entry.name!r}; use letters, digits, '_' and '.'")
    return entries
