"""The places that ask of which family a problem is. A family should answer by itself; these counts may only fall."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from conformance.families.family import REGISTERED

PACKAGE = Path(__file__).resolve().parents[1] / "conformance"
#: Rooms that know their own family.
OWN = ("families", "kernels")
#: The most switches in the rooms outside OWN, and in the whole package. Lower them when a switch goes.
MOST_OUTSIDE, MOST = 20, 70
#: Attributes whose comparison asks for an operation, a family or a kernel.
ASKED = {"op", "family", "operation"}


def problem_classes() -> set[str]:
    """Returns the names of the problem classes of this package, with those that inherit from them."""
    classes = [problems for problems in REGISTERED if problems.__module__.startswith("conformance.")]
    for problems in classes:
        classes += [below for below in problems.__subclasses__() if below not in classes]
    return {problems.__name__ for problems in classes}


def switches(source: str, classes: set[str]) -> list[int]:
    """Returns the lines of ``source`` with a switch.

    A switch is an ``isinstance`` or a ``match`` of a problem's class. A comparison of an operation, of a family or of
    the name of a kernel or class is one, too. So is a lookup by one of these in a table that stands in the line.
    """
    lines = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                found = any(isinstance(part, ast.Name) and part.id in classes for part in ast.walk(kinds))
            case ast.MatchClass(cls=ast.Name(id=name)):
                found = name in classes
            case ast.Compare(left=left, comparators=others):
                found = any(_asks(side) for side in (left, *others))
            case ast.Call(func=ast.Attribute(value=value, attr="startswith" | "endswith")):
                found = _asks(value)
            case ast.Call(func=ast.Attribute(value=ast.Dict(), attr="get"), args=[key, *_]):
                found = _asks(key)
            case ast.Subscript(value=ast.Dict(), slice=key):
                found = _asks(key)
            case ast.Match(subject=subject):
                found = _asks(subject)
            case _:
                found = False
        if found:
            lines.append(getattr(node, "lineno", None) or node.cls.lineno)
    return sorted(lines)


def _asks(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="node")):  # of Inductor's graphs
            return False
        case ast.Attribute(attr=attribute) if attribute in ASKED:
            return True
        case ast.Attribute(value=ast.Name(id="kernel"), attr="name"):
            return True
        case ast.Attribute(attr="__name__", value=ast.Call(args=[of])):  # other values are arguments and exceptions
            own = isinstance(of, ast.Name) and of.id in ("kernel", "problem", "self")
            return own or isinstance(of, ast.Attribute)
    return False


def counted(package: Path) -> dict[str, list[int]]:
    """Returns the lines with switches, by file."""
    classes = problem_classes()
    found = {
        path.relative_to(package).as_posix(): switches(path.read_text(), classes) for path in package.rglob("*.py")
    }
    return {file: lines for file, lines in sorted(found.items()) if lines}


def test_there_are_no_more_switches_than_before():
    found = counted(PACKAGE)
    outside = {file: lines for file, lines in found.items() if file.split("/")[0] not in OWN}
    listed = "\n".join(f"{file}: lines {', '.join(map(str, lines))}" for file, lines in outside.items())
    counts = sum(map(len, outside.values())), sum(map(len, found.values()))
    assert counts == (MOST_OUTSIDE, MOST), f"outside {' and '.join(OWN)}:\n{listed}"


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(problem, Gemm)",
        "isinstance(problem, (Conv, int))",
        "problem.op == 'mm'",
        "kernel.family in ('gemm', 'conv')",
        "'decode' in kernel.name",
        "kernel.name.startswith('contiguous_')",
        "type(kernel).__name__ == 'LegacyTma'",
        "{'mm': 1}.get(problem.op, 2)",
        "{'mm': 1}[problem.op]",
        "match problem:\n    case Attention():\n        pass",
        "match problem.op:\n    case 'mm':\n        pass",
    ],
)
def test_a_switch_is_seen(source):
    assert len(switches(source, problem_classes())) == 1


@pytest.mark.parametrize("source", ["isinstance(value, int)", "problem.dtype == 'fp16'", "problem.M in (1, 2)"])
def test_other_comparisons_are_no_switches(source):
    assert switches(source, problem_classes()) == []
