"""Runs the suites in the environments of stacks. A run is kept, and used again until something that decides its results
changes."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from conformance.gate.runs.run_environment import EXTENSIONS, variables
from conformance.gate.shortened_text import last_words
from conformance.gate.stacks.environments import Environment, folder_digest
from conformance.gate.stacks.pip_commands import captured
from conformance.machine.kept_answers import code_digest, file_digest
from conformance.records import (
    PROGRESS_FILE,
    RUN_FILE,
    Fault,
    FaultClass,
    FaultKind,
    RecordError,
    read_run,
    record_files,
)
from conformance.user_files.run_options import KERNELS_MAY_BE_LOST, NO_CASE

#: Seconds between two reports of a run's progress.
LOOK_SECONDS = 2.0
#: Seconds that an environment may take to say what it can do: importing torch from a cold disk takes the longest.
ABILITY_SECONDS = 300
#: Seconds that a run may take to end when it is interrupted.
END_SECONDS = 60
#: In the folder of a run that is kept: the digests of its files.
KEPT_FILE = "kept.json"
#: Exit statuses of a run that came to its end: all passed, some failed, none was judged.
WHOLE = (0, 1, 5)

Say = Callable[[str], None]


class RunError(Exception):
    """A run could not be made; the message says what happened and where its log is."""


class NoRun(RunError):
    """The run of the stack ``name`` left nothing that could be compared; ``fault`` says what broke."""

    def __init__(self, name: str, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.fault = fault


@dataclass(frozen=True)
class Abilities:
    """The abilities of an environment, as its own ``conformance targets`` lists them. ``stack``: its versions;
    ``targets``: ids of the targets it compiles for; ``lacking``: other targets, and why it does not; ``interpreter``:
    why it interprets nothing, None if it does; ``kernels``: names of the kernels that it has; ``declared``: what
    third-party kernels declare, whose files need not lie in their packages."""

    stack: Mapping[str, Any]
    targets: tuple[str, ...]
    lacking: Mapping[str, str]
    devices: tuple[str, ...]
    interpreter: str | None
    kernels: tuple[str, ...]
    declared: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StackRun:
    """The run of one stack with ``options``, and the folders of further runs of the same."""

    environment: Environment
    folder: Path
    options: tuple[str, ...] = ()
    repeats: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """Returns the name of the stack in reports, with what it brings."""
        return self.environment.stack.title


def abilities(environment: Environment) -> Abilities:
    """Returns the abilities of ``environment``. Raises :class:`RunError` if the harness does not start in it."""
    command = environment.command("targets", "--json")
    try:
        done = captured(command, env=environment.environ(), cwd=environment.folder, timeout=ABILITY_SECONDS)
        data = json.loads(done.stdout)
        targets, devices = tuple(data["targets"]), tuple(data["devices"])
        kernels = tuple(data.get("kernels", ()))  # an older harness in the stack's packages does not say it
        declared = data.get("declared", {})
        return Abilities(data["stack"], targets, data["lacking"], devices, data["interpreter"], kernels, declared)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"stack {environment.stack.name!r} does not start: {error}") from None
    except (ValueError, KeyError, TypeError):
        output = last_words((done.stderr or done.stdout).strip(), 1500)
        raise RunError(f"stack {environment.stack.name!r} does not start (exit {done.returncode}):\n{output}") from None


def listed(environment: Environment, options: Sequence[str]) -> set[str]:
    """Returns the ids of the cases that a run with ``options`` would have in ``environment``. Raises
    :class:`RunError`."""
    variables = {**environment.environ(), KERNELS_MAY_BE_LOST: "1"}
    done = captured(environment.command("list", *options), env=variables, cwd=environment.folder)
    if done.returncode and NO_CASE not in done.stderr:
        output = last_words((done.stderr or done.stdout).strip(), 1500)
        raise RunError(f"stack {environment.stack.name!r} cannot list its cases (exit {done.returncode}):\n{output}")
    return set(done.stdout.splitlines())


def run(
    environment: Environment,
    can: Abilities,
    options: Sequence[str],
    cache: Path,
    say: Say,
    again: int = 0,
    case_count: int | None = None,
) -> tuple[Path, bool]:
    """The folder of a run of the suites with ``options`` in ``environment``, and whether it was there already.

    A run is kept in ``cache``. It has no more workers than cases, if ``case_count`` says how many these are. Runs that
    differ by ``again`` are not used for each other. One whose files are not as they were when it was kept is made
    again. ``say`` is told of the progress. A run that is unfinished, or that its machine broke, is returned and not
    kept: it says so itself. Raises :class:`NoRun` if it left nothing to compare, and :class:`RunError` if something
    that decides its results changed meanwhile. The log of a failed attempt stays until
    the next attempt begins.
    """
    words = [*options, *([f"again {again}"] if again else [])]
    folder = cache / "runs" / _key(environment, can, words)
    if _is_kept(folder):
        return folder, True
    if folder.exists():
        print(f"{environment.stack.name}: the kept run {folder} is damaged: it is made again", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _forget_attempts(folder)
    attempt = folder.with_name(f"{folder.name}-{time.time_ns():x}")
    log = attempt.with_name(f"{attempt.name}.log")
    workers = ["-n", "auto", *([f"--maxprocesses={case_count}"] if case_count else [])]
    status = _attempt(environment, [*workers, "-q", *options], attempt, log, say)
    if status not in WHOLE or not complete(attempt):
        if _has_records(attempt) and not complete(attempt):  # it says itself what broke it
            print(
                f"{environment.stack.name}: the run is not whole (exit status {status}); its log is {log}",
                file=sys.stderr,
            )
            return attempt, False
        ending = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise NoRun(
            environment.stack.name,
            Fault.of(*_what_broke(status, ending)),
            f"the run with {environment.stack.name!r} ended with exit status {status} and is not whole; "
            f"its log is {log}, which ends:\n{ending}",
        )
    if _key(environment, can, words) != folder.name:
        raise RunError(
            f"the harness's code, or the packages of {environment.stack.name!r}, changed during the run. "
            f"So its records are of neither version: leave both as they are and run again; its log is {log}"
        )
    (attempt / KEPT_FILE).write_text(json.dumps(_digests_of(attempt)) + "\n", encoding="utf-8")
    try:
        attempt.rename(folder)
    except OSError:
        if not _is_kept(folder):
            raise
        shutil.rmtree(attempt)  # another process was faster
        log.unlink()
    return folder, False


def kept_run(environment: Environment, can: Abilities, options: Sequence[str], cache: Path) -> Path | None:
    """The folder of a run with ``options`` in ``environment`` that is kept in ``cache``; None if there is none."""
    folder = cache / "runs" / _key(environment, can, options)
    return folder if _is_kept(folder) else None


def _attempt(environment: Environment, options: Sequence[str], attempt: Path, log: Path, say: Say) -> int:
    """The exit status of a run into the new folder ``attempt``, with its output in ``log``.

    If this process ends, so does the run, with all that it started. The run is a session of its own, so that Ctrl-C in
    a terminal reaches it once, through this process.
    """
    # The folder is new, so an earlier attempt that was cut off left nothing in it.
    command = environment.command("run", *options, "--run-dir", str(attempt))
    with log.open("w", encoding="utf-8") as output, _signals_raise():
        fcntl.flock(output, fcntl.LOCK_EX)  # its processes hold it too: see _forget_attempts
        process = subprocess.Popen(
            command,
            env={**environment.environ(), KERNELS_MAY_BE_LOST: "1"},
            cwd=environment.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _watch(process, attempt, say)
        finally:
            _end(process)
    return process.returncode


def _forget_attempts(folder: Path) -> None:
    """Removes what is left of earlier attempts at ``folder``. An attempt that another process is making stays."""
    for log in folder.parent.glob(f"{folder.name}-*.log"):
        with log.open("rb") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(log.with_suffix(""), ignore_errors=True)
            log.unlink(missing_ok=True)


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises KeyboardInterrupt. Otherwise the run, a session of
    its own, would outlive this process."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the session of ``process``: interrupts the process, then kills all that is left."""
    try:
        if process.poll() is None:  # interrupted
            os.killpg(process.pid, signal.SIGINT)
            process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _has_records(folder: Path) -> bool:
    """Returns True if a run left records in ``folder``, and not only a beginning."""
    return bool(record_files(folder)) and (folder / RUN_FILE).is_file()


