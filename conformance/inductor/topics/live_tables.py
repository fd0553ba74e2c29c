"""Checks of the installed torch's config tables: each can be read, and its differences from ours are named."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from conformance.gate.changes.config_changes import row_changes
from conformance.heuristics.device_class import DeviceClass
from conformance.inductor.tables import live, read
from conformance.inductor.tables.live import Device
from conformance.records import Verdict

#: The table here that has rows of the harness in addition to torch's.
WITH_OWN_ROWS = "persistent_fp8"
#: The most rows of a table that a record keeps one by one; a larger one is enumerated, and told by its columns.
KEPT_ROWS = 256


def as_texts(table: read.Table) -> list[str]:
    """Returns the rows of ``table`` as texts. Of more than :data:`KEPT_ROWS`: how many there are, their digest, and the
    values in each column."""
    rows = [live.row_text(row) for row in Device({"": table}).rows("")]
    if len(rows) <= KEPT_ROWS:
        return rows
    columns = zip(table["columns"], zip(*table["rows"], strict=True), strict=True)
    digest = hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]
    values = (f"{column}={' '.join(map(str, dict.fromkeys(cells)))}" for column, cells in columns)
    return [f"rows={len(rows)}", f"sha256={digest}", *values]


def recorded(devices: Mapping[str, Device]) -> dict[str, list[str]]:
    """Returns the tables of ``devices`` as a record keeps them. Those of the first device have their own names, those
    of another that differ have the device before the name."""
    kept: dict[str, list[str]] = {}
    first: dict[str, list[str]] | None = None
    for name, device in devices.items():
        texts = {table: as_texts(rows) for table, rows in device.tables.items()}
        texts["settings"] = [f"{key}={value}" for key, value in device.settings.items()]
        texts["templates"] = [*_templates(device)]
        texts["missing"] = [f"{key}={sentence}" for key, sentence in device.missing.items()]
        if first is None:
            first = texts
            kept |= {table: rows for table, rows in texts.items() if rows}
        else:
            kept |= {
                f"{name} {table}": texts.get(table, [])
                for table in {**first, **texts}
                if texts.get(table) != first.get(table)
            }
    return kept


def _templates(device: Device) -> Iterator[str]:
    for name, own in device.templates.items():
        yield name
        yield from (f"{name}.{attribute}={value}" for attribute, value in own.items())


def check_tables(
    devices: Mapping[str, Device], seeds: DeviceClass, patterns: Collection[str]
) -> tuple[list[Verdict], dict[str, Any]]:
    """Verdicts on the tables of ``devices``, of one kind, and what a record keeps of them under "observed".

    A verdict fails if a table cannot be read, or if a device has none and torch does not say so. ``since_july_2025``
    says how the rows differ from those of ``seeds``, by device and table; what differs in the same way for two devices
    is told once. ``patterns`` are those of the tables that kernels of the catalogue take, ``unswept`` are those that
    none takes, and rows that none can be given.
    """
    verdicts: list[Verdict] = []
    since: dict[str, dict[str, Any]] = {}
    unswept: dict[str, list[str]] = {}
    for name, device in devices.items():
        faults = "; ".join(f"{what}: {why}" for what, why in device.unreadable.items())
        verdicts.append(Verdict(f"readable/{name}", not faults, faults or _summary(device)))
        there = bool(device.tables) or bool(device.missing.get("tables"))
        if not faults:
            verdicts.append(Verdict(f"tables/{name}", there, device.missing.get("tables", "") or _counts(device)))
        for table in seeds.tables.keys() & live.LISTED.keys() - {WITH_OWN_ROWS} if device.tables else ():
            ids = [config.id for config in live.configs(device, live.LISTED[table][-1:])]
            changes = row_changes([config.id for config in seeds.tables[table]], ids).as_observed()
            if changes and changes not in (one.get(table) for one in since.values()):
                since.setdefault(name, {})[table] = changes
        untaken = [table for table in device.tables if not any(fnmatch.fnmatchcase(table, one) for one in patterns)]
        untaken += live.without_config(device, patterns)[:KEPT_ROWS]
        if untaken and untaken not in unswept.values():
            unswept[name] = untaken
    return verdicts, {"config_tables": recorded(devices), "since_july_2025": since, "unswept": unswept}


def _summary(device: Device) -> str:
    missing = "; ".join(device.missing.values())
    return f"{len(device.tables)} tables, {len(device.templates)} templates" + (f"; {missing}" if missing else "")


def _counts(device: Device) -> str:
    return ", ".join(f"{name} {len(table['rows'])}" for name, table in device.tables.items())


def of_group(devices: Mapping[str, Device], names: Sequence[str]) -> dict[str, Device]:
    """Returns the ``devices`` that ``names`` name, in this order: one of them, or with a "*" all that begin so."""
    return {name: devices[name] for one in names for name in devices if fnmatch.fnmatchcase(name, one)}
