"""Proves the screen: corrupts results and running products on a device, and counts what the screen finds of it.

``python -m conformance.screening.injection --count 1000 --seed 0`` needs a GPU. Half of the corruptions are in stored
results, before they are compared. The others are inside the kernel, on a given SM and turn: in an accumulator between
two blocks of k, or in one operand's fragment. The classes follow
two figures from the abstract of arXiv 2605.04213. NaN and infinity are 1.01 % of silent corruptions, and flips of a
single bit are below 40 % of the flips. How many bits the others have is chosen here.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance import targets
from conformance.problems import DTYPES
from conformance.screening.fills import BITS, bits_of, fills
from conformance.screening.turns import BATCH, Prepared, Screen, Spot, Turn
from conformance.screening.units import EDGE, Unit, units
from conformance.targets import Target

STORED, ACCUMULATOR, OPERAND = "stored result", "accumulator", "operand's fragment"
#: The places inside the kernel, with the values of the kernel's INJECT: an operand's fragment is of A or of B.
INSIDE = {ACCUMULATOR: (1,), OPERAND: (2, 3)}
NONFINITE, ONE_BIT, FEW_BITS, MANY_BITS = "NaN or infinity", "1 bit", "2 to 4 bits", "5 bits and more"
#: The parts of the classes.
CLASSES = {NONFINITE: 0.0101, ONE_BIT: 0.385, FEW_BITS: 0.30245, MANY_BITS: 0.30245}
#: The parts that must be found: of stored results, and of corruptions inside the kernel.
STORED_FOUND, INSIDE_FOUND = 0.999, 0.98
#: Batches without a corruption by which the SMs in use are learnt, and tries to reach an SM.
_TRIES = 5
#: Bits of an fp32 operand that tf32 does not have.
_TF32_DROPS = 13


@dataclass
class Corruption:
    """One value that is changed: the bits of ``keep`` stay, then those of ``flip`` flip. ``inject`` is that of
    the kernel, 0 for a stored result; ``row`` and ``column`` are in a tile, or in the fragment of an operand.
    ``program`` and ``place`` are known when it was made."""

    where: str
    inject: int
    kind: str
    unit: str
    fill: int
    block: int
    row: int
    column: int
    keep: int
    flip: int
    place: int = -1
    turn: int = -1
    program: int = -1
    found: bool = False
    located: bool = False
    explanation: str = ""


@dataclass
class Proof:
    """All corruptions, and wrong tiles that none of them explains. ``left_out`` names the variants of the kernel that
    are wrong without a corruption, and so cannot show one."""

    left_out: list[str] = field(default_factory=list)
    corruptions: list[Corruption] = field(default_factory=list)
    not_made: int = 0
    clean_turns: int = 0
    alarms: int = 0

    def part_found(self, inside: bool) -> float:
        some = [one for one in self.corruptions if (one.where in INSIDE) == inside]
        return sum(one.found for one in some) / len(some) if some else 0.0

    @property
    def holds(self) -> bool:
        """True if enough was found, each at its SM, the rest is explained, and there was no alarm without a cause."""
        enough = self.part_found(False) >= STORED_FOUND and self.part_found(True) >= INSIDE_FOUND
        right = all(one.located if one.found else one.explanation for one in self.corruptions)
        return enough and right and not self.alarms and not self.not_made


def draw(count: int, seed: int, ready: Mapping[str, Prepared], usable: Mapping[str, Set[int]]) -> list[Corruption]:
    """Returns ``count`` corruptions, half in stored results, their classes in the parts of :data:`CLASSES`. ``usable``
    has the values of INJECT that each unit can have."""
    dice = random.Random(seed)
    kinds = [kind for kind, part in CLASSES.items() for _ in range(round(part * count))]
    kinds = [*kinds, *[FEW_BITS] * count][:count]
    dice.shuffle(kinds)
    corruptions = []
    for number, kind in enumerate(kinds):
        where = STORED if number % 2 == 0 else ACCUMULATOR if number % 4 == 1 else OPERAND
        choices = [
            (name, inject)
            for name, one in ready.items()
            for inject in INSIDE.get(where, (0,))
            if (inject in usable[name] or not inject) and (one.unit.digits or kind != NONFINITE)
        ]
        name, inject = dice.choice(choices)
        unit = ready[name].unit
        rows, columns, k = unit.block
        blocks = unit.depth // k - (where == ACCUMULATOR)  # a block must follow
        height, width = {2: (rows, k), 3: (k, columns)}.get(inject, (rows, columns))
        keep, flip = _change(dice, kind, unit.dtype if where == OPERAND else unit.sum_dtype)
        fill, block = dice.randrange(len(ready[name].names)), dice.randrange(blocks)
        row, column = dice.randrange(height), dice.randrange(width)
        corruptions.append(Corruption(where, inject, kind, name, fill, block, row, column, keep, flip))
    return corruptions


def _change(dice: random.Random, kind: str, dtype: str) -> tuple[int, int]:
    """Returns the masks of kept and flipped bits for a value of ``dtype``, as signed integers of 64 bits."""
    stored = DTYPES["fp32" if dtype == "tf32" else dtype]
    lowest, width = _TF32_DROPS if dtype == "tf32" else 0, 8 * stored.itemsize
    if kind == NONFINITE:
        values = torch.tensor([float("nan"), float("inf"), float("-inf")]).to(stored)
        codes = [
            int(code)
            for code, value in zip(bits_of(values), values.float(), strict=True)
            if not torch.isfinite(value)
        ]  # fmt: skip
        return 0, dice.choice(codes)
    most = width - lowest
    number = {ONE_BIT: 1, FEW_BITS: dice.randint(2, 4)}.get(kind) or dice.randint(5, max(5, most))
    flip = sum(1 << bit for bit in dice.sample(range(lowest, width), min(number, most)))
    return -1, flip - (1 << 64) if flip >= 1 << 63 else flip


def prove(count: int, seed: int, target: Target, device: str, places: int, some: Sequence[Unit]) -> Proof:
    """Makes ``count`` corruptions on ``device``, and returns what the screen found of them."""
    by_turn: dict[int, Corruption] = {}
    kept_places: dict[int, Tensor] = {}

    def corrupt(prepared: Prepared, number: int, out: Tensor, turn_places: Tensor) -> None:
        one = by_turn.get(number)
        if one is None or one.where != STORED:
            return
        at = one.program * prepared.size + one.row * prepared.unit.block[1] + one.column
        bits = bits_of(out)
        bits[at] = (bits[at] & one.keep) ^ _signed(one.flip, bits.element_size())
        kept_places[number] = turn_places[one.program].clone()

    screen = Screen(target, some, device, places, on_turn=corrupt)
    proof, dice = Proof(), random.Random(seed)
    ready = {unit.name: one for unit in some if (one := screen.prepare(unit)) is not None}
    usable = {name: _usable(screen, prepared, proof) for name, prepared in ready.items()}
    corruptions = draw(count, seed, ready, usable)
    for group in _batches(corruptions):
        prepared, waiting = ready[group[0].unit], group
        places_in_use = np.flatnonzero(prepared.where).tolist()
        for _ in range(_TRIES):
            by_turn = {screen.seen.turns + index: one for index, one in enumerate(waiting)}
            for turn, corruption in by_turn.items():
                corruption.turn, corruption.program = turn, dice.randrange(prepared.programs)
                corruption.place = dice.choice(places_in_use)
            spots = [_spot(corruption, device) for corruption in waiting] if group[0].inject else []
            screen.seen.tiles.clear()
            launched = screen.read(screen.launch(prepared, group[0].fill, spots))
            waiting = _judge(screen, prepared, launched, waiting, spots, kept_places, proof)
            if not waiting:
                break
        proof.not_made += len(waiting)
    return proof


def _usable(screen: Screen, prepared: Prepared, proof: Proof) -> set[int]:
    """Returns the values of INJECT whose variant of the kernel is right while it corrupts nothing. Learns the SMs that
    are there."""
    usable = set()
    nowhere = Corruption("", 0, "", prepared.unit.name, 0, 0, 0, 0, -1, 0)
    for inject in (0, *(number for numbers in INSIDE.values() for number in numbers)):
        nowhere.inject = inject
        spots = [_spot(nowhere, screen.device)] * BATCH if inject else []
        turns = screen.read(screen.launch(prepared, 0, spots))
        wrong = sum(int((turn.counts > 0).sum()) for turn in turns)
        if not wrong or not inject:
            usable.add(inject)
            proof.clean_turns += len(turns)
            proof.alarms += wrong
        else:
            places = len({int(turn.places[at]) for turn in turns for at in np.flatnonzero(turn.counts)})
            proof.left_out.append(
                f"{prepared.unit.name}, INJECT {inject}: without a corruption {wrong} tiles are wrong, on {places} of "
                f"{int(prepared.where.sum())} SMs: the compiler, and not this GPU"
            )
    return usable


def _batches(corruptions: Iterable[Corruption]) -> list[list[Corruption]]:
    """Returns the corruptions in groups that one batch of turns can have: of one unit, fill and place."""
    groups: dict[tuple[object, ...], list[Corruption]] = {}
    for one in corruptions:
        groups.setdefault((one.unit, one.fill, one.inject), []).append(one)
    return [group[at : at + BATCH] for group in groups.values() for at in range(0, len(group), BATCH)]


def _spot(one: Corruption, device: str) -> Spot:
    numbers = (one.place, one.block, one.row, one.column, one.keep, one.flip)
    spot = torch.tensor(numbers, dtype=torch.int64, device=device)
    return Spot(one.inject, spot, torch.zeros(2, dtype=torch.int32, device=device))


def _judge(
    screen: Screen, prepared: Prepared, turns: Sequence[Turn], batch: Sequence[Corruption], spots: Sequence[Spot],
    kept_places: dict[int, Tensor], proof: Proof,
) -> list[Corruption]:  # fmt: skip
    """Notes what the screen found in ``turns``. Returns the corruptions whose SM had no program."""
    again = []
    for index, turn in enumerate(turns):
        wrong = set(np.flatnonzero(turn.counts).tolist())
        one = batch[index] if index < len(batch) else None
        if one is not None and spots:
            one.program = int(spots[index].hit[1]) - 1
            if one.program < 0:
                again.append(one)
                one = None
        elif one is not None:
            one.place = int(kept_places.pop(turn.number))
        if one is not None:
            one.found = one.program in wrong
            tiles = [tile for tile in screen.seen.tiles if tile.turn == turn.number]
            one.located = one.found and any(tile.place == one.place and not tile.compared for tile in tiles)
            if not one.found:
                one.explanation = explained(prepared.unit, one, (one.program + turn.shift) % prepared.unit.tiles)
            wrong.discard(one.program)
            proof.corruptions.append(one)
        proof.alarms += len(wrong)
    return again


def explained(unit: Unit, one: Corruption, tile: int) -> str:
    """Returns the reason why a corruption of ``tile`` cannot be seen in the result, "" if it could."""
    fill = fills(unit)[one.fill]
    rows, columns, k = unit.block
    per_row = EDGE // columns
    first_row, first_column = tile // per_row * rows, tile % per_row * columns
    if one.inject in (2, 3):
        in_a = one.inject == 2
        at = one.block * k + (one.column if in_a else one.row)
        line = first_row + one.row if in_a else first_column + one.column
        factors, scales = (fill.left, fill.row_scale) if in_a else (fill.right, fill.column_scale)
        others = fill.right[first_column : first_column + columns] if in_a else fill.left[first_row : first_row + rows]
        change = _change_of(int(factors[line, at]), float(scales[line]), unit.stored, one)
        change, text = change * float(others[:, at].abs().max()), "every product"
    else:
        row, column = first_row + one.row, first_column + one.column
        depth = (one.block + 1) * k if one.inject else unit.depth
        total = fill.start + int((fill.left[row, :depth] * fill.right[column, :depth]).sum())
        scale = float(fill.row_scale[row] * fill.column_scale[column])
        change, text = _change_of(total, scale, unit.sum_dtype, one), "the accumulator"
    if change == 0:
        return "the value had these bits already"
    if one.inject and change < 1:
        return f"the change of {text} is below the last bit that the sum keeps when the next products are added"
    return ""


def _change_of(integer: int, scale: float, dtype: str, one: Corruption) -> float:
    """Returns the size of the change of ``integer``, which is stored as its product with ``scale`` in ``dtype``;
    infinity if it becomes NaN or infinite."""
    value = torch.tensor([integer * scale], dtype=torch.float64)
    exact = value.long() if dtype in ("int8", "int32") else value if dtype == "fp64" else value.float()
    stored = exact.to(DTYPES[dtype])
    bits = (bits_of(stored) & one.keep) ^ _signed(one.flip, stored.element_size())
    changed = bits.to(BITS[stored.element_size()]).view(stored.dtype)
    wide = (changed.float() if changed.element_size() < 4 else changed).double()
    change = float((wide - value).abs()) / abs(scale)
    return change if change == change else float("inf")


def _signed(mask: int, size: int) -> int:
    """Returns the low ``size`` bytes of ``mask`` as a signed integer."""
    return int.from_bytes((mask & (1 << 8 * size) - 1).to_bytes(size, "little"), "little", signed=True)


def table(proof: Proof) -> list[str]:
    """Returns the lines of the table by place and class."""
    rows: list[tuple[str, ...]] = [("where", "class", "made", "found", "at its SM", "explained", "not explained")]
    for where in (STORED, *INSIDE):
        for kind in (*CLASSES, ""):
            some = [one for one in proof.corruptions if one.where == where and kind in ("", one.kind)]
            missed = [one for one in some if not one.found]
            counts = (len(some), sum(one.found for one in some), sum(one.located for one in some))
            explained_ones = sum(bool(one.explanation) for one in missed)
            numbers = (*counts, explained_ones, len(missed) - explained_ones)
            rows.append((where, kind or "all", *map(str, numbers)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    reasons: dict[tuple[str, str], int] = {}
    for one in proof.corruptions:
        if not one.found:
            key = (one.unit, one.explanation or f"not explained: {vars(one)}")
            reasons[key] = reasons.get(key, 0) + 1
    lines += [f"not found, {unit}: {number} times: {why}" for (unit, why), number in sorted(reasons.items())]
    lines.append(
        f"found: {proof.part_found(False):.2%} of stored results, {proof.part_found(True):.2%} inside the kernel"
    )
    lines += [f"left out, {why}" for why in proof.left_out]
    lines.append(f"turns without a corruption: {proof.clean_turns}; wrong tiles without one: {proof.alarms}")
    if proof.not_made:
        lines.append(f"not made, because the SM had no program: {proof.not_made}")
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0 if the proof holds, 1 if it does not, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m conformance.screening.injection", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="write each corruption into this file, as JSON")
    arguments = parser.parse_args(words)
    if not torch.cuda.is_available():
        print("the proof of the screen needs a GPU, and torch can use none", file=sys.stderr)
        return 2
    target = targets.devices()[0]
    began = time.monotonic()
    places = torch.cuda.get_device_properties(0).multi_processor_count
    proof = prove(arguments.count, arguments.seed, target, "cuda", places, units(target))
    print(f"{target.name}: {len(proof.corruptions)} corruptions in {time.monotonic() - began:.0f} s")
    print("\n".join(table(proof)))
    if arguments.output is not None:
        data: dict[str, Any] = {"device": target.name, "seed": arguments.seed, "holds": proof.holds}
        arguments.output.write_text(json.dumps({**data, "corruptions": [vars(one) for one in proof.corruptions]}))
    return 0 if proof.holds else 1


if __name__ == "__main__":
    sys.exit(main())