def _what_broke(status: int, ending: str) -> tuple[FaultKind, str]:
    """Returns the fault that broke a run without records, and a sentence: by its exit status, and the last words of its
    log."""
    kind = FaultKind.PROCESS
    if status < 0:
        kind = FaultKind.KILLED if -status in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP) else FaultKind.FAILED
    words = ending.splitlines()[-1:] or [f"exit status {status}"]
    return kind, f"no case was recorded (exit status {status}): {words[0]}"


def complete(folder: Path) -> bool:
    """True if ``folder`` holds a run that came to its end without a problem."""
    try:
        info = read_run(folder)
    except (OSError, RecordError):
        return False
    of_cases = all(fault.fault_class is FaultClass.REGRESSION for fault in info.faults or ())
    return info.wall_s is not None and not info.problems and of_cases


def _is_kept(folder: Path) -> bool:
    """True if ``folder`` holds a complete run whose files are as they were when it was kept."""
    try:
        kept = json.loads((folder / KEPT_FILE).read_text(encoding="utf-8"))
        return complete(folder) and kept == _digests_of(folder)
    except (OSError, ValueError, RecursionError):
        return False


def _digests_of(folder: Path) -> dict[str, str]:
    """Returns the digest of each file that later steps read, by its name. Artefacts and scripts are not among them: a
    record names them, and one that is gone is said to be."""
    return {file.name: file_digest(file) for file in sorted(folder.iterdir()) if _decides(file)}


