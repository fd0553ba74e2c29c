"""``conformance screen``: exact products on every GPU of this machine, and a verdict for each."""

from __future__ import annotations

import argparse
import json
import os
import platform
from datetime import datetime, timezone
from pathlib import Path

from conformance.commands import CommandError, positive, write_output
from conformance.machine.gpus import find_gpus, lacking
from conformance.reporting.text import clean
from conformance.screening import answers, fleet
from conformance.screening.health_event import health_events

HELP = "Multiply exactly on every GPU, find wrong elements and their SMs, and say which GPU is suspect."

#: Seconds for each GPU, and the most that may be asked for.
SECONDS, MOST_SECONDS = 60.0, 86400.0
#: Fewer seconds than this do not suffice to start torch.
LEAST_SECONDS = 5.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="N", type=positive, help="the first N GPUs (default: all that are visible)")
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=_seconds,
        default=SECONDS,
        help=f"time for each GPU, all at once, the start included (default: {SECONDS:g})",
    )
    parser.add_argument("--turns", metavar="N", type=positive, default=0, help="end after about N turns, if sooner")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the whole answer into this file")
    parser.add_argument(
        "--health-event", metavar="FILE", type=Path, help="write the answer as health events of NVSentinel"
    )
    parser.epilog = (
        "Exit status: 0 if every GPU is clean; 1 if one gave a wrong element; 2 if one has no answer or there is none. "
        "A GPU has no answer if it hung, crashed, was in use, or was not tested on every SM with every kind of product."
    )


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if every GPU is clean, 1 if one has wrong elements, 2 if one has no answer. Raises
    :class:`CommandError` without a GPU, or for a file that cannot be written."""
    try:
        gpus = find_gpus(arguments.gpus)
    except ValueError as error:
        raise CommandError(error) from None
    if not gpus.entries:
        raise CommandError(f"screen needs a GPU: {lacking(gpus)}")
    began = _now()
    kinds = f"{len(gpus.entries)} GPU{'s' * (len(gpus.entries) > 1)}"
    print(f"{kinds}, {arguments.seconds:g} s each at the same time", flush=True)
    screened = fleet.screen(gpus, arguments.seconds, arguments.turns, said=_said)
    host = os.environ.get("NODE_NAME") or platform.node()
    if arguments.json is not None:
        data = answers.to_dict(
            screened, host, began, {"driver": gpus.driver or "", "python": platform.python_version()}
        )
        write_output(arguments.json, json.dumps(data, indent=2) + "\n")
    if arguments.health_event is not None:
        write_output(arguments.health_event, json.dumps(health_events(screened, host, _now()), indent=2) + "\n")
    return answers.exit_status(screened)


def _said(answer: answers.GpuAnswer) -> None:
    print(clean("\n".join(answers.text(answer))), flush=True)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds from {LEAST_SECONDS:g} to {MOST_SECONDS:g} are required")
    return seconds


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
