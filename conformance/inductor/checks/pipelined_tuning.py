"""Checks of pipelined autotuning: each has Inductor's selector choose between stand-ins, and says what is wrong."""

from __future__ import annotations

import math
from typing import Any

from conformance.inductor.compile.program import Generated
from conformance.inductor.replay.pinned_programs import config_of, described_config
from conformance.inductor.tuning.pipelined_tuning import Pipelined, pipelined
from conformance.records import Verdict


def _answers(run: Pipelined, selected: Any) -> tuple[dict[str, float], str]:
    """The time of each choice and the name of the fastest, or what the selector raises in the place of a name."""
    run.pool.gate.set()
    try:
        timings = {choice.name: time for choice, time in selected.choice_timings().items()}
    except Exception as error:  # whatever the selector raises is the result
        return {}, f"raises {type(error).__name__}: {error}"
    return timings, min(timings, key=timings.__getitem__)


def check_pipelined() -> list[Verdict]:
    """The selector does not wait for what times; each choice is timed once, the library's is submitted first, and the
    fastest wins."""
    with pipelined() as run:
        choices = [run.triton("slow", 3.0), run.extern("library", 2.0), run.triton("fast", 1.0)]
        selected = run.select(choices)
        early = [request.name for request in run.pool.submitted]
        timings, fastest = _answers(run, selected)
        submitted = [request.name for request in run.pool.submitted]
    wanted = {"slow": 3.0, "library": 2.0, "fast": 1.0}
    return [
        Verdict("library first", early[:1] == ["library"], f"submitted while it selects: {early}"),
        Verdict("once", sorted(submitted) == sorted(wanted), f"{submitted}"),
        Verdict("times", timings == wanted, f"{timings}, {wanted} required"),
        Verdict("chosen", fastest == "fast", fastest),
    ]


def check_failing_benchmark() -> list[Verdict]:
    """A choice whose benchmark raises is infinitely slow, and the others keep their times."""
    with pipelined() as run:
        choices = [run.triton("raises", RuntimeError("planted")), run.triton("slow", 3.0), run.extern("library", 2.0)]
        timings, fastest = _answers(run, run.select(choices))
    return [
        Verdict("infinite", timings.get("raises") == math.inf, f"{timings}"),
        Verdict("chosen", fastest == "library", fastest),
    ]


def check_failing_compilation(*, all_of_them: bool) -> list[Verdict]:
    """A choice that does not compile is left out, or, if none of Triton's does, all of them: the library's wins."""
    with pipelined() as run:
        choices = [
            run.triton("broken", 1.0, compiles=False),
            run.triton("slow", 3.0, compiles=not all_of_them),
            run.extern("library", 4.0),
        ]
        timings, fastest = _answers(run, run.select(choices))
        submitted = [request.name for request in run.pool.submitted]
    wanted = "library" if all_of_them else "slow"
    return [
        Verdict("not timed", "broken" not in submitted and "broken" not in timings, f"{submitted}"),
        Verdict("chosen", fastest == wanted, f"{fastest}; {wanted} required"),
    ]


def check_product(usual: Generated, pipelined: Generated) -> list[Verdict]:
    """``Decision.SELECTION_IS_PIPELINED``: the same choices are offered as usual, each is timed once, and the last,
    which is the fastest, is generated."""
    offered = [[choice.description for choice in one.left] for one in (usual, pipelined)]
    kernels = [kernel for kernel in pipelined.kernels if kernel.kind == "template"]
    config = config_of(kernels[0].source) if len(kernels) == 1 else None
    last = pipelined.notes[-1] if pipelined.notes else None
    wanted = next((described_config(choice) for choice in pipelined.left if choice.name == last), None)
    names = sorted(choice.name for choice in pipelined.left)
    return [
        Verdict("offered", offered[0] == offered[1] and len(offered[0]) > 1, f"{len(offered[0])}, {len(offered[1])}"),
        Verdict("timed", sorted(pipelined.notes) == names, f"{len(pipelined.notes)} requests, {len(names)} choices"),
        Verdict("chosen", config is not None and config == wanted, f"{config}, {wanted} required"),
    ]
