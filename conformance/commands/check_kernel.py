"""``conformance check-kernel``: what the suites will ask of one kernel, before any run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from conformance.commands import CommandError
from conformance.commands.shared.suites import import_with_stack
from conformance.exception_text import place_of, text_of
from conformance.machine import process_exit

if TYPE_CHECKING:
    from conformance.judging.asked_cases import AskedCases

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
    origin = catalogue.origin(kernel.name)
    print(f"{kernel.name}, by {origin}: {kernel.family}, {', '.join(sorted(kernel.operations))}")
    give_back = process_exit.refuse("this command")
    try:
        return _checked(kernel, chosen, outside)
    except CommandError:
        raise
    except (Exception, SystemExit) as error:  # whatever a stranger's kernel raises
        if origin == "conformance":
            raise
        raise CommandError(f"{kernel.name} cannot be checked: {text_of(error)}{place_of(error)}") from None
    finally:
        give_back()


def _checked(kernel: Any, chosen: Any, outside: Any) -> int:
    """Prints what ``kernel`` takes and refuses on the targets ``chosen``, and returns the exit status."""
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
    asked = {tier: _asked(kernel.name, chosen, tier) for tier in TIERS}
    _print_counts(asked)
    for tier, of_tier in asked.items():
        for name, values in of_tier.unjudged(answers.accepted).items() if of_tier.accepted else ():
            asked_of = " that was asked" if of_tier.unasked else ""
            print(f"{name} {outside.few(values, SHOWN)}: taken, judged in no case{asked_of} of the {tier} tier")
    return 0 if answers.plans and not faults else 1


def _asked(name: str, chosen: Any, tier: str) -> AskedCases:
    """Returns the cases of each suite, as the kernel answers about them."""
    selection = import_with_stack("cases.case_table", "check-kernel").Selection
    asked: AskedCases = import_with_stack("judging.asked_cases", "check-kernel").asked_cases(
        selection(chosen, tier, (name,), asked_for_targets=True)
    )
    return asked


def _print_counts(asked: dict[str, AskedCases]) -> None:
    """Prints for each suite and tier the cases that are judged, and those that the kernel refuses."""
    suites = sorted({suite for each in asked.values() for suite in (*each.accepted, *each.refused, *each.unasked)})
    width = max(map(len, ["suite", *suites]))
    print(f"{'cases':<{width}}" + "".join(f"{tier:>9}{'refused':>9}" for tier in asked))
    for suite in suites:
        cells = [(each.accepted[suite] + each.unasked[suite], each.refused[suite]) for each in asked.values()]
        print(f"{suite:<{width}}" + "".join(f"{judged:>9}{refused:>9}" for judged, refused in cells))
    totals = [(each.accepted.total() + each.unasked.total(), each.refused.total()) for each in asked.values()]
    print(f"{'total':<{width}}" + "".join(f"{judged:>9}{refused:>9}" for judged, refused in totals))
    unasked = ", ".join(f"{each.unasked.total()} of {tier}" for tier, each in asked.items() if each.unasked.total())
    if unasked:
        print(f"counted as judged, because only a run can ask: {unasked}")
