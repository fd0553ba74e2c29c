"""Checks of the suite about what Inductor leaves out before it measures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from conformance.inductor.compile.program import Generated
from conformance.inductor.compile.replaced_decisions import ONE_CONFIG
from conformance.inductor.replay.pinned_programs import described_config
from conformance.records import Verdict
from conformance.targets import Target


def estimate_of(generated: Generated, template: str) -> Mapping[str, Any]:
    """What ``Decision.NOTHING_IS_PRUNED`` noted of the one choice of ``template`` that was pinned; empty without it."""
    numbers = generated.left[0].numbers if generated.left else {}
    wanted = {"template": template, **{name: numbers.get(name) for name in ONE_CONFIG}}
    return next((note for note in generated.notes if wanted.items() <= note.items()), {})


def shared_memory(generated: Generated) -> int | None:
    """Bytes of shared memory that the one kernel of a template takes, or needed when a device refused it; None if it
    was not compiled."""
    kernels = [kernel for kernel in generated.kernels if kernel.kind == "template"]
    if len(kernels) == 1 and kernels[0].artefact is not None:
        return kernels[0].artefact.resources.shared_memory
    refused = re.search(r"shared memory, Required: (\d+)", generated.failure.message if generated.failure else "")
    return int(refused[1]) if refused else None


def check_estimate(generated: Generated, template: str, target: Target) -> list[Verdict]:
    """The kernel of ``template`` takes no more shared memory than torch estimates; it fits if torch keeps its
    config."""
    note, taken, limit = estimate_of(generated, template), shared_memory(generated), target.limits.shared_memory
    if not note or taken is None:
        failure = generated.failure or "; ".join(kernel.error for kernel in generated.kernels)
        return [Verdict("estimated", bool(note), str(note)), Verdict("compiled", taken is not None, str(failure))]
    config = described_config(generated.left[0])
    suffix = f"@{config.id}" if config is not None else ""
    text = f"{taken} bytes are taken, {note['estimate']} estimated, {target.id} has {limit}"
    return [
        Verdict(f"estimate{suffix}", taken <= note["estimate"], text),
        Verdict(f"kept fits{suffix}", not note["kept"] or taken <= limit, text),
    ]


def needlessly_dropped(generated: Generated, template: str, target: Target) -> bool:
    """Whether torch drops a config that fits."""
    note, taken = estimate_of(generated, template), shared_memory(generated)
    return bool(note) and not note["kept"] and taken is not None and taken <= target.limits.shared_memory


def check_offered(kept: Generated, noted: Generated, template: str) -> list[Verdict]:
    """Where torch prunes, it offers as many choices of ``template`` as it keeps configs of all that it ``noted``."""
    wanted = sum(note["kept"] for note in noted.notes if note["template"] == template)
    matching = [lowering.matching for lowering in kept.lowerings]
    return [Verdict("offered", matching == [wanted] and wanted > 0, f"{matching} choices, {wanted} required")]
