"""``conformance benchmark``: the module :mod:`conformance.benchmark`, which needs torch and triton."""

from __future__ import annotations

import argparse

from conformance.commands import CommandError, positive
from conformance.commands.shared.stack_modules import import_with_stack

HELP = "Time kernels against the libraries of the device, as ratios."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", metavar="N", type=positive, nargs="+", default=[4096, 8192], help="default: 4096 8192"
    )
    parser.add_argument("--only", choices=("products", "convolutions", "attentions"), nargs="+", help="default: all")
    parser.add_argument("--rounds", metavar="N", type=positive, default=9, help="of each comparison (default: 9)")
    parser.add_argument(
        "--workers", metavar="N", type=positive, default=12, help="processes that compile (default: 12)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the report and returns 0. Raises :class:`CommandError` without a device."""
    device = import_with_stack("execution.device", "benchmark")
    try:
        executor = device.DeviceExecutor()
    except device.NoDevice as error:
        raise CommandError(f"benchmark needs a GPU: {error}") from None
    benchmark = import_with_stack("benchmark", "benchmark")
    benchmark.report(executor, arguments.only, arguments.sizes, arguments.rounds, arguments.workers)
    return 0
