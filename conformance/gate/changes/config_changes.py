"""Compares the config tables of both runs' torch: which rows it gained, lost and changed.

The suite ``live_tables`` records the tables of one kind of device in each case, as texts by the name of a table. A row
is a config's id such as "128x128x64-s3-w8"; or it has what it is about before a "=", such as a dtype and a head dim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from conformance.gate.changes.status_changes import finding
from conformance.records import CaseRecord
from conformance.user_files.findings import Finding, Kind

#: Characters of rows that a finding shows of each kind of change.
SHOWN = 300
#: The cause of a lost case whose row torch no longer has.
LEFT = "the row is no longer in torch's table"

Tables = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class RowChanges:
    """The differences between the rows of two tables. ``changed`` are pairs of rows with the same tile or the same key;
    of rows that only stand in another order ``reordered`` is true."""

    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    changed: tuple[tuple[str, str], ...] = ()
    reordered: bool = False

    def __bool__(self) -> bool:
        return bool(self.gained or self.lost or self.changed or self.reordered)

    @property
    def counts(self) -> str:
        """Such as "2 rows gained, 1 changed"."""
        numbers = {"gained": self.gained, "lost": self.lost, "changed": self.changed}
        texts = [f"{len(rows)} {name}" for name, rows in numbers.items() if rows]
        return ", ".join(texts).replace(" ", " row " if texts[0].startswith("1 ") else " rows ", 1) if texts else ""

    def as_observed(self) -> dict[str, list[str]]:
        """Returns the changes as a record keeps them."""
        changed = [f"{was} -> {now}" for was, now in self.changed]
        kinds = {"gained": list(self.gained), "lost": list(self.lost), "changed": changed}
        return {name: rows for name, rows in kinds.items() if rows}


def row_changes(before: Sequence[str], after: Sequence[str]) -> RowChanges:
    """Returns the changes from ``before`` to ``after``. A row that stands in a table twice counts twice.

    >>> row_changes(["64x64", "128x64"], ["128x64", "256x64"])
    RowChanges(gained=('256x64',), lost=('64x64',), changed=(), reordered=False)
    """
    counts = Counter(before), Counter(after)
    lost, gained = ([*(counts[side] - counts[1 - side]).elements()] for side in (0, 1))
    changed = []
    for was in tuple(lost):
        now = next((row for row in gained if _about(row) == _about(was)), None)
        if now is not None:
            changed.append((was, now))
            lost.remove(was)
            gained.remove(now)
    same = not (gained or lost or changed)
    return RowChanges(tuple(gained), tuple(lost), tuple(changed), same and [*before] != [*after])


def _about(row: str) -> str:
    """Returns the part of ``row`` that a change leaves: its key, or its tile."""
    key, equals, _ = row.partition("=")
    return key if equals else row.partition("-")[0]


def table_findings(before: CaseRecord, after: CaseRecord) -> Iterator[Finding]:
    """Yields a finding for each table that differs between the two records of one case, if both have tables."""
    if before.figures.config_tables is None or after.figures.config_tables is None:
        return
    for name in {**before.figures.config_tables, **after.figures.config_tables}:
        was, now = _rows(before.figures.config_tables, name), _rows(after.figures.config_tables, name)
        changes = row_changes(was or (), now or ())
        if not changes and (was is None) == (now is None):
            continue
        what = changes.counts or "rows in another order"
        if was is None or now is None:
            what = "the table is new" if was is None else "the table is gone"
        pairs = ", ".join(map(" -> ".join, changes.changed))
        yield finding(
            Kind.CONFIGS_CHANGED,
            after,
            f"{name}: {what}",
            _shown("lost", changes.lost),
            _shown("gained", changes.gained),
            detail=f"changed {pairs}"[:SHOWN] if pairs else "",
        )


def _rows(tables: Tables, name: str) -> Sequence[str] | None:
    """The rows of the table ``name``; None if there is none. Where "device table" is not recorded, the device has the
    rows of "table"."""
    return tables.get(name, tables.get(name.partition(" ")[2]))


def _shown(what: str, rows: Sequence[str]) -> str:
    text = f"{what} {', '.join(rows)}" if rows else f"no row {what}"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def device_of(case: str) -> str:
    """The kind of device whose tables the case ``case`` has: what stands in its brackets.

    >>> device_of("test_live_tables.py::test_tables[cuda]")
    'cuda'
    """
    return case.partition("[")[2].rpartition("]")[0] or case


class ComparedTables:
    """The tables of both sides, by kind of device; and which side has none."""

    def __init__(self, torches: tuple[object, object]) -> None:
        self._torches = torches
        self._sides: tuple[dict[str, Tables], dict[str, Tables]] = ({}, {})

    def add(self, was: CaseRecord | None, now: CaseRecord | None) -> None:
        """Takes both records of a case."""
        for side, record in zip(self._sides, (was, now), strict=True):
            if record is not None and record.figures.config_tables is not None:
                side[device_of(record.case)] = record.figures.config_tables

    def excused(self, lost: Finding, row: str) -> Finding:
        """Returns ``lost``, a finding about a case that only the baseline has. It is a warning if ``row``, from torch's
        tables alone, is in the baseline's table and no longer in the candidate's. ``row`` is "device table: row";
        without it, or without both tables, the case counts as lost."""
        place, _, text = row.partition(": ")
        device, _, table = place.partition(" ")
        kind = device.partition(":")[0]
        before, after = (_rows(side[kind], f"{device} {table}") or () if kind in side else None for side in self._sides)
        if before is None or after is None or text not in before or text in after:
            return lost
        return replace(lost, cause=f"{LEFT} {place}", minor=True)

    def warnings(self) -> Iterator[str]:
        """Returns warnings that name the tables that could not be compared."""
        before, after = self._sides
        for label, lacking in (("baseline", after.keys() - before.keys()), ("candidate", before.keys() - after.keys())):
            if lacking:
                yield (
                    f"torch's config tables could not be compared for {', '.join(sorted(lacking))}: the {label} "
                    "recorded none, so whether they changed is unknown; run the suite live_tables with both"
                )
        if not before and not after and self._torches[0] != self._torches[1]:
            yield (
                "torch differs and neither run recorded its config tables: whether they changed is unknown; run the "
                "suite live_tables with both"
            )
