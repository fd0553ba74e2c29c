"""Runs a reproducer script in the environments of two stacks and says what it showed.

A script ends with 0 if all is fine, and with 1 and a line that begins with FAULT if the fault shows. A crash or a hang
shows a fault, too. With any other exit status the script could not run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from conformance.gate.shortened_text import first_words
from conformance.gate.stacks.environments import Environment
from conformance.records import replace_file

#: Seconds that a script may take unless told otherwise. A script gives up a compiler that hangs after 240.
SECONDS = 300.0
#: Signals that end a process from outside, through no fault of its own. SIGKILL also comes when memory runs out.
OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
#: How many of the last characters of a script's output are kept.
OUTPUT_LIMIT = 20_000
#: Placeholder in a script until it has been run on the good stack.
NOT_TRIED = "\nfine with:  not tried\n"


class ScriptOutcome(Enum):
    """The result of running a script in one environment."""

    CONFIRMED = "confirmed"  # fine in the baseline, the fault shows in the candidate
    NOT_REPRODUCED = "not reproduced"  # fine in both, or in the candidate alone
    BOTH_FAIL = "both fail"  # the fault is older than the candidate
    CANNOT_RUN = "cannot run"  # in one of them at least


@dataclass(frozen=True)
class Attempt:
    """One run of a command: the exit ``status`` (less than 0: minus the signal it died by; None: it ran past its time)
    and the end of what it printed."""

    status: int | None
    output: str

    @property
    def fine(self) -> bool:
        return self.status == 0

    @property
    def died(self) -> bool:
        """True if it crashed or hung."""
        return self.status is None or (self.status < 0 and -self.status not in OUTSIDE)

    @property
    def faulty(self) -> bool:
        """True if it showed the fault."""
        # Python itself ends with 1 after an exception, which is no finding
        shows_fault = any(line.startswith("FAULT: ") for line in self.output.splitlines())
        return self.died or (self.status == 1 and shows_fault)

    @property
    def ending(self) -> str:
        """Returns the script's ending, to complete a sentence that begins with "it"."""
        if self.status is None:
            return "ran past its time"
        if self.status < 0:
            with contextlib.suppress(ValueError):
                return f"died by {signal.Signals(-self.status).name}"
        return f"ended with {self.status}"


@dataclass(frozen=True)
class Confirmation:
    """The results of a script with the baseline's stack and with the candidate's."""

    outcome: ScriptOutcome
    baseline: Attempt
    candidate: Attempt

    @property
    def text(self) -> str:
        """The outcome in a sentence."""
        how = f" (it {self.candidate.ending})" if self.candidate.died else ""
        return {
            ScriptOutcome.CONFIRMED: f"the fault shows in the candidate{how} and not in the baseline",
            ScriptOutcome.NOT_REPRODUCED: "the fault does not show in the candidate",
            ScriptOutcome.BOTH_FAIL: f"in the baseline it fails too (it {self.baseline.ending}; in the candidate it "
            f"{self.candidate.ending})",
            ScriptOutcome.CANNOT_RUN: f"the script cannot run: {self._why}",
        }[self.outcome]

    @property
    def _why(self) -> str:
        for name, attempt in (("baseline", self.baseline), ("candidate", self.candidate)):
            if not attempt.fine and not attempt.faulty:
                lines = [line for line in attempt.output.splitlines() if line.strip()]
                return f"in the {name} it {attempt.ending}" + (f" ({first_words(lines[-1], 300)})" if lines else "")
        return ""


def confirm(script: Path, baseline: Environment, candidate: Environment, seconds: float = SECONDS) -> Confirmation:
    """Runs ``script`` in both environments, for ``seconds`` at most in each. Raises OSError if it cannot be started."""
    with tempfile.TemporaryDirectory() as folder:  # Python looks for modules next to a script first
        copy = shutil.copy(script, folder)
        command = [sys.executable, copy]
        before, after = (attempt(command, stack.environ(), seconds) for stack in (baseline, candidate))
    if not all(attempt.fine or attempt.faulty for attempt in (before, after)):
        outcome = ScriptOutcome.CANNOT_RUN
    elif after.fine:
        outcome = ScriptOutcome.NOT_REPRODUCED
    else:
        outcome = ScriptOutcome.CONFIRMED if before.fine else ScriptOutcome.BOTH_FAIL
    return Confirmation(outcome, before, after)


def state_baseline(script: Path, stack: str) -> None:
    """Writes into ``script``, a confirmed script, that all is fine with the stack called ``stack``."""
    plain = "".join(sign if sign.isprintable() and sign not in "\\\"'" else "?" for sign in stack)
    text = script.read_text(encoding="utf-8")
    replace_file(script, text.replace(NOT_TRIED, NOT_TRIED.replace("not tried", plain), 1))


def attempt(
    command: Sequence[str], variables: Mapping[str, str], seconds: float, folder: Path | None = None
) -> Attempt:
    """Runs ``command`` with the environment ``variables``, for ``seconds`` at most, and then ends all processes that it
    started. It runs in ``folder``, or in an empty one, so that no module comes before the stack's. Raises OSError if it
    cannot be started."""
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            env=variables,
            cwd=folder or empty,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
        size = output.seek(0, 2)
        output.seek(max(0, size - OUTPUT_LIMIT))
        return Attempt(status, output.read().decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and what it started, such as compilers; they are a group of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
