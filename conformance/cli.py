"""The ``conformance`` command. Reading records needs no torch or triton; what needs them is imported when used."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import errno
import importlib
import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

OK, FAILED, USAGE = 0, 1, 2
INTERRUPTED = 130  # as shells say of a process that SIGINT ended
#: Errors of a standard output that takes no more.
_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

#: The modules of ``conformance.commands`` by the group of the help text, in the order of use.
GROUPS = {
    "judge": (
        *("run", "watch", "judge", "merge", "show", "records", "report", "reproduce"),
        *("list", "kernels", "targets", "check-kernel"),
    ),
    "upgrade": ("gate", "blame", "compare", "matrix"),
    "evidence": ("mustpass", "keygen", "bundle", "verify"),
    "laboratory": ("screen", "selftest", "precompile", "durations", "sweep", "calibrate", "benchmark", "mutants"),
}
#: What a group is for, as the help text says it.
TITLES = {
    "judge": "judge kernels, and read what a run found",
    "upgrade": "compare two stacks",
    "evidence": "lists of what must pass, and signed runs",
    "laboratory": "screen GPUs, compile ahead, measure devices, and test the harness itself",
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
LONGEST = max(map(len, COMMANDS))
INDENT = " " * (LONGEST + 4)  # of a help text's second line


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command line ``words`` (that of the process unless given). Returns 0 if all is well, 1 if the answer is
    a failure, 2 if the command could not be carried out. It is 130 if Ctrl-C ended the command; ``run`` returns
    pytest's own code."""
    try:
        try:
            return _carry_out(sys.argv[1:] if words is None else words)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # also after --help, which ends by SystemExit
    except KeyboardInterrupt:
        print("\nconformance: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader had enough
        return OK
    except OSError as error:
        why = _why_output_fails(error)
        if why is None:
            raise
        print(f"conformance: {why}", file=sys.stderr)
        return USAGE


def _why_output_fails(error: OSError) -> str | None:
    """Returns a sentence if ``error`` came from the standard output, which then leads nowhere: Python would try once
    more to write when it ends. Returns None if it did not."""
    if error.filename is not None or error.errno not in _OF_OUTPUT:
        return None
    with contextlib.suppress(OSError, ValueError):  # a stream of a test has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"the standard output takes no more: {error.strerror}; the answer is not complete: write it to another place"


def _carry_out(words: Sequence[str]) -> int:
    from conformance.commands import CommandError  # late, as Ctrl-C is a line from the start
    from conformance.commands.shared.suites import INSTALL

    arguments, rest = _parser().parse_known_args(words)
    if sys.stdout is None and not arguments.takes_any_option:
        arguments.parser.error("the standard output is closed: write the answer to a file, or to /dev/null")
    empty = [word for word in words if not word or re.fullmatch(r"--[\w-]+=", word)]
    if empty and not arguments.takes_any_option:
        arguments.parser.error(f"{empty[0].rstrip('=') or repr('')}: a value is required, and this one is empty")
    if rest and not arguments.takes_any_option:
        arguments.parser.refuse(rest[0])
    arguments.rest = rest
    try:
        return int(arguments.command(arguments))
    except CommandError as error:
        from conformance.reporting.text import shown

        print(shown(f"conformance: {error}"), file=sys.stderr)
        return USAGE
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == __package__:
            raise
        print(f"conformance: a package is missing: {error}; {INSTALL}", file=sys.stderr)
        return USAGE
    finally:
        loading = sys.modules.get("conformance.machine.entry_point_loading")
        for why in {} if loading is None or sys.stderr.closed else loading.LEFT_OUT.values():
            print(f"conformance: left out: {why}", file=sys.stderr)


class _CommandParser(argparse.ArgumentParser):
    """A parser whose errors are one line, which names the option and what was probably meant."""

    def error(self, message: str) -> NoReturn:
        from conformance.machine.near_names import did_you_mean

        choice = re.fullmatch(r"argument (.+): invalid choice: '(.*)' \((?:choose from|maybe you meant).*\)", message)
        if choice is not None:
            option, value = choice.groups()
            choices = COMMANDS if option == "COMMAND" else re.findall(r"[\w-]+", message.partition("(choose from")[2])
            message = f"{option.split('/')[-1]} {value}: there is no such choice; {did_you_mean(value, choices)}"
        self.exit(USAGE, f"{self.prog}: {message}; see '{self.prog} --help'\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Raises the OSError of a stream that takes no more. argparse itself loses it, and the help with it."""
        if message and file is not None:
            file.write(message)

    def refuse(self, word: str) -> NoReturn:
        """Ends the program because of a word that no parser knows."""
        if not word.startswith("-"):
            self.error(f"{word!r} is one word too many; a text with spaces needs quotes")
        name = word.partition("=")[0]
        near = difflib.get_close_matches(name, re.findall(r"--[\w-]+", self.format_help()), n=1)
        self.error(f"{name}: there is no such option" + (f"; did you mean {near[0]}?" if near else ""))


def _parser() -> argparse.ArgumentParser:
    modules = {name: importlib.import_module(f"conformance.commands.{name.replace('-', '_')}") for name in COMMANDS}
    parser = _CommandParser(
        prog="conformance",
        usage="conformance [-h] COMMAND ...",
        description="Conformance of Triton's matrix kernels.",
        epilog=_listed({name: module.HELP for name, module in modules.items()}),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", prog=parser.prog, help=argparse.SUPPRESS)
    for name, module in modules.items():
        command = commands.add_parser(name, description=module.HELP, allow_abbrev=False)
        command.set_defaults(command=module.run, takes_any_option=False, parser=command)
        module.configure(command)
    return parser


def _listed(helps: Mapping[str, str]) -> str:
    """Returns the lines that list the commands in their groups; argparse itself knows no groups of commands."""
    groups = []
    for group, names in GROUPS.items():
        lines = [
            textwrap.fill(f"{name:<{LONGEST}}  {helps[name]}", 100, initial_indent="  ", subsequent_indent=INDENT)
            for name in names
        ]
        groups.append("\n".join([f"{group}: {TITLES[group]}", *lines]))
    return "\n\n".join([*groups, "'conformance COMMAND --help' lists the options of a command."])


if __name__ == "__main__":
    sys.exit(main())
