"""The ``conformance`` command. Reading records needs no torch or triton; what needs them is imported when used."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from conformance.commands import CommandError

OK, FAILED, USAGE = 0, 1, 2
INTERRUPTED = 130  # as shells say of a process that SIGINT ended

#: The modules of ``conformance.commands``, in the order of the help text.
COMMANDS = (
    *("run", "list", "targets", "check-kernel", "precompile"),
    *("show", "report", "sweep", "reproduce"),
    *("gate", "matrix", "compare", "mustpass"),
    *("keygen", "bundle", "verify"),
    *("calibrate", "benchmark"),
)


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command line ``words`` (that of the process unless given). Returns 0 if all is well, 1 if the answer is
    a failure, 2 if the command could not be carried out, 130 if Ctrl-C ended it; ``run`` returns pytest's own code."""
    parser = _parser()
    arguments, rest = parser.parse_known_args(words)
    if rest and not arguments.takes_any_option:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    arguments.rest = rest
    try:
        return int(arguments.command(arguments))
    except CommandError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("\nconformance: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader had enough
        return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="conformance", description="Conformance of Triton's matrix kernels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f"conformance.commands.{name.replace('-', '_')}")
        command = commands.add_parser(name, help=module.HELP, description=module.HELP, allow_abbrev=False)
        command.set_defaults(command=module.run, takes_any_option=False)
        module.configure(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
