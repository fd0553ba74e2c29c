"""``conformance blame``: which compiler stage is guilty of what a case shows with one stack and not with another."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from conformance.blame.answer_text import data, text
from conformance.blame.inquiry import BlameError, ask_case
from conformance.blame.symptoms import NAMES, is_known
from conformance.commands import CommandError, command_errors, positive
from conformance.gate.stacks.environments import prepare
from conformance.gate.stacks.stack_file import StackError, parse
from conformance.machine.gpus import find_gpus
from conformance.machine.kept_answers import default_cache
from conformance.machine.near_names import did_you_mean
from conformance.reporting.text import log_safe

HELP = "Name the compiler stage, and its pass, that is guilty of what a case shows with one stack."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="the case's id, as in a run or as conformance list prints it")
    parser.add_argument(
        "--good", metavar="STACK", required=True, help="the stack without the fault, as the gate has it"
    )
    parser.add_argument("--bad", metavar="STACK", required=True, help="the stack with the fault")
    parser.add_argument(
        "--symptom",
        action="append",
        default=[],
        metavar="NAME",
        help="only this difference, such as spills, 'feature ASYNC_COPY' or sync (repeatable; default: all there are)",
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=positive, default=100, help="for each compilation (default: 100)"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, with all that was measured")
    parser.add_argument(
        "--keep", metavar="DIR", type=Path, help="a new folder for what was compiled (default: it is removed)"
    )
    parser.add_argument("--cache", metavar="DIR", type=Path, help="environments (default: ~/.cache/triton-conformance)")


@command_errors(StackError, BlameError, OSError)
def run(arguments: argparse.Namespace) -> int:
    """Prints the answer. Returns 0 if a stage is guilty of the first difference of each launch, 1 if none could be
    named or nothing differs. Raises :class:`CommandError`."""
    if "::" not in arguments.case:
        raise CommandError(f"{arguments.case!r} is a part of a case's id: give the whole id")
    for word in arguments.symptom:
        if not is_known(word):
            raise CommandError(f"--symptom {word}: no difference has this name; {did_you_mean(word, NAMES)}")
    stacks = parse(arguments.good), parse(arguments.bad)
    good, bad = prepare(stacks, arguments.cache or default_cache(), bool(find_gpus().entries), _say)
    with tempfile.TemporaryDirectory() as scratch:
        folder = (arguments.keep or Path(scratch) / "compiled").resolve()
        folder.mkdir(parents=True)
        symptoms, deadline = tuple(arguments.symptom), float(arguments.timeout)
        answer = ask_case(arguments.case, good, bad, folder, symptoms=symptoms, deadline=deadline, say=_say)
    print(json.dumps(data(answer), indent=2) if arguments.json else log_safe(text(answer)))
    return 0 if answer.named else 1


def _say(line: str) -> None:
    print(log_safe(line), file=sys.stderr, flush=True)
