"""Modules that need torch and triton, imported when a command uses them."""

from __future__ import annotations

import importlib
from types import ModuleType

from conformance.commands import CommandError


def import_with_stack(module: str, command: str) -> ModuleType:
    """The module ``conformance.<module>``. Raises :class:`CommandError`, which names ``command``, without its stack."""
    try:
        return importlib.import_module(f"conformance.{module}")
    except ImportError as error:
        raise CommandError(
            f"{command} needs torch and triton: {error}; pip install 'triton-conformance[stack]'"
        ) from None
