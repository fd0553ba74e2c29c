"""Reads the TOML files that people write: waivers, expected failures and profiles, one table per entry.

A kind of entry is a subclass of :class:`TomlEntry`, with a field for each key of its table. msgspec checks the values;
the ``description`` of a field's type is the requirement that an error message states.

Expected failures and waivers have files of their own because different people write them at different times. An
expected failure is a defect that the suites know while they run; it decides the status in the record. A waiver is a
change between two stacks that the user of the gate accepts. It is read after the run and leaves the records as they
are, so that evidence does not depend on who judges it.

Ranges of versions, for which an entry may hold, are here too.

Versions compare as in the library packaging, but for two rules. The local part (``2.13.0+cpu``) is left out. A
pre-release comes before its release: ``>=2.13`` has no nightly build of 2.13, and ``>=2.13.dev0`` has all of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

import msgspec
from msgspec import Meta
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from conformance.records import plain_file
from conformance.user_files.case_list import matches

VERSIONED = ("torch", "triton", "python", "ptxas", "ptxas-blackwell", "driver")


def holds(ranges: Mapping[str, str], stack: Mapping[str, Any]) -> bool:
    """True if ``stack`` (component to version or name) lies in all ``ranges`` (component to version specifier; for
    "device" a pattern of its name, or "none"). A component that is missing, or whose version cannot be read, does not.
    """
    return all(_holds(component, specifier, stack.get(component)) for component, specifier in ranges.items())


def _holds(component: str, specifier: str, version: Any) -> bool:
    if component == "device" and version is None:
        return specifier == "none"
    if not isinstance(version, str):
        return False
    if component not in VERSIONED:
        return matches(specifier, version)
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def range_problem(ranges: Mapping[str, str]) -> str | None:
    """Returns the objection to the first of ``ranges`` that cannot be used; None if all can.

    >>> range_problem({"triton": ">=3.4"}) is None
    True
    >>> range_problem({"triton": "3.4 or so"})
    "stack.triton = '3.4 or so': a version specifier such as '>=2.13,<2.14' is required"
    """
    for component, specifier in ranges.items():
        line = f"stack.{component} = {specifier!r}"
        if component not in (*VERSIONED, "device"):
            return f"{line}: unknown component; the components are {', '.join((*VERSIONED, 'device'))}"
        if not specifier.strip():
            return f"{line}: text is required"
        if component in VERSIONED:
            try:
                SpecifierSet(specifier)
            except InvalidSpecifier:
                return f"{line}: a version specifier such as '>=2.13,<2.14' is required"
    return None


FILE_LIMIT = 1_000_000  # bytes: thousands of entries, and never what fills the memory

Text = Annotated[str, Meta(pattern=r"\S", description="text")]
Name = Annotated[str, Meta(pattern=r"\A\S+\Z", description="text without spaces")]
Names = Annotated[tuple[Text, ...], Meta(min_length=1, description="a list of texts")]
Link = Annotated[str, Meta(pattern=r"\Ahttps://\S+\Z", description="an https link")]
Day = Annotated[date, Meta(description="a date without quotes, such as 2027-06-30,")]
Targets = Annotated[tuple[Text, ...], Meta(min_length=1, description="a list of patterns of target ids")]
Ranges = Annotated[dict[str, str], Meta(min_length=1, description="a table of one version specifier or more")]


class EntryError(ValueError):
    """A file of entries cannot be used; the message says which entry and what is required."""


@dataclass(frozen=True)
class LineSpan:
    """Lines of a file: ``start`` and ``stop`` are indices into its lines, ``stop`` excluded."""

    start: int
    stop: int


class TomlEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of a file. ``file`` and ``span`` say where it was read, and are no keys of the table."""

    table: ClassVar[str]  # as the file writes it: [[table]]
    title: ClassVar[str]  # as messages write it

    file: str = ""
    span: LineSpan = LineSpan(0, 0)

    @property
    def line(self) -> int:
        """The line of the table's header, from 1."""
        return self.span.start + 1

    def __post_init__(self) -> None:
        """Raises ValueError for versions that cannot be compared."""
        problem = range_problem(getattr(self, "stack", {}))
        if problem:
            raise ValueError(problem)


class NamedEntry(TomlEntry, frozen=True, kw_only=True):
    """An entry with an ``id``, which no other entry of its kind has."""

    id: Name


AnyEntry = TypeVar("AnyEntry", bound=TomlEntry)
AnyNamed = TypeVar("AnyNamed", bound=NamedEntry)
AnyStruct = TypeVar("AnyStruct", bound=msgspec.Struct)


