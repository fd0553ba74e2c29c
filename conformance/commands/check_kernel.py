"""``conformance check-kernel``: what the suites will ask of one kernel, before any run."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from typing import Any

from conformance.commands import CommandError
from conformance.commands.shared.suites import import_with_stack

HELP = "Show what a kernel takes and refuses, and how many cases each suite has of it."

#: The tiers whose cases are counted; to count the exhaustive one takes long.
TIERS = ("quick", "default", "full")
#: Values of a name that a line shows.
SHOWN = 12


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the kernel, of an installed package or of the catalogue")
    parser.add_argument("--target", action="append", default=[], metavar="SPEC", help="only this target, repeatable")


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if the kernel has a case and its launches can be made, else 1. Raises :class:`CommandError` for what is
    unknown, and without torch or triton."""
    outside = import_with_stack("cases.outside_kernels", "check-kernel")
    catalogue = import_with_stack("kernels.catalogue", "check-kernel")
    targets = import_with_stack("targets", "check-kernel")
    try:
        kernel = catalogue.get(arguments.name)
        chosen = tuple(targets.find(spec) for spec in arguments.target) or targets.compile_targets()
    except (LookupError, targets.OutsideError) as error:
        raise CommandError(error.args[0]) from None
    print(f"{kernel.name}, by {catalogue.origin(kernel.name)}: {kernel.family}, {', '.join(sorted(kernel.operations))}")
    answers = outside.answers(kernel, chosen)
    faults = dict.fromkeys(fault for plan in answers.plans if (fault := outside.fault_of(kernel, plan)))
    print("takes" if answers.plans else "takes no example")
    for name, values in answers.accepted.items():
        if any(values):
            print(f"  {name:<8}{outside.few(values, SHOWN)}")
    print("refuses" if answers.refused else "refuses no example")
    for reason in answers.refusals:
        print(f"  {reason}")
    for fault in faults:
        print(f"cannot be launched: {fault}")
    _print_counts({tier: _cases(kernel.name, chosen, tier) for tier in TIERS})
    return 0 if answers.plans and not faults else 1


def _cases(name: str, chosen: Any, tier: str) -> Counter[str]:
    """Returns the number of cases of each suite."""
    lookup = import_with_stack("cases.lookup", "check-kernel")
    selection = import_with_stack("cases.case_table", "check-kernel").Selection
    of_kernel = selection(chosen, tier, (name,), asked_for_targets=True)
    suites: Iterable[str] = (case.partition(".py")[0].removeprefix("test_") for case in lookup.case_ids(of_kernel))
    return Counter(suites)


def _print_counts(counts: dict[str, Counter[str]]) -> None:
    suites = sorted({suite for counter in counts.values() for suite in counter})
    width = max(map(len, ["suite", *suites]))
    print(f"{'cases':<{width}}" + "".join(f"{tier:>9}" for tier in counts))
    for suite in suites:
        print(f"{suite:<{width}}" + "".join(f"{counter[suite]:>9}" for counter in counts.values()))
    print(f"{'total':<{width}}" + "".join(f"{sum(counter.values()):>9}" for counter in counts.values()))
