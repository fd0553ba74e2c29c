"""The places that ask of which family a problem is. A family should answer by itself: each place outside the families
and their kernels has a reason, and the counts may only fall."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from conformance.families.family import REGISTERED

PACKAGE = Path(__file__).resolve().parents[1] / "conformance"
#: Rooms that know their own family.
OWN = ("families", "kernels")
#: The switches of the whole package. Lower it when one goes.
MOST = 80
_SUITE = "the test is about kernels of these families"
_ROWS = "heuristics scale rows to a product's sizes, and know products, convolutions and attention alone"
#: Why a function in the rooms outside OWN has so many switches.
OUTSIDE: dict[str, tuple[int, str]] = {
    "calibration/device.py::conversions": (1, "the kernel that is named after the operation stands for it"),
    "calibration/device.py::device_probes": (1, "the kernel that is named after the operation stands for it"),
    "cases/scenarios.py::has_own_code": (2, "kernels that share device code are listed by name"),
    "cases/scenarios.py::matches": (1, "suites select the kernels of a family by its name"),
    "cases/selected_rows.py::_judged": (2, _ROWS),
    "cases/selected_rows.py::_defaults": (1, _ROWS),
    "cases/selected_rows.py::size_of": (3, _ROWS),
    "inductor/replay/pinned_programs.py::expected_grid": (
        1,
        "the kernel that is named after the operation stands for it",
    ),
    "inductor/topics/gemm.py::_": (2, "torch has a function for each of these operations"),
    "plain_files/file_kernel.py::kernel_of": (1, "a plain file names its operation in a word"),
    "suites/test_alignment.py::test_refusal_names_operand_bytes_and_rule": (1, "the kernel's own reason is looked up"),
    "suites/test_config_space.py::alignments": (1, _SUITE),
    "suites/test_config_space.py::takes_constants": (1, _SUITE),
    "suites/test_config_space.py::knows_depth": (1, _SUITE),
    "suites/test_config_space.py::test_refusals_of_examples": (1, "there is a case for each family"),
    "suites/test_dynamic_shapes.py::test_tile_edges": (1, "split K is the only family with parts"),
    "suites/test_microscaling.py::any_format": (1, _SUITE),
    "suites/test_microscaling.py::test_descriptors": (1, _SUITE),
    "suites/test_stress.py::shown": (1, "a sample is a list of names"),
    "suites/test_strided_operands.py::test_strides_past_2_31_elements": (1, "split K is the only family with parts"),
}
#: Attributes whose comparison asks for an operation, a family or a kernel.
ASKED = {"op", "family", "operation"}


def problem_classes() -> set[str]:
    """Returns the names of the problem classes of this package, with those that inherit from them."""
    classes = [problems for problems in REGISTERED if problems.__module__.startswith("conformance.")]
    for problems in classes:
        classes += [below for below in problems.__subclasses__() if below not in classes]
    return {problems.__name__ for problems in classes}


def switches(source: str, classes: set[str]) -> list[str]:
    """Returns the names of the innermost functions of ``source`` that have a switch, once for each switch.

    A switch is an ``isinstance`` or a ``match`` of a problem's class. A comparison of an operation, of a family or of
    the name of a kernel or class is one, too. So is a lookup by one of these in a table or by ``getattr``. A variable
    that is assigned one of these stands for it.
    """
    in_functions: list[str] = []

    def visit(node: ast.AST, function: str, local: frozenset[str]) -> None:
        if isinstance(node, ast.FunctionDef):
            function, local = node.name, local | _assigned(node)
        if _is_switch(node, classes, local):
            in_functions.append(function)
        for child in ast.iter_child_nodes(node):
            visit(child, function, local)

    visit(ast.parse(source), "<module>", frozenset())
    return sorted(in_functions)


def _assigned(function: ast.FunctionDef) -> frozenset[str]:
    """The variables of ``function`` that are assigned an operation, a family, or the name of a kernel or class."""
    names = set()
    for node in ast.walk(function):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                names |= {name} if _asks(value) else set()
    return frozenset(names)


def _is_switch(node: ast.AST, classes: set[str], local: frozenset[str]) -> bool:
    def asks(side: ast.expr) -> bool:
        return _asks(side) or (isinstance(side, ast.Name) and side.id in local)

    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            return any(isinstance(part, ast.Name) and part.id in classes for part in ast.walk(kinds))
        case ast.MatchClass(cls=ast.Name(id=name)):
            return name in classes
        case ast.Compare(left=left, comparators=others):
            return any(asks(side) for side in (left, *others))
        case ast.Call(func=ast.Attribute(value=value, attr="startswith" | "endswith")) if asks(value):
            return True
        case ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]):
            return asks(key)
        case ast.Call(func=ast.Name(id="getattr"), args=[_, key, *_]):
            return asks(key)
        case ast.Subscript(slice=key, ctx=ast.Load()):
            return asks(key) or (isinstance(key, ast.Call) and isinstance(key.func, ast.Name) and key.func.id == "type")
        case ast.Match(subject=subject):
            return asks(subject)
    return False


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


def counted(package: Path) -> dict[str, int]:
    """Returns the number of switches of each function that has one, by file and function."""
    classes = problem_classes()
    in_functions = Counter(
        f"{path.relative_to(package).as_posix()}::{function}"
        for path in package.rglob("*.py")
        for function in switches(path.read_text(), classes)
    )
    return dict(sorted(in_functions.items()))


def test_there_are_no_more_switches_than_before():
    in_functions = counted(PACKAGE)
    outside = {function: count for function, count in in_functions.items() if function.split("/")[0] not in OWN}
    assert outside == {function: count for function, (count, _) in OUTSIDE.items()}
    assert sum(in_functions.values()) == MOST


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
        "TABLE[problem.op]",
        "TABLE[type(problem)]",
        "TABLE.get(kernel.name)",
        "getattr(problems, kernel.operation)",
        "def f(problem):\n    operation = problem.op\n    return operation == 'mm'",
        "def f(kernel):\n    return (family := kernel.family) and TABLE[family]",
    ],
)
def test_a_switch_is_seen(source):
    assert len(switches(source, problem_classes())) == 1


@pytest.mark.parametrize(
    "source",
    ["isinstance(value, int)", "problem.dtype == 'fp16'", "problem.M in (1, 2)", "TABLE[kernel.name] = kernel"],
)
def test_other_comparisons_are_no_switches(source):
    assert switches(source, problem_classes()) == []
