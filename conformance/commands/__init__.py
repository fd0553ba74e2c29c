"""The ``conformance`` commands that are longer than a screen, a module each: ``configure`` adds the arguments to a
parser, ``run`` does the work and returns the exit status."""

from __future__ import annotations


class CommandError(Exception):
    """A command cannot do what was asked; the message says why and what to do."""
