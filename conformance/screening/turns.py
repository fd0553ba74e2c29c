"""The turns of a screen on one device: products of every unit in a loop, and a look at each wrong tile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from conformance.exception_text import text_of
from conformance.screening.device import exact_product, wrong_elements
from conformance.screening.fills import bits_of, fills
from conformance.screening.findings import Seen, UnitSeen, WrongElement, WrongTile
from conformance.screening.units import Unit, unit_of_code
from conformance.targets import Target

#: Programs for each SM in a turn, with the largest tiles; small tiles have more.
WAVES = 8
#: Turns that are launched before the counts of earlier ones are read, and the sets of results that are in use.
BATCH, SETS = 4, 2
#: Seconds for which a unit and fill have the device before the next takes it.
SLOT_S = 0.25
#: Wrong tiles that are looked at in a batch and in all, and elements of each that are kept.
EXAMINED, KEPT, EXAMPLES = 32, 400, 4
#: Turns with more wrong tiles than right ones after which a unit has said enough.
ENOUGH_WRONG = 8
_LARGEST_TILE = 128 * 128
#: Numbers that a way to read the SM may give.
_MOST_PLACES = 1 << 14
_SUMS = {"fp32": tl.float32, "int32": tl.int32, "fp64": tl.float64}
_TL_BITS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


@dataclass(frozen=True)
class Spot:
    """A corruption inside the kernel, which the proof of the screen makes. ``inject`` is 1 for the accumulator after a
    block of k, 2 for a fragment of A, 3 for one of B; the tensors are those of the kernel."""

    inject: int
    spot: Tensor
    hit: Tensor


@dataclass
class Turn:
    """One launch: its results by program, and what was read of them."""

    number: int
    shift: int
    fill: int
    out: Tensor
    counts: np.ndarray[Any, Any]
    places: np.ndarray[Any, Any]
    judged: np.ndarray[Any, Any]


@dataclass
class _Batch:
    prepared: Prepared
    fill: int
    first: int
    shifts: list[int]
    out: Tensor
    read: Tensor
    done: Any


def how_located(target: Target) -> str:
    """Returns the way in which a program on ``target`` reads its SM, "" if there is none."""
    if target.vendor == "nvidia":
        return "smid"
    return "hw_id" if str(target.arch) in ("gfx942", "gfx950") else ""


class Prepared:
    """A unit with its fills on the device. Raises ValueError if a fill is not exact."""

    def __init__(self, unit: Unit, device: str, how: str, places: int) -> None:
        self.unit = unit
        self.seen = UnitSeen(unit.name)
        self.names: list[str] = []
        self.expected: list[Tensor] = []
        self.tensors: list[tuple[Tensor, ...]] = []
        for fill in fills(unit):
            self.names.append(fill.name)
            self.expected.append(fill.expected(unit))
            self.tensors.append(tuple(one.to(device) for one in (*fill.operands(unit), self.expected[-1])))
        self.size = unit.block[0] * unit.block[1]
        self.programs = places * WAVES * min(WAVES, _LARGEST_TILE // self.size)
        self.where = np.zeros(_MOST_PLACES, dtype=bool)
        self.wrong_turns = 0
        self._how, self._places = how, places

    def multiply(self, fill: int, shift: int, out: Tensor, places: Tensor, spot: Spot | None = None) -> Any:
        """Launches the products, and returns the compiled kernel."""
        a, b, start, _ = self.tensors[fill]
        rows, columns, k = self.unit.block
        return exact_product[(self.programs,)](
            a, b, start, out, places, shift, spot.spot if spot else None, spot.hit if spot else None,
            ROWS=len(a), COLUMNS=len(b), K=self.unit.depth, BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=k,
            SUM=_SUMS[self.unit.sum_dtype], PRECISION="tf32" if self.unit.dtype == "tf32" else "ieee",
            PROMOTE=self.unit.promote, HOW=self._how, PLACES=self._places, INJECT=spot.inject if spot else 0,
            OPERAND_BITS=_TL_BITS[a.element_size()], SUM_BITS=_TL_BITS[out.element_size()],
            num_warps=self.unit.warps, num_stages=self.unit.stages,
        )  # fmt: skip

    def compare(self, fill: int, shift: int, out: Tensor, counts: Tensor, places: Tensor) -> None:
        """Launches the comparison of what :meth:`multiply` stored."""
        wrong_elements[(self.programs,)](
            bits_of(out), self.tensors[fill][3], counts, places, shift,
            TILES=self.unit.tiles, SIZE=self.size, STEP=1024, HOW=self._how, PLACES=self._places, num_warps=4,
        )  # fmt: skip


class Screen:
    """The screen of the current device. ``places`` is its number of SMs. ``on_turn`` may corrupt results: it gets the
    prepared unit, the turn's number, the results and their places after each product."""

    def __init__(
        self,
        target: Target,
        units: Sequence[Unit],
        device: str = "cuda",
        places: int = 1,
        on_turn: Callable[[Prepared, int, Tensor, Tensor], None] | None = None,
    ) -> None:
        self.device = device
        self.how = how_located(target) if device == "cuda" else "turns"
        self.seen = Seen(target.name, self.how if device == "cuda" else "", places)
        self._units = units
        self._on_turn = on_turn
        self._arena: dict[int, Tensor] = {}
        self._prepared: dict[str, Prepared] = {}
        self._shift = 0
        self._set = 0

    def run(self, until: float, beat: Callable[[], None] = lambda: None, turns: int | None = None) -> Seen:
        """Takes turns until ``time.monotonic()`` is ``until``, or for ``turns`` turns if this comes first. Each unit
        has one batch before any has a second. Calls ``beat`` again and again. Returns what was seen."""
        began = time.monotonic()
        pending: _Batch | None = None
        for number, (prepared, fill) in enumerate(self._slots(until, beat)):
            slot = time.monotonic() + (SLOT_S if number >= len(self._units) else 0)
            while True:
                batch = self.launch(prepared, fill)
                if pending is not None:
                    self.read(pending)
                pending = batch
                beat()
                now = time.monotonic()
                if now >= min(slot, until) or (turns is not None and self.seen.turns >= turns):
                    break
                if prepared.wrong_turns >= ENOUGH_WRONG:
                    break
            if now >= until or (turns is not None and self.seen.turns >= turns):
                break
        if pending is not None:
            self.read(pending)
        for prepared in self._prepared.values():
            prepared.seen.places = int(prepared.where.sum())
        self.seen.seconds = time.monotonic() - began
        return self.seen

    def _slots(self, until: float, beat: Callable[[], None]) -> Iterator[tuple[Prepared, int]]:
        """Yields units with a fill: each unit once, then all fills of all units in turn."""
        for unit in self._units:
            beat()
            prepared = self.prepare(unit) if time.monotonic() < until else None
            if prepared is not None:
                yield prepared, 0
        fill = 1
        while any(one.wrong_turns < ENOUGH_WRONG for one in self._prepared.values()):
            for prepared in self._prepared.values():
                if prepared.wrong_turns < ENOUGH_WRONG:
                    yield prepared, fill % len(prepared.names)
            fill += 1

    def prepare(self, unit: Unit) -> Prepared | None:
        """Returns ``unit`` with compiled kernels, or None if it cannot be tested; ``seen`` then says why."""
        seen = UnitSeen(unit.name)
        try:
            prepared = Prepared(unit, self.device, self.how, self.seen.places)
            out, read = self._results(prepared)
            compiled = prepared.multiply(0, 0, out[0], read[1, 0])
        except Exception as error:  # whatever a compiler raises; a broken device stops the whole screen
            if self.device == "cuda":
                torch.cuda.synchronize()
            seen.missing = f"it could not be prepared: {text_of(error).splitlines()[0][:300]}"
            self.seen.units.append(seen)
            return None
        seen = prepared.seen
        code = getattr(compiled, "asm", {})
        seen.used = unit_of_code(str(code.get("ptx") or code.get("amdgcn") or ""))
        if self.device == "cuda" and unit.owed and seen.used not in unit.owed:
            seen.missing = (
                f"its code uses {seen.used or 'no matrix unit'}, and {' or '.join(unit.owed)} is to be tested"
            )
        self.seen.units.append(seen)
        self._prepared[unit.name] = prepared
        return prepared

    def launch(self, prepared: Prepared, fill: int, spots: Sequence[Spot] = ()) -> _Batch:
        """Launches a batch of turns. ``spots`` are corruptions inside the kernel, one for each turn."""
        out, read = self._results(prepared)
        batch = _Batch(prepared, fill, self.seen.turns, [], out, read, None)
        for index in range(BATCH):
            self._shift = (self._shift + 1) % prepared.unit.tiles
            batch.shifts.append(self._shift)
            spot = spots[index] if index < len(spots) else None
            prepared.multiply(fill, self._shift, out[index], read[1, index], spot)
            if self._on_turn is not None:
                self._on_turn(prepared, self.seen.turns, out[index], read[1, index])
            prepared.compare(fill, self._shift, out[index], read[0, index], read[2, index])
            self.seen.turns += 1
        if self.device == "cuda":
            copy = torch.empty(read.shape, dtype=read.dtype, pin_memory=True)
            copy.copy_(read, non_blocking=True)
            batch.read, batch.done = copy, torch.cuda.Event()
            batch.done.record()
        return batch

    def read(self, batch: _Batch) -> list[Turn]:
        """Waits for ``batch`` and counts its wrong tiles. Returns its turns."""
        if batch.done is not None:
            batch.done.synchronize()
        counts, places, judged = batch.read.numpy()
        prepared, seen = batch.prepared, batch.prepared.seen
        seen.turns += BATCH
        seen.tiles += BATCH * prepared.programs
        inside = places[(places >= 0) & (places < _MOST_PLACES)]
        prepared.where[inside] = True
        turns = [
            Turn(batch.first + index, batch.shifts[index], batch.fill, batch.out[index], *rows)
            for index, rows in enumerate(zip(counts, places, judged, strict=True))
        ]
        if counts.any():
            self._examine(prepared, turns)
        return turns

    def _examine(self, prepared: Prepared, turns: Sequence[Turn]) -> None:
        """Counts the wrong tiles of ``turns``, and looks at some: first at one of each SM."""
        looked = 0
        for turn in turns:
            wrong = np.flatnonzero(turn.counts)
            prepared.wrong_turns += len(wrong) > len(turn.counts) / 2
            _, firsts = np.unique(turn.places[wrong], return_index=True)
            order = [*wrong[firsts], *np.delete(wrong, firsts)]
            for program in order:
                tile = None
                if looked < EXAMINED and len(self.seen.tiles) < KEPT:
                    looked += 1
                    tile = self._look(prepared, turn, int(program))
                    self.seen.tiles.append(tile)
                place = tile.place if tile is not None else int(turn.places[program])
                self.seen.add(prepared.seen, turn.number, place, int(turn.counts[program]))

    def _look(self, prepared: Prepared, turn: Turn, program: int) -> WrongTile:
        """Returns the wrong elements of a tile as the CPU finds them."""
        tile = (program + turn.shift) % prepared.unit.tiles
        expected = prepared.expected[turn.fill][tile].flatten()
        got = bits_of(turn.out)[program * prepared.size : (program + 1) * prepared.size].cpu()
        differ = torch.nonzero(got != expected).flatten().tolist()
        digits = 2 * got.element_size()
        mask = (1 << 4 * digits) - 1
        columns = prepared.unit.block[1]
        examples = tuple(
            WrongElement(
                at // columns, at % columns, *(f"{int(bits[at]) & mask:0{digits}x}" for bits in (expected, got))
            )
            for at in differ[:EXAMPLES]
        )
        place = int((turn.places if differ else turn.judged)[program])
        count = len(differ) or int(turn.counts[program])
        name = prepared.names[turn.fill]
        return WrongTile(prepared.seen.name, name, turn.number, tile, place, count, examples, compared=not differ)

    def _results(self, prepared: Prepared) -> tuple[Tensor, Tensor]:
        """Returns memory for the results of a batch, and for its counts, places, and places of the comparison. Sets of
        it take turns, so that one is read while the next is written."""
        self._set = (self._set + 1) % SETS
        size = prepared.programs * prepared.size * prepared.tensors[0][2].element_size() * BATCH
        arena = self._arena.get(self._set)
        if arena is None or len(arena) < size:
            self._arena.pop(self._set, None)
            with contextlib.suppress(RuntimeError):
                arena = torch.empty(size, dtype=torch.uint8, device=self.device)
            if arena is None or len(arena) < size:
                raise MemoryError(f"{size} bytes of device memory are needed for results, and there is less")
            self._arena[self._set] = arena
        out = self._arena[self._set][:size].view(prepared.tensors[0][2].dtype).view(BATCH, -1)
        return out, torch.empty((3, BATCH, prepared.programs), dtype=torch.int32, device=self.device)
