"""The longer ``conformance`` commands, one module each; cli.py has the short ones.

In each module ``configure`` adds the command's arguments to a parser, and ``run`` does the work and returns the exit
status.
"""

from __future__ import annotations


class CommandError(Exception):
    """A command cannot do what was asked; the message says why and what to do."""
