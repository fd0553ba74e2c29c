"""Runs pip: says what it would install before anything is fetched, shows what it fetches, and says why it failed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: Seconds that pip may take for one command: a torch with its CUDA libraries is several gigabytes.
INSTALL_SECONDS = 3600
#: In the cache: a pip that resolves without fetching the packages.
PIP_FOLDER = "pip"

Say = Callable[[str], None]


class PipError(Exception):
    """pip did not do what it was asked for; the message says why and what to do."""


#: What pip writes, why it failed then, and what to do; the first that matches counts.
_REASONS = (
    (r"No module named pip", "this Python has no pip", "run 'python -m ensurepip' with it"),
    (
        r"No space left on device|Errno 28|Disk quota exceeded|Errno 122|not enough space",
        "no space is left on the disk",
        "give another --cache, and set TMPDIR to a folder with room: pip unpacks there",
    ),
    (
        r"DO NOT MATCH THE HASHES|Expected sha\d+ |hash mismatch",
        "a file is not the one that the index lists: its digest differs",
        "try again; if it differs again, a proxy or the index altered it",
    ),
    (
        r"SSLError|CERTIFICATE_VERIFY_FAILED",
        "the index's certificate was not accepted",
        "give pip the certificates of your network (PIP_CERT=FILE)",
    ),
    (
        r"\b(401|403|407)\b.*(Client Error|Unauthorized|Forbidden|Proxy Authentication)|403 Forbidden",
        "the index refuses access",
        "give pip its credentials, by the index's URL, a netrc file or a keyring",
    ),
    (
        r"NewConnectionError|Failed to establish a new connection|Temporary failure in name resolution"
        r"|NameResolutionError|Name or service not known|Connection refused|Network is unreachable|ConnectTimeout"
        r"|ReadTimeout|Read timed out|ProxyError|Cannot connect to proxy|ConnectionReset|Connection aborted"
        r"|Connection broken|IncompleteRead|RemoteDisconnected|ProtocolError|5\d\d Server Error",
        "the index cannot be reached",
        "look at the network and at pip's settings ('pip config list'), or give wheels from this machine",
    ),
    (
        r"is not a supported wheel on this platform",
        "the wheel is for another Python or another machine",
        "take the one for this Python, or start the gate with the wheel's",
    ),
    (
        r"ResolutionImpossible|conflicting dependencies",
        "its packages contradict each other, or a constraint of pip's",
        "name versions that go together",
    ),
    (
        r"No matching distribution found",
        "no index that pip knows has it for this Python",
        "look at the version, or give pip the index that has it (PIP_EXTRA_INDEX_URL)",
    ),
    (
        r"Wheel '.*is invalid|[Ii]nvalid wheel|BadZipFile|is not a zip file|has an invalid",
        "the file is no wheel",
        "fetch or build it again",
    ),
    (r"Permission denied|Errno 13", "a folder cannot be written", "give another --cache"),
)


def failure(errors: str, status: int) -> str:
    """Returns the reason why pip failed and what to do: a sentence, and pip's own lines that say more. ``errors`` is
    the text that pip wrote before it ended with ``status``."""
    own = [line.removeprefix("ERROR: ") for line in errors.splitlines() if line.startswith("ERROR")]
    own = own or [line for line in errors.splitlines() if line.strip()]
    if own and "No matching distribution found" in own[-1]:
        own = own[:1]  # it names the versions that there are
    shown = "\n".join(own[-5:])
    if status < 0:
        return f"pip was ended by signal {-status}, as if memory ran out: try again\n{shown}".rstrip()
    for pattern, why, remedy in _REASONS:
        if re.search(pattern, errors):
            return f"{why}: {remedy}\n{shown}".rstrip()
    return shown or f"pip ended with status {status} and wrote no error"


def install(arguments: Sequence[str], say: Say) -> None:
    """Installs as ``arguments`` of ``pip install`` say. On a terminal pip shows its own progress; else ``say`` gets a
    line for each package that is fetched, with its size. Raises :class:`PipError`."""
    terminal = sys.stderr.isatty()
    command = _command(["install", *arguments])
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            command, stdout=sys.stderr if terminal else subprocess.PIPE, stderr=errors, text=True, errors="replace"
        )
        late = threading.Timer(INSTALL_SECONDS, process.kill)
        late.start()
        try:
            for line in process.stdout or ():
                if re.match(r"\s*(Downloading|Using cached) (?!.*\.metadata)", line):
                    say(line.strip())
            status = process.wait()
        finally:
            is_late = not late.is_alive()
            late.cancel()
            process.kill()
        errors.seek(0)
        written = errors.read()
    if status and is_late:
        raise PipError(f"pip took more than {INSTALL_SECONDS} s\nthe command was: {' '.join(command)}")
    if status:
        raise PipError(f"{failure(written, status)}\nthe command was: {' '.join(command)}")


def planned(arguments: Sequence[str], cache: Path, say: Say) -> list[Mapping[str, Any]] | None:
    """Returns pip's report of each package that ``pip install`` with ``arguments`` would install, without fetching it.
    None if there is no pip that can say so; ``say`` is told why. Raises :class:`PipError` if it could not be installed.
    """
    local = all(argument.startswith("-") or os.path.exists(argument) for argument in arguments)
    variables = {} if local or _reports_first(_package()) else _newer_pip(cache, say)
    if variables is None:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        words = ["--quiet", "--retries", "2", "--dry-run", "--ignore-installed", "--report", str(report)]
        command = _command(["install", *words, *arguments])
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=INSTALL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PipError(f"pip took more than {INSTALL_SECONDS} s\nthe command was: {' '.join(command)}") from None
        if done.returncode:
            raise PipError(f"{failure(done.stderr, done.returncode)}\nthe command was: {' '.join(command)}")
        return list(json.loads(report.read_text(encoding="utf-8"))["install"])


def _command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pip", *words, "--disable-pip-version-check", "--no-input"]


def _package() -> Path | None:
    """Returns the folder of the pip that this Python has."""
    spec = importlib.util.find_spec("pip")
    return Path(spec.origin).parent if spec and spec.origin else None


def _reports_first(package: Path | None) -> bool:
    """Returns True if the pip in the folder ``package`` reports what it would install before it fetches it. Older ones
    fetch all while they resolve; the newer ones do so in the command, after the report."""
    if package is None:
        return True  # it fails with the reason
    try:
        text = (package / "_internal" / "commands" / "install.py").read_text(encoding="utf-8")
    except OSError:
        return False
    return "prepare_linked_requirements_more" in text


def _newer_pip(cache: Path, say: Say) -> dict[str, str] | None:
    """The variables with which ``python -m pip`` is one in ``cache`` that reports first. It is fetched once."""
    folder = cache / PIP_FOLDER
    if not _reports_first(folder / "pip"):
        say("a pip that says what it would fetch is fetched first (2 MB): the one installed here fetches at once")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="pip-") as scratch:
            built = Path(scratch) / "built"
            try:
                install(["--quiet", "--no-deps", "--upgrade", "--target", str(built), "pip"], say)
                if not folder.exists():
                    built.rename(folder)
            except (PipError, OSError) as error:
                say(f"what is to be fetched is not known before: no newer pip was to be had ({error})".splitlines()[0])
                return None
    if not _reports_first(folder / "pip"):
        say("what is to be fetched is not known before: pip fetches while it resolves; upgrade pip to know")
        return None
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *([inherited] if inherited else [])])}
