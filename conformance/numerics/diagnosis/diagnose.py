"""Where an output is wrong, and why, as far as the data prove it.

On an exact fill every hypothesis predicts the output bit for bit. A cause is named only if its prediction equals every
element of a tile, the right ones included. Nothing here decides whether a kernel passes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeGuard

import torch
from torch import Tensor

from conformance.numerics.contract import Contract
from conformance.numerics.diagnosis import hypotheses, inferred_faults
from conformance.numerics.diagnosis.fault_model import FaultModel, Hypothesis
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, bits, round_to
from conformance.problems import BLOCK_SCALINGS, DTYPES, Gemm, Problem

#: Bytes of an output that nobody has written; those of ``conformance.inputs.guarded_memory``.
SENTINEL = (0xFE, 0x7D)
#: With fewer wrong elements than this almost any hypothesis may fit by chance: they are listed instead.
ENOUGH = 8
#: Tiles whose cause is searched for, and seconds spent on it.
ANALYSED_TILES = 6
SECONDS = 2.0
#: Largest heat map, in tiles.
MAP_ROWS, MAP_COLUMNS = 24, 64


@dataclass(frozen=True)
class Diagnosis:
    """``causes`` are proven by the data, the one that explains most tiles first; "X, or Y" where both fit alike.
    ``tile`` is the first tile (row, column) with a wrong element, ``first`` the index of that element; None if nothing
    is wrong."""

    causes: tuple[str, ...]
    text: str
    tile: tuple[int, int] | None
    first: tuple[int, ...] | None


def diagnose(
    problem: Problem, contract: Contract, fill: Fill, out: Tensor, *, block: tuple[int, int, int]
) -> Diagnosis:
    """Where ``out`` is wrong, and why as far as that is proven.

    ``out`` is the first output under ``fill``: of the output's dtype, dense, on the CPU. ``block`` is (BLOCK_M,
    BLOCK_N, BLOCK_K). Causes are searched for in mm, addmm and scaled mm with scales per tensor or row; for other
    operations the text says which elements are wrong. Never raises: an error of the diagnosis itself becomes its text.
    """
    label = f"{fill.method}/{fill.name} seed {fill.seed}"
    try:
        if out.numel() == 0:
            return Diagnosis((), f"{label}: the output is empty", None, None)
        if not _can_explain(problem):
            name = next(name for name, dtype in DTYPES.items() if dtype == out.dtype)
            contract = replace(contract, out_dtype=name)
        difference = _difference(contract, fill, out)
        if not bool(difference.bad.any()):
            return Diagnosis((), f"{label}: every element is right", None, None)
        if _can_explain(problem):
            return _diagnose(problem, contract, fill, out, block, difference)
        return _describe(contract, fill, out, block, difference)
    except Exception as error:
        what = f"the diagnosis itself failed: {type(error).__name__}: {error}"
        return Diagnosis((), f"FAIL {label} | {what}", None, None)


def _can_explain(problem: Problem) -> TypeGuard[Gemm]:
    return (
        isinstance(problem, Gemm)
        and problem.op in ("mm", "addmm", "scaled_mm")
        and problem.scaling not in BLOCK_SCALINGS
    )


def _describe(
    contract: Contract, fill: Fill, out: Tensor, block: tuple[int, int, int], difference: _Difference
) -> Diagnosis:
    """Which elements of an output of any rank are wrong; the last two dimensions are those of a tile."""
    bad, first = difference.bad, difference.first
    tile = (first[-2] // block[0] if out.dim() > 1 else 0, first[-1] // block[1])
    names = {1: ("elements",), 2: ("rows", "cols"), 3: ("matrices", "rows", "cols")}
    axes = names.get(out.dim(), tuple(f"dim {axis}" for axis in range(out.dim())))
    lines = (bad.movedim(axis, 0).flatten(1).any(1) if out.dim() > 1 else bad for axis in range(out.dim()))
    places = [f"{axis} {_runs(line)} of {len(line)}" for axis, line in zip(axes, lines, strict=True)]
    head = [
        f"FAIL {fill.method}/{fill.name} seed {fill.seed}",
        f"{int(bad.sum())}/{out.numel()} wrong: {', '.join(places)}",
        f"first {list(first)} in tile {tile} got {float(out[first]):.9g} want {difference.wanted}",
    ]
    causes: tuple[str, ...] = ()
    unwritten = int((bad & _sentinel(out)).sum())
    if unwritten:
        causes = (f"not written: {unwritten} elements",)
        head.append(f"CAUSE {causes[0]}")
    notes = []
    nan = int((bad & out.double().isnan()).sum())
    if nan:
        notes.append(f"OBSERVED {nan} elements are NaN")
    if fill.error is not None:
        notes.append(_telemetry(contract, fill, out, difference.expected))
    return Diagnosis(causes, "\n".join([" | ".join(head), *notes]), tile, first)


def _runs(mask: Tensor) -> str:
    """The indices that are set, as runs: "0..3, 7"; the first four of them."""
    runs = []
    for _, group in itertools.groupby(enumerate(mask.nonzero()[:, 0].tolist()), lambda pair: pair[1] - pair[0]):
        run = [index for _, index in group]
        runs.append(f"{run[0]}..{run[-1]}" if len(run) > 1 else f"{run[0]}")
    return ", ".join(runs[:4]) + (", ..." if len(runs) > 4 else "")


def _diagnose(
    problem: Gemm,
    contract: Contract,
    fill: Fill,
    out: Tensor,
    block: tuple[int, int, int],
    difference: _Difference,
) -> Diagnosis:
    bad, (row, column) = difference.bad, difference.first
    unwritten = bad & _sentinel(out) & ~_saturated(contract, out, difference.expected)  # -448 has the sentinel's bits
    tile = row // block[0], column // block[1]
    grid = _tile_counts(bad, block)
    causes: list[str] = []
    if bool(unwritten.any()):
        causes.append(_unwritten_text(unwritten, block))
    notes: list[str] = []
    rest = bad & ~unwritten
    if fill.method == "exact" and int(rest.sum()) >= ENOUGH:
        search = _causes(FaultModel(problem, contract, fill, block, out, unwritten), rest)
        causes += search.causes
        notes += [f"POSSIBLE, not proven: {search.possible}"] if search.possible and not search.causes else []
        notes += ["the search for causes stopped at its time limit"] if search.late else []
    if not causes:
        notes += _observations(contract, fill, out, difference.expected, rest)
    if fill.error is not None:
        notes.append(_telemetry(contract, fill, out, difference.expected))
    head = [
        f"FAIL {fill.method}/{fill.name} seed {fill.seed}",
        f"tile ({tile[0]},{tile[1]}) {_span('rows', tile[0], block[0], out.shape[0])} "
        f"{_span('cols', tile[1], block[1], out.shape[1])}",
        f"{int(bad.sum())}/{out.numel()} wrong in {int((grid[0] > 0).sum())} of {grid[0].numel()} tiles",
        f"first [{row},{column}] got {float(out[row, column]):.9g} want {difference.wanted}",
    ]
    head += [f"CAUSE {cause}" for cause in causes]
    lines = [" | ".join(head), *notes]
    if grid[0].numel() > 1:
        lines.append(_heat_map(grid, _tile_counts(unwritten, block)[0]))
    return Diagnosis(tuple(causes), "\n".join(lines), tile, (row, column))


@dataclass(frozen=True)
class _Difference:
    """Which elements of an output are ``bad``, the index of the ``first`` of them, and what is ``wanted`` there."""

    expected: Tensor
    bad: Tensor
    first: tuple[int, ...]
    wanted: str


def _difference(contract: Contract, fill: Fill, out: Tensor) -> _Difference:
    expected = fill.expected.cpu()
    error = torch.zeros_like(expected) if fill.error is None else fill.error.cpu()
    error = torch.where(expected.isfinite(), error, 0.0)
    ends = expected - error, expected + error
    low, high = (round_to(end, contract.out_dtype, overflow=contract.overflow).double() for end in ends)
    output = out.double()
    nan = low.isnan() | high.isnan()
    only_nan = low.isnan() & high.isnan() & ~((ends[0] < 0) & (ends[1] > 0))
    good = ((output >= low) & (output <= high)) | (nan & (output.isnan() | ~only_nan))
    if contract.flushes_subnormals:
        smallest = FORMATS[contract.out_dtype].smallest_normal
        good |= (output == 0) & (expected.abs() < smallest)
    places = (~good).nonzero()
    first = tuple(places[0].tolist()) if len(places) else (0,) * out.dim()
    least, most = float(low[first]), float(high[first])
    wanted = f"{least:.9g}" if least == most else f"{float(expected[first]):.9g} ({least:.9g} to {most:.9g})"
    return _Difference(expected, ~good, first, wanted)


def _sentinel(out: Tensor) -> Tensor:
    raw = out.contiguous().view(torch.uint8).reshape(*out.shape, out.element_size())
    held = torch.zeros(out.shape, dtype=torch.bool)
    for byte in SENTINEL:
        held |= (raw == byte).all(-1)
    # a format of one byte has results with these bits too: only many of them prove anything
    return held if out.element_size() > 1 or int(held.sum()) >= ENOUGH else torch.zeros_like(held)


def _saturated(contract: Contract, out: Tensor, expected: Tensor) -> Tensor:
    """Where the largest finite value stands for a larger result."""
    largest = FORMATS[contract.out_dtype].largest
    return (out.double().abs() == largest) & (expected.abs() > largest)


def _unwritten_text(unwritten: Tensor, block: tuple[int, int, int]) -> str:
    written = _tile_counts(unwritten, block)
    whole = (written[0] == written[1]).nonzero()
    count = int(unwritten.sum())
    if len(whole) and int(written[1][tuple(whole.T)].sum()) == count:
        names = ", ".join(f"({i},{j})" for i, j in whole[:4].tolist()) + (", ..." if len(whole) > 4 else "")
        return f"not written: {len(whole)} whole tiles: {names}" if len(whole) > 1 else f"not written: tile {names}"
    rows, cols = unwritten.any(1).nonzero()[:, 0], unwritten.any(0).nonzero()[:, 0]
    return f"not written: {count} elements, rows {rows[0]}..{rows[-1]} cols {cols[0]}..{cols[-1]}"


# The search


@dataclass
class _Search:
    """Proven ``causes``; a ``possible`` cause that no finite element proves; ``late``: time ran out."""

    causes: list[str] = field(default_factory=list)
    possible: str = ""
    late: bool = False


def _causes(model: FaultModel, bad: Tensor) -> _Search:
    """Causes of the wrong elements, those of the most damaged tile first."""
    deadline = time.monotonic() + SECONDS
    block = (model.block_m, model.block_n, model.block_k)
    counts = _tile_counts(bad, block)[0]
    waiting = [(int(i), int(j)) for i, j in (counts > 0).nonzero()]
    total, search = len(waiting), _Search()
    single = list(inferred_faults.about_one_element(model, bad))
    # poison was read where a result is NaN or infinite: many addresses give that, so it proves none of them
    proof = _tile_counts(bad & model.output.isfinite(), block)[0]
    for _ in range(ANALYSED_TILES):
        if not waiting:
            break
        tile = max(waiting, key=lambda t: int(counts[t]))
        fits = _fitting(model, tile, single, bad, deadline)
        covered = {h: [t for t in waiting if t == tile or model.agrees(h, *model.tile(*t))] for h in fits}
        shown = {h: sum(int((counts if h.special else proof)[t]) for t in tiles) for h, tiles in covered.items()}
        proven = {h: tiles for h, tiles in covered.items() if shown[h] >= ENOUGH}
        if proven:
            most = max(len(tiles) for tiles in proven.values())
            best = [h for h, tiles in proven.items() if len(tiles) == most]
            share = f" [{most} of {total} wrong tiles]" if most < total else ""
            search.causes.append(_either(best, ", or ") + share)
            waiting = [t for t in waiting if t not in proven[best[0]]]
        elif covered and not search.possible:
            search.possible = _either(list(covered), "; ")
        waiting = [t for t in waiting if t != tile]
        if time.monotonic() > deadline:
            search.late = True
            break
    return search


def _either(fits: list[Hypothesis], separator: str) -> str:
    names = list(dict.fromkeys(hypothesis.cause for hypothesis in fits))
    return separator.join(names[:3]) + (f"{separator}{len(names) - 3} others" if len(names) > 3 else "")


def _fitting(
    model: FaultModel, tile: tuple[int, int], single: list[Hypothesis], bad: Tensor, deadline: float
) -> list[Hypothesis]:
    """The hypotheses that explain every element of ``tile``."""
    rows, cols = model.tile(*tile)
    here = bad[rows][:, cols]
    # a few wrong lines first: most hypotheses fail there, at little cost
    probe_rows, probe_cols = rows[here.any(1)][:8], cols[here.any(0)][:32]

    def candidates() -> Iterator[Hypothesis]:
        yield from single
        yield from hypotheses.about_tile(model, *tile)
        yield from inferred_faults.about_order(model, rows, cols)

    fits = []
    for hypothesis in candidates():
        if model.agrees(hypothesis, probe_rows, probe_cols) and model.agrees(hypothesis, rows, cols):
            fits.append(hypothesis)
        if time.monotonic() > deadline:
            break
    return fits


# What can be said without a cause


def _observations(contract: Contract, fill: Fill, out: Tensor, expected: Tensor, bad: Tensor) -> list[str]:
    """Facts about the wrong elements: NaN, single elements, distances in units in the last place."""
    count, output = int(bad.sum()), out.double()
    if not count:
        return []
    notes = []
    nan = bad & output.isnan()
    if bool(nan.any()):
        rows, cols = nan.any(1).sum(), nan.any(0).sum()
        poison = ": poison was read from outside an operand, or infinities met" if fill.method == "exact" else ""
        notes.append(f"OBSERVED {int(nan.sum())} elements are NaN, in {int(rows)} rows and {int(cols)} columns{poison}")
    wanted = round_to(expected, contract.out_dtype, overflow=contract.overflow)
    saturated, largest = int((bad & _saturated(contract, out, expected)).sum()), FORMATS[contract.out_dtype].largest
    if saturated:
        notes.append(
            f"OBSERVED {saturated} results past {largest:g} became {largest:g}: the kernel saturates, and its contract "
            f"says overflow={contract.overflow!r}"
        )
    distance = (_ordered(out) - _ordered(wanted))[bad & ~nan & ~wanted.isnan()]
    if not distance.numel():
        return notes
    if count < ENOUGH:
        places = bad.nonzero().tolist()
        listed = [f"[{r},{c}] got {float(output[r, c]):.9g} want {float(wanted[r, c]):.9g}" for r, c in places]
        notes.append(f"ELEMENTS too few to prove a cause: {'; '.join(listed)}")
    size, above = distance.abs().double(), int((distance > 0).sum())
    notes.append(
        f"OBSERVED distance from the right value in units of the last place: median {float(size.median()):.3g}, "
        f"largest {float(size.max()):.3g}; {above} above, {distance.numel() - above} below"
    )
    return notes


def _ordered(values: Tensor) -> Tensor:
    """Integers in the order of the values: neighbours in the format differ by one."""
    code = bits(values.contiguous()).to(torch.int64)
    return torch.where(code < 0, -(code - torch.iinfo(bits(values).dtype).min), code)


def _telemetry(contract: Contract, fill: Fill, out: Tensor, expected: Tensor) -> str:
    """How much of the bound was used. A signed mean far from 0 shows truncation; it is never a verdict."""
    assert fill.error is not None
    error = fill.error.cpu()
    used = (out.double() - expected) / error
    used = used[expected.isfinite() & used.isfinite() & (error > 0)]
    if not used.numel():
        return "TELEMETRY no finite element"
    size = used.abs()
    # sorted by hand: torch.quantile refuses large inputs
    ranked = size.sort().values
    p50, p99 = (float(ranked[int(share * (len(ranked) - 1))]) for share in (0.5, 0.99))
    deviation = float(used.std()) / len(used) ** 0.5 if len(used) > 1 else 0.0
    bias = f", t-statistic of the sign {float(used.mean()) / deviation:.1f}" if deviation else ""
    return f"TELEMETRY |error|/bound: max {float(size.max()):.3g}, p50 {p50:.3g}, p99 {p99:.3g}{bias}"


# Presentation


def _span(name: str, index: int, block: int, extent: int) -> str:
    return f"{name} {index * block}..{min((index + 1) * block, extent) - 1}"


def _tile_counts(mask: Tensor, block: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """Per tile: how many elements of ``mask`` are set, and how many elements there are."""
    counts = []
    for values in (mask, torch.ones_like(mask)):
        m, n = values.shape
        padded = torch.nn.functional.pad(values.double(), (0, -n % block[1], 0, -m % block[0]))
        shape = (padded.shape[0] // block[0], block[0], padded.shape[1] // block[1], block[1])
        counts.append(padded.reshape(shape).sum((1, 3)).long())
    return counts[0], counts[1]


def _heat_map(grid: tuple[Tensor, Tensor], unwritten: Tensor) -> str:
    wrong, size = grid
    lines = [f"tiles ({wrong.shape[0]} x {wrong.shape[1]}): . right, + some wrong, # all wrong, o not written"]
    for i in range(min(wrong.shape[0], MAP_ROWS)):
        line = ""
        for j in range(min(wrong.shape[1], MAP_COLUMNS)):
            bad, elements = int(wrong[i, j]), int(size[i, j])
            line += "o" if int(unwritten[i, j]) == elements else "." if not bad else "#" if bad == elements else "+"
        lines.append("  " + line + ("..." if wrong.shape[1] > MAP_COLUMNS else ""))
    if wrong.shape[0] > MAP_ROWS:
        lines.append("  ...")
    return "\n".join(lines)
