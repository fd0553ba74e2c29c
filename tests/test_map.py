"""CONTRIBUTING.md is true of the tree: its rooms, the case that it follows, and the files that it says to touch."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

from tests.test_import_order import RANK

ROOT = Path(__file__).resolve().parents[1]
MAP = "CONTRIBUTING.md"
ROOMS, CASE, TOUCH = "Rooms", "One case, from suite to record", "To add something"
#: Files that the followed case may name: a reader opens each.
MOST_FILES = 20


def section(text: str, title: str) -> str:
    """The text below the heading ``title``, up to the next one; empty if there is no such heading."""
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return match.group(1) if match else ""


def quoted(text: str) -> list[str]:
    """Returns the words in backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def paths_of(text: str) -> list[str]:
    """The files and folders that stand in backticks; a name such as ``<name>`` stands for a file that is yet to be."""
    words = [word for word in quoted(text) if re.fullmatch(r"[\w./<>*-]+", word)]
    return [word for word in words if word.endswith("/") or re.search(r"\.(py|md|toml|txt|js)$", word)]


def files_at(root: Path, path: str) -> list[Path]:
    """The files of the tree that ``path`` names, seen from conformance/ or from the root."""
    pattern = re.sub(r"<\w+>", "*", path).rstrip("/")
    return [*(root / "conformance").glob(pattern), *root.glob(pattern)]


def packages(root: Path) -> list[Path]:
    return sorted(file.parent for file in (root / "conformance").rglob("__init__.py"))


def rooms_of(root: Path) -> set[str]:
    """The modules and packages directly in conformance/, as the map writes them."""
    modules = {file.name for file in (root / "conformance").glob("*.py") if not file.stem.startswith("__")}
    return modules | {f"{package.name}/" for package in packages(root) if package.parent == root / "conformance"}


def definitions(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_text()))
    return {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}


def wrong_rooms(text: str, root: Path) -> list[str]:
    """Returns sentences about rooms that the table lacks, rooms that are gone, and a wrong order of the rooms."""
    table = section(text, ROOMS)
    listed = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    named, nested = set(paths_of(table)), {f"{p.relative_to(root / 'conformance')}/" for p in packages(root)} - {"./"}
    nested = {package for package in nested if not package.startswith("families/")}  # a new family needs no edit
    wrong = [f"the map misses the room {room}" for room in sorted(rooms_of(root) - set(listed))]
    wrong += [f"the map misses the package {package}" for package in sorted(nested - named)]
    wrong += [f"the map names {path}, which is gone" for path in sorted(named) if not files_at(root, path)]
    ranks = [RANK.get(room.rstrip("/").removesuffix(".py"), 0) for room in listed]
    return wrong if ranks == sorted(ranks) else [*wrong, "the rooms of the map are not in the order of the imports"]


def wrong_docstrings(root: Path) -> list[str]:
    """Packages whose docstring does not begin with a sentence of their purpose."""
    wrong = []
    for package in packages(root):
        docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
        if not re.match(r"\S.{20,}?[.:](\s|$)", docstring, re.DOTALL):
            wrong.append(f"{package.relative_to(root)}: its docstring does not say what the package is for")
    return wrong


def wrong_case(text: str, root: Path) -> list[str]:
    """Returns sentences about the followed case, if the quick tier lacks it, and about its steps. A step may name a
    file that is gone, or a name that none of its files defines."""
    before, *steps = re.split(r"^\d+\. ", section(text, CASE), flags=re.MULTILINE)
    cases = re.findall(r"`(test_\w+\.py::[^`]+)`", before)
    wrong = [] if steps and cases else ["the map follows no case"]
    lists = (root / "conformance/data/mustpass").glob("quick-*-executed.txt")
    listed = {line.partition(" ")[2] for file in lists for line in file.read_text().splitlines()}
    wrong += [f"no quick run without a GPU has the followed case {case}" for case in cases if case not in listed]
    passed: set[Path] = set()
    for step in steps:
        paths = paths_of(step)
        wrong += [f"the case passes {path}, which is gone" for path in paths if not files_at(root, path)]
        files = [file for path in paths for file in files_at(root, path) if file.suffix == ".py"]
        names = {name for file in files for name in definitions(file)}
        called = [word.removesuffix("()") for word in quoted(step) if re.fullmatch(r"\w+\(\)|[A-Z]+[a-z]\w*", word)]
        passed |= {file for path in paths for file in files_at(root, path)}
        gone = [name for name in called if name not in names]
        wrong += [f"the case calls {name}, which {', '.join(paths)} do not define" for name in gone]
    if len(passed) > MOST_FILES:
        wrong.append(f"the case passes {len(passed)} files, {MOST_FILES} at most")
    return wrong


