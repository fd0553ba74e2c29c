"""Modules that need torch and triton, imported when a command uses them."""

from __future__ import annotations

import importlib
from types import ModuleType

from conformance.commands import CommandError
from conformance.machine.versions import unloadable

INSTALL = "install your vendor's build of torch and triton, or: pip install 'triton-conformance[stack]'"


def import_with_stack(module: str, command: str) -> ModuleType:
    """Returns the module ``conformance.<module>``. Raises :class:`CommandError`, which names ``command``, without its
    stack, or with one that cannot be loaded."""
    broken = unloadable()
    if broken is not None:
        raise CommandError(f"{command} needs torch and triton: {broken}; {INSTALL}")
    try:
        return importlib.import_module(f"conformance.{module}")
    except (ImportError, OSError, RuntimeError) as error:
        raise CommandError(f"{command} needs torch and triton: {error}; {INSTALL}") from None
