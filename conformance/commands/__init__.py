"""The ``conformance`` commands, one module each; ``cli.py`` lists them.

In each module ``HELP`` says what the command does, and ``configure`` adds its arguments to a parser. ``run`` does the
work and returns the exit status. If ``configure`` calls :func:`takes_any_option`, options that the parser does not know
are no error: ``run`` finds them in ``arguments.rest``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance.records import replace_file
from conformance.reporting.text import log_safe


class CommandError(Exception):
    """A command cannot do what was asked; the message says why and what to do. It may quote what a stranger wrote, so
    it is made safe to print."""

    def __init__(self, message: object) -> None:
        super().__init__(log_safe(str(message)))


@contextmanager
def command_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Inside, and in a function that this decorates, an error of ``kinds`` becomes a :class:`CommandError`."""
    try:
        yield
    except kinds as error:
        raise CommandError(error) from None


def write_output(path: Path, text: str) -> None:
    """Writes what a command made to ``path``, and prints the path. A device such as /dev/stdout is written to, and not
    replaced by a file. Raises :class:`CommandError`."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            path.write_text(text, encoding="utf-8")
        else:
            replace_file(path, text)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error}") from None
    print(path)


def positive(text: str) -> int:
    """Returns a number of something, 1 or more, for argparse.

    >>> positive("3")
    3
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a number, 1 or more, is required")
    return int(text)


def takes_any_option(parser: argparse.ArgumentParser) -> None:
    """Lets a command hand options that it does not know to another program."""
    parser.set_defaults(takes_any_option=True)
