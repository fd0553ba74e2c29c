"""``conformance watch``: runs a user's own pytest suite and judges each launch of a Triton kernel."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from conformance.commands import CommandError, positive
from conformance.commands.shared.suites import import_with_stack
from conformance.machine.gpus import find_gpus

HELP = "Run your own pytest suite, on a GPU or without one, and judge each launch of a Triton kernel."
#: How the words behind "--" may begin.
_PYTEST = re.compile(r"(?:\S*/)?(?:pytest|py\.test)")
_PYTHON = re.compile(r"(?:\S*/)?python[\d.]*")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "conformance watch [options] -- pytest ..."
    parser.add_argument(
        "--target",
        metavar="SPEC",
        help="compile for this target and use no GPU (default: the GPU; without one, the first of 'targets')",
    )
    parser.add_argument("--no-gpu", action="store_true", help="use no GPU")
    parser.add_argument("--run-dir", metavar="DIR", type=Path, help="the run's folder (default: reports/watch-<time>)")
    parser.add_argument(
        "--configs",
        choices=("first", "all"),
        default="first",
        help="of an autotuned kernel, launch the first config that fits, or all of them (default: first)",
    )
    parser.add_argument(
        "--launch-seconds", metavar="S", type=positive, default=60, help="seconds that a launch may take (default: 60)"
    )
    parser.add_argument(
        "--programs", metavar="N", type=positive, default=4096, help="programs that a launch may have (default: 4096)"
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- pytest ...", help="the command of your suite")


def run(arguments: argparse.Namespace) -> int:
    """Runs the suite. Returns 0 if every test and every launch passed, 1 if one failed, else pytest's own status.
    Raises :class:`CommandError` for a command that is no pytest, an unknown target, and a folder that is in use."""
    words = pytest_words(arguments.words)
    targets = import_with_stack("targets", "watch")
    watching = import_with_stack("watching.watched_run", "watch")
    settings = import_with_stack("watching.settings", "watch")
    on_device = not (arguments.target or arguments.no_gpu) and bool(find_gpus().entries)
    try:
        offered = targets.devices_seen_elsewhere() if on_device else targets.compile_targets()
        target = targets.find(arguments.target) if arguments.target else offered[0]
    except (LookupError, targets.OutsideError) as error:
        raise CommandError(error.args[0] if error.args else "no target can be compiled for") from None
    folder = str(_folder(arguments.run_dir))
    chosen = settings.WatchSettings(
        target.id, folder, arguments.configs, arguments.launch_seconds, arguments.programs, on_device
    )
    return int(watching.WatchedRun(chosen, words).run())


def pytest_words(words: Sequence[str], option: str = "--") -> list[str]:
    """Returns what follows ``pytest`` in a command such as ``pytest tests`` or ``python -m pytest tests``. Raises
    CommandError for another command, which says that it stands behind ``option``.

    >>> pytest_words(["--", "python", "-m", "pytest", "tests/kernels"])
    ['tests/kernels']
    """
    rest = list(words[1:] if words[:1] == ["--"] else words)
    if rest and _PYTEST.fullmatch(rest[0]):
        return rest[1:]
    if len(rest) > 2 and _PYTHON.fullmatch(rest[0]) and rest[1:3] == ["-m", "pytest"]:
        return rest[3:]
    given = " ".join(rest) or "nothing"
    raise CommandError(f"{given!r} stands behind {option!r}: a command of pytest is required, such as 'pytest tests'")


def _folder(given: Path | None) -> Path:
    """Returns the folder for the run. Raises CommandError if it is not new or empty."""
    if given is None:
        moment = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
        return Path("reports").resolve() / f"watch-{moment}-{os.urandom(2).hex()}"
    if given.exists() and (not given.is_dir() or any(given.iterdir())):
        raise CommandError(f"--run-dir {given}: exists and is not an empty folder; give a new one")
    return given.resolve()
