"""``conformance precompile``: compiles what the cases of a run will need, on a machine that may have no GPU."""

from __future__ import annotations

import argparse
import sqlite3
import sys
from pathlib import Path

from conformance.cases import known_names
from conformance.commands import CommandError, command_errors, positive
from conformance.commands.shared.suites import import_with_stack
from conformance.judging.settings import Settings
from conformance.machine.gpus import Gpus, core_count
from conformance.reporting.progress import ProgressDisplay, can_redraw
from conformance.user_files.expected_failures import ExpectedFailures
from conformance.user_files.run_options import DEFAULT_SEED, TIERS

HELP = "Compile the kernels of a run for another machine, which takes them with --compiled=DIR."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", action="append", required=True, metavar="SPEC", help="such as sm_90, repeatable")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the kernels, new or not")
    parser.add_argument("--tier", choices=TIERS, default="default", help="that of the run (default: default)")
    parser.add_argument("--suite", action="append", default=[], metavar="NAME", help="only this suite, repeatable")
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME", help="only this kernel, repeatable")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, metavar="N", help="that of the run (default: 0)")
    parser.add_argument("--no-gpu", action="store_true", help="for a run without a GPU, whose problems are smaller")
    parser.add_argument(
        "--workers", type=positive, default=core_count(), metavar="N", help="processes (default: one a core)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Returns 0, or 1 if some cases could not be planned. Raises :class:`CommandError` for what is unknown, and without
    torch or triton."""
    with command_errors(known_names.UnknownName):
        known_names.check_suites(arguments.suite)
        known_names.check_target_spelling(arguments.target)
    if arguments.out.exists() and not arguments.out.is_dir():
        raise CommandError(f"--out {arguments.out}: a folder is required, and this is a file")
    stage = import_with_stack("judging.compile_stage", "precompile")
    lookup = import_with_stack("cases.lookup", "precompile")
    targets = import_with_stack("targets", "precompile")
    carried = import_with_stack("execution.compile.carried_kernels", "precompile")
    selection_of = import_with_stack("cases.case_table", "precompile").Selection
    deadline = import_with_stack("judging.harness", "precompile").COMPILE_DEADLINE
    settings = _settings(arguments)
    try:
        chosen = tuple(targets.find(spec) for spec in arguments.target)
        known_names.check_kernels(arguments.kernel)
        selection = selection_of(
            chosen, arguments.tier, settings.kernels, has_gpu=settings.has_gpu, asked_for_targets=True
        )
        cases = list(lookup.case_ids(selection, arguments.suite))
    except LookupError as error:
        raise CommandError(error.args[0]) from None
    if not cases:
        raise CommandError("no case has a kernel to compile: see 'conformance list'")
    with command_errors(OSError, sqlite3.Error, carried.Unusable):
        arguments.out.mkdir(parents=True, exist_ok=True)
        store = carried.CarriedKernels(arguments.out, write=True)
    with stage.CompileStage(arguments.workers, deadline) as compiler:
        used = compiler.toolchain(selection)
        display = ProgressDisplay(sys.stderr, can_redraw(sys.stderr), lambda text: print(text, file=sys.stderr))
        display.show(compiler.look)
        try:
            compiled = compiler.compile(settings, selection, cases)
        finally:
            display.hide()
    for key, result in compiled.kernels.items():
        store.add(key, used, result)
    store.close()
    print(f"{compiled}\nfor {', '.join(target.id for target in chosen)}, by triton {used.triton}: {arguments.out}")
    print(*compiled.problems, sep="\n", end="\n" if compiled.problems else "", file=sys.stderr)
    return 1 if compiled.problems else 0


def _settings(arguments: argparse.Namespace) -> Settings:
    """Returns the settings of the run that will take the kernels. Its GPU is not here, and none is looked for."""
    return Settings(
        tier=arguments.tier,
        targets=tuple(arguments.target),
        kernels=tuple(arguments.kernel),
        suites=tuple(arguments.suite),
        seed=arguments.seed,
        run_dir=None,
        gpus=Gpus(entries=() if arguments.no_gpu else ("elsewhere",)),
        case=None,
        case_timeout_s=0.0,
        expected_failure_files=(),
        expected_failures=ExpectedFailures(),
    )
