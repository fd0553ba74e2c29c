"""Products of which every output lies half way between two values of its format, or one unit next to that.

The accumulator may keep more bits than the output. Then a sum T of one bit more than the output has, and odd, is a tie.
Rounding to nearest even, half away from zero, half up, to odd, at random and towards zero differ on it. One unit next
to a tie, rounding twice differs from rounding once.

T comes from two k alone, the carriers. At one, A's and B's integers are ``3 * 2**e`` of the row's sign times ``2**f``
of the column's. At the other they are odd ones with a small product, so T stays within one binade of the output. A
third k adds a unit to every fourth row. Rows and columns are multiplied by powers of two, so that outputs of several
binades are shown.

All other k cancel in groups. A's small integer is the same for all k of a group, but negative in the upper half of K.
B's full integers have the same sum in both halves. So every sum in order of k climbs to the accumulator's limit and
falls back to T. A bit that is lost on the way changes T.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from conformance.families.gemm import integer_budget
from conformance.families.gemm.arrangement import PlainProduct, Range, paired_ranges
from conformance.families.gemm.integer_budget import IntegerBudget, budget_of
from conformance.families.gemm.problem import Gemm
from conformance.inputs.fills import Draws, Integers
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import FORMATS

#: With fewer k than this there is no room for the carriers and a group next to them.
FEWEST_K = 6
#: Carriers: the large term of T, the odd one, and the unit next to a tie.
CARRIERS = 3
#: Bits below half a unit of the output before rows and columns may differ. With two, one unit next to a tie is nearer
#: to it than to anything else that has one bit more than the output.
BELOW = 2
#: Rows and columns are multiplied by powers of two with exponents from 0 to this.
SPREAD = 2


@dataclass(frozen=True)
class TieBits:
    """The division of the bits below a sum's limit. They are the ``significand`` of the output, ``below`` half a unit
    of it, and the exponents by which ``rows`` and ``columns`` differ at most. ``step`` and ``addend``: biases and
    residuals are multiples of step, at most addend, both in units of the output."""

    significand: int
    below: int
    rows: int
    columns: int
    step: int
    addend: int

    @property
    def largest(self) -> int:
        """No sum of an output reaches this."""
        return int(2 ** (self.significand + 1 + self.below + self.rows + self.columns))

    @property
    def odd(self) -> int:
        """The largest product of the odd carrier."""
        return int(2 ** (self.significand - 2)) - 1


def tie_bits(problem: Gemm, contract: Contract) -> TieBits | None:
    """Returns the division of the bits of a sum that is a tie under ``contract``. Returns None where there can be none.
    That is so for an integer output, for an fp32 output (no accumulator keeps more than its 24 bits), and for an
    epilogue that rounds. It is also so for fewer than :data:`FEWEST_K` k."""
    out, product = FORMATS[contract.out_dtype], PlainProduct.of(problem)
    segment = min(product.one_scale, product.k)
    if out.lowest is not None or segment < FEWEST_K or not integer_budget.allows_exact(problem):
        return None
    budget = budget_of(problem, contract)
    # a sum takes a quarter of the limit: the way up to the limit is left to the terms that cancel
    room = _bits(budget) - 2 - (out.significand + 1)
    if room < 0:
        return None
    if budget.addends:  # addends are whole units of every output, so outputs must not differ much
        step = 2 ** (room + 1) * budget.scale_spread
        most = 2 ** (out.significand - 2 + room) // budget.addends
        return TieBits(out.significand, room, 0, 0, step, most // step * step)
    rows = min(SPREAD, max(0, room - BELOW))
    columns = min(SPREAD, max(0, room - BELOW - rows))
    return TieBits(out.significand, room - rows - columns, rows, columns, 1, 0)


def _bits(budget: IntegerBudget) -> int:
    return (min(budget.chunk_limit, budget.limit) + 1).bit_length() - 1


@dataclass(frozen=True)
class Carriers:
    """The integers of A (rows, 3) and of B (3, columns) at the carriers, and the sign of each row's and column's T."""

    a: Integers
    b: Integers
    signs_a: Integers
    signs_b: Integers


def carriers(bits: TieBits, draws: Draws, rows: int, columns: int, ranges: tuple[Range, Range]) -> Carriers:
    """Returns integers whose sum of products is T times ``2**below``, times the powers of two of row and column. Every
    fourth row has one unit of them more."""
    range_a, range_b = ranges
    base = bits.significand - 1 + bits.below
    base_b, below_b = base // 2, bits.below // 2
    if range_b.integer:
        base_b, below_b = min(base_b, range_b.bits - 1 - bits.columns), 0
    odd_a = min(range_a.top, math.isqrt(bits.odd))
    odd_b = min(range_b.top >> (bits.columns if range_b.integer else 0), bits.odd // odd_a)
    signs_a = draws.signs((rows,))
    signs_b = draws.signs((columns,)) if range_b.signed else np.ones(columns, dtype=np.int64)
    beside = draws.signs((rows,)) * (np.argsort(draws.permutation(rows)) % 4 == 3) * (bits.below > 0)
    a = np.stack(
        [
            signs_a * 3 << (base - base_b),
            draws.signs((rows,)) * (2 * draws.below((odd_a + 1) // 2, (rows,)) + 1) << (bits.below - below_b),
            beside,
        ],
        1,
    )
    odd = 2 * draws.below((odd_b + 1) // 2, (columns,)) + 1
    odd *= draws.signs((columns,)) if range_b.signed else 1
    b = np.stack([signs_b << base_b, odd << below_b, np.ones(columns, dtype=np.int64)])
    scale_a = draws.below(bits.rows + 1, (rows, 1))
    scale_b = draws.below(bits.columns + 1, (1, columns))
    return Carriers(a << scale_a, b << scale_b, signs_a, signs_b)


@dataclass(frozen=True)
class Groups:
    """Groups of k that cancel. ``rising``: how many k of the lower half each group has, ``falling``: how many of the
    upper half. ``places``: those k, the lower half first, and in each half one group behind the other."""

    rising: Integers
    falling: Integers
    places: Integers

    @property
    def members(self) -> Integers:
        """The group of each of the places."""
        numbers = np.arange(len(self.rising))
        return np.concatenate([np.repeat(numbers, self.rising), np.repeat(numbers, self.falling)])

    @property
    def signs(self) -> Integers:
        """1 for each place of the lower half, -1 for the others."""
        return np.repeat([1, -1], [int(self.rising.sum()), int(self.falling.sum())])


def groups_of(places: Integers, draws: Draws) -> Groups:
    """``places`` (ascending k) in groups of two of the lower half and two of the upper, and one of fewer or five. A
    single k has none."""
    count, rest = divmod(len(places), 4)
    rising, falling = [2] * count, [2] * count
    if rest == 1 and count:
        rising[0] = 3
    elif rest > 1:
        rising, falling = [*rising, rest - 1], [*falling, 1]
    half = sum(rising)
    order = np.concatenate([draws.permutation(half), half + draws.permutation(sum(falling))])
    return Groups(np.asarray(rising, dtype=np.int64), np.asarray(falling, dtype=np.int64), places[order])


def cancelling(groups: Groups, draws: Draws, largest: Integers) -> Integers:
    """Returns positive integers of B, (lines, places of ``groups``), up to the ``largest`` of each line. In each group
    those of the lower half have the same sum as the others."""
    lines, most = len(largest), largest[:, None]
    fewest, longest = np.minimum(groups.rising, groups.falling), np.maximum(groups.rising, groups.falling)
    share = 1 + draws.uniform((lines, len(fewest)))  # over 2: from half of the most on
    total = np.maximum((share * (most * fewest / 2)).astype(np.int64), longest)
    return np.concatenate([_split(total, sizes, most, draws) for sizes in (groups.rising, groups.falling)], 1)


def _split(total: Integers, sizes: Integers, most: Integers, draws: Draws) -> Integers:
    """Returns each ``total`` (lines, groups) as a sum of as many positive integers as ``sizes`` says, each at most
    ``most``; the integers of one group behind those of the other."""
    columns: list[list[Integers]] = [[] for _ in sizes]
    rest = total
    for number in range(int(sizes.max(initial=0))):
        behind = np.maximum(sizes - number - 1, 0)
        low, high = np.maximum(1, rest - behind * most), np.minimum(most, rest - behind)
        piece = np.minimum(low + (draws.uniform(rest.shape) * (high - low + 1)).astype(np.int64), high)
        for group in np.flatnonzero(sizes > number):
            columns[group].append(piece[:, group])
        rest = rest - piece
    flat = [column for group in columns for column in group]
    return np.stack(flat, 1) if flat else np.zeros((len(total), 0), dtype=np.int64)


def room_of_groups(budget: IntegerBudget, bits: TieBits, terms: int) -> IntegerBudget:
    """Returns the budget of the terms that cancel: what T leaves of the limits, for so many ``terms`` of one sign."""
    largest = bits.largest
    return dataclasses.replace(
        budget,
        k=max(1, terms),
        chunk=max(1, min(budget.chunk, terms)),
        chunk_limit=budget.chunk_limit - largest,
        limit=budget.limit - largest,
    )


def small_integers(
    budget: IntegerBudget, draws: Draws, largest: int, reach: Range, shape: tuple[int, int], boost: float
) -> Integers:
    """Returns the positive integers of A, one for each row and group (``shape``), for B's integers up to ``largest``; 0
    for some where few fit. Together with them they fill ``budget``, which is that of :func:`room_of_groups`; ``boost``
    is that of :func:`integer_budget.small_sizes`."""
    top = reach.top if reach.integer else 2 ** (reach.bits + integer_budget.FURTHER_BITS) - 1
    # B's integers are 3/4 of the largest on average, and not 7/16 as in other fills
    size, density = integer_budget.small_sizes(budget, largest * 12 // 7 + 1, top, boost)
    small = integer_budget.with_bits(1 + draws.below(size, shape), reach.bits)
    return small * draws.chance(density, shape) if density < 1 else small


def ties(problem: Gemm, contract: Contract, draws: Draws, bits: TieBits, boost: float) -> tuple[Integers, Integers]:
    """A (rows, k) and B (k, columns) of the problem's :class:`PlainProduct`, whose outputs are ties."""
    product = PlainProduct.of(problem)
    range_a, range_b = paired_ranges(problem, contract, "b")
    carried = carriers(bits, draws, product.rows, product.cols, (range_a, range_b))
    a = np.zeros((product.rows, product.k), dtype=np.int64)
    b = np.zeros((product.k, product.cols), dtype=np.int64)
    step = product.one_scale
    starts = range(0, product.k, step)
    # all of T has the same scale
    chosen = int(draws.below(max(1, product.k // step), ())[()]) * step
    places = []
    for start in starts:
        where = start + np.arange(min(step, product.k - start))
        if start == chosen:
            carriers_at = np.sort(where[draws.permutation(len(where))[:CARRIERS]])
            a[:, carriers_at], b[carriers_at] = carried.a, carried.b
            where = np.setdiff1d(where, carriers_at)
        places.append(groups_of(where, draws))
    falling = sum(int(groups.falling.sum()) for groups in places)
    budget = room_of_groups(budget_of(problem, contract), bits, falling)
    largest = np.full(product.cols, min(range_b.top, max(1, budget.chunk_limit // 8)))
    if range_b.integer:  # two's complement: to -128
        largest += carried.signs_b < 0
    for groups in places:
        shape = product.rows, len(groups.rising)
        small = small_integers(budget, draws, int(largest.max(initial=1)), range_a, shape, boost)
        a[:, groups.places] = (small * carried.signs_a[:, None])[:, groups.members] * groups.signs
        b[groups.places] = (cancelling(groups, draws, largest) * carried.signs_b[:, None]).T
    return a, b
