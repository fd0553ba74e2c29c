"""Finds the tests that are conformance cases, and the id of each.

A case's id is its file's path below the suites directory, and what follows it in pytest's node id. So a case has the
same id in a checkout, in an install and on every machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from conformance.plain_json import TEXT_LIMIT

SUITES_PACKAGE = "conformance.suites"
PACKAGE_SUITES = Path(__file__).resolve().parents[1] / "suites"
SUITES_INI = "conformance_suites"

_INSTALLED = {"site-packages", "dist-packages"}
_UNSTABLE = re.compile(r"(?:^|[\[\-_=:(, ])/\w|[A-Za-z]:\\|0x[0-9a-f]{6,}")


def suites_dirs(config: pytest.Config) -> tuple[Path, ...]:
    """Returns the package's suites and the directories that the project's ini names in addition."""
    return (PACKAGE_SUITES, *(Path(path).resolve() for path in config.getini(SUITES_INI)))


def selects_suites(arguments: Sequence[str], pyargs: bool, base: Path, suites: Sequence[Path]) -> bool:
    """True if collecting ``arguments`` (paths relative to ``base``, or module names if ``pyargs``) reaches a suites
    directory. Cheap, and no for a project that merely has this package installed somewhere below it."""
    for argument in arguments:
        name = argument.split("::", 1)[0]
        if pyargs and (name in ("conformance", SUITES_PACKAGE) or name.startswith(SUITES_PACKAGE + ".")):
            return True
        path = (base / name).resolve()
        for directory in suites:
            if path.is_relative_to(directory):
                return True
            if directory.is_relative_to(path) and not _INSTALLED & set(directory.relative_to(path).parts):
                return True
    return False


def early_selects_suites(config: pytest.Config) -> bool:
    """:func:`selects_suites` before the command line is parsed in full: values of options that are not known yet look
    like arguments. It may say yes too often in a project whose testpaths name the suites, never in another."""
    early = config.known_args_namespace
    base = config.invocation_params.dir
    arguments = [str(name) for name in early.file_or_dir if early.pyargs or (base / str(name).split("::")[0]).exists()]
    testpaths = [str(config.rootpath / path) for path in config.getini("testpaths")]
    return selects_suites([*(arguments or ["."]), *testpaths], early.pyargs, base, suites_dirs(config))


def selects_package(config: pytest.Config) -> bool:
    """True if the package's own suites are reached, which ``conform`` judges; suites that only the ini names have
    the ``recorder`` alone."""
    return selects_suites(config.args, config.option.pyargs, config.invocation_params.dir, (PACKAGE_SUITES,))


_ACTIVE = pytest.StashKey[bool]()


def is_active(config: pytest.Config) -> bool:
    """True if this pytest run reaches the conformance suites; everything else in the plugin asks this first."""
    if _ACTIVE not in config.stash:
        base = config.invocation_params.dir
        config.stash[_ACTIVE] = selects_suites(config.args, config.option.pyargs, base, suites_dirs(config))
    return config.stash[_ACTIVE]


class CaseIds:
    """Translates pytest's node ids, whose file part depends on the root directory, to case ids."""

    def __init__(self, config: pytest.Config) -> None:
        self.suites = suites_dirs(config)
        self._bases = (config.rootpath, config.invocation_params.dir, *self.suites)
        self._arguments = config.args
        self._files: dict[str, str | None] = {}

    def __call__(self, nodeid: str) -> str | None:
        """Returns the case id of ``nodeid``, or None if it lies outside the suites."""
        file, separator, rest = nodeid.partition("::")
        if file not in self._files:
            self._files[file] = self._below_suites(file)
        below = self._files[file]
        return None if below is None else below + separator + rest

    def of_argument(self, argument: str) -> str | None:
        """Returns the case id of an argument such as "conformance.suites.test_a::test_b[c]" or a path with
        "::test_b[c]"."""
        place, separator, rest = argument.partition("::")
        if place.startswith(SUITES_PACKAGE + "."):
            place = place.removeprefix(SUITES_PACKAGE + ".").replace(".", "/") + ".py"
        return self(place + separator + rest)

    def _below_suites(self, file: str) -> str | None:
        if not file:
            return self._only_file()
        paths = [(base / file).resolve() for base in self._bases]
        existing = [path for path in paths if path.exists()]
        for path in existing or paths:  # a case may have removed the file since its cases were collected
            for directory in self.suites:
                if path.is_relative_to(directory):
                    return escaped(path.relative_to(directory).as_posix())
        return None

    def _only_file(self) -> str | None:
        """The file behind an empty file name, which pytest gives to each file argument outside its root directory.
        Raises pytest.UsageError if there are several such files."""
        files = set()
        for argument in self._arguments:
            name = argument.split("::", 1)[0]
            module = name.removeprefix(SUITES_PACKAGE + ".").replace(".", "/") + ".py"
            files.add(self._below_suites(module if name.startswith(SUITES_PACKAGE + ".") else name))
        if len(files) > 1:
            raise pytest.UsageError(
                "pytest gives the cases of several files outside its root directory the same ids: collect all of "
                f"{SUITES_PACKAGE} and choose with --suite"
            )
        return files.pop() if files else None


def escaped(path: str) -> str:
    """Returns ``path`` with an escape for each byte that is no UTF-8; Python has lone surrogates in their place."""
    return path.encode("utf-8", "backslashreplace").decode()


def suite_of(case: str) -> str:
    """The suite's name: ``transposition`` for a case in ``test_transposition.py``."""
    return Path(case.split("::", 1)[0]).stem.removeprefix("test_")


def check_case_ids(cases: Iterable[str]) -> None:
    """Raises pytest.UsageError if two cases share an id, or if an id is too long for a record or no Unicode text. An
    id may hold no path or address of this machine."""
    cases = list(cases)
    longest = max(cases, key=len, default="")
    if len(longest) > TEXT_LIMIT:
        length = f"a case id has {len(longest)} characters, and {TEXT_LIMIT} is the limit"
        raise pytest.UsageError(
            f"{length}; give its parameters short ids with pytest.param(..., id=...): {longest:.200}"
        )
    odd = [escaped(case) for case in cases if not case.isascii() and escaped(case) != case]
    if odd:
        raise pytest.UsageError(f"case ids must be Unicode text, without lone surrogates: {', '.join(odd[:10])}")
    if len(set(cases)) < len(cases):
        twice = sorted(case for case, count in Counter(cases).items() if count > 1)
        raise pytest.UsageError(f"case ids must be unique; these are shared by several cases: {', '.join(twice[:10])}")
    suspects = (case for case in cases if "/" in case or "\\" in case or "0x" in case)  # the search costs much more
    unstable = [case for case in suspects if _UNSTABLE.search(case)]
    if unstable:
        raise pytest.UsageError(
            "case ids must be the same on every machine; give these parameters an id without a path or an address: "
            + ", ".join(unstable[:10])
        )
