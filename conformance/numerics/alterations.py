"""Causes that concern a problem as a whole: each is another computation, of which every element must be predicted.

An alteration says which outputs a kernel would have given if it had read, masked or combined otherwise. It explains a
failure if it predicts every element of every fill that was judged. On an exact fill that is bit by bit, elsewhere
within the error bound of the altered computation.

The budget of a search, and the tiles of a kernel's product, are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import Problem

#: Multiply-adds of one search for causes.
LIMIT = 3 << 30
#: The cost of each hypothesis in addition to its arithmetic, in multiply-adds.
EACH = 1 << 15


@dataclass
class WorkBudget:
    """The budget that is ``left`` of a search's work; ``ended`` once something was asked for that no longer fitted."""

    left: int = LIMIT
    ended: bool = False

    def take(self, multiply_adds: int) -> bool:
        """True if there is enough left for a hypothesis of so many multiply-adds, which are then taken."""
        self.left -= multiply_adds + EACH
        self.ended |= self.left < 0
        return not self.ended


#: With fewer wrong elements than this almost any hypothesis may fit by chance.
ENOUGH = 8
#: A wrong element of a fill that is judged by a bound counts as evidence if the alteration moves it far enough. It must
#: move it this many times further than both bounds together reach.
FAR = 4.0
#: Bounds are the worst case. A wrong element is evidence, too, if the alteration comes this many times closer to it
#: than the right value. At least half of the wrong elements of an output must show that: by chance one of so many
#: would.
CLOSER = 32.0

#: fp64 outputs by name, each with its error bound; None for one that is exact.
Outputs = Mapping[str, tuple[Tensor, Tensor | None]]


@dataclass(frozen=True, eq=False)
class Alteration:
    """``compute`` maps a fill's inputs to the outputs if ``cause`` is what happened; it raises ValueError if it cannot
    say. ``special``: it is about NaN or infinity, so that these are evidence too."""

    cause: str
    compute: Callable[[Mapping[str, Tensor]], Outputs]
    special: bool = False


@dataclass(frozen=True, eq=False)
class WrongOutput:
    """One output of one fill, with ``bad`` where it is wrong."""

    fill: Fill
    name: str
    dtype: str
    out: Tensor
    bad: Tensor


def explaining(
    alterations: Iterable[Alteration],
    problem: Problem,
    contract: Contract,
    evidence: Sequence[WrongOutput],
    work: WorkBudget,
) -> list[str]:
    """The causes that explain every element of ``evidence``, in the order in which they come; no more are tried
    than ``work`` allows."""
    causes: list[str] = []
    by_fill = [(fill, entries, sum(entry.out.numel() for entry in entries) * _depth(problem))
               for fill, entries in _by_fill(evidence)]  # fmt: skip
    for alteration in alterations:
        if alteration.cause not in causes and _explains(alteration, contract, by_fill, work):
            causes.append(alteration.cause)
        if work.ended:
            break
    return causes


def _depth(problem: Problem) -> int:
    """Multiply-adds for one element of an output, roughly."""
    sizes = (getattr(problem, name, None) for name in ("K", "keys", "group_channels"))
    depth = next((size for size in sizes if isinstance(size, int)), 64)
    return max(1, depth * int(getattr(problem, "taps", 1)))


def _explains(
    alteration: Alteration,
    contract: Contract,
    evidence: Sequence[tuple[Fill, list[WrongOutput], int]],
    work: WorkBudget,
) -> bool:
    """True if ``alteration`` explains the evidence of each fill, at these costs."""
    shown = 0
    for fill, entries, steps in evidence:
        if not work.take(steps):
            return False
        try:
            outputs = alteration.compute(fill.inputs)
        except ValueError:
            return False
        for entry in entries:
            value, error = outputs[entry.name]
            counted = _agreement(contract, entry, value.cpu(), None if error is None else error.cpu(), alteration)
            if counted is None:
                return False
            shown += counted
    return shown >= ENOUGH


def _by_fill(evidence: Sequence[WrongOutput]) -> Iterator[tuple[Fill, list[WrongOutput]]]:
    fills = {id(entry.fill): entry.fill for entry in evidence}
    for key, fill in fills.items():
        yield fill, [entry for entry in evidence if id(entry.fill) == key]


def as_stored(value: Tensor, dtype: str, overflow: str) -> Tensor:
    """``value`` (fp64) rounded to an output of ``dtype``, as fp64. An integer output holds no other than the value
    itself: what is no integer, or too large, equals none."""
    return value if FORMATS[dtype].lowest is not None else round_to(value, dtype, overflow=overflow).double()


def _agreement(
    contract: Contract, entry: WrongOutput, value: Tensor, error: Tensor | None, alteration: Alteration
) -> int | None:
    """Returns the number of wrong elements that ``value`` explains; None if it contradicts an element."""
    out = entry.out.double()
    part = entry.fill.of(entry.name)
    if error is None:
        predicted = as_stored(value, entry.dtype, contract.overflow)
        same = (predicted == out) | (predicted.isnan() & out.isnan())
        if not bool(same.all()):
            return None
        return int((entry.bad & (out.isfinite() | alteration.special)).sum())
    error = torch.where(value.isfinite(), error, 0.0)
    low, high = (as_stored(end, entry.dtype, contract.overflow) for end in (value - error, value + error))
    same = ((out >= low) & (out <= high)) | (value.isnan() & out.isnan())
    if not bool(same.all()):
        return None
    expected = part.expected.cpu()
    slack = error if part.error is None else error + part.error.cpu()
    unit = expected.abs() * 2.0 ** -(FORMATS[entry.dtype].significand - 1)
    far = (value - expected).abs() > FAR * (slack + unit)
    finite = out.isfinite() & expected.isfinite()
    closer = entry.bad & finite & ((out - value).abs() * CLOSER <= (out - expected).abs())
    if 2 * int(closer.sum()) >= int(entry.bad.sum()):
        far |= closer
    return int((entry.bad & torch.where(finite, far, alteration.special)).sum())


@dataclass(frozen=True)
class Tiling:
    """``block`` is (BLOCK_M, BLOCK_N, BLOCK_K), ``splits`` how many parts K, or the keys of attention, have."""

    block: tuple[int, int, int]
    splits: int | None = None
