"""``conformance mutants``: faults derived from the kernels' source, and which of them the cases of a tier see."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from conformance.commands import CommandError, command_errors, positive
from conformance.commands.shared.suites import import_with_stack
from conformance.machine.gpus import core_count, find_gpus
from conformance.machine.near_names import did_you_mean
from conformance.mutation.known_survivors import KNOWN, WrongLine, known_survivors
from conformance.mutation.operators import CLASSES
from conformance.user_files.run_options import DEFAULT_SEED, TIERS

HELP = "Plant faults in kernels, derived from their source, and count those that a tier's cases see."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME", help="only this kernel, repeatable")
    parser.add_argument(
        "--function", action="append", default=[], metavar="TEXT", help="only device functions with this in their name"
    )
    parser.add_argument("--class", dest="kinds", action="append", default=[], metavar="NAME", help="only this class")
    parser.add_argument("--mutant", action="append", default=[], metavar="ID", help="only this mutant, repeatable")
    parser.add_argument("--count", type=positive, metavar="N", help="only a sample of N, every class by turns")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, metavar="N", help="of the sample (default: 0)")
    parser.add_argument("--tier", choices=TIERS, help="default: quick, on a GPU default")
    parser.add_argument("--no-gpu", action="store_true", help="judge in the interpreter, also where there is a GPU")
    parser.add_argument("--folder", type=Path, default=Path("reports/mutants"), metavar="DIR", help="of kept results")
    parser.add_argument("--known", type=Path, metavar="FILE", help="survivors that are known (default: the package's)")
    parser.add_argument("--causes", action="store_true", help="have failures diagnosed, and count right causes")
    parser.add_argument(
        "--no-compile",
        action="store_true",
        help="do not compile what no case kills: equivalents then count as survivors",
    )
    parser.add_argument("--list", action="store_true", dest="only_list", help="print the mutants, and judge none")
    parser.add_argument(
        "--unreached",
        action="store_true",
        help="print the statements that no case reaches and the list lacks; judge no mutant",
    )
    parser.add_argument(
        "--workers", type=positive, default=core_count(), metavar="N", help="processes (default: one a core)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if every survivor is known, else 1. Raises :class:`CommandError` for what is unknown, and without torch
    or triton."""
    for kind in arguments.kinds:
        if kind not in CLASSES:
            raise CommandError(f"--class {kind}: there is no such class of faults; {did_you_mean(kind, CLASSES)}")
    with command_errors(WrongLine):
        expected = known_survivors(arguments.known or KNOWN)
    device = not arguments.no_gpu and bool(find_gpus().entries)
    if not device:
        os.environ["TRITON_INTERPRET"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    known_names = import_with_stack("cases.known_names", "mutants")
    score = import_with_stack("mutation.score", "mutants")
    session_module = import_with_stack("mutation.session", "mutants")
    with command_errors(known_names.UnknownName):
        known_names.check_kernels(arguments.kernel)
    with command_errors(OSError):
        session = session_module.Session.of_tier(
            *(arguments.folder, arguments.tier or ("default" if device else "quick"), tuple(arguments.kernel)),
            device=device,
            seed=DEFAULT_SEED,
            workers=arguments.workers,
            causes=arguments.causes,
            compiles=not arguments.no_compile,
        )
    if arguments.unreached:
        statements = {name: line for name, line in session.unreached().items() if name not in expected}
        for name, line in statements.items():
            print(f"{name}  {line}")
        return 1 if statements else 0
    mutants = _chosen(arguments, session)
    if arguments.only_list:
        for mutant in mutants:
            print(mutant.id, *mutant.diff, sep="\n    ")
        return 0
    results = session.results(mutants, _say)
    print(score.report(results, expected, causes=arguments.causes))
    if text := score.survivors(results, expected):
        print(f"\nsurvivors\n{text}")
    unknown = session_module.unknown(results, expected)
    if unknown:
        print(f"\n{len(unknown)} survivors are not known: add a case that kills them, or their reason to the list")
    return 1 if unknown or len(results) < len(mutants) else 0


def _chosen(arguments: argparse.Namespace, session: Any) -> list[Any]:
    mutants = session.mutants(arguments.kinds, arguments.function)
    if arguments.mutant:
        named = {mutant.id: mutant for mutant in mutants}
        if strange := [name for name in arguments.mutant if name not in named]:
            raise CommandError(f"--mutant {strange[0]}: there is no such mutant; see 'conformance mutants --list'")
        return [named[name] for name in arguments.mutant]
    if not mutants:
        raise CommandError("no device function has such a fault: see 'conformance mutants --list'")
    if arguments.count:
        chosen: list[Any] = import_with_stack("mutation.session", "mutants").sample(
            mutants, arguments.seed, arguments.count
        )
        return chosen
    return list(mutants)


def _say(result: Any) -> None:
    what = result.check or result.text
    print(f"{result.outcome.value:<13} {result.mutant}  {what}", file=sys.stderr, flush=True)
