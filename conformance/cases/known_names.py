"""Checks the names of suites, targets and kernels that a user gave, before anything is collected, compiled or run.

Suites are files and most targets are rows of a table, so that a wrong name of theirs is answered without torch and
triton. Kernels, and targets of installed packages, are objects: they are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from conformance import targets
from conformance.gate.near_names import did_you_mean

PACKAGE_SUITES = Path(__file__).resolve().parents[1] / "suites"


class UnknownName(LookupError):
    """A name that the user gave is unknown; the message names the option, the name and what was probably meant."""

    def __str__(self) -> str:
        return str(self.args[0])


def check_suites(names: Iterable[str], folders: Sequence[Path] = (PACKAGE_SUITES,), option: str = "--suite") -> None:
    """Raises :class:`UnknownName` unless each of ``names`` is a suite: a file ``test_<name>.py`` below ``folders``."""
    wanted = set(names)
    if wanted:
        files = [file for folder in folders for file in folder.rglob("test_*.py")]
        _check(option, "suite", wanted, {file.stem.removeprefix("test_") for file in files})


def check_target_spelling(specs: Iterable[str]) -> None:
    """Raises :class:`UnknownName` for a target that no installed Triton could offer. Needs no torch or triton, unless
    an installed package brings targets."""
    names = target_ids(specs)
    known = {target.id for target in targets.known_targets()}
    if not set(names) <= known and not entry_points(group=targets.ENTRY_POINTS):
        _check("--target", "target", set(names), [*known, "device"])


def target_ids(specs: Iterable[str]) -> list[str]:
    """The ids of the targets that ``specs`` name, less those that name a device by its number."""
    names = [spec.removeprefix("hip:").replace("cuda:", "sm_") for spec in specs]
    return [name for name in names if name.partition(":")[0] != "device"]


def check_targets(specs: Iterable[str]) -> None:
    """Raises :class:`UnknownName` unless there is each of these targets, and the installed Triton compiles for it."""
    try:
        for spec in specs:
            targets.find(spec)
    except LookupError as error:
        raise UnknownName(f"--target {error.args[0]}") from None


def check_kernels(names: Iterable[str], known: Collection[str] | None = None) -> None:
    """Raises :class:`UnknownName` unless each of ``names`` is one of the ``known`` kernels. Unless they are given, they
    are those of the catalogue, for which torch and triton are imported."""
    wanted = set(names)
    if wanted and known is None:
        from conformance.kernels.catalogue import catalogue

        known = catalogue()
    _check("--kernel", "kernel", wanted, known or ())


def _check(option: str, kind: str, names: set[str], known: Collection[str]) -> None:
    for name in sorted(names.difference(known)):
        raise UnknownName(f"{option} {name}: there is no such {kind}; {did_you_mean(name, sorted(known))}")
