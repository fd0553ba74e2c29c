"""``conformance benchmark``: the module :mod:`conformance.benchmark`, which needs torch and triton."""

from __future__ import annotations

import argparse

from conformance.commands import takes_any_option
from conformance.commands.shared.stack_modules import import_with_stack

HELP = "Time kernels against the libraries of the device, as ratios."


def configure(parser: argparse.ArgumentParser) -> None:
    takes_any_option(parser)
    parser.epilog = "Options: see python -m conformance.benchmark --help."


def run(arguments: argparse.Namespace) -> int:
    return int(import_with_stack("benchmark", "benchmark").main(arguments.rest))
