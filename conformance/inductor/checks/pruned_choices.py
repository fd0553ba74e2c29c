"""Checks of the suite about what Inductor leaves out before it measures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from conformance.inductor.compile.program import Generated
from conformance.inductor.compile.replaced_decisions import ONE_CONFIG
from conformance.inductor.replay.pinned_programs import described_config
from conformance.inductor.source.source_checks import launched
from conformance.records import Verdict
from conformance.targets import Target


def estimate_of(generated: Generated, template: str) -> Mapping[str, Any]:
    """Returns what ``Decision.NOTHING_IS_PRUNED`` noted of the one choice of ``template`` that was pinned; empty
    without it."""
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
    """True if torch drops a config that fits."""
    note, taken = estimate_of(generated, template), shared_memory(generated)
    return bool(note) and not note["kept"] and taken is not None and taken <= target.limits.shared_memory


def kept(noted: Generated, template: str) -> int:
    """Returns how many configs of ``template`` torch keeps."""
    return sum(note["kept"] for note in noted.notes if note["template"] == template)


def check_offered(pruned: Generated, noted: Generated, template: str) -> list[Verdict]:
    """Where torch prunes, it offers as many choices of ``template`` as it keeps configs."""
    wanted = kept(noted, template)
    matching = [lowering.matching for lowering in pruned.lowerings]
    return [Verdict("offered", matching == [wanted] and wanted > 0, f"{matching} choices, {wanted} required")]


# --- fusion -----------------------------------------------------------------------------------------------------------


def check_fusion(generated: Generated, *, fused: bool, asked: int) -> list[Verdict]:
    """A product and its epilogue are one kernel, or two if they are not ``fused``. So many fused kernels were asked of
    the compiler, each of two nodes."""
    names = [name.rstrip("0123456789_") for name in launched(*generated.modules)]
    wanted = ["triton_tem_fused_mm_relu"] if fused else ["triton_tem_fused_mm", "triton_poi_fused_relu"]
    nodes = [len(note) for note in generated.notes]
    return [
        Verdict("kernels", names == wanted, f"{', '.join(names) or 'none'}; {', '.join(wanted)} required"),
        Verdict("asked", nodes == [2] * asked, f"{nodes} nodes, {asked} kernels of two required"),
    ]


#: Registers of a product alone and of a fused one, spills, milliseconds of the product and of its epilogue -> whether
#: fusing them is right for four warps and 65536 registers. 8 spills are too many. Otherwise more than half of the
#: blocks must still fit, or four, or two if the epilogue takes more than twice the time of the product.
FUSION_RULES: Mapping[tuple[int, int, int, float, float], bool] = {
    (64, 64, 0, 1.0, 0.1): True,
    (64, 64, 7, 1.0, 0.1): True,
    (64, 64, 8, 1.0, 0.1): False,
    (64, 64, 8, 1.0, 9.0): False,
    (64, 128, 0, 1.0, 0.1): True,  # 8 blocks, then 4
    (64, 168, 0, 1.0, 0.1): False,  # 8, then 3
    (128, 168, 0, 1.0, 0.1): True,  # 4, then 3
    (128, 255, 0, 1.0, 0.1): False,  # 4, then 2
    (128, 255, 0, 1.0, 2.1): True,
    (128, 255, 0, 1.0, 2.0): False,
    (128, 512, 0, 1.0, 9.0): False,  # 4, then 1
}


def check_fusion_rules() -> list[Verdict]:
    """Returns what torch says to each of :data:`FUSION_RULES`."""
    from torch._inductor import scheduler

    device = SimpleNamespace(regs_per_multiprocessor=65536, warp_size_or_default=32)
    decide: Any = scheduler._fuse_epilogue  # type: ignore[attr-defined, unused-ignore]
    verdicts = []
    for (alone, fused, spills, product, epilogue), wanted in FUSION_RULES.items():
        answer = bool(decide(product, epilogue, alone, fused, spills, 4, device))
        text = f"{alone} and {fused} registers, {spills} spills, {product} and {epilogue} ms: fused is {answer}"
        verdicts.append(Verdict(f"rule/{alone}-{fused}-{spills}-{epilogue:g}", answer == wanted, text))
    return verdicts
