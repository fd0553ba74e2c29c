"""``conformance targets``: devices, compile targets and what they have or lack, for people or as JSON."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from conformance.cases import known_names
from conformance.commands import CommandError, command_errors
from conformance.commands.shared.suites import import_with_stack
from conformance.records import jsonable
from conformance.user_files.toml_entries import EntryError

HELP = "Show devices and compile targets, and which capabilities they have or lack."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", nargs="?", help="say of this target why it lacks what it lacks")
    parser.add_argument(
        "--json",
        action="store_true",
        help="as JSON, with the stack, its kernels and what they declare, and whether it can interpret",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the targets and returns 0. Raises :class:`CommandError` without torch or triton."""
    from conformance.machine.gpus import find_gpus

    if arguments.json and arguments.target is not None:
        raise CommandError("--json tells of all targets: leave TARGET out")
    if arguments.target is not None:
        with command_errors(known_names.UnknownName):
            known_names.check_target_spelling([arguments.target], "TARGET")
    gpus = find_gpus()
    if arguments.json and not gpus.entries:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    targets = import_with_stack("targets", "targets")
    if arguments.json:
        print(json.dumps(_data(targets, gpus)))
    elif arguments.target is not None:
        _describe(targets, arguments.target)
    else:
        _print(targets)
    return 0


def _data(targets: Any, gpus: Any) -> dict[str, Any]:
    from conformance.machine.versions import imported_versions, machine_stack

    catalogue = import_with_stack("kernels.catalogue", "targets --json")
    with command_errors(EntryError):
        declared = jsonable(catalogue.declarations())
    return {
        "stack": {**machine_stack(gpus), **imported_versions()},
        "devices": [target.id for target in targets.devices()],
        "targets": [target.id for target in targets.compile_targets()],
        "lacking": {name: str(reason) for name, reason in targets.unavailable_targets().items()},
        "interpreter": None if gpus.entries else _why_not_interpreted(),
        "kernels": list(catalogue.catalogue()),
        "declared": declared,
    }


def _why_not_interpreted() -> str | None:
    from conformance.execution.interpreter.executor import InterpreterExecutor, InterpreterUnsupported

    try:
        InterpreterExecutor()
    except InterpreterUnsupported as error:
        return str(error.reason)
    return None


def _print(targets: Any) -> None:
    """A line for each target, with what it lacks."""
    devices = tuple(target for target in targets.devices() if targets.why_not(target) is None)
    groups = {"devices": devices, "compile-only targets": targets.compile_targets()}
    print(f"capabilities: {', '.join(targets.CAPABILITIES)}")
    for title, members in groups.items():
        print(f"{title}:" if members else f"{title}: none")
        for target in members:
            lacking = [name for name in targets.CAPABILITIES if not target.capability(name).available]
            print(f"  {target.id:9} {target.name:16} lacks {', '.join(lacking) or 'nothing'}")
    unavailable = targets.unavailable_targets()
    if unavailable:
        print("cannot be compiled for here:")
    for name, reason in sorted(unavailable.items()):
        print(f"  {name}  {reason}")
    print("'conformance targets TARGET' says why a target lacks what it lacks")


def _describe(targets: Any, spec: str) -> None:
    with command_errors(LookupError):
        target = targets.find(spec)
    print(f"{target.id}  {target.name}")
    for capability in map(target.capability, targets.CAPABILITIES):
        why = "" if capability.available else f": {capability.why.removeprefix(f'{target.id}: ')}"
        print(f"  {'has  ' if capability.available else 'lacks'}  {capability.name}{why}")
