"""A pip that fails says why and what to do, and one that fetches says what."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conformance.gate.stacks import pip_commands
from conformance.gate.stacks.pip_commands import PipError, failure, install, planned
from tests.gate.fake_wheels import index, wheel

__all__ = ["index"]

NO_VERSION = (
    "ERROR: Could not find a version that satisfies the requirement triton==99 (from versions: 3.8.0, 3.9.0)\n"
    "ERROR: No matching distribution found for triton==99"
)
UNREACHABLE = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<x>: Failed to establish a new "
    "connection: [Errno 111] Connection refused')': /simple/triton/\n"
    "ERROR: Could not find a version that satisfies the requirement triton==3.9.0 (from versions: none)\n"
    "ERROR: No matching distribution found for triton==3.9.0"
)
FAILURES = {
    "no index that pip knows has it for this Python: look at the version": NO_VERSION,
    "the index cannot be reached: look at the network": UNREACHABLE,
    "no space is left on the disk: give another --cache": "ERROR: Could not install packages due to an OSError: "
    "[Errno 28] No space left on device",
    "a file is not the one that the index lists": "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS",
    "the index refuses access: give pip its credentials": "ERROR: HTTP error 401 while getting x: 401 Client Error",
    "the index's certificate was not accepted": "WARNING: SSLError(SSLCertVerificationError)\n" + NO_VERSION,
    "its packages contradict each other": "ERROR: Cannot install a and b\nERROR: ResolutionImpossible: for help",
    "the wheel is for another Python": "ERROR: x-cp27-none-any.whl is not a supported wheel on this platform.",
    "the file is no wheel": "ERROR: Wheel 'sample' located at /x.whl is invalid.",
    "a folder cannot be written": "ERROR: Could not install packages: [Errno 13] Permission denied: '/x'",
    "this Python has no pip: run 'python -m ensurepip'": "/usr/bin/python: No module named pip",
    "something else": "ERROR: something else",
}


@pytest.mark.parametrize("why", FAILURES)
def test_a_failure_has_its_reason_and_pips_own_line(why: str) -> None:
    text = failure(FAILURES[why], 1)
    assert text.startswith(why)
    assert FAILURES[why].splitlines()[-1].removeprefix("ERROR: ")[:20] in text or "from versions" in text


def test_versions_that_there_are_stay_in_the_message() -> None:
    assert "(from versions: 3.8.0, 3.9.0)" in failure(NO_VERSION, 1)


def test_a_pip_without_a_word_has_a_status() -> None:
    assert failure("", 3) == "pip ended with status 3 and wrote no error"
    assert failure("", -9).startswith("pip was ended by signal 9, as if memory ran out")


def fake_pip(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(pip_commands, "_command", lambda words: [sys.executable, "-c", code])


def test_each_package_that_is_fetched_is_a_line_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(
        monkeypatch,
        "print('Collecting torch==2.14.1')\nprint('  Downloading torch-2.14.1.whl.metadata (29 kB)')\n"
        "print('Downloading torch-2.14.1-cp312.whl (555.2 MB)')\nprint('  Using cached triton-3.8.0.whl (248 MB)')\n"
        "print('Installing collected packages: torch')",
    )
    lines: list[str] = []
    install([], lines.append)
    assert lines == ["Downloading torch-2.14.1-cp312.whl (555.2 MB)", "Using cached triton-3.8.0.whl (248 MB)"]


def test_on_a_terminal_pip_shows_its_own_progress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_pip(monkeypatch, "print('a bar')")
    with (tmp_path / "terminal").open("w") as terminal:
        monkeypatch.setattr(sys, "stderr", _Terminal(terminal))
        lines: list[str] = []
        install([], lines.append)
    assert lines == []
    assert (tmp_path / "terminal").read_text() == "a bar\n"


class _Terminal:
    """A stream that says that it is a terminal."""

    def __init__(self, stream) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()


def test_an_installation_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(
        monkeypatch, "import sys; print('ERROR: [Errno 28] No space left on device', file=sys.stderr); sys.exit(1)"
    )
    with pytest.raises(PipError, match=r"(?s)no space is left on the disk: .*the command was: "):
        install([], print)


def test_an_installation_that_is_killed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(PipError, match="ended by signal 9"):
        install([], print)


def test_an_installation_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(monkeypatch, "import time; time.sleep(60)")
    monkeypatch.setattr(pip_commands, "INSTALL_SECONDS", 0.1)
    with pytest.raises(PipError, match=r"pip took more than 0\.1 s"):
        install([], print)


def test_a_plan_fetches_and_installs_nothing(index: Path, tmp_path: Path) -> None:
    wheel(index, "sample", "1.5", ["needed"])
    wheel(index, "needed", "2.0")
    entries = planned(["sample==1.5"], tmp_path / "cache", print)
    assert entries is not None
    assert {entry["metadata"]["name"] for entry in entries} == {"sample", "needed"}
    assert {*tmp_path.iterdir()} == {index}
    with pytest.raises(PipError, match="no index that pip knows has it"):
        planned(["sample==1.6"], tmp_path / "cache", print)


def test_a_pip_reports_first_if_its_command_fetches_after_the_report(tmp_path: Path) -> None:
    commands = tmp_path / "pip" / "_internal" / "commands"
    commands.mkdir(parents=True)
    assert not pip_commands._reports_first(tmp_path / "pip")
    (commands / "install.py").write_text("resolver.resolve(reqs)")
    assert not pip_commands._reports_first(tmp_path / "pip")
    (commands / "install.py").write_text("if options.dry_run: ...\npreparer.prepare_linked_requirements_more(reqs)")
    assert pip_commands._reports_first(tmp_path / "pip")


def test_a_newer_pip_is_fetched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installs: list[list[str]] = []

    def fetch(arguments: list[str], say: object) -> None:
        installs.append(arguments)
        commands = Path(arguments[arguments.index("--target") + 1]) / "pip" / "_internal" / "commands"
        commands.mkdir(parents=True)
        (commands / "install.py").write_text("prepare_linked_requirements_more")

    monkeypatch.setattr(pip_commands, "install", fetch)
    monkeypatch.setenv("PYTHONPATH", "/mine")
    for _ in range(2):
        assert pip_commands._newer_pip(tmp_path, print) == {"PYTHONPATH": f"{tmp_path / 'pip'}:/mine"}
    assert len(installs) == 1