def _decides(file: Path) -> bool:
    return file.is_file() and file.suffix in (".json", ".jsonl", ".gz", ".txt") and file.name != KEPT_FILE


def _key(environment: Environment, can: Abilities, options: Sequence[str]) -> str:
    """Returns a digest of everything that decides a run's results. That is the stack, the environment below it, the
    harness's code, the devices, the variables and the options."""
    stack = [
        environment.folder.name,
        dict(environment.stack.variables),
        dict(can.stack),
        list(can.devices),
        dict(can.declared),
    ]
    packages = [folder_digest(place) for place in (*environment.stack.sites, environment.folder / "site")]
    environ = environment.environ()
    around = [packages, {name: environ[name] for name in variables(environ)}, _installed(), code_digest()]
    text = json.dumps([*stack, *around, list(options)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _installed() -> dict[str, list[str]]:
    """Digests of triton, torch and the packages that extend the harness, as installed here. A package under development
    changes without a new version."""
    points = [point for group in EXTENSIONS for point in metadata.entry_points(group=group)]
    names = {"triton", "torch", *(point.module.partition(".")[0] for point in points)} - {"conformance"}
    specs = {name: importlib.util.find_spec(name) for name in sorted(names)}
    return {name: _digests(spec) for name, spec in specs.items() if spec is not None}


def _digests(spec: ModuleSpec) -> list[str]:
    folders = spec.submodule_search_locations
    if folders is not None:
        return [folder_digest(Path(folder)) for folder in folders]
    return [file_digest(Path(spec.origin))] if spec.origin else []


def _watch(process: subprocess.Popen[bytes], folder: Path, say: Say) -> None:
    """Waits for the end of ``process`` and reports the progress of its run meanwhile."""
    while True:
        try:
            process.wait(LOOK_SECONDS)
            return
        except subprocess.TimeoutExpired:
            say(_progress(folder))


def _progress(folder: Path) -> str:
    """Returns the line in which the run reports its progress."""
    try:
        return (folder / PROGRESS_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "collecting the cases" if (folder / RUN_FILE).exists() else "starting"
