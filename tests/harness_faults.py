"""Plants faults in the harness itself and says which of its tests fails, so that two versions of the tests compare.

``python -m tests.harness_faults choose --count 150 --seed 0 --output faults.json`` chooses faults in all rooms of
``conformance/``; with ``--also TREE`` only those that another checkout can have, too.
``python -m tests.harness_faults try faults.json --tree TREE --output results.jsonl`` plants each one in a copy of
``TREE``. It runs the tests of its room and then those of the rooms above it, until one fails.

A fault is a function and its faulty source. It is found again by the function's name and source, wherever a checkout
keeps it.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.test_import_order import ORDER

#: Rooms without code of their own that decides anything, and the kernels, whose faults ``conformance mutants`` derives.
LEFT_OUT = ("data", "kernels", "suites")
#: An operator and the one that a fault puts in its place.
SWAPS: dict[type[ast.AST], Callable[[], ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True)
class HarnessFault:
    """A function of ``module``, the source that it has and the faulty one, without decorators and docstring."""

    module: str
    function: str
    source: str
    faulty: str

    @property
    def room(self) -> str:
        """The module or package directly below ``conformance/``."""
        return self.module.split(".")[1]


def functions(tree: Path) -> Iterator[tuple[Path, ast.FunctionDef]]:
    """Yields every function and method of the package in ``tree``, each with its file."""
    for file in sorted((tree / "conformance").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                yield file, node


def bare(function: ast.FunctionDef) -> ast.FunctionDef:
    """Returns a copy of ``function`` without decorators and docstring."""
    copied = copy.deepcopy(function)
    copied.decorator_list = []
    if ast.get_docstring(copied, clean=False) is not None:
        copied.body = copied.body[1:] or [ast.Pass()]
    return copied


def faulty_sources(function: ast.FunctionDef) -> list[str]:
    """Returns each source that ``function`` has with one fault. That is an operator exchanged, a condition negated, an
    integer one larger, a truth value turned, or a statement deleted."""
    nodes = list(ast.walk(function))
    found: dict[str, None] = {}
    for place, node in enumerate(nodes):
        for change in _changes(node):
            copied = copy.deepcopy(function)
            change(list(ast.walk(copied))[place])
            found[ast.unparse(ast.fix_missing_locations(copied))] = None
    found.pop(ast.unparse(function), None)
    return list(found)


def _changes(node: ast.AST) -> list[Callable[[Any], None]]:
    """The changes in place that make a fault of ``node``."""
    changes: list[Callable[[Any], None]] = []
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        changes.append(lambda it: it.ops.__setitem__(0, SWAPS[type(it.ops[0])]()))
    if isinstance(node, (ast.BoolOp, ast.BinOp)) and type(node.op) in SWAPS:
        changes.append(lambda it: setattr(it, "op", SWAPS[type(it.op)]()))
    if isinstance(node, (ast.If, ast.IfExp)):
        changes.append(lambda it: setattr(it, "test", ast.UnaryOp(ast.Not(), it.test)))
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        changes.append(lambda it: setattr(it, "value", not it.value if it.value is bool(it.value) else it.value + 1))
    for name in ("body", "orelse"):
        statements = getattr(node, name, None)
        for number, statement in enumerate(statements if isinstance(statements, list) else ()):
            if isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.If, ast.For)):
                changes.append(functools.partial(_delete, name, number))
    return changes


def _delete(name: str, number: int, node: ast.AST) -> None:
    getattr(node, name)[number] = ast.Pass()


def choose(count: int, seed: int, tree: Path, also: Sequence[Path] = ()) -> list[HarnessFault]:
    """Returns ``count`` faults, drawn from the rooms in turn: a function, then one of its faults. The checkouts
    ``also`` have each function, too."""
    shared = [{(node.name, ast.unparse(bare(node))) for _, node in functions(other)} for other in also]
    rooms = defaultdict(list)
    for file, node in functions(tree):
        function = bare(node)
        text = ast.unparse(function)
        module = ".".join(file.relative_to(tree).with_suffix("").parts)
        room = module.split(".")[1]
        if room not in LEFT_OUT and all((node.name, text) in names for names in shared):
            rooms[room].append((module, function, text))
    draw = random.Random(seed)
    chosen: dict[HarnessFault, None] = {}
    while len(chosen) < count and rooms:
        for room in sorted(rooms):
            module, function, text = draw.choice(rooms[room])
            faulty = faulty_sources(function)
            if faulty and len(chosen) < count:
                chosen[HarnessFault(module, function.name, text, draw.choice(faulty))] = None
    return list(chosen)


def plant(fault: HarnessFault, tree: Path) -> Path:
    """Writes the faulty function into ``tree`` and returns its file. Raises LookupError if no function has the
    source."""
    places = [(file, node) for file, node in functions(tree) if node.name == fault.function]
    for file, node in places:
        if ast.unparse(bare(node)) == fault.source:
            lines = file.read_text().splitlines(keepends=True)
            indented = textwrap.indent(fault.faulty, " " * node.col_offset) + "\n"
            lines[node.lineno - 1 : node.end_lineno] = [indented]
            file.write_text("".join(lines))
            return file
    raise LookupError(f"{tree}: no function {fault.function} has the source of the fault")


def near_tests(file: Path, tree: Path) -> list[list[str]]:
    """Returns the test files for a fault in ``file``, in the groups in which they are run. First come those that name
    its module, then the others of its room. Those of the rooms above it follow, from the nearest to the farthest."""
    place = file.relative_to(tree / "conformance").with_suffix("")
    module, room = ".".join(("conformance", *place.parts)), place.parts[0]
    rank = {name: number for number, names in enumerate(ORDER) for name in names}
    groups: list[list[tuple[int, str]]] = [[], [], []]
    for test in sorted((tree / "tests").rglob("test_*.py")):
        text = test.read_text()
        used = set(re.findall(r"\bconformance\.(\w+)", text))
        own = test.relative_to(tree / "tests").parts[0].removeprefix("test_").removesuffix(".py")
        heights = [rank[name] - rank[room] for name in {own, *used} & rank.keys()]
        height = min((height for height in heights if height >= 0), default=len(rank))
        named = module in text or f"from {module.rpartition('.')[0]} import {place.name}" in text
        number = 0 if named else 1 if own == room or room in used else 2
        groups[number].append((height, str(test.relative_to(tree))))
    return [[test for _, test in sorted(group)] for group in groups if group]


class Trials:
    """Tries faults in copies of ``tree``, each for at most so many ``seconds``."""

    def __init__(self, tree: Path, seconds: float) -> None:
        self.tree = tree
        self.seconds = seconds
        #: Tests that fail on this machine without any fault.
        self.failing: set[str] = set()

    def first_failure(self, fault: HarnessFault) -> dict[str, Any]:
        """Plants ``fault`` and runs its tests until one fails that passes without the fault."""
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            copied = self._copied(folder)
            try:
                groups = near_tests(plant(fault, copied), copied)
            except LookupError:
                return {**asdict(fault), "how": "cannot be planted"}
            failed: str = ""
            ended: int | None = 0
            while groups and ended == 0:
                failed, ended = self._run(copied, groups[0], self.seconds - (time.monotonic() - start))
                if failed in self.failing or (failed and self._fails_anyway(failed)):
                    groups[0] = groups[0][groups[0].index(failed.partition("::")[0]) :]
                    ended = 0
                else:
                    groups = groups[1:]
        how = "caught" if failed else "missed"
        if ended is None:
            how = "not caught in time"
        elif ended and not failed:
            how = "no test could run"
        seconds = round(time.monotonic() - start, 1)
        return {**asdict(fault), "how": how, "failed": failed, "seconds": seconds}

    def _copied(self, folder: str) -> Path:
        unneeded = shutil.ignore_patterns(".git", ".venv", "build", ".*cache")
        return Path(shutil.copytree(self.tree, Path(folder) / "tree", symlinks=True, ignore=unneeded))

    def _run(self, tree: Path, tests: Sequence[str], seconds: float) -> tuple[str, int | None]:
        """The first test that failed, "" if none is named, and pytest's exit status, None if the time was over."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
        command += [f"--deselect={test}" for test in sorted(self.failing)]
        environment = {**os.environ, "PYTHONPATH": f"{tree}:{os.environ.get('PYTHONPATH', '')}"}
        environment["TMPDIR"] = str(tree.parent)
        with (tree.parent / "output").open("w+") as output:
            process = subprocess.Popen(
                [*command, *tests],
                cwd=tree,
                env=environment,
                start_new_session=True,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                ended: int | None = process.wait(max(seconds, 0)) % pytest.ExitCode.NO_TESTS_COLLECTED
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                ended = None
            output.seek(0)
            named = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - |$)", output.read(), re.MULTILINE)
        return named.group(1) if named else "", ended

    def _fails_anyway(self, test: str) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            _, ended = self._run(self._copied(folder), [test], self.seconds)
        if ended:
            self.failing.add(test)
        return bool(ended)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness_faults", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    chooser = commands.add_parser("choose")
    chooser.add_argument("--count", type=int, default=150)
    chooser.add_argument("--seed", type=int, default=0)
    chooser.add_argument("--also", type=Path, action="append", default=[])
    trier = commands.add_parser("try")
    trier.add_argument("faults", type=Path)
    trier.add_argument("--jobs", type=int, default=os.cpu_count())
    trier.add_argument("--seconds", type=float, default=1800.0)
    for command in (chooser, trier):
        command.add_argument("--tree", type=Path, default=Path())
        command.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "choose":
        chosen = choose(options.count, options.seed, options.tree, options.also)
        options.output.write_text(json.dumps([asdict(fault) for fault in chosen], indent=1) + "\n")
        return
    faults = [HarnessFault(**item) for item in json.loads(options.faults.read_text())]
    trials = Trials(options.tree.resolve(), options.seconds)
    with options.output.open("w") as results, ThreadPoolExecutor(options.jobs) as pool:
        pending = [pool.submit(trials.first_failure, fault) for fault in faults]
        for trial in as_completed(pending):
            results.write(json.dumps(trial.result()) + "\n")
            results.flush()


if __name__ == "__main__":
    main()
