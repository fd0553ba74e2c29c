"""``conformance judge``: judges the kernels of one plain file."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from conformance.commands import CommandError
from conformance.commands.shared.suites import import_with_stack
from conformance.machine.gpus import find_gpus

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
    gpus = None if arguments.no_gpu else find_gpus()
    if not (gpus and gpus.entries):
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if bool(arguments.operation) != bool(arguments.call):
        raise CommandError("--operation and --call belong together: give both, or neither")
    session = import_with_stack("judging.plain_file", "judge")
    description = import_with_stack("plain_files.description", "judge")
    with tempfile.TemporaryDirectory(prefix="conformance-judge-") as folder:
        try:
            entries = (
                [description.Described(operation=arguments.operation, call=arguments.call)]
                if arguments.call
                else description.described(arguments.file)
            )
            judged = session.judge_file(
                arguments.file.resolve(), entries, tuple(arguments.target), gpus, arguments.seed, Path(folder), print
            )
        except (description.DescriptionError, session.NotJudged) as error:
            raise CommandError(str(error)) from None
    return _verdict(judged)


def _verdict(judged: Any) -> int:
    return 0 if judged.passed else 1
