"""``conformance calibrate``: the module :mod:`conformance.calibration`, which needs torch and triton."""

from __future__ import annotations

import argparse

from conformance.commands import CommandError
from conformance.commands.shared.stack_modules import import_with_stack

HELP = "Measure the arithmetic that the contracts assume, on a device."


def configure(parser: argparse.ArgumentParser) -> None:
    """It has no options."""


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if the device keeps what the contracts promise, 1 if not. Raises :class:`CommandError` without one."""
    device = import_with_stack("execution.device", "calibrate")
    try:
        return int(import_with_stack("calibration", "calibrate").main())
    except device.NoDevice as error:
        raise CommandError(f"calibrate needs a GPU: {error}") from None
