"""Thresholds of a comparison, as people write them: ``thresholds.toml``, one table per kind of finding.

.. code-block:: toml

    [SLOWER]
    share = 0.10                 # 10 % slower is reported, less is not

    [MORE_SPILLS]
    regression_bytes = 256       # fewer bytes more per thread are a warning

What a file leaves out keeps its default. :mod:`conformance.user_files.thresholds` says what each key means. A
third-party kernel declares the same tables as a mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.user_files import toml_entries
from conformance.user_files.findings import Kind
from conformance.user_files.thresholds import DEFAULT, FIELDS, KindThresholds, Tables
from conformance.user_files.toml_entries import EntryError


def read_thresholds(path: Path) -> Tables:
    """Returns the thresholds in the file ``path``. Raises :class:`EntryError`."""
    return parsed(toml_entries.read_text(path, "thresholds"), str(path))


def parsed(text: str, file: str) -> Tables:
    """Returns the thresholds in the TOML ``text`` of ``file``. Raises :class:`EntryError` as :func:`checked` does.

    >>> parsed("[SLOWER]\\nshare = 0.02", "thresholds.toml")
    {'SLOWER': {'share': 0.02}}
    """
    return checked(toml_entries.load(text, file), file)


def checked(data: Any, place: str) -> Tables:
    """``data`` as tables of thresholds. Raises :class:`EntryError`, which begins with ``place``: for anything but
    tables of kinds that have thresholds, and for a value that is none."""
    if not isinstance(data, Mapping):
        raise EntryError(f"{place}: {data!r:.80}: tables of thresholds are required")
    fields = {kind.value: field for kind, field in FIELDS.items()}
    for name in data:
        if name not in fields:
            what = "has no threshold of its own" if name in Kind.__members__ else "is no kind"
            raise EntryError(f"{place}: [{name!s:.80}] {what}: thresholds are those of {', '.join(fields)}")
    return {name: _table(table, name, fields[name], place) for name, table in data.items()}


def _table(table: Any, name: str, field: str, place: str) -> Mapping[str, float]:
    if not isinstance(table, Mapping):
        raise EntryError(f"{place}: {name} must be a table: write [{name}] above its thresholds")
    kind: type[KindThresholds] = type(getattr(DEFAULT, field))
    keys = f"the keys are {', '.join(kind.__struct_fields__)}"
    values = toml_entries.convert(dict(table), f"{place}: [{name}]", kind, keys)
    return {key: getattr(values, key) for key in table}
