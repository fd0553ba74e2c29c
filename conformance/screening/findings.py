"""The findings of a screen on one GPU, and the verdict that follows from them. Needs no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

#: The part of the SMs that show the same wrong elements, from which on the compiler is more likely than the GPU.
ALIKE = 0.5
#: Fewer SMs than this with the same wrong elements are not "every SM".
FEWEST_ALIKE = 3


class Verdict(str, Enum):
    """The answer about one GPU."""

    CLEAN = "clean"
    SUSPECT = "suspect"
    #: Wrong on every SM alike.
    ALIKE = "alike"
    #: No wrong element, and something was not tested.
    INCOMPLETE = "incomplete"
    CRASHED = "crashed"
    HUNG = "hung"
    NOT_RUN = "not-run"


#: Verdicts of a GPU with wrong elements.
WRONG = (Verdict.SUSPECT, Verdict.ALIKE)


@dataclass(frozen=True)
class WrongElement:
    """One element of a tile, with its bits in hexadecimal."""

    row: int
    column: int
    expected: str
    got: str


@dataclass(frozen=True)
class WrongTile:
    """A tile with wrong elements. ``place`` is the SM that multiplied it, ``elements`` their number, ``examples`` the
    first of them. If the CPU finds none, the SM ``place`` compared wrong: ``compared`` is true."""

    unit: str
    fill: str
    turn: int
    tile: int
    place: int
    elements: int
    examples: tuple[WrongElement, ...] = ()
    compared: bool = False


@dataclass
class UnitSeen:
    """The screen of one unit. ``used`` is the matrix unit of its code, ``missing`` says why it does not count."""

    name: str
    used: str = ""
    turns: int = 0
    tiles: int = 0
    places: int = 0
    wrong_tiles: int = 0
    wrong_elements: int = 0
    missing: str = ""


@dataclass
class Offender:
    """One SM with wrong tiles. ``turns`` counts the turns in which it was wrong, from ``first`` to ``last``."""

    place: int
    tiles: int = 0
    elements: int = 0
    turns: int = 0
    first: int = -1
    last: int = -1
    units: set[str] = field(default_factory=set)

    @property
    def repeats(self) -> bool:
        """True if it was wrong in more than one turn."""
        return self.turns > 1


@dataclass
class Seen:
    """All that a screen saw of one GPU. ``how`` its programs learned their SM, "" if that cannot be observed. ``tiles``
    has the wrong tiles that were looked at; ``offenders`` count all of them."""

    device: str
    how: str
    places: int
    units: list[UnitSeen] = field(default_factory=list)
    tiles: list[WrongTile] = field(default_factory=list)
    offenders: dict[int, Offender] = field(default_factory=dict)
    turns: int = 0
    seconds: float = 0.0
    uuid: str = ""
    pci: str = ""

    def add(self, unit: UnitSeen, turn: int, place: int, elements: int) -> None:
        """Counts one wrong tile of ``unit`` on the SM ``place``. Turns come in their order."""
        unit.wrong_tiles += 1
        unit.wrong_elements += elements
        offender = self.offenders.setdefault(place, Offender(place, first=turn))
        offender.tiles += 1
        offender.elements += elements
        offender.turns += turn != offender.last
        offender.last = turn
        offender.units.add(unit.name)

    @property
    def ranking(self) -> list[Offender]:
        """Returns the SMs with wrong tiles, those that were wrong in most turns first."""
        return sorted(self.offenders.values(), key=lambda one: (-one.turns, -one.tiles, one.place))

    def to_dict(self) -> dict[str, Any]:
        """Returns what :meth:`from_dict` takes."""
        offenders = [{**vars(one), "units": sorted(one.units), "repeats": one.repeats} for one in self.ranking]
        tiles = [{**vars(one), "examples": [vars(example) for example in one.examples]} for one in self.tiles]
        return {**vars(self), "units": [dict(vars(one)) for one in self.units], "tiles": tiles, "offenders": offenders}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Seen:
        """Returns the findings that :meth:`to_dict` wrote. Raises KeyError, TypeError or ValueError for others."""
        tiles = [
            WrongTile(**{**one, "examples": tuple(WrongElement(**example) for example in one["examples"])})
            for one in data["tiles"]
        ]
        fields = ("place", "tiles", "elements", "turns", "first", "last")
        ranking = [Offender(**{name: one[name] for name in fields}, units={*one["units"]}) for one in data["offenders"]]
        offenders = {one.place: one for one in ranking}
        units = [UnitSeen(**one) for one in data["units"]]
        return cls(**{**data, "units": units, "tiles": tiles, "offenders": offenders})


def verdict(seen: Seen) -> tuple[Verdict, str]:
    """Returns the verdict about a GPU, and a sentence that gives its reason."""
    wrong = [unit for unit in seen.units if unit.wrong_tiles]
    if not wrong:
        gaps = _gaps(seen)
        if gaps:
            return Verdict.INCOMPLETE, f"no wrong element, but not all was tested: {'; '.join(gaps)}"
        where = f"all {seen.places} SMs" if seen.how else "SMs that cannot be observed"
        return Verdict.CLEAN, f"{seen.turns} turns of {len(seen.units)} kinds of products on {where}: no wrong element"
    alike = [unit for unit in wrong if _alike(unit, seen)]
    names = ", ".join(f"{unit.wrong_elements} elements of {unit.name}" for unit in wrong)
    if len(alike) == len(wrong):
        return Verdict.ALIKE, f"{names}: wrong on every SM alike: more likely the compiler than this GPU"
    if not seen.how:
        return Verdict.SUSPECT, f"wrong: {names}; the SM is not observable on this GPU"
    ranked = "; ".join(
        f"SM {one.place}: {one.tiles} tiles in {one.turns} turn{'s' * one.repeats}" for one in seen.ranking[:3]
    )
    more = f", and {len(seen.offenders) - 3} more SMs" if len(seen.offenders) > 3 else ""
    return Verdict.SUSPECT, f"wrong: {names}; {ranked}{more}"


def _gaps(seen: Seen) -> list[str]:
    """Returns what was not tested."""
    gaps = [f"{unit.name}: {unit.missing}" for unit in seen.units if unit.missing]
    gaps += [f"{unit.name}: it had no turn" for unit in seen.units if not unit.turns and not unit.missing]
    if seen.how:
        some = [unit for unit in seen.units if unit.turns and unit.places < seen.places]
        gaps += [f"{unit.name} ran on {unit.places} of {seen.places} SMs" for unit in some]
    return gaps or ([] if seen.units else ["this GPU has no unit to test"])


def _alike(unit: UnitSeen, seen: Seen) -> bool:
    """True if the SMs that were looked at show the same wrong elements of ``unit`` in the same tiles."""
    tiles = [one for one in seen.tiles if one.unit == unit.name and not one.compared]
    wrong_places = {one.place for one in seen.offenders.values() if unit.name in one.units}
    if len(wrong_places) < max(FEWEST_ALIKE, ALIKE * max(unit.places, 1)):
        return False
    return _most_common_part(tiles) >= ALIKE


def _most_common_part(tiles: Sequence[WrongTile]) -> float:
    """Returns the part of the SMs that show the commonest wrong elements, among those with a tile of the same kind."""
    first = Counter((one.fill, one.tile, one.examples[0]) for one in _one_by_place(tiles) if one.examples)
    if not first:
        return 0.0
    (fill, tile, _), count = first.most_common(1)[0]
    return count / len({one.place for one in tiles if (one.fill, one.tile) == (fill, tile)})


def _one_by_place(tiles: Sequence[WrongTile]) -> list[WrongTile]:
    """Returns one tile for each SM and kind of tile."""
    return list({(one.place, one.fill, one.tile): one for one in tiles}.values())
