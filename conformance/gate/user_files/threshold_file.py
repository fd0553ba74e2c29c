"""Thresholds of a comparison, as people write them: ``thresholds.toml``, one table per kind of finding.

.. code-block:: toml

    [SLOWER]
    share = 0.10                 # 10 % slower is reported, less is not

    [MORE_SPILLS]
    regression_bytes = 256       # fewer bytes more per thread are a warning

What a file leaves out keeps its default. :mod:`conformance.gate.changes.thresholds` says what each key means.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from conformance.gate.changes.thresholds import DEFAULT, FIELDS, KindThresholds, Thresholds
from conformance.gate.findings import Kind
from conformance.gate.user_files import toml_entries
from conformance.gate.user_files.toml_entries import EntryError


def read_thresholds(path: Path) -> Thresholds:
    """The thresholds in the file ``path``. Raises :class:`EntryError`."""
    return parsed(toml_entries.read_text(path, "thresholds"), str(path))


def parsed(text: str, file: str) -> Thresholds:
    """The thresholds in the TOML ``text`` of ``file``. Raises :class:`EntryError`: for anything but tables of kinds
    that have thresholds, and for a value that is none."""
    data = toml_entries.load(text, file)
    known = {kind.value: field for kind, field in FIELDS.items()}
    for name in data:
        if name not in known:
            what = "has no threshold of its own" if name in Kind.__members__ else "is no kind"
            raise EntryError(f"{file}: [{name}] {what}: thresholds are those of {', '.join(known)}")
    changes = {known[name]: _table(table, name, known[name], file) for name, table in data.items()}
    return replace(DEFAULT, **changes)


def _table(table: Any, name: str, field: str, file: str) -> KindThresholds:
    if not isinstance(table, dict):
        raise EntryError(f"{file}: {name} must be a table: write [{name}] above its thresholds")
    kind: type[KindThresholds] = type(getattr(DEFAULT, field))
    keys = f"the keys are {', '.join(kind.__struct_fields__)}"
    return toml_entries.convert(table, f"{file}: [{name}]", kind, keys)
