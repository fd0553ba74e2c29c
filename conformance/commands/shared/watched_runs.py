"""The runs of ``conformance gate --watch``: a user's own suite, watched with each of two stacks."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance.commands import CommandError, command_errors
from conformance.commands.shared import policy_options
from conformance.commands.shared.gate_runs import Stages, cache_of, say
from conformance.commands.watch import pytest_words
from conformance.gate.stacks.environments import build, resolve_all
from conformance.gate.stacks.stack_file import Stack, StackError
from conformance.gate.stacks.stack_runs import StackRun
from conformance.machine.gpus import find_gpus
from conformance.records import record_files

#: Options of the gate that choose among the harness's own cases, with the value that each has by default.
_OF_SUITES: dict[str, object] = {
    "tier": "quick",
    "suite": [],
    "kernel": [],
    "config": [],
    "k": None,
    "cases": None,
    "repeats": 1,
    "compile_only": False,
    "require": None,
    "older": [],
    "blame": 0,
    "baseline_runs": 1,
}


def refuse_unusable(arguments: argparse.Namespace) -> list[str]:
    """Returns the words for pytest. Raises CommandError for a command that is no pytest, and for options that
    contradict ``--watch``."""
    try:
        words = pytest_words(shlex.split(arguments.watch), "--watch")
    except ValueError as error:
        raise CommandError(f"--watch {arguments.watch!r}: words as in a shell are required ({error})") from None
    for name, usual in _OF_SUITES.items():
        if getattr(arguments, name) != usual:
            option = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            raise CommandError(f"{option} contradicts --watch, which runs your own suite: give pytest's options there")
    if len(arguments.target) > 1:
        raise CommandError(f"--target {arguments.target[1]}: --watch compiles for one target")
    policy_options.refuse_unusable(arguments)
    policy_options.thresholds(arguments)
    return words


@command_errors(StackError, OSError)
def watched_runs(
    arguments: argparse.Namespace, stacks: Sequence[Stack], output: Path, words: Sequence[str], stages: Stages
) -> list[StackRun]:
    """Returns a watched run for each of ``stacks``, in folders of ``output``. Raises CommandError for a stack that
    cannot be installed, and for a suite that leaves no record."""
    resolved = resolve_all(stacks, cache_of(arguments), bool(find_gpus().entries), say)
    environments = []
    for one in resolved:
        stages.begin(f"{one.stack.title}: its packages are installed")
        environments.append(build(one, say))
    runs = []
    for environment, side in zip(environments, ("baseline", "candidate"), strict=True):
        name, folder = environment.stack.title, (output / side).resolve()
        stages.begin(f"{name}: the suite is watched")
        options = ["--run-dir", str(folder), *(word for one in arguments.target for word in ("--target", one))]
        options += ["--no-gpu"] * arguments.no_gpu
        command = environment.command("watch", *options, "--", "pytest", *words)
        done = subprocess.run(command, env=environment.environ(), stdout=sys.stderr, check=False)
        if not record_files(folder):
            raise CommandError(f"the suite left no record with {name!r} (exit status {done.returncode}): see above")
        runs.append(StackRun(environment, folder, tuple(options)))
    return runs
