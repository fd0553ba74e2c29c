"""Checks of prescreening: each has Inductor's selector choose between stand-ins, and says what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from conformance.inductor.compile.program import Generated
from conformance.inductor.replay.pinned_programs import config_of, described_config
from conformance.inductor.tuning.prescreened_choices import FIRST, KEPT, LEAST, SWIZZLES, prescreening
from conformance.records import Verdict


def _flat(milliseconds: float) -> Callable[[int], float]:
    return lambda swizzle: milliseconds


def _timed_as(check: str, rounds: Sequence[Sequence[str]], wanted: Sequence[set[str]]) -> Verdict:
    """Verdict that each round timed these choices, each once."""
    same = [sorted(names) for names in rounds] == [sorted(names) for names in wanted]
    text = f"{[sorted(names) for names in rounds]}, {[sorted(names) for names in wanted]} required"
    return Verdict(check, same, "as required" if same else text)


def _chosen(name: str, wanted: str) -> Verdict:
    return Verdict("chosen", name == wanted, f"{name}, {wanted} required")


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
    count: int = LEAST - 1, swizzles: Sequence[int] = SWIZZLES, *, wanted: bool = True
) -> list[Verdict]:
    """Everything is timed at once: with few kernels, with one swizzle alone, or where prescreening is not wanted."""
    names = _kernels(count)
    settings: dict[str, Any] = {
        "cutlass_max_profiling_swizzle_options": list(swizzles),
        "cutlass_prescreening": wanted,
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
    wanted = described_config(chosen) if chosen else None
    return [
        Verdict("rounds", len(rounds) == 2 and sorted(rounds[0]) == sorted(offered), f"{len(rounds)}, {len(offered)}"),
        Verdict("kept", len(kept) == KEPT and fastest, f"{', '.join(kept)} of {len(offered)}"),
        Verdict("chosen", config is not None and config == wanted, f"{config}, {wanted} required"),
    ]
