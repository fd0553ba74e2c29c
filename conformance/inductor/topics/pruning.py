"""Checks of what Inductor leaves out before it measures, and of prescreening, in which its selector chooses between
stand-ins."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conformance.inductor.compile.program import Generated
from conformance.inductor.compile.replaced_decisions import ONE_CONFIG
from conformance.inductor.replay.pinned_programs import config_of, described_config
from conformance.inductor.source.source_checks import launched
from conformance.inductor.tuning.prescreened_choices import FIRST, KEPT, LEAST, SWIZZLES, prescreening
from conformance.records import Verdict
from conformance.targets import Target


def estimate_of(generated: Generated, template: str) -> Mapping[str, Any]:
    """Returns the notes of ``Decision.NOTHING_IS_PRUNED`` about the one choice of ``template`` that was pinned; empty
    without it."""
    numbers = generated.left[0].numbers if generated.left else {}
    values = {"template": template, **{name: numbers.get(name) for name in ONE_CONFIG}}
    return next((note for note in generated.notes if values.items() <= note.items()), {})


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
    note, used, limit = estimate_of(generated, template), shared_memory(generated), target.limits.shared_memory
    if not note or used is None:
        failure = generated.failure or "; ".join(kernel.error for kernel in generated.kernels)
        return [Verdict("estimated", bool(note), str(note)), Verdict("compiled", used is not None, str(failure))]
    config = described_config(generated.left[0])
    suffix = f"@{config.id}" if config is not None else ""
    text = f"{used} bytes are taken, {note['estimate']} estimated, {target.id} has {limit}"
    return [
        Verdict(f"estimate{suffix}", used <= note["estimate"], text),
        Verdict(f"kept fits{suffix}", not note["kept"] or used <= limit, text),
    ]


def needlessly_dropped(generated: Generated, template: str, target: Target) -> bool:
    """True if torch drops a config that fits."""
    note, used = estimate_of(generated, template), shared_memory(generated)
    return bool(note) and not note["kept"] and used is not None and used <= target.limits.shared_memory


def kept(noted: Generated, template: str) -> int:
    """Returns the number of configs of ``template`` that torch keeps."""
    return sum(note["kept"] for note in noted.notes if note["template"] == template)


def check_offered(pruned: Generated, noted: Generated, template: str) -> list[Verdict]:
    """Checks that torch, where it prunes, offers as many choices of ``template`` as it keeps configs."""
    count = kept(noted, template)
    matching = [lowering.matching for lowering in pruned.lowerings]
    return [Verdict("offered", matching == [count] and count > 0, f"{matching} choices, {count} required")]


# --- fusion -----------------------------------------------------------------------------------------------------------


def check_fusion(generated: Generated, *, fused: bool, asked: int) -> list[Verdict]:
    """A product and its epilogue are one kernel, or two if they are not ``fused``. So many fused kernels were asked of
    the compiler, each of two nodes."""
    names = [name.rstrip("0123456789_") for name in launched(*generated.modules)]
    required = ["triton_tem_fused_mm_relu"] if fused else ["triton_tem_fused_mm", "triton_poi_fused_relu"]
    nodes = [len(note) for note in generated.notes]
    return [
        Verdict("kernels", names == required, f"{', '.join(names) or 'none'}; {', '.join(required)} required"),
        Verdict("asked", nodes == [2] * asked, f"{nodes} nodes, {asked} kernels of two required"),
    ]


#: Fusing is judged for four warps and 65536 registers. A row has the registers of a product alone and of a fused one,
#: spills, milliseconds of the product and of its epilogue. Its value says whether fusing them is right. 8 spills are
#: too many. Otherwise more than half of the blocks must still fit, or four. Two are enough if the epilogue takes more
#: than twice the time of the product.
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
    """Compares torch's answers with each of :data:`FUSION_RULES`."""
    from torch._inductor import scheduler
    from torch._inductor.runtime.hints import DeviceProperties

    device = DeviceProperties("cuda", 0, multi_processor_count=132, cc=90, regs_per_multiprocessor=65536, warp_size=32)
    decide: Any = scheduler._fuse_epilogue  # type: ignore[attr-defined, unused-ignore]
    verdicts = []
    for (alone, fused, spills, product, epilogue), is_right in FUSION_RULES.items():
        answer = bool(decide(product, epilogue, alone, fused, spills, 4, device))
        text = f"{alone} and {fused} registers, {spills} spills, {product} and {epilogue} ms: fused is {answer}"
        verdicts.append(Verdict(f"rule/{alone}-{fused}-{spills}-{epilogue:g}", answer == is_right, text))
    return verdicts


def _flat(milliseconds: float) -> Callable[[int], float]:
    return lambda swizzle: milliseconds


def _timed_as(check: str, rounds: Sequence[Sequence[str]], required: Sequence[set[str]]) -> Verdict:
    """Verdict that each round timed these choices, each once."""
    same = [sorted(names) for names in rounds] == [sorted(names) for names in required]
    text = f"{[sorted(names) for names in rounds]}, {[sorted(names) for names in required]} required"
    return Verdict(check, same, "as required" if same else text)


def _chosen(name: str, required: str) -> Verdict:
    return Verdict("chosen", name == required, f"{name}, {required} required")


