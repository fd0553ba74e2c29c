"""Finds the operation in which NaN or infinity begins, for every element of every array that a program computes.

The interpreter and the executor of TTGIR report each operation. NaN of a result comes from an operand that is NaN. If
none is, it begins in this operation. A launch is traced only after its result was wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

#: An array of numbers, and the array by whose memory its origins are found: they differ for formats that NumPy lacks.
Value = tuple[np.ndarray, np.ndarray]

#: A place: the name of its axis, if it has one, and its indices.
Place = tuple[str, tuple[int, ...]]

#: Operations on two numbers that have a name of their own, by the part of an operation's name.
ADDING, MULTIPLYING, DIVIDING = ("fadd", "addf", "fsub", "subf"), ("fmul", "mulf"), ("divf", "fdiv")
REMAINDERS = ("frem", "remf", "fmod")
#: Names of functions without a result for some numbers; a longer name comes before one that it holds.
FUNCTIONS = ("rsqrt", "sqrt", "log10", "log1p", "log2", "log", "asin", "acos", "acosh", "atanh", "sin", "cos", "tan",
             "pow")  # fmt: skip
#: What happens to lanes that a mask leaves out.
LANES = "the mask of the load leaves lanes without a value"
#: What a load reads where no operand lies.
OUTSIDE = "memory outside the operands is read"
#: The verb of an origin that is an element of an operand.
HELD = " holds "
#: The operands of an operation in words.
FIRST = ("the first operand", "the second operand", "the third operand")


@dataclass(frozen=True)
class Origin:
    """The first place where a value was not finite: its ``kind``, the ``line`` of the kernel, and ``what`` happened
    there. ``at`` is a place: ("k", (3,)) in a tile, or ("", (3, 5)), an element of an operand. ``of`` are words about
    operands that were not finite before."""

    kind: str
    line: str
    what: str
    at: Place | None = None
    of: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join([f"{self.line}: {self.what}", *dict.fromkeys(self.of)])


class Origins:
    """The origins of the elements of arrays, by the memory in which the elements lie, so that a view has them, too."""

    def __init__(self) -> None:
        self._table: list[Origin | None] = [None]
        self._numbers: dict[Origin, int] = {}
        self._by_memory: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        #: Of each address in global memory that holds a value that is not finite, its origin's number.
        self.stored: dict[int, int] = {}

    def number(self, origin: Origin) -> int:
        """Returns the number that stands for ``origin``; 0 stands for none."""
        if origin not in self._numbers:
            self._numbers[origin] = len(self._table)
            self._table.append(origin)
        return self._numbers[origin]

    @property
    def count(self) -> int:
        """Returns how many origins there are."""
        return len(self._table) - 1

    def latest(self, since: int) -> int:
        """Returns the number of the first origin of NaN that was added after there were ``since``; 0 if there is
        none."""
        new = range(since + 1, len(self._table))
        return next((number for number in new if self.origin(number).kind not in ("overflow", "constant")), 0)

    def origin(self, number: int) -> Origin:
        """Returns the origin with this ``number``, which is not 0."""
        found = self._table[number]
        assert found is not None, "0 is no origin"
        return found

    def of(self, array: np.ndarray) -> np.ndarray | None:
        """Returns the numbers of the origins of an array's elements; None if it has none."""
        root = _root(array)
        _, numbers = self._by_memory.get(id(root), (None, None))
        if numbers is None or root.itemsize != array.itemsize or not array.size:
            return None
        size = array.itemsize
        first = (array.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // size
        strides = [stride // size * numbers.itemsize for stride in array.strides]
        return np.lib.stride_tricks.as_strided(numbers[first:], array.shape, strides)

    def put(self, array: np.ndarray, numbers: np.ndarray) -> None:
        """Notes the origins of an array's elements."""
        root = _root(array)
        if id(root) not in self._by_memory:
            self._by_memory[id(root)] = root, np.zeros(root.size, np.int32)  # the array lives, so that its id stays
        held = self.of(array)
        if held is not None:
            held[...] = numbers

    def known(self, array: np.ndarray, bad: np.ndarray) -> bool:
        """True if each element that is ``bad`` has an origin."""
        numbers = self.of(array)
        return numbers is not None and bool(numbers[bad].all())

    def computed(self, name: str, inputs: Sequence[Value], output: Value, line: Callable[[], str]) -> None:
        """Notes an operation called ``name``, of which each element of the result is a function of those of the
        ``inputs`` at the same place. ``line`` says where it stands."""
        out, array = output
        bad = not_finite(out)
        if not bad.any() or self.known(array, bad):
            return
        values = [np.broadcast_to(value, out.shape)[bad] for value, _ in inputs]
        of = [self._broadcast(array, out.shape)[bad] for _, array in inputs]
        self.put(array, _spread(bad, self._each(name, values, of, out[bad], line)))

    def selected(
        self, condition: np.ndarray, first: np.ndarray, second: np.ndarray, output: Value, line: Callable[[], str]
    ) -> None:
        """Notes a choice between the elements of two arrays."""
        out, array = output
        if not (bad := not_finite(out)).any() or self.known(array, bad):
            return
        both = [self._broadcast(value, out.shape) for value in (first, second)]
        picked = np.where(np.broadcast_to(condition, out.shape), *both)
        self.put(array, self._or_unseen(picked, out, bad, line))

    def product(self, a: Value, b: Value, start: Value, output: Value, line: Callable[[], str]) -> None:
        """Notes a product of matrices, or of batches of them, that is added to ``start``."""
        out, array = output
        bad = not_finite(out)
        if not bad.any() or self.known(array, bad):
            return
        left, right = (np.asarray(value, np.float64) for value, _ in (a, b))
        of_left, of_right = (self._broadcast(array, value.shape) for value, array in (a, b))
        before, of_before = np.broadcast_to(start[0], out.shape), self._broadcast(start[1], out.shape)
        nan = np.isnan(out)
        kept = bad & (np.isnan(before) | (~nan & ~np.isfinite(before)))
        picked = self._or_unseen(of_before, before, kept, line)
        left_over = bad & ~kept
        for nans in (True, False):  # a product that is NaN comes before one that is infinite
            for k in range(left.shape[-1] if left_over.any() else 0):
                with np.errstate(all="ignore"):
                    terms = left[..., :, k, None] * right[..., k, None, :]
                here = left_over & (np.isnan(terms) if nans else np.isinf(terms))
                if not here.any():
                    continue
                factors = [np.broadcast_to(left[..., :, k, None], out.shape)[here],
                           np.broadcast_to(right[..., k, None, :], out.shape)[here]]  # fmt: skip
                of = [np.broadcast_to(of_left[..., :, k, None], out.shape)[here],
                      np.broadcast_to(of_right[..., k, None, :], out.shape)[here]]  # fmt: skip
                alone = here if nans else here & ~nan
                picked[alone] = self._each(
                    "fmul",
                    [factor[alone[here]] for factor in factors],
                    [numbers[alone[here]] for numbers in of],
                    terms[alone],
                    line,
                    " in a product",
                    ("k", (k,)),
                )
                if (cancelled := here & ~alone).any():
                    parents = [*(int(numbers[0]) for numbers in of), int(of_before[cancelled][0])]
                    what = "inf - inf in the sum of a product"
                    picked[cancelled] = self._begins("inf - inf", line(), what, parents, ("k", (k,)))
                left_over &= ~here
        if left_over.any():
            what = "the sum of a product is too large for its format"
            picked[left_over] = self.number(Origin("overflow", line(), what))
        self.put(array, picked)

    def reduced(
        self, name: str, source: Value, output: Value, axis: int | None, line: Callable[[], str], begun: int = 0
    ) -> None:
        """Notes a reduction along ``axis`` (None: of all elements), called ``name``. An element that is not finite
        though none of its sources is began in it, or in its function, which made the origin ``begun``."""
        out, array = output
        bad = not_finite(out)
        if not bad.any() or self.known(array, bad):
            return
        numbers = self._broadcast(source[1], source[0].shape)
        values, of = (np.moveaxis(each, axis, 0) if axis is not None else each.reshape(-1, 1) for each in
                      (source[0], numbers))  # fmt: skip
        lines, of_lines = (each.reshape(len(each), -1)[:, bad.reshape(-1)] for each in (values, of))
        held = out[bad]
        with np.errstate(all="ignore"):
            same = np.where(np.isnan(held), np.isnan(lines), lines == held)
        first, columns = np.argmax(same, axis=0), np.arange(len(held))
        from_source = of_lines[first, columns]
        parents = of_lines[np.argmax(~np.isfinite(lines), axis=0), columns]
        new = np.zeros(len(held), np.int32)
        for index in np.flatnonzero(~same.any(axis=0)):
            if begun:
                new[index] = begun
            elif np.isnan(held[index]):
                new[index] = self._begins("inf - inf", line(), f"inf - inf in a {name}", [int(parents[index])])
            else:
                new[index] = self.number(Origin("overflow", line(), f"infinity in a {name}"))
        from_source = self._or_unseen(from_source, held, same.any(axis=0), line)
        self.put(array, _spread(bad, np.where(same.any(axis=0), from_source, new)))

    def scanned(
        self,
        name: str,
        source: Value,
        output: Value,
        axis: int,
        reverse: bool,
        line: Callable[[], str],
        begun: int = 0,
    ) -> None:
        """Notes a scan along ``axis``: each element is a reduction of those up to it, or with ``reverse`` from it."""
        out, array = output
        if not (bad := not_finite(out)).any() or self.known(array, bad):
            return
        picked = np.zeros(out.shape, np.int32)
        for index in range(out.shape[axis]):
            part = slice(index, None) if reverse else slice(None, index + 1)
            part_of = tuple(part if dim == axis else slice(None) for dim in range(out.ndim))
            one = out.take(index, axis)  # a copy, of which the origins are then read
            values = source[0][part_of], source[1][part_of]
            self.reduced(name, values, (one, one), axis, line, begun)
            numbers = self.of(one)
            picked[tuple(index if dim == axis else slice(None) for dim in range(out.ndim))] = (
                0 if numbers is None else numbers
            )
        self.put(array, picked)

    def loaded(
        self,
        output: Value,
        addresses: np.ndarray,
        mask: np.ndarray,
        other: np.ndarray | None,
        line: Callable[[], str],
        place: Callable[[int, float], Origin],
    ) -> None:
        """Notes a load. ``other`` is what stands where the ``mask`` is false, None for nothing. ``place`` says what
        lies at an address at which no program has stored a value that is not finite."""
        out, array = output
        bad = not_finite(out)
        if not bad.any() or self.known(array, bad):
            return
        addresses, mask = (np.broadcast_to(each, out.shape) for each in (addresses, mask))
        of_other = None if other is None else self._broadcast(other, out.shape)
        picked = np.zeros(out.shape, np.int32)
        for element in map(tuple, np.argwhere(bad)):
            if mask[element]:
                address = int(addresses[element])
                picked[element] = self.stored.get(address) or self.number(place(address, float(out[element])))
            elif of_other is not None:
                picked[element] = of_other[element] or self._unseen(line, float(out[element]))
            else:
                picked[element] = self.number(Origin("undefined lanes", line(), LANES))
        self.put(array, picked)

    def stores(self, addresses: np.ndarray, value: Value, mask: np.ndarray, line: Callable[[], str]) -> None:
        """Notes a store: from here on its ``addresses`` hold these values where the ``mask`` is true."""
        addresses = np.asarray(addresses)
        values = np.broadcast_to(value[0], addresses.shape)
        enabled = np.broadcast_to(mask, addresses.shape)
        bad = not_finite(values) & enabled
        if self.stored:
            for address in addresses[enabled & ~bad].tolist():
                self.stored.pop(address, None)
        if bad.any():
            numbers = self._or_unseen(self._broadcast(value[1], addresses.shape), values, bad, line)
            self.stored.update(zip(addresses[bad].tolist(), numbers[bad].tolist(), strict=True))

    def constant(self, output: Value, line: Callable[[], str]) -> None:
        """Notes a number that the kernel names, or that it was given."""
        out, array = output
        if (bad := not_finite(out)).any() and not self.known(array, bad):
            self.put(array, self._or_unseen(np.zeros(out.shape, np.int32), out, bad, line))

    def moved(self, source: np.ndarray, output: Value, move: Callable[[np.ndarray], np.ndarray]) -> None:
        """Notes an operation that only moves elements: ``move`` does the same to their origins."""
        numbers = self.of(source)
        if numbers is not None and numbers.any() and not self.known(output[1], not_finite(output[0])):
            self.put(output[1], move(np.ascontiguousarray(numbers)))

    def _broadcast(self, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        numbers = self.of(array)
        return np.broadcast_to(np.int32(0) if numbers is None else numbers, shape)

    def _unseen(self, line: Callable[[], str], value: float) -> int:
        """A value that no operation made: the kernel names it, or its launch gives it."""
        held = "NaN" if np.isnan(value) else f"{value:g}"
        return self.number(Origin("constant", line(), f"a constant or an argument of the kernel is {held}"))

    def _or_unseen(self, numbers: np.ndarray, values: np.ndarray, chosen: Any, line: Callable[[], str]) -> np.ndarray:
        """Returns the ``numbers`` where ``values`` are ``chosen``; one without an origin is a constant. Elsewhere 0."""
        filled = np.where(chosen, numbers, 0).astype(np.int32)
        for value in (np.nan, np.inf, -np.inf):
            same = np.isnan(values) if np.isnan(value) else values == value
            if (here := chosen & (filled == 0) & same).any():
                filled[here] = self._unseen(line, value)
        return filled

    def _begins(self, kind: str, line: str, what: str, of: Iterable[int], at: Place | None = None) -> int:
        origins = [self.origin(number) for number in dict.fromkeys(of) if number]
        texts = tuple(f"inf begins{_at(origin)}: {origin.what}{_element(origin)}" for origin in origins)
        return self.number(Origin(kind, line, what, at, texts))

    def _each(
        self,
        name: str,
        values: Sequence[np.ndarray],
        of: Sequence[np.ndarray],
        results: np.ndarray,
        line: Callable[[], str],
        where: str = "",
        at: Place | None = None,
    ) -> np.ndarray:
        """Returns the origins of ``results``, each of which an operation made of one element of each operand. Elements
        that are alike are looked at once."""
        classes = [np.where(np.isnan(value), 3, np.where(np.isinf(value), 2, value == 0)) for value in values]
        keys = np.stack([*classes, *of, np.isnan(results)]).astype(np.int64)
        _, examples, inverse = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        numbers = []
        for index in examples:
            operands, numbers_of = [value[index] for value in values], [int(each[index]) for each in of]
            numbers.append(self._one(name, operands, numbers_of, results[index], line, where, at))
        return np.asarray(numbers, np.int32)[np.asarray(inverse).reshape(-1)]

    def _one(
        self,
        name: str,
        values: Sequence[Any],
        of: Sequence[int],
        result: Any,
        line: Callable[[], str],
        where: str = "",
        at: Place | None = None,
    ) -> int:
        """Returns the origin of one element that the operation ``name`` made of one element of each operand."""
        values = [float(value) for value in values]
        nan = [index for index, value in enumerate(values) if np.isnan(value)]
        infinite = [index for index, value in enumerate(values) if np.isinf(value)]
        if nan and np.isnan(result):
            first = nan[0]
            number = of[first] or self._unseen(line, values[first])
            others = [value for index, value in enumerate(values[:2]) if index != first]
            if any(part in name for part in (*MULTIPLYING, "fma")) and first < 2 and 0 in others:
                before = self.origin(number)
                text = f"{FIRST[first]} is NaN in 0 * NaN{where} at {line()}"
                kind = before.kind if "0 * NaN" in before.kind else f"{before.kind}, 0 * NaN"
                return self.number(replace(before, kind=kind, of=(*before.of, text)))
            return number
        parents = [of[index] for index in infinite]
        if not np.isnan(result):
            if infinite and parents[0]:
                return parents[0]
            zero = len(values) == 2 and values[1] == 0 and any(part in name for part in DIVIDING)
            by = "x / 0" if zero else f"{_short(name)} of {values[0]:.6g}" if len(values) == 1 else "an overflow"
            return self.number(Origin("overflow", line(), f"infinity by {by}"))
        kind, what, after = _operation(name, values)
        return self._begins(kind, line(), f"{what}{where}{after}", parents, at)

    def words(self, numbers: Iterable[int], lanes: Mapping[str, str] | None = None) -> list[str]:
        """Returns sentences about the origins with these numbers, one for each element, the most frequent first.
        ``lanes`` names the lanes that loads leave without a value, by line."""
        groups: dict[Origin, list[Place]] = {}
        counts: dict[Origin, int] = {}
        for number in numbers:
            origin = self.origin(number)
            key = replace(origin, at=None)
            counts[key] = counts.get(key, 0) + 1
            groups.setdefault(key, [])
            if origin.at is not None:
                groups[key].append(origin.at)
        texts = []
        for origin, count in sorted(counts.items(), key=lambda pair: -pair[1]):
            place = _places(groups[origin])
            of = "".join(f"; {text}" for text in dict.fromkeys(origin.of))
            named = (lanes or {}).get(origin.line.partition(" ")[0])
            what = LANES.replace("lanes", named) if named and origin.what == LANES else origin.what
            # the count comes last: signatures of findings begin with what is the same in every case
            texts.append(f"NaN begins{_at(origin)}: {what}{place}{of} [{count} elements]")
        return texts


def not_finite(values: np.ndarray) -> np.ndarray:
    """Returns a mask of the numbers that are NaN or infinite."""
    values = np.asarray(values)
    return ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)


def _spread(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns an array of the shape of ``mask`` with ``values`` where it is true and 0 elsewhere."""
    spread = np.zeros(mask.shape, np.int32)
    spread[mask] = values
    return spread


def _root(array: np.ndarray) -> np.ndarray:
    """Returns the array whose memory ``array`` is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _operation(name: str, values: Sequence[float]) -> tuple[str, str, str]:
    """Returns the kind of operation that made NaN of numbers, and words before and after the place where it did."""
    zero_by = any(part in name for part in (*MULTIPLYING, "fma")) and any(np.isinf(values[:2])) and 0 in values[:2]
    if zero_by:
        return "0 * inf", "0 * inf", f", {FIRST[0 if np.isinf(values[0]) else 1]} is infinite"
    if any(part in name for part in (*ADDING, "fma")):
        return "inf - inf", "inf - inf", ""
    kind = f"{_short(name)} of {values[0]:.6g}" if values else _short(name)
    if any(part in name for part in DIVIDING):
        kind = "0 / 0" if values[1] == 0 else "inf / inf"
    elif any(part in name for part in REMAINDERS):
        kind = "x % 0" if values[1] == 0 else "inf % x"
    return kind, kind, ""


def _short(name: str) -> str:
    """Returns the name of a function as it is usually spelled."""
    return next((part for part in FUNCTIONS if part in name), name.rpartition(".")[2].removeprefix("create_"))


def _at(origin: Origin) -> str:
    """Returns words about the line of an origin; "" for a constant, whose line TTGIR does not keep."""
    return f" at {origin.line}" if origin.line else ""


def _element(origin: Origin) -> str:
    """Returns words about the element of an operand; "" for another origin."""
    return _places([origin.at]) if origin.at is not None and not origin.at[0] else ""


def _places(places: Sequence[Place]) -> str:
    """Returns words about places that differ in their indices alone; "" for none."""
    if not places:
        return ""
    indices = sorted({index for _, index in places})
    if name := places[0][0]:
        return f" at {name} {_runs([index for (index,) in indices])} of the tile"
    return f" at {', '.join(str(list(index)) for index in indices[:3])}" + (", ..." if len(indices) > 3 else "")


def _runs(numbers: Sequence[int]) -> str:
    """Returns sorted numbers as runs.

    >>> _runs([3, 4, 5, 9])
    '3..5, 9'
    """
    runs = []
    for _, group in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(f"{run[0]}..{run[-1]}" if len(run) > 1 else f"{run[0]}")
    return ", ".join(runs[:4]) + (", ..." if len(runs) > 4 else "")