def read_text(path: Path, what: str) -> str:
    """Returns the text of a file of ``what``. Raises :class:`EntryError`."""
    try:
        size = plain_file(path).stat().st_size
        if size > FILE_LIMIT:
            raise EntryError(f"{path} has {size} bytes; a file of {what} has at most {FILE_LIMIT}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EntryError(f"{path} cannot be read ({error}): give a file of {what}") from None


def read_texts(built_in: str, paths: Iterable[Path], what: str) -> dict[str, str]:
    """Returns the texts of files of ``what``, by the files' names: the file ``built_in`` of the package, then
    ``paths``. Raises :class:`EntryError`."""
    file = files("conformance.data").joinpath(built_in)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise EntryError(f"{file} cannot be read ({error}): reinstall the package") from None
    return {f"conformance/data/{built_in}": text, **{str(path): read_text(path, what) for path in paths}}


def load(text: str, file: str, *kinds: type[TomlEntry]) -> dict[str, Any]:
    """Returns the TOML in ``text``, which was read from ``file``. Raises :class:`EntryError`: if ``kinds`` are given,
    also for anything but tables of these kinds."""
    try:
        data: dict[str, Any] = msgspec.toml.decode(text)
    except (ValueError, RecursionError) as error:
        raise EntryError(f"{file} is not TOML: {error}") from None
    unknown = sorted(data.keys() - {kind.table for kind in kinds})
    if unknown and kinds:
        read = " and ".join(f"[[{kind.table}]]" for kind in kinds)
        raise EntryError(f"{file}: unknown key {', '.join(unknown)}: only {read} tables are read")
    return data


def entries(data: Mapping[str, Any], file: str, kind: type[AnyEntry]) -> list[AnyEntry]:
    """Returns the entries of ``kind`` in ``data``, the TOML of ``file``. Raises :class:`EntryError` for the first that
    breaks a rule."""
    tables = data.get(kind.table, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise EntryError(f"{file}: {kind.table} must be tables: write [[{kind.table}]] above each entry")
    return [_entry(table, number, file, kind) for number, table in enumerate(tables, 1)]


def by_id(named: Iterable[AnyNamed]) -> dict[str, AnyNamed]:
    """Entries by their ids. Raises :class:`EntryError` if two have the same."""
    entries_by_id: dict[str, AnyNamed] = {}
    for entry in named:
        other = entries_by_id.setdefault(entry.id, entry)
        if other is not entry:
            where = "twice" if other.file == entry.file else f"in {other.file} too"
            raise EntryError(f"{entry.file}: {entry.title} {entry.id!r} is {where}: an id must be unique")
    return entries_by_id


def _entry(table: dict[str, Any], number: int, file: str, kind: type[AnyEntry]) -> AnyEntry:
    place = f"{file}: {kind.title} {table.get('id', number)!r}"
    keys = _keys(kind)
    if not table.keys().isdisjoint(TomlEntry.__struct_fields__):
        raise EntryError(f"{place}: unknown key file or span: {keys}")
    return convert({**table, "file": file}, place, kind, keys)


@functools.cache
def _keys(kind: type[TomlEntry]) -> str:
    """A sentence about the keys that an entry of ``kind`` may have."""
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in TomlEntry.__struct_fields__]
    required = ", ".join(field.name for field in fields if field.required)
    optional = ", ".join(field.name for field in fields if not field.required)
    return f"the keys are {required}" + (f"; {optional} may be left out" if optional else "")


def convert(table: dict[str, Any], place: str, kind: type[AnyStruct], keys: str) -> AnyStruct:
    """``table`` as ``kind``. Raises :class:`EntryError` that begins with ``place``: for a value, with the requirement
    of its type; for a key that is unknown or missing, with ``keys``, a sentence about the keys there are."""
    try:
        return msgspec.convert(table, kind, builtin_types=(date, datetime, time))
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
    key = re.split(r"\W", path)[0]
    if key:
        hint = get_type_hints(kind, include_extras=True)[key]
        raise EntryError(f"{place}: {key} = {table[key]!r}: {_requirement(hint)} is required")
    for object_text, text in (
        ("Object missing required field", "missing key"),
        ("Object contains unknown field", "unknown key"),
    ):
        if message.startswith(object_text):
            raise EntryError(f"{place}: {message.replace(object_text, text)}: {keys}")
    raise EntryError(f"{place}: {message}")


def _requirement(hint: Any) -> str:
    descriptions = (meta.description for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, Meta))
    return next(filter(None, descriptions), getattr(hint, "__name__", str(hint)))