def wrong_touches(text: str, root: Path) -> list[str]:
    """Files of the table of changes that are gone."""
    rows = paths_of(section(text, TOUCH))
    return ([] if rows else ["the map does not say what to touch"]) + [
        f"to add something one touches {path}, which is gone" for path in rows if not files_at(root, path)
    ]


def wrong(text: str, root: Path) -> list[str]:
    """A sentence for everything in which the map ``text`` differs from the tree at ``root``."""
    return [*wrong_rooms(text, root), *wrong_docstrings(root), *wrong_case(text, root), *wrong_touches(text, root)]


def test_the_map_is_true():
    assert wrong((ROOT / MAP).read_text(), ROOT) == []


@pytest.fixture
def text():
    return (ROOT / MAP).read_text()


def without_row(text: str, room: str) -> str:
    return re.sub(rf"^\| `{re.escape(room)}` \|.*\n", "", text, flags=re.MULTILINE)


def test_a_missing_room_is_seen(text):
    assert "the map misses the room heuristics/" in wrong(without_row(text, "heuristics/"), ROOT)


def test_a_missing_module_is_seen(text):
    assert wrong(without_row(text, "targets.py"), ROOT)[0] == "the map misses the room targets.py"


def test_a_missing_package_of_a_room_is_seen(text):
    assert wrong(text.replace("`gate/evidence/`", "evidence"), ROOT) == ["the map misses the package gate/evidence/"]


def test_a_room_that_is_gone_is_seen(text):
    first = "| `short_forms.py` |"
    changed = text.replace(first, f"| `attic/` | what nobody needs |\n{first}")
    assert wrong(changed, ROOT) == ["the map names attic/, which is gone"]


def test_rooms_out_of_order_are_seen(text):
    row = re.search(r"^\| `cli.py` \|.*\n", text, re.MULTILINE).group()
    changed = text.replace(row, "").replace("| `records.py` |", f"{row}| `records.py` |")
    assert wrong(changed, ROOT) == ["the rooms of the map are not in the order of the imports"]


def test_a_new_room_and_an_empty_docstring_are_seen(text, tmp_path):
    shutil.copytree(ROOT / "conformance", tmp_path / "conformance", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "conformance" / "attic").mkdir()
    (tmp_path / "conformance" / "attic" / "__init__.py").write_text("")
    (tmp_path / "conformance" / "gate" / "__init__.py").write_text('"""Gate."""\n')
    assert wrong_rooms(text, tmp_path)[:2] == ["the map misses the room attic/", "the map misses the package attic/"]
    assert [sentence.split(":")[0] for sentence in wrong_docstrings(tmp_path)] == [
        "conformance/attic",
        "conformance/gate",
    ]


@pytest.mark.parametrize("path", ["judging/conform.py", "execution/trial/trial.py"])
def test_a_file_of_the_case_that_is_gone_is_seen(text, path):
    steps = section(text, CASE)
    assert f"`{path}`" in steps
    changed = text.replace(steps, steps.replace(f"`{path}`", "`judging/elsewhere.py`", 1))
    assert "the case passes judging/elsewhere.py, which is gone" in wrong(changed, ROOT)


def test_a_case_of_too_many_files_is_seen(text):
    changed = text.replace("`kernels/gemm.py`:", "`kernels/gemm.py`, `kernels/*.py`:", 1)
    assert any(re.fullmatch(r"the case passes \d+ files, 20 at most", sentence) for sentence in wrong(changed, ROOT))


def test_a_case_that_the_quick_tier_lacks_is_seen(text):
    sentences = wrong(text.replace("-sm_103]`", "-sm_90]`"), ROOT)
    assert [sentence.split("[")[0] for sentence in sentences] == [
        "no quick run without a GPU has the followed case test_transposition.py::test_transposed_operands"
    ]


def test_a_function_of_the_case_that_is_gone_is_seen(text):
    steps = section(text, CASE)
    changed = text.replace(steps, steps.replace("`trial()`", "`old_trial()`", 1))
    assert any(sentence.startswith("the case calls old_trial, which") for sentence in wrong(changed, ROOT))


def test_a_file_to_touch_that_is_gone_is_seen(text):
    rows = section(text, TOUCH)
    changed = text.replace(rows, rows.replace("`targets.py`", "`aims.py`"))
    assert "to add something one touches aims.py, which is gone" in wrong(changed, ROOT)


def test_a_map_without_its_sections_is_seen():
    assert {"the map follows no case", "the map does not say what to touch"} <= set(wrong("# Contributing\n", ROOT))
