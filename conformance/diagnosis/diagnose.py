"""Says where an output is wrong, and why, as far as the data prove it.

A cause is named only if it predicts every element, right ones included. Where the fault may be one tile's own, that is
all of the tile, else all of every output that was judged. Nothing here decides whether a kernel passes.

On which elements of the operands an output depends is asked here too.

A program that stores an output must have read them, whatever its order of work: :func:`needed` is a lower bound.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conformance.diagnosis.tile_search import (
    ENOUGH,
    Cause,
    TileSearch,
    agreed,
    either,
    search_product,
    tells_causes_apart,
    tile_counts,
)
from conformance.diagnosis.wrapped_numbers import overflow_cause
from conformance.families.family import Indices, Needed, family_of, merged
from conformance.families.products import Product
from conformance.families.usual_faults import usual_faults
from conformance.numerics.alterations import Alteration, Tiling, WorkBudget, WrongOutput, explaining
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill, Seen
from conformance.numerics.rounding import FORMATS, bits, round_to
from conformance.problems import DTYPES, Problem

#: Bytes of an output that was never written; those of ``conformance.inputs.guarded_memory``.
SENTINEL = (0xFE, 0x7D)
#: Products of a batch or of groups whose causes are searched for.
ANALYSED_PRODUCTS = 4
#: More alternatives than this name nothing.
ALTERNATIVES = 3
#: Text about NaN that no operand holds, before it was traced.
FROM_NO_OPERAND = ": no operand holds NaN, so it was read elsewhere or arose in the computation"
#: Causes that explain all but NaN are searched for if at most one wrong element of so many is NaN.
FEW_NAN = 4
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
    problem: Problem,
    contract: Contract,
    fill: Fill,
    out: Tensor,
    *,
    block: tuple[int, int, int],
    output: str | None = None,
    seen: Sequence[Seen] = (),
    splits: int | None = None,
    by_tiles_only: bool = False,
) -> Diagnosis:
    """Returns the wrong places of ``out``, and their causes as far as they are proven.

    ``out`` is the ``output`` (the first unless named) under ``fill``: of its dtype, dense, on the CPU. ``block`` is
    (BLOCK_M, BLOCK_N, BLOCK_K), and ``splits`` says into how many parts K or the keys are split. ``seen``: what other
    fills gave, right or wrong; a cause must explain them too. ``by_tiles_only``: another computation of the whole
    problem is no cause. Never raises: an error of the diagnosis itself becomes its text.
    """
    name = output or problem.output.name
    part = fill.of(name)
    label = f"{part.method}/{fill.name} seed {fill.seed}"
    try:
        if out.numel() == 0:
            return Diagnosis((), f"{label}: the output is empty", None, None)
        dtype = next(name for name, form in DTYPES.items() if form == out.dtype)
        difference = _difference(replace(contract, out_dtype=dtype), part, out)
        if not bool(difference.bad.any()):
            return Diagnosis((), f"{label}: every element is right", None, None)
        unwritten = difference.bad & _sentinel(out) & ~_saturated(dtype, out, difference.expected)
        rest = difference.bad & ~unwritten
        search = TileSearch()
        overflow = overflow_cause(difference.expected, out, difference.bad, dtype, contract.overflow)
        if overflow and part.method == "exact":
            search.causes = [Cause((overflow,))]
        elif int(rest.sum()) >= ENOUGH or (seen and bool(rest.any())):  # other fills may show more
            case = _Case(problem, contract, Tiling(block, splits), name, by_tiles_only)
            search = case.search(fill, out, difference.bad, unwritten, seen)
        write = _diagnosis if _is_plain(problem) else _describe
        return write(replace(contract, out_dtype=dtype), part, out, block, difference, unwritten, search)
    except Exception as error:
        what = f"the diagnosis itself failed: {type(error).__name__}: {error}"
        return Diagnosis((), f"FAIL {label} | {what}", None, None)


def _is_plain(problem: Problem) -> bool:
    """True if the tiles of its one product are worth a map."""
    return family_of(problem).is_plain(problem)


@dataclass(frozen=True)
class _Case:
    """The inputs of a search for causes of one output."""

    problem: Problem
    contract: Contract
    tiling: Tiling
    output: str
    by_tiles_only: bool

    def search(self, fill: Fill, out: Tensor, bad: Tensor, unwritten: Tensor, seen: Sequence[Seen]) -> TileSearch:
        """Causes that concern tiles, and causes that concern the problem; the likelier ones come first, and the others
        only if those are none."""
        own = [Seen(fill, {self.output: out})] if all(entry.fill is not fill for entry in seen) else []
        everything = [*own, *seen]
        work = WorkBudget()
        ways = (self._about_tiles, self._about_problem) if _is_plain(self.problem) else (
            self._about_problem, self._about_tiles)  # fmt: skip
        result = TileSearch()
        # plainer words come first: a k-block that is used twice is no set of k
        for way in (*((self._about_tiles,) if self.by_tiles_only else ways), self._about_counts):
            search = way(fill, out, bad, unwritten, everything, work)
            result.possible = result.possible or search.possible
            result.causes = search.causes
            if result.causes:
                break
        result.ended = work.ended
        return result

    def _about_problem(
        self, fill: Fill, out: Tensor, bad: Tensor, unwritten: Tensor, seen: Sequence[Seen], work: WorkBudget
    ) -> TileSearch:
        if bool(unwritten.any()):
            return TileSearch()
        exact = not family_of(self.problem).pools_fills
        method = fill.method if exact else None
        evidence = self._evidence(seen, method)
        if method == "special" or not evidence:
            return TileSearch()
        evidence, scope = self._of_wrong_passes(evidence)
        find = functools.partial(explaining, problem=self.problem, contract=self.contract, work=work)
        names = find(self._alterations(exact and method == "exact"), evidence=evidence)
        nan = bad & out.double().isnan()
        if not names and bool(nan.any()) and FEW_NAN * int(nan.sum()) <= int(bad.sum()):
            names = find(self._alterations(exact and method == "exact"), evidence=evidence, but_nan=True)
            scope += ", which explains all but NaN"
        if len(names) > 1 and exact:  # fills that are judged in another way may tell them apart
            some = [each for each in self._alterations(False) if any(name.startswith(each.cause) for name in names)]
            everything, _ = self._of_wrong_passes(self._evidence(seen, None))
            names = find(some, evidence=everything) or names
        names = [f"{name}{scope}" for name in names]
        if sum(1 + name.count(", or ") for name in names) > ALTERNATIVES:
            varied = any(tells_causes_apart(entry.out[entry.bad].double()) for entry in evidence)
            return TileSearch(possible=either(names, "; ") if varied else "")
        return TileSearch([Cause(tuple(names))] if names else [])

    def _of_wrong_passes(self, evidence: list[WrongOutput]) -> tuple[list[WrongOutput], str]:
        """The evidence about gradients of that pass alone which is wrong, if the other one is right in every fill; and
        text that says so."""
        wrong = {entry.name for entry in evidence if bool(entry.bad.any())}
        for names, text in ((("grad_q",), "of q"), (("grad_k", "grad_v"), "of k and v")):
            if wrong and wrong <= set(names):
                return [entry for entry in evidence if entry.name in names], f" (in the gradients {text} only)"
        return evidence, ""

    def _evidence(self, seen: Sequence[Seen], method: str | None) -> list[WrongOutput]:
        """Returns the outputs seen under the fills that are judged by ``method``; None: by any but "special", whose NaN
        no altered computation predicts. Fills with a wrong output come first: most alterations fail there."""
        evidence = []
        for entry in seen:
            for name, out in entry.outputs.items():
                part = entry.fill.of(name)
                if out.numel() and (part.method == method or (method is None and part.method != "special")):
                    dtype = self.problem.operand(name).dtype
                    bad = _difference(replace(self.contract, out_dtype=dtype), part, out).bad
                    evidence.append(WrongOutput(entry.fill, name, dtype, out, bad))
        wrong = {id(entry.fill) for entry in evidence if bool(entry.bad.any())}
        return sorted(evidence, key=lambda entry: id(entry.fill) not in wrong)

    def _alterations(self, exact: bool) -> Iterator[Alteration]:
        family = family_of(self.problem)
        if family.alterations is None:
            return usual_faults(self.problem, self.tiling, family.axes)
        return family.alterations(self.problem, self.contract, self.tiling, exact)

    def _about_counts(
        self, fill: Fill, out: Tensor, bad: Tensor, unwritten: Tensor, seen: Sequence[Seen], work: WorkBudget
    ) -> TileSearch:
        """Terms that tiles of each product count twice or not at all."""
        return self._about_tiles(fill, out, bad, unwritten, seen, work, counts=True)

    def _about_tiles(
        self,
        fill: Fill,
        out: Tensor,
        bad: Tensor,
        unwritten: Tensor,
        seen: Sequence[Seen],
        work: WorkBudget,
        *,
        counts: bool = False,
    ) -> TileSearch:
        """Causes that are found in the tiles of each product, and confirmed by another exact fill that fails."""
        enough = int((bad & ~unwritten).sum()) >= ENOUGH
        if fill.method != "exact" or self.output != self.problem.output.name or not enough:
            return TileSearch()
        first = self._in_products(fill, out, bad, unwritten, work, counts=counts)
        for entry in seen:
            if not first.causes or entry.fill is fill or entry.fill.method != "exact":
                continue
            other = entry.outputs[self.output]
            wrong = _difference(self.contract, entry.fill, other).bad
            missing = wrong & _sentinel(other)
            if int((wrong & ~missing).sum()) < ENOUGH:
                continue
            second = self._in_products(entry.fill, other, wrong, missing, work, counts=counts)
            if work.ended:
                break
            first.causes = agreed(first.causes, second.causes)
        return first

    def _in_products(
        self, fill: Fill, out: Tensor, bad: Tensor, unwritten: Tensor, work: WorkBudget, *, counts: bool
    ) -> TileSearch:
        products_of = family_of(self.problem).products
        if products_of is None:
            return TileSearch()
        products = list(products_of(self.problem, fill, out, bad, self.tiling))
        missing = {product.name: product for product in products_of(self.problem, fill, out, unwritten, self.tiling)}
        products.sort(key=lambda product: -int(product.bad.sum()))
        searches: list[tuple[Product, TileSearch]] = []
        for product in products[:ANALYSED_PRODUCTS]:
            not_written = missing[product.name].bad if product.name in missing else torch.zeros_like(product.bad)
            if int((product.bad & ~not_written).sum()) >= ENOUGH:
                search = search_product(product, self.contract, self.tiling.block, not_written, work, of_each_k=counts)
                searches.append((product, search))
        result = TileSearch(possible=next((search.possible for _, search in searches if search.possible), ""))
        if any(not search.causes for _, search in searches):
            return result  # what explains some products need not be what happened
        shared = [cause.names for _, search in searches for cause in search.causes]
        common = [name for name in shared[0] if all(name in names for names in shared)] if shared else []
        if common and len(searches) > 1:
            result.causes = [Cause(tuple(common))]
        elif len(products) == 1:
            result.causes = searches[0][1].causes if searches else []
        else:
            result.causes = [
                replace(cause, names=tuple(f"{product.name}: {name}" for name in cause.names))
                for product, search in searches
                for cause in search.causes
            ]
        return result


def _describe(
    contract: Contract,
    fill: Fill,
    out: Tensor,
    block: tuple[int, int, int],
    difference: _WrongElements,
    unwritten: Tensor,
    search: TileSearch,
) -> Diagnosis:
    """Returns the diagnosis of an output of any rank, by elements; its last two dimensions are those of a tile."""
    bad, first = difference.bad, difference.first
    tile = (first[-2] // block[0] if out.dim() > 1 else 0, first[-1] // block[1])
    names = {1: ("elements",), 2: ("rows", "cols"), 3: ("matrices", "rows", "cols")}
    axes = names.get(out.dim(), tuple(f"dim {axis}" for axis in range(out.dim())))
    lines = (bad.movedim(axis, 0).flatten(1).any(1) if out.dim() > 1 else bad for axis in range(out.dim()))
    places = [f"{axis} {runs(line)} of {len(line)}" for axis, line in zip(axes, lines, strict=True)]
    head = [
        f"FAIL {fill.method}/{fill.name} seed {fill.seed}",
        f"{int(bad.sum())}/{out.numel()} wrong: {', '.join(places)}",
        f"first {list(first)} in tile {tile} got {float(out[first]):.9g} want {difference.right}",
    ]
    count = int(unwritten.sum())
    causes = [f"not written: {count} elements"] if count else []
    causes += [str(cause) for cause in search.causes]
    head += [f"CAUSE {cause}" for cause in causes]
    notes = search.notes
    notes += _uniform(fill, out, bad)
    if fill.error is not None:
        notes.append(_telemetry(contract, fill, out, difference.expected))
    return Diagnosis(tuple(causes), "\n".join([" | ".join(head), *notes]), tile, first)


def runs(mask: Tensor) -> str:
    """The indices that are set, as runs: "0..3, 7"; the first four of them."""
    runs = []
    for _, group in itertools.groupby(enumerate(mask.nonzero()[:, 0].tolist()), lambda pair: pair[1] - pair[0]):
        run = [index for _, index in group]
        runs.append(f"{run[0]}..{run[-1]}" if len(run) > 1 else f"{run[0]}")
    return ", ".join(runs[:4]) + (", ..." if len(runs) > 4 else "")


def _diagnosis(
    contract: Contract,
    fill: Fill,
    out: Tensor,
    block: tuple[int, int, int],
    difference: _WrongElements,
    unwritten: Tensor,
    search: TileSearch,
) -> Diagnosis:
    """Returns the diagnosis of a matrix, by tiles, with a map of the wrong ones."""
    bad, (row, column) = difference.bad, difference.first
    tile = row // block[0], column // block[1]
    grid = tile_counts(bad, block)
    causes = [_unwritten_text(unwritten, block)] if bool(unwritten.any()) else []
    causes += [str(cause) for cause in search.causes]
    notes = search.notes
    if not causes:
        notes += _observations(contract, fill, out, difference.expected, bad & ~unwritten)
    if fill.error is not None:
        notes.append(_telemetry(contract, fill, out, difference.expected))
    head = [
        f"FAIL {fill.method}/{fill.name} seed {fill.seed}",
        f"tile ({tile[0]},{tile[1]}) {_span('rows', tile[0], block[0], out.shape[0])} "
        f"{_span('cols', tile[1], block[1], out.shape[1])}",
        f"{int(bad.sum())}/{out.numel()} wrong in {int((grid[0] > 0).sum())} of {grid[0].numel()} tiles",
        f"first [{row},{column}] got {float(out[row, column]):.9g} want {difference.right}",
    ]
    head += [f"CAUSE {cause}" for cause in causes]
    lines = [" | ".join(head), *notes]
    if grid[0].numel() > 1:
        lines.append(_heat_map(grid, tile_counts(unwritten, block)[0]))
    return Diagnosis(tuple(causes), "\n".join(lines), tile, (row, column))


@dataclass(frozen=True)
class _WrongElements:
    """The ``bad`` elements of an output, the index of the ``first`` of them, and the value that is ``right`` there."""

    expected: Tensor
    bad: Tensor
    first: tuple[int, ...]
    right: str


def _difference(contract: Contract, fill: Fill, out: Tensor) -> _WrongElements:
    expected = fill.expected.cpu()
    error = torch.zeros_like(expected) if fill.error is None else fill.error.cpu()
    error = torch.where(expected.isfinite(), error, 0.0)
    ends = expected - error, expected + error
    low, high = (round_to(end, contract.out_dtype, overflow=contract.overflow).double() for end in ends)
    output = out.double()
    nan = low.isnan() | high.isnan()
    only_nan = low.isnan() & high.isnan() & ~((ends[0] < 0) & (ends[1] > 0))
    good = ((output >= low) & (output <= high)) | (nan & (output.isnan() | ~only_nan))
    if fill.or_nan is not None:
        good |= fill.or_nan.cpu() & output.isnan()
    if contract.flushes_subnormals:
        smallest = FORMATS[contract.out_dtype].smallest_normal
        good |= (output == 0) & (expected.abs() < smallest)
    places = (~good).nonzero()
    first = tuple(places[0].tolist()) if len(places) else (0,) * out.dim()
    least, most = float(low[first]), float(high[first])
    right_text = f"{least:.9g}" if least == most else f"{float(expected[first]):.9g} ({least:.9g} to {most:.9g})"
    return _WrongElements(expected, ~good, first, right_text)


def _sentinel(out: Tensor) -> Tensor:
    """Returns a mask of the elements that were not written. A format of one byte has results with the sentinel's bits,
    too. They prove nothing if they are few, if they are NaN, or if the kernel saturates to that value."""
    held = _raw_sentinel(out)
    if out.element_size() > 1:
        return held
    values = out.double()
    saturates = bool((held & (values == -_largest(out))).any()) and bool((values == _largest(out)).any())
    held &= values.isfinite()
    return torch.zeros_like(held) if saturates or int(held.sum()) < ENOUGH else held


def _raw_sentinel(out: Tensor) -> Tensor:
    """Returns a mask of the elements that have the bits of memory that was not written."""
    raw = out.contiguous().view(torch.uint8).reshape(*out.shape, out.element_size())
    held = torch.zeros(out.shape, dtype=torch.bool)
    for byte in SENTINEL:
        held |= (raw == byte).all(-1)
    return held


def _largest(out: Tensor) -> float:
    return FORMATS[next(name for name, dtype in DTYPES.items() if dtype == out.dtype)].largest


def _saturated(dtype: str, out: Tensor, expected: Tensor) -> Tensor:
    """Returns a mask of the elements in which the largest finite value stands for a larger result."""
    largest = FORMATS[dtype].largest
    return (out.double().abs() == largest) & (expected.abs() > largest)


def _unwritten_text(unwritten: Tensor, block: tuple[int, int, int]) -> str:
    written = tile_counts(unwritten, block)
    whole = (written[0] == written[1]).nonzero()
    count = int(unwritten.sum())
    if len(whole) and int(written[1][tuple(whole.T)].sum()) == count:
        names = ", ".join(f"({i},{j})" for i, j in whole[:4].tolist()) + (", ..." if len(whole) > 4 else "")
        return f"not written: {len(whole)} whole tiles: {names}" if len(whole) > 1 else f"not written: tile {names}"
    rows, cols = unwritten.any(1).nonzero()[:, 0], unwritten.any(0).nonzero()[:, 0]
    return f"not written: {count} elements, rows {rows[0]}..{rows[-1]} cols {cols[0]}..{cols[-1]}"


# What can be said without a cause


def _observations(contract: Contract, fill: Fill, out: Tensor, expected: Tensor, bad: Tensor) -> list[str]:
    """Facts about the wrong elements: NaN, single elements, distances in units in the last place."""
    count, output = int(bad.sum()), out.double()
    if not count:
        return []
    notes = []
    nan = bad & output.isnan()
    notes += _uniform(fill, out, bad)
    right = round_to(expected, contract.out_dtype, overflow=contract.overflow)
    saturated, largest = (
        int((bad & _saturated(contract.out_dtype, out, expected)).sum()),
        FORMATS[contract.out_dtype].largest,
    )
    if saturated:
        notes.append(
            f"OBSERVED {saturated} results past {largest:g} became {largest:g}: the kernel saturates, and its contract "
            f"says overflow={contract.overflow!r}"
        )
    distance = (_ordered(out) - _ordered(right))[bad & ~nan & ~right.isnan()]
    if not distance.numel():
        return notes
    if count < ENOUGH:
        places = bad.nonzero().tolist()
        listed = [f"[{r},{c}] got {float(output[r, c]):.9g} want {float(right[r, c]):.9g}" for r, c in places]
        notes.append(f"ELEMENTS too few to prove a cause: {'; '.join(listed)}")
    size, above = distance.abs().double(), int((distance > 0).sum())
    notes.append(
        f"OBSERVED distance from the right value in units of the last place: median {float(size.median()):.3g}, "
        f"largest {float(size.max()):.3g}; {above} above, {distance.numel() - above} below"
    )
    return notes


def _uniform(fill: Fill, out: Tensor, bad: Tensor) -> list[str]:
    """Facts about wrong elements that are NaN, infinite or all the same, of which no cause can be guessed."""
    wrong, notes = out.double()[bad], []
    nan = bad & out.double().isnan()
    if count := int(nan.sum()):
        which = "every element is NaN" if count == out.numel() else f"{count} elements are NaN"
        if nan.dim() == 2:
            which += f", in {int(nan.any(1).sum())} rows and {int(nan.any(0).sum())} columns"
        if not any(bool(values.double().isnan().any()) for values in fill.inputs.values()):
            which += FROM_NO_OPERAND
        if out.element_size() == 1 and bool(_raw_sentinel(out)[nan].all()):
            which += "; these have the bits of memory that was not written"
        notes.append(f"OBSERVED {which}")
    elif wrong.numel() > 1 and bool((wrong == wrong[0]).all()):
        which = "every element is" if len(wrong) == out.numel() else f"all {len(wrong)} wrong elements are"
        notes.append(f"OBSERVED {which} {float(wrong[0]):.9g}")
    elif infinite := int(wrong.isinf().sum()):
        which = "every element is infinite" if infinite == out.numel() else f"{infinite} elements are infinite"
        notes.append(f"OBSERVED {which}")
    return notes


def _ordered(values: Tensor) -> Tensor:
    """Integers in the order of the values: neighbours in the format differ by one."""
    code = bits(values.contiguous()).to(torch.int64)
    return torch.where(code < 0, -(code - torch.iinfo(bits(values).dtype).min), code)


def _telemetry(contract: Contract, fill: Fill, out: Tensor, expected: Tensor) -> str:
    """Returns a text of how much of the bound was used. A signed mean far from 0 shows truncation; it is never a
    verdict."""
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


__all__ = ["Indices", "Needed", "axes", "merged", "needed"]


def axes(problem: Problem, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand ``name``. Raises TypeError for a family that
    does not say."""
    family = family_of(problem)
    if family.axes is None:
        raise TypeError(f"{problem.id}: the axes of its operands have no names: {family.lacks['axes']}")
    return family.axes(problem, name)


def needed(problem: Problem, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns, for each operand, the indices on which the elements ``stored`` of ``output`` depend; {} for a family
    that does not say. If only some axes of an operand are bound to the output, all indices of the others are needed."""
    family = family_of(problem)
    if family.needed is None or not all(bool(index.any()) for index in stored):
        return {}
    return family.needed(problem, inputs, output, stored)
