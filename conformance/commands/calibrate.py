"""``conformance calibrate``: the modules of :mod:`conformance.calibration`, which need torch and triton."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands import CommandError
from conformance.commands.shared.suites import import_with_stack

HELP = "Measure the arithmetic that the contracts assume, on a device, and prove the model of its tensor core."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="write the figures into this file, for runs with --calibration FILE"
    )


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if the device keeps what the contracts promise, 1 if not. Raises :class:`CommandError` without one, or
    for a file that cannot be written."""
    device = import_with_stack("execution.device.executor", "calibrate")
    try:
        return int(import_with_stack("calibration.device", "calibrate").main(arguments.output))
    except device.NoDevice as error:
        raise CommandError(f"calibrate needs a GPU: {error}") from None
    except OSError as error:
        raise CommandError(f"calibrate cannot write {arguments.output}: {error.strerror}") from None
