"""The rooms import one way, and what reads records starts without torch and triton."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "conformance"

#: From the ground up: a room imports from those before it. Rooms on one line do not import each other.
ORDER = [
    ("short_forms",),
    ("plain_json",),
    ("faults",),
    ("case_status",),
    ("exception_text",),
    ("record_figures",),
    ("cluster_record",),
    ("shard_record",),
    ("case_record",),
    ("records",),
    ("proof_level",),
    ("shards",),
    ("data",),
    ("machine",),
    ("user_files",),
    ("gate",),
    ("reporting",),  # readings of records and comparisons; the plugin shows them
    ("problems",),
    ("targets",),
    ("numerics",),
    ("inputs",),
    ("filecheck",),
    ("codegen_checks",),
    ("heuristics",),
    ("families",),
    ("reference",),
    ("diagnosis",),
    ("kernels",),
    ("execution",),
    ("ttgir",),
    ("inductor",),
    ("calibration", "benchmark"),
    ("size_hints",),
    ("plain_files",),
    ("reproducers",),
    ("cases",),
    ("judging",),
    ("blame",),
    ("mutation",),
    ("selftest",),
    ("ray_cluster",),
    ("screening",),
    ("plugin",),
    ("watching",),
    ("suites",),
    ("commands",),
    ("cli",),
    ("__main__",),
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
RECORDS_ONLY = (
    "short_forms",
    "plain_json",
    "faults",
    "case_status",
    "exception_text",
    "record_figures",
    "cluster_record",
    "shard_record",
    "case_record",
    "records",
    "proof_level",
    "shards",
    "reporting",
    "gate",
    "user_files",
)
STACK = ("torch", "triton")
#: What starts without torch and triton: rooms, and modules of rooms that need them elsewhere. The plugin loads what
#: needs them when the environment has been prepared.
LIGHT_ROOMS = (*RECORDS_ONLY, "machine", "cli", "plugin")
LIGHT_MODULES = ("judging/settings.py", "judging/case_recorder.py")
#: Rooms that may import torch and triton in functions, which are called late.
LATE_ROOMS = ("cli", "plugin", "machine")
#: Rooms that can be used without pytest.
WITHOUT_PYTEST = ("cases", "judging")


def room_of(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0].removesuffix(".py")


def imports(source: str, module: str, is_package: bool, top_level_only: bool = False) -> list[str]:
    """The modules that ``source``, which is ``module``, imports; for ``from x import y`` both x and x.y, as y may be
    one. ``top_level_only`` leaves out what functions import when called and what only type checkers see."""
    found: list[str] = []
    nodes = _top_level(ast.parse(source)) if top_level_only else ast.walk(ast.parse(source))
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")
            base = base[: len(base) - node.level + is_package] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
    return found


def _top_level(tree: ast.AST):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _top_level(node)


def rooms_imported(names: list[str], rooms: set[str]) -> set[str]:
    return {
        parts[1] for parts in (name.split(".") for name in names) if parts[0] == "conformance" and len(parts) > 1
    } & rooms


def wrong_imports(package: Path) -> list[str]:
    """A sentence for every import against the order."""
    wrong = []
    files = [path for path in sorted(package.rglob("*.py")) if path.parent != package or path.name != "__init__.py"]
    for path in files:
        room = room_of(path, package)
        if room not in RANK:
            wrong.append(f"{path.relative_to(package)}: room {room!r} has no place in the order; give it one here")
            continue
        module = ".".join(["conformance", *path.relative_to(package).with_suffix("").parts]).removesuffix(".__init__")
        source, is_package = path.read_text(), path.name == "__init__.py"
        for other in sorted(rooms_imported(imports(source, module, is_package), set(RANK))):
            if other != room and RANK[other] >= RANK[room]:
                wrong.append(f"{path.relative_to(package)}: {room} imports {other}, which comes after it")
        light = room in LIGHT_ROOMS or path.relative_to(package).as_posix() in LIGHT_MODULES
        names = imports(source, module, is_package, top_level_only=room in LATE_ROOMS) if light else []
        if room in WITHOUT_PYTEST and "pytest" in imports(source, module, is_package):
            wrong.append(f"{path.relative_to(package)}: {room} imports pytest and must be usable without it")
        for name in sorted({name.split(".")[0] for name in names} & set(STACK)):
            wrong.append(f"{path.relative_to(package)}: {room} imports {name} and must start without it")
    return wrong


def test_rooms_import_one_way():
    assert wrong_imports(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "source", "message"),
    [
        ("problems.py", "from conformance import plugin", "problems imports plugin"),
        ("problems.py", "from .kernels.launch import Launch", "problems imports kernels"),
        ("numerics/deep.py", "from ..execution import pool", "numerics imports execution"),
        ("inputs/__init__.py", "from ..suites import x", "inputs imports suites"),
        ("kernels/a.py", "def f():\n    import conformance.plugin.options", "kernels imports plugin"),
        ("records.py", "def f():\n    import torch", "records imports torch"),
        ("reporting/a.py", "import triton.language as tl", "reporting imports triton"),
        ("cli.py", "import torch", "cli imports torch"),
        ("plugin/options.py", "from torch import nn", "plugin imports torch"),
        ("judging/case_recorder.py", "def f():\n    import torch", "judging imports torch"),
        ("cases/a.py", "import pytest", "cases imports pytest"),
        ("judging/a.py", "def f():\n    from pytest import fixture", "judging imports pytest"),
        ("attic/a.py", "", "room 'attic' has no place"),
    ],
)
def test_wrong_imports_are_seen(tmp_path, file, source, message):
    path = tmp_path / "conformance" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    (found,) = wrong_imports(tmp_path / "conformance")
    assert message in found


def test_right_imports_are_taken(tmp_path):
    sources = {
        "plugin/fixtures.py": "import pytest\nfrom ..records import Status\ndef f():\n    import torch",
        "judging/conform.py": "import torch\nfrom conformance.execution import x",
    }
    for file, source in sources.items():
        path = tmp_path / "conformance" / file
        path.parent.mkdir(parents=True)
        path.write_text(source)
    assert wrong_imports(tmp_path / "conformance") == []


@pytest.mark.parametrize(
    "module",
    [
        "conformance.records",
        "conformance.reporting.summary",
        "conformance.reporting.summary_text",
        "conformance.reporting.html",
        "conformance.gate.verdict.gate_verdict",
        "conformance.commands.compare",
        "conformance.commands.gate",
        "conformance.commands.report",
        "conformance.commands.verify",
        "conformance.cli",
        "conformance.plugin",
        "conformance.plugin.fixtures",
        "conformance.plugin.parametrisation",
        "conformance.judging.settings",
        "conformance.judging.case_recorder",
    ],
)
def test_starts_without_the_stack(module):
    """Imports made in passing count too, so this asks a fresh interpreter in which neither can be imported."""
    code = f"import sys; sys.modules['torch'] = sys.modules['triton'] = None; import {module}"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)


def test_each_module_of_tests_has_a_name_of_its_own():
    """pytest imports them by their names alone, and stops at the second of one name."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
