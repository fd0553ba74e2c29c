"""``conformance merge DIR... --output DIR``: makes one run of the runs of all its shards."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands import command_errors
from conformance.gate.shards import merge
from conformance.records import RunInfo
from conformance.reporting.run_verdict import headline, many
from conformance.reporting.summary import Tally
from conformance.reporting.summary_text import render_markdown
from conformance.reporting.text import log_safe

HELP = "Merge the runs of all shards into one run."
SUMMARY_FILE = "summary.md"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shards", metavar="DIR", type=Path, nargs="+", help="the folder of the run of each shard")
    parser.add_argument("--output", metavar="DIR", type=Path, required=True, help="new folder of the merged run")
    parser.add_argument(
        "--mixed-devices", action="store_true", help="merge shards that ran on several devices; the run says so"
    )
    parser.epilog = "Exit status: 0 if the shards were merged, even if the run shows failures; 2 if they do not fit."


def run(arguments: argparse.Namespace) -> int:
    """Merges the runs and prints what the run shows. Returns 0. Raises :class:`CommandError` for runs that are not the
    shards of one run."""
    tally = Tally()

    def write_summary(info: RunInfo, folder: Path) -> None:
        (folder / SUMMARY_FILE).write_text(render_markdown(tally.summary(info, notes(info))), encoding="utf-8")

    with command_errors(merge.MergeError):
        info = merge.merge(
            arguments.shards,
            arguments.output,
            mixed_devices=arguments.mixed_devices,
            take=tally.add,
            finish=write_summary,
        )
    for line in (*notes(info), headline(tally.summary(info)), f"merged run: {arguments.output}"):
        print(log_safe(line))
    return 0


def notes(info: RunInfo) -> list[str]:
    """Returns sentences about the shards of the merged run ``info``."""
    merged = info.merged
    assert merged is not None
    seconds = [shard.wall_s for shard in merged.shards]
    mean = sum(seconds) / len(seconds)
    times = f", {max(seconds) / mean:.2f} times the mean" if mean else ""
    texts = [f"merged from {many(len(seconds), 'shard')}: the longest took {max(seconds):.1f} s{times}"]
    if merged.mixed_devices:
        devices = ", ".join(sorted({shard.device or "no device" for shard in merged.shards}))
        texts.append(f"the shards ran on several devices: {devices}")
    return texts
