"""The search for causes in the tiles of one product: hypotheses that predict every element of a tile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from conformance.diagnosis import hypotheses
from conformance.diagnosis.fault_model import FaultModel, Hypothesis
from conformance.families.products import Product
from conformance.numerics.alterations import WorkBudget
from conformance.numerics.contract import Contract

#: With fewer wrong elements than this almost any hypothesis may fit by chance: they are listed instead.
ENOUGH = 8
#: Tiles of a product whose cause is searched for.
ANALYSED_TILES = 16

_VALUES = re.compile(r" is \S+ and was read as \S+(?: \(the harness's poison\))?")
#: The cause that fits NaN as well as any other does: that of the harness's poison in float formats.
NAN_FROM_OUTSIDE = "NaN was read outside the operands"


@dataclass(frozen=True)
class Cause:
    """The ``names`` of what the data prove: several are alternatives that fit alike. It explains ``tiles`` of ``total``
    wrong tiles."""

    names: tuple[str, ...]
    tiles: int = 1
    total: int = 1

    def __str__(self) -> str:
        return either(self.names, ", or ") + (
            f" [{self.tiles} of {self.total} wrong tiles]" if self.tiles < self.total else ""
        )


@dataclass
class TileSearch:
    """Proven ``causes``; a ``possible`` cause that the data do not prove; ``ended``: not every hypothesis was tried."""

    causes: list[Cause] = field(default_factory=list)
    possible: str = ""
    ended: bool = False

    @property
    def notes(self) -> list[str]:
        """Returns remarks about the search, apart from the causes."""
        possible = [f"POSSIBLE, not proven: {self.possible}"] if self.possible and not self.causes else []
        return possible + (["the search for causes ended before every hypothesis was tried"] if self.ended else [])


def either(names: Sequence[str], separator: str) -> str:
    """Returns up to three of the names, and the number of the others.

    >>> either(["k 3", "k 7"], " or ")
    'k 3 or k 7'
    >>> either(["k 1", "k 3", "k 5", "k 7", "k 9"], " or ")
    'k 1 or k 3 or k 5 or 2 others'
    """
    names = list(dict.fromkeys(names))
    return separator.join(names[:3]) + (f"{separator}{len(names) - 3} others" if len(names) > 3 else "")


def agreed(first: Iterable[Cause], second: Sequence[Cause]) -> list[Cause]:
    """The causes of ``first`` with those names only that ``second``, from another fill, has too. Where nothing is named
    there, a misread value stands: what its bits become depends on the value."""
    confirmed = {_VALUES.sub("", name) for cause in second for name in cause.names}
    if not confirmed:
        return [cause for cause in first if all(_VALUES.search(name) for name in cause.names)]
    kept = [
        Cause(tuple(name for name in cause.names if _VALUES.sub("", name) in confirmed), cause.tiles, cause.total)
        for cause in first
    ]
    return [cause for cause in kept if cause.names]


def search_product(
    product: Product,
    contract: Contract,
    block: tuple[int, int, int],
    unwritten: Tensor,
    work: WorkBudget,
    *,
    of_each_k: bool = False,
) -> TileSearch:
    """Causes of the wrong elements that are not ``unwritten``, those of the most damaged tile first. They are proven
    only if together they explain every wrong tile. With ``of_each_k`` they say how often each k is counted, and nothing
    else."""
    model = FaultModel(product, contract, block, unwritten, work)
    bad = product.bad & ~unwritten
    counts = tile_counts(bad, block)[0]
    waiting = [(int(i), int(j)) for i, j in (counts > 0).nonzero()]
    total, search = len(waiting), TileSearch()
    single = [] if of_each_k else list(hypotheses.about_one_element(model, bad))
    # poison was read where a result is NaN or infinite: many addresses give that, so it proves none of them
    proof = tile_counts(bad & model.output.isfinite(), block)[0]
    for _ in range(ANALYSED_TILES):
        if not waiting or work.ended:
            break
        tile = max(waiting, key=lambda t: int(counts[t]))
        fits = _counted(model, tile) if of_each_k else _fitting(model, tile, single, bad)
        covered = {h: [t for t in waiting if t == tile or model.agrees(h, *model.tile(*t))] for h in fits}
        shown = {h: sum(int((counts if h.special else proof)[t]) for t in tiles) for h, tiles in covered.items()}
        proven = {h: tiles for h, tiles in covered.items() if shown[h] >= ENOUGH}
        if proven:
            most = max(len(tiles) for tiles in proven.values())
            best = [h for h, tiles in proven.items() if len(tiles) == most]
            names = dict.fromkeys(hypothesis.cause for hypothesis in best)
            if any(h.special and not proof[t] for h in best for t in proven[h]) and len(fits) > len(best):
                names[NAN_FROM_OUTSIDE] = None
            search.causes.append(Cause(tuple(names), most, total))
            waiting = [t for t in waiting if t not in proven[best[0]]]
            continue
        if tells_causes_apart(model.output[bad]) and not search.possible:
            search.possible = either([h.cause for h in covered if shown[h]], "; ")
        break  # a tile without a cause: what explains the others need not be what happened
    if waiting and search.causes:
        search.possible = either([str(cause) for cause in search.causes], "; ")
        search.causes = []
    return search


def tells_causes_apart(wrong: Tensor) -> bool:
    """Returns True if the ``wrong`` elements hold more than one finite value: NaN, infinity or one constant fit too
    many causes to guess any."""
    finite = wrong[wrong.isfinite()]
    return finite.numel() > 1 and bool((finite != finite[0]).any())


def _fitting(model: FaultModel, tile: tuple[int, int], single: list[Hypothesis], bad: Tensor) -> list[Hypothesis]:
    """Returns the hypotheses that explain every element of ``tile``."""
    rows, cols = model.tile(*tile)
    here = bad[rows][:, cols]
    # a few wrong lines first: most hypotheses fail there, at little cost
    probe_rows, probe_cols = rows[here.any(1)][:8], cols[here.any(0)][:32]

    def candidates() -> Iterator[Hypothesis]:
        yield from single
        yield from hypotheses.about_tile(model, *tile)
        yield from hypotheses.about_order(model, rows, cols)

    fits = []
    for hypothesis in candidates():
        if model.agrees(hypothesis, probe_rows, probe_cols) and model.agrees(hypothesis, rows, cols):
            fits.append(hypothesis)
        if model.work.ended:
            break
    return fits


def _counted(model: FaultModel, tile: tuple[int, int]) -> list[Hypothesis]:
    """Returns the hypothesis about how often ``tile`` counts each k, if there is one."""
    rows, cols = model.tile(*tile)
    return [each for each in hypotheses.about_counts(model, rows, cols) if model.agrees(each, rows, cols)]


def tile_counts(mask: Tensor, block: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """Per tile: how many elements of ``mask`` are set, and how many elements there are."""
    counts = []
    for values in (mask, torch.ones_like(mask)):
        m, n = values.shape
        padded = torch.nn.functional.pad(values.double(), (0, -n % block[1], 0, -m % block[0]))
        shape = (padded.shape[0] // block[0], block[0], padded.shape[1] // block[1], block[1])
        counts.append(padded.reshape(shape).sum((1, 3)).long())
    return counts[0], counts[1]
