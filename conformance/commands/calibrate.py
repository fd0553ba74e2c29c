"""``conformance calibrate``: the module :mod:`conformance.calibration`, which needs torch and triton."""

from __future__ import annotations

import argparse

from conformance.commands import takes_any_option
from conformance.commands.shared.stack_modules import import_with_stack

HELP = "Measure the arithmetic that the contracts assume, on a device."


def configure(parser: argparse.ArgumentParser) -> None:
    takes_any_option(parser)


def run(arguments: argparse.Namespace) -> int:
    return int(import_with_stack("calibration", "calibrate").main(arguments.rest))
