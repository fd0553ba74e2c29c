"""Causes that concern a problem as a whole: each is another computation, of which every element must be predicted.

An alteration says which outputs a kernel would have given if it had read, masked or combined otherwise. It explains a
failure if it predicts every element of every fill that was judged. On an exact fill that is bit by bit, elsewhere
within the error bound of the altered computation.

The budget of a search, and the tiles of a kernel's product, are here too.
"""

from __future__ import annotations

from collections import Counter
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

#: fp64 outputs by name, each with its error bound; None for one that is exact. An output that is left out is one of
#: which the alteration says nothing.
Outputs = Mapping[str, tuple[Tensor, Tensor | None]]
#: LIKE_THE_RIGHT_ONE takes the place of a bound where an altered computation has none. The diagnosis then uses LOOSE
#: times the bound of the right result, row by row, which grows with the results. No verdict depends on it.
LOOSE, LIKE_THE_RIGHT_ONE = 4.0, torch.full((), torch.nan, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Alteration:
    """``compute`` maps a fill's inputs to the outputs if ``cause`` is what happened; it raises ValueError if it cannot
    say. ``special``: it is about NaN or infinity, so that these are evidence too. ``general``: it is one of those that
    every family has; where another one explains all, it is not tried."""

    cause: str
    compute: Callable[[Mapping[str, Tensor]], Outputs]
    special: bool = False
    general: bool = False


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
    *,
    but_nan: bool = False,
) -> list[str]:
    """The causes that explain every element of ``evidence``, in the order in which they come; no more are tried
    than ``work`` allows. With ``but_nan`` they need not explain elements that are NaN. Of general alterations that give
    the same numbers the first is named, and the others counted.
    """
    causes: list[str] = []
    specific, predicted, alike = False, list[list[Outputs]](), Counter[int]()
    by_fill = [(fill, entries, sum(entry.out.numel() for entry in entries) * _depth(problem))
               for fill, entries in _by_fill(evidence)]  # fmt: skip
    for alteration in alterations:
        if alteration.general and specific:
            break
        outputs = None if alteration.cause in causes else _explained(alteration, contract, by_fill, work, but_nan)
        if work.ended:
            break
        if outputs is None:
            continue
        same = next((place for place, each in enumerate(predicted) if _same(outputs, each)), None)
        if alteration.general and same is not None:
            alike[same] += 1
            continue
        causes.append(alteration.cause)
        specific |= not alteration.general
        predicted.append(outputs)
    return [f"{cause} ({alike[place]} more would give the same numbers)" if alike[place] else cause
            for place, cause in enumerate(causes)]  # fmt: skip


def _depth(problem: Problem) -> int:
    """Multiply-adds for one element of an output, roughly."""
    sizes = (getattr(problem, name, None) for name in ("K", "keys", "group_channels"))
    depth = next((size for size in sizes if isinstance(size, int)), 64)
    return max(1, depth * int(getattr(problem, "taps", 1)))


def _explained(
    alteration: Alteration,
    contract: Contract,
    evidence: Sequence[tuple[Fill, list[WrongOutput], int]],
    work: WorkBudget,
    but_nan: bool,
) -> list[Outputs] | None:
    """Returns the outputs for each fill if ``alteration`` explains the evidence of all, at these costs; else None."""
    shown, predicted = 0, []
    for fill, entries, steps in evidence:
        if not work.take(steps):
            return None
        try:
            outputs = alteration.compute(fill.inputs)
        except ValueError:
            return None
        predicted.append(outputs)
        for entry in entries:
            if entry.name not in outputs:
                continue
            value, error = outputs[entry.name]
            if but_nan:
                value = torch.where(entry.out.double().isnan(), torch.nan, value.cpu())
            counted = _agreement(contract, entry, value.cpu(), None if error is None else error.cpu(), alteration)
            if counted is None:
                return None
            shown += counted
    return predicted if shown >= ENOUGH else None


def _same(first: Sequence[Outputs], second: Sequence[Outputs]) -> bool:
    """True if two alterations predict the same values."""
    return all(
        one.keys() == two.keys() and all(torch.equal(one[name][0], two[name][0]) for name in one)
        for one, two in zip(first, second, strict=True)
    )


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
    if error is LIKE_THE_RIGHT_ONE:
        error = None if part.error is None else _enlarged(part.error.cpu(), part.expected.cpu(), value)
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


def _enlarged(error: Tensor, expected: Tensor, value: Tensor) -> Tensor:
    """Returns the largest ``error`` of each row, LOOSE times, and as many times more as ``value`` is larger there."""

    def largest(numbers: Tensor) -> Tensor:
        finite = torch.where(numbers.isfinite(), numbers.abs(), 0.0)
        return finite.amax(-1, keepdim=True) if finite.dim() and finite.shape[-1] else finite

    growth = largest(value) / largest(expected).clamp(min=torch.finfo(torch.float64).tiny)
    return (LOOSE * largest(error) * growth.clamp(min=1.0)).expand(value.shape)


@dataclass(frozen=True)
class Tiling:
    """``block`` is (BLOCK_M, BLOCK_N, BLOCK_K), ``splits`` how many parts K, or the keys of attention, have."""

    block: tuple[int, int, int]
    splits: int | None = None
