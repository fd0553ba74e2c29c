"""``conformance benchmark``: the modules :mod:`conformance.benchmark` and :mod:`conformance.size_hints`.

Both need torch and triton.
"""

from __future__ import annotations

import argparse

from conformance.commands import CommandError, positive
from conformance.commands.shared.suites import import_with_stack

HELP = "Time kernels against the libraries of the device, as ratios."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", metavar="N", type=positive, nargs="+", default=[4096, 8192], help="default: 4096 8192"
    )
    parser.add_argument(
        "--only",
        choices=("products", "convolutions", "attentions", "size-hints"),
        nargs="+",
        help="size-hints: one product tuned for several numbers of rows (default: all)",
    )
    parser.add_argument("--rounds", metavar="N", type=positive, default=9, help="of each comparison (default: 9)")
    parser.add_argument(
        "--workers", metavar="N", type=positive, default=12, help="processes that compile (default: 12)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the report and returns 0. Raises :class:`CommandError` without a device."""
    device = import_with_stack("execution.device.executor", "benchmark")
    try:
        executor = device.DeviceExecutor()
    except device.NoDevice as error:
        raise CommandError(f"benchmark needs a GPU: {error}") from None
    benchmark = import_with_stack("benchmark", "benchmark")
    benchmark.report(executor, arguments.only, arguments.sizes, arguments.rounds, arguments.workers)
    if arguments.only is None or "size-hints" in arguments.only:
        size_hints = import_with_stack("size_hints", "benchmark")
        size_hints.report(executor, arguments.sizes, arguments.rounds, arguments.workers)
    return 0
