"""Checks the names of suites, targets and kernels that a user gave, before anything is collected, compiled or run.

Suites are files and most targets are rows of a table, so that a wrong name of theirs is answered without torch and
triton. Kernels, and targets of installed packages, are objects: they are imported when they are asked for.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from conformance import targets
from conformance.machine.near_names import did_you_mean

PACKAGE_SUITES = Path(__file__).resolve().parents[1] / "suites"


class UnknownName(LookupError):
    """A name that the user gave is unknown; the message names the option, the name and what was probably meant."""

    def __str__(self) -> str:
        return str(self.args[0])


def check_suites(names: Iterable[str], folders: Sequence[Path] = (PACKAGE_SUITES,), option: str = "--suite") -> None:
    """Raises :class:`UnknownName` unless each of ``names`` is a suite: a file ``test_<name>.py`` below ``folders``."""
    chosen = set(names)
    if chosen:
        files = [file for folder in folders for file in folder.rglob("test_*.py")]
        _check(option, "suite", chosen, {file.stem.removeprefix("test_") for file in files})


def check_test(case: str, option: str) -> None:
    """Raises :class:`UnknownName` if there is the suite of ``case``, such as ``test_scaling.py::test_scales[...]``, in
    the package, and has no such test. The suite's file is read, and not imported."""
    name, _, test = case.partition("[")[0].partition("::")
    file = PACKAGE_SUITES / name
    if test and file.is_file():
        nodes = ast.parse(file.read_text(encoding="utf-8")).body
        tests = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
        if test not in tests:
            near = did_you_mean(test, sorted(tests))
            raise UnknownName(f"{option} {name}::{test}: there is no such test; {near}".lstrip())


def check_places(places: Iterable[str], base: Path, are_modules: bool) -> None:
    """Raises :class:`UnknownName` for a place of tests on the command line that is no file or folder below ``base`` and
    no module, if ``are_modules``; and for a test that the package's suites have not."""
    for place in places:
        name, separator, test = place.partition("::")
        module = name if are_modules and not (base / name).exists() else ""
        if not (base / name).exists() and not (module and _is_module(module)):
            suites = {file.stem.removeprefix("test_") for file in PACKAGE_SUITES.glob("test_*.py")}
            word = name.rpartition(".")[2].removeprefix("test_")
            near = f"did you mean --suite {word}?" if word in suites else did_you_mean(word, suites)
            raise UnknownName(f"{name}: there is no such file or module{' of suites' if module else ''}; {near}")
        file = f"{module.rpartition('.')[2]}.py" if module else Path(name).name
        if separator and (module.startswith("conformance.") or (base / name).resolve().parent == PACKAGE_SUITES):
            check_test(f"{file}::{test}", "")


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # of its package, or a name with a slash
        return False


def check_target_spelling(specs: Iterable[str], option: str = "--target") -> None:
    """Raises :class:`UnknownName` for a target that no installed Triton could offer. Needs no torch or triton, unless
    an installed package brings targets."""
    names = target_ids(specs)
    ids = {target.id for target in targets.known_targets()}
    if not set(names) <= ids and not entry_points(group=targets.ENTRY_POINTS):
        _check(option, "target", set(names), [*ids, "device"])


def target_ids(specs: Iterable[str]) -> list[str]:
    """Returns the ids of the targets that ``specs`` name, less those that name a device by its number."""
    names = [spec.removeprefix("hip:").replace("cuda:", "sm_").partition(":")[0] for spec in specs]
    return [name for name in names if name != "device"]


def check_targets(specs: Iterable[str]) -> None:
    """Raises :class:`UnknownName` unless there is each of these targets, and the installed Triton compiles for it."""
    try:
        for spec in specs:
            targets.find(spec)
    except LookupError as error:
        raise UnknownName(f"--target {error.args[0]}") from None


def check_kernels(names: Iterable[str], kernels: Collection[str] | None = None) -> None:
    """Raises :class:`UnknownName` unless each of ``names`` is one of the ``kernels``. Unless they are given, they
    are those of the catalogue, for which torch and triton are imported."""
    chosen = set(names)
    if chosen and kernels is None:
        from conformance.kernels.catalogue import catalogue

        kernels = catalogue()
    _check("--kernel", "kernel", chosen, kernels or ())


def check_cases(ids: Collection[str], configs: Iterable[str], cases: Iterable[str], options: str) -> None:
    """Raises :class:`UnknownName` for one of ``configs`` that stands in none of the ``ids`` of cases. Raises it, too,
    for one of ``cases`` that is not among the ids. ``options`` say which cases are known."""
    for config in configs:
        if not any(f"-{config}-" in case.replace("[", "-").replace("]", "-") for case in ids):
            raise UnknownName(f"--config {config}: no case {options} has it; see 'conformance list'")
    missing = sorted(set(cases).difference(ids))
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise UnknownName(f"--cases: {missing[0]}{more}: there is no such case {options}; see 'conformance list'")


def _check(option: str, kind: str, names: set[str], choices: Collection[str]) -> None:
    for name in sorted(names.difference(choices)):
        raise UnknownName(f"{option} {name}: there is no such {kind}; {did_you_mean(name, sorted(choices))}")
