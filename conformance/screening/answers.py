"""The answer of a screen: a verdict for each GPU, as text, as JSON, and as an exit status. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.screening.findings import WRONG, Seen, Verdict, verdict

#: The first field of the JSON, by which a program knows its form.
FORMAT = "conformance-screen/1"
CLEAN, SUSPECT, NO_ANSWER = 0, 1, 2
#: SMs and tiles of one GPU that the text lists; the JSON has more.
_SMS, _TILES = 5, 3


@dataclass(frozen=True)
class GpuAnswer:
    """The answer about one GPU. ``gpu`` is its entry of the variable that makes GPUs visible. ``about`` has name, UUID,
    PCI address, and the versions of torch and triton, as far as its process gave them. ``states`` holds what the
    driver's tools said of clocks, temperature, ECC and Xid before, during and after the turns."""

    gpu: str
    verdict: Verdict
    why: str
    seen: Seen | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @classmethod
    def of(cls, gpu: str, seen: Seen, **more: Any) -> GpuAnswer:
        """Returns the answer that follows from what was seen."""
        answer, why = verdict(seen)
        return cls(gpu, answer, why, seen, **more)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "verdict": self.verdict.value, "seen": self.seen.to_dict() if self.seen else None}


def exit_status(answers: Sequence[GpuAnswer]) -> int:
    """Returns 1 if a GPU has wrong elements, else 2 if there is no GPU or one has no answer, else 0."""
    if any(one.verdict in WRONG for one in answers):
        return SUSPECT
    return CLEAN if answers and all(one.verdict is Verdict.CLEAN for one in answers) else NO_ANSWER


def to_dict(answers: Sequence[GpuAnswer], host: str, began: str, versions: Mapping[str, str]) -> dict[str, Any]:
    """Returns what the file of ``--json`` holds."""
    gpus = [one.to_dict() for one in answers]
    facts = {"host": host, "began": began, "versions": dict(versions)}
    return {"format": FORMAT, **facts, "exit_status": exit_status(answers), "gpus": gpus}


def text(answer: GpuAnswer) -> list[str]:
    """Returns the lines about one GPU."""
    name = ", ".join(filter(None, (answer.about.get("name"), answer.about.get("uuid"))))
    lines = [f"GPU {answer.gpu}{f' ({name})' if name else ''}: {answer.verdict.value}, after {answer.seconds:.0f} s"]
    lines.append(f"  {answer.why}")
    if answer.seen is not None:
        lines += _table(answer.seen)
        lines += _offenders(answer.seen)
    lines += [f"  {when}: {state}" for when, state in answer.states.items() if state]
    return lines


def _table(seen: Seen) -> list[str]:
    """Returns a line for each unit."""
    rows = [("products", "unit", "turns", "tiles", "SMs", "wrong elements")]
    for unit in seen.units:
        places = str(unit.places) if seen.how else "?"
        numbers = (str(unit.turns), str(unit.tiles), places, str(unit.wrong_elements))
        rows.append((unit.name, unit.used or "-", *numbers))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _offenders(seen: Seen) -> list[str]:
    """Returns the SMs with wrong tiles, the worst first, and the first wrong elements of each."""
    lines = []
    for rank, one in enumerate(seen.ranking[:_SMS], 1):
        again = ", a repeat offender" if one.repeats else ""
        counts = f"{one.tiles} tiles and {one.elements} elements in {one.turns} turns"
        where = f"SM {one.place}" if seen.how else "an SM that cannot be observed"
        lines.append(f"  {rank}. {where}: wrong in {counts}{again}; {', '.join(sorted(one.units))}")
        for tile in [tile for tile in seen.tiles if tile.place == one.place][:_TILES]:
            first = next(iter(tile.examples), None)
            what = (
                f"row {first.row}, column {first.column}: {first.got} and not {first.expected}"
                if first is not None
                else "the comparison alone was wrong"
            )
            lines.append(f"     turn {tile.turn}, {tile.unit}, {tile.fill}, tile {tile.tile}: {what}")
    return lines
