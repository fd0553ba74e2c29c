"""One launch made many times while other work perturbs its timing: what two programs race for comes out otherwise.

Every launch must leave the bits that the first one left. They are compared on the device, and read back at the end.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from conformance.execution.device.transfers import read_together
from conformance.execution.trial.trial import UNLESS_DECLARED
from conformance.numerics.rounding import bits
from conformance.records import Check, CheckKind, Verdict

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