def _swizzled(names: Sequence[str], swizzles: Sequence[int] = SWIZZLES) -> set[str]:
    return {f"{name}/{swizzle}" for name in names for swizzle in swizzles}


def _kernels(count: int) -> list[str]:
    """Names of kernels; the further on, the slower."""
    return [f"kernel{number:02}" for number in range(count)]


def check_two_rounds() -> list[Verdict]:
    """Twelve kernels, a library's and one of Triton's. The first round times the kernels with one swizzle, and the
    library's; the second the best of them with every swizzle, and Triton's. A kernel whose other swizzles are the
    fastest of all is not among the best, nor is one that cannot be timed."""
    names = _kernels(LEAST + 2)
    times = {name: _flat(10.0 + number) for number, name in enumerate(names)}
    times[names[3]] = lambda swizzle: 2.0 if swizzle == 8 else 13.0  # the fastest that is kept
    times[names[10]] = lambda swizzle: 20.0 if swizzle == FIRST else 1.0  # the fastest of all, and not seen
    times[names[0]] = lambda swizzle: math.inf if swizzle == FIRST else 1.5
    with prescreening() as run:
        chosen = run.select([*run.kernels(times), run.extern("library", 14.5), run.inner.stand_in("triton", 30.0)])
        rounds = list(run.rounds)
    # The order by time with the first swizzle: 1, 2, 3, 4, library, 5, 6, 7, 8 ...; 0 is last of all.
    kept = names[1:8]
    second = {*_swizzled(kept), "library", "triton"}
    return [
        _timed_as("rounds", rounds, [{*_swizzled(names, [FIRST]), "library"}, second]),
        Verdict("kept", len(kept) + 1 == KEPT, f"{len(kept)} kernels and the library's"),
        _chosen(chosen, f"{names[3]}/8"),
    ]


def check_slow_library() -> list[Verdict]:
    """A library's kernel that is slower than the best is left out with the others, and Triton's can win."""
    names = _kernels(LEAST)
    with prescreening() as run:
        chosen = run.select(
            [
                *run.kernels({name: _flat(10.0 + number) for number, name in enumerate(names)}),
                run.extern("library", 50.0),
                run.inner.stand_in("triton", 9.0),
            ]
        )
        rounds = list(run.rounds)
    first = {*_swizzled(names, [FIRST]), "library"}
    return [
        _timed_as("rounds", rounds, [first, {*_swizzled(names[:KEPT]), "triton"}]),
        _chosen(chosen, "triton"),
    ]


def check_one_round(
    count: int = LEAST - 1, swizzles: Sequence[int] = SWIZZLES, *, prescreens: bool = True
) -> list[Verdict]:
    """Everything is timed at once: with few kernels, with one swizzle alone, or where prescreening is not wanted."""
    names = _kernels(count)
    settings: dict[str, Any] = {
        "cutlass_max_profiling_swizzle_options": list(swizzles),
        "cutlass_prescreening": prescreens,
    }
    with prescreening(**settings) as run:
        times = {name: _flat(10.0 - number / 2) for number, name in enumerate(names)}
        chosen = run.select([*run.kernels(times), run.extern("library", 50.0)])
        rounds = list(run.rounds)
    return [
        _timed_as("rounds", rounds, [{*_swizzled(names), "library"}]),
        Verdict("chosen", chosen.startswith(names[-1]), f"{chosen}, {names[-1]} required"),
    ]


def check_remembered() -> list[Verdict]:
    """The same product once more, when the slowest kernels have become the fastest: what was left out stays so."""
    names = _kernels(LEAST + 2)
    with prescreening(times_are_kept=False) as run:
        first = run.select(run.kernels({name: _flat(10.0 + number) for number, name in enumerate(names)}))
        again = run.select(run.kernels({name: _flat(30.0 - number) for number, name in enumerate(names)}))
        rounds = list(run.rounds)
    kept = names[:KEPT]
    return [
        Verdict("first", first.startswith(names[0]), f"{first}, {names[0]} required"),
        _timed_as("rounds", rounds, [_swizzled(kept, [FIRST]), _swizzled(kept)]),
        Verdict("chosen", again.startswith(kept[-1]), f"{again}, {kept[-1]} required"),
    ]


def check_product(generated: Generated) -> list[Verdict]:
    """``Decision.TRITON_IS_PRESCREENED``: a first round timed all choices that Triton has, a second some of them, of
    which the last is the fastest. It is what was generated."""
    offered = [choice.name for choice in generated.left]
    rounds = [list(names) for names in generated.notes]
    kept = [name for name in offered if name in rounds[-1]] if rounds else []
    fastest = sorted(offered[-KEPT:]) == sorted(kept)
    chosen = next((choice for choice in generated.left if kept and choice.name == kept[-1]), None)
    kernels = [kernel for kernel in generated.kernels if kernel.kind == "template"]
    config = config_of(kernels[0].source) if len(kernels) == 1 else None
    required = described_config(chosen) if chosen else None
    return [
        Verdict("rounds", len(rounds) == 2 and sorted(rounds[0]) == sorted(offered), f"{len(rounds)}, {len(offered)}"),
        Verdict("kept", len(kept) == KEPT and fastest, f"{', '.join(kept)} of {len(offered)}"),
        Verdict("chosen", config is not None and config == required, f"{config}, {required} required"),
    ]
