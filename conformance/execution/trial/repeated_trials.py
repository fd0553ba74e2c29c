"""One launch made many times, alone or while other work perturbs its timing: what comes and goes differs.

Every launch must leave the bits that the first one left. They are compared on the device, and read back at the end.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor

from conformance.execution.trial.fill_groups import read_together
from conformance.execution.trial.trial import UNLESS_DECLARED, Trial
from conformance.numerics.rounding import bits
from conformance.records import Check, CheckKind, Verdict


def repeated(judge: Callable[[], Trial], repeats: int) -> Trial:
    """The trial that stands for ``repeats`` trials, two or more, each made by ``judge``.

    It is the first that failed, and its failing verdicts say which one it was; the first of all if none did. All trials
    must agree in every bit of each fill's first output, where the contract promises that. A fill in which two differ
    fails the check ``repeat/<fill>``.
    """
    first = judge()
    failed = (1, first) if not first.passed else None
    differing: dict[str, int] = {}
    for number in range(2, repeats + 1):
        latest = judge()
        if failed is None and not latest.passed:
            failed = number, latest
        for fill in _differing(first.digests, latest.digests):
            differing.setdefault(fill, number)
    chosen = first if failed is None else _numbered(failed[1], f"trial {failed[0]} of {repeats}")
    checks = {verdict.check for verdict in chosen.verdicts}
    for fill, number in differing.items():
        check = str(Check(CheckKind.REPEAT, fill))
        if check not in checks:
            text = (
                f"trials 1 and {number} of {repeats} of one input differ: the kernel is not deterministic; "
                f"{UNLESS_DECLARED}"
            )
            chosen.verdicts.append(Verdict(check, False, text))
    if not differing:
        chosen.verdicts.append(Verdict(str(Check(CheckKind.REPEAT)), True, f"{repeats} trials agree in every bit"))
    return chosen


def _differing(first: Mapping[str, str], latest: Mapping[str, str]) -> list[str]:
    """Returns the fills whose outputs have other digests."""
    return [fill for fill, digest in first.items() if latest.get(fill) != digest]


def _numbered(trial: Trial, which: str) -> Trial:
    """``trial`` with ``which`` before the text of each verdict that failed."""
    trial.verdicts = [
        verdict if verdict.passed else replace(verdict, text=f"{which}: {verdict.text}") for verdict in trial.verdicts
    ]
    return trial


#: Launches of one case.
LAUNCHES = 1000
#: What the outputs hold before each launch, as an integer: what a launch does not write shows. NaN as a float.
UNWRITTEN = -2
#: Launches that a verdict names.
NAMED = 5
#: Edges of the matrices that the second stream multiplies, and bytes that it copies. They take a few microseconds to
#: some hundred, on some multiprocessors or on all.
EDGES = (128, 256, 1024, 2048)
COPIED = (1 << 14, 1 << 20, 8 << 20, 64 << 20)


def stressed(
    launch: Callable[[], object],
    outputs: Mapping[str, Tensor],
    beside: Callable[[int], None],
    launches: int = LAUNCHES,
) -> Verdict:
    """The verdict about ``launches`` runs of ``launch``, which writes ``outputs``, by name. Before each run but the
    first ``beside`` is called with its number, to start what shall run at the same time.

    A failed verdict says how many runs differ from the first, which ones, and in which elements most often.
    """
    written = {name: bits(output) for name, output in outputs.items()}
    device = next(iter(written.values())).device
    first: dict[str, Tensor] = {}
    elements = {name: torch.zeros(output.shape, dtype=torch.int32, device=device) for name, output in written.items()}
    differing = torch.zeros(launches, dtype=torch.int64, device=device)
    for number in range(launches):
        if number:
            beside(number)
        for output in written.values():
            output.fill_(UNWRITTEN)
        launch()
        if not number:
            first = {name: output.clone() for name, output in written.items()}
            continue
        for name, output in written.items():
            other = output != first[name]
            elements[name].add_(other)
            differing[number].add_(other.sum())
    per_launch, *per_element = read_together([differing, *elements.values()])
    check, names = str(Check(CheckKind.REPEAT, "stress")), list(elements)
    wrong = per_launch.nonzero().flatten().tolist()
    details = {"launches": launches, "differing": len(wrong)}
    if not wrong:
        return Verdict(check, True, f"{launches} launches during other work agree in every bit", details)
    listed = ", ".join(str(number + 1) for number in wrong[:NAMED]) + (", ..." if len(wrong) > NAMED else "")
    places = [_place(name, counts) for name, counts in zip(names, per_element, strict=True) if counts.any()]
    text = (
        f"{len(wrong)} of {launches} launches during other work differ from the first: launches {listed}; "
        f"{'; '.join(places)}. Programs race, or the kernel is not deterministic; {UNLESS_DECLARED}"
    )
    return Verdict(check, False, text, details)


def _place(name: str, counts: Tensor) -> str:
    """Returns a text of the elements for which ``counts``, of launches by element, are not zero."""
    elements = int((counts > 0).sum())
    most = int(counts.max())
    worst = [int(i) for i in np.unravel_index(int(counts.argmax()), counts.shape)]
    return f"{elements} elements of {name!r}, most often {worst}, in {most} launches"


@contextlib.contextmanager
def second_stream(device: torch.device, seed: int) -> Iterator[Callable[[int], None]]:
    """Yields a function that starts other work on a second stream: products and copies of sizes that ``seed`` draws, or
    nothing. When the block ends that work has ended."""
    module = getattr(torch, device.type)
    stream, draw = module.Stream(device), random.Random(seed)
    matrices = [torch.zeros((edge, edge), dtype=torch.float16, device=device) for edge in EDGES]
    memory = torch.zeros(2 * max(COPIED), dtype=torch.uint8, device=device)
    stream.wait_stream(module.current_stream(device))

    def start(number: int) -> None:
        kind, size = draw.choice(("product", "copy", "nothing")), draw.randrange(len(EDGES))
        with module.stream(stream):
            if kind == "product":
                torch.mm(matrices[size], matrices[size])
            elif kind == "copy":
                memory[: COPIED[size]].copy_(memory[-COPIED[size] :])

    try:
        yield start
    finally:
        stream.synchronize()
