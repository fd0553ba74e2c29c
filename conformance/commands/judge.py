"""``conformance judge``: judges the kernels of one plain file."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from conformance.commands import CommandError, command_errors
from conformance.commands.shared.suites import INSTALL, import_with_stack
from conformance.machine.gpus import Gpus, find_gpus
from conformance.machine.versions import not_installed
from conformance.plain_files import description

HELP = "Judge the kernels of one Python file, by the calls that launch them."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a file with functions of triton.jit")
    parser.add_argument("--operation", metavar="OP", help="what it computes, such as mm; with --call")
    parser.add_argument("--call", metavar="EXPR", help="the call that launches it, such as 'matmul(a, b)'")
    parser.add_argument("--target", action="append", default=[], metavar="SPEC", help="a target, repeatable")
    parser.add_argument("--no-gpu", action="store_true", help="use no GPU")
    parser.add_argument("--seed", type=int, metavar="N", help="the seed of the operands (default: a random one)")


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if every case that the wrapper takes passes, else 1. Raises :class:`CommandError` for what cannot be
    judged."""
    if bool(arguments.operation) != bool(arguments.call):
        raise CommandError("--operation and --call belong together: give both, or neither")
    if broken := not_installed():
        raise CommandError(f"judge needs torch and triton: {broken}; {INSTALL}")
    with command_errors(description.DescriptionError):
        if arguments.call:
            entries = description.checked("--call", {"operation": arguments.operation, "call": arguments.call})
        else:
            entries = description.described(arguments.file)
    gpus = Gpus() if arguments.no_gpu else find_gpus()
    if not gpus.entries:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    judging = import_with_stack("judging.plain_file", "judge")
    with (
        tempfile.TemporaryDirectory(prefix="conformance-judge-") as folder,
        command_errors(description.DescriptionError, judging.NotJudged),
    ):
        options = judging.Options(tuple(arguments.target), gpus, arguments.seed, Path(folder))
        judged = judging.judge_file(arguments.file.resolve(), entries, options, print)
    return 0 if judged.passed else 1
