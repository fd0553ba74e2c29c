"""JSON as every reader takes it. What is written has no number that JSON lacks and no endless text; what is read has no
number that two readers would take differently."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

TEXT_LIMIT = 20_000  # characters of one text in a record: a line stays readable whatever a compiler printed
_PLAIN = {type(None), bool}
#: Integers from here on are no numbers to a reader that has floats.
_LARGE_INTEGER = 10**300
#: In every 30th byte of a text, 300 digits in a row show as ten.
_STEP = 30
_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_ZEROS = b"0" * 9


class RecordError(ValueError):
    """A line or file that is not a valid record; the message says what is given and what is required."""


def compact_json(value: Any) -> str:
    """``value``, which :func:`jsonable` made, as JSON in ASCII."""
    try:
        text = msgspec.json.encode(value)  # in a tenth of the time
        if text.isascii():
            return text.decode()
    except (OverflowError, RecursionError):  # an integer of more than 64 bits
        pass
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def jsonable(value: Any) -> Any:
    """Returns ``value`` as strict JSON data. Dataclasses become objects (with their ``id`` property, if any), and
    numbers that JSON lacks become text. Long text is cut, lone surrogates are escaped, and anything unknown becomes its
    ``str``."""
    kind = type(value)
    if kind in _PLAIN or (kind is str and len(value) <= TEXT_LIMIT and value.isascii()):
        return value  # most values, at once
    if kind is float:
        return value if math.isfinite(value) else repr(value)
    if kind is int:
        return value if -_LARGE_INTEGER < value < _LARGE_INTEGER else jsonable(hex(value))
    if kind is dict:
        return {_key(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return jsonable(value.value)
    if isinstance(value, int):
        return jsonable(int(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, str):
        value = str.__str__(value)  # a subclass may override its methods
        if not value.isascii():
            value = value.encode("utf-8", "backslashreplace").decode()  # a lone surrogate is no text elsewhere
        return value if len(value) <= TEXT_LIMIT else value[:TEXT_LIMIT] + f" ... ({len(value)} characters)"
    if isinstance(value, msgspec.Struct):
        return {name: jsonable(getattr(value, name)) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {"id": value.id} if hasattr(value, "id") else {}
        return jsonable({**named, **{f.name: getattr(value, f.name) for f in dataclasses.fields(value)}})
    if isinstance(value, Mapping):
        return {_key(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)]
    return jsonable(str(value))


def _key(key: Any) -> str:
    return key if type(key) is str and key.isascii() else str(jsonable(str(key)))


def parsed(text: str | bytes) -> Any:
    """Returns the data in the JSON ``text``. Raises ValueError for what is none, or for a number that cannot be used.

    >>> parsed('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    try:
        return json.loads(text, parse_constant=no_constant, parse_float=finite, parse_int=finite_integer)
    except RecursionError:
        raise ValueError("lists and objects are nested too deeply") from None


def no_constant(name: str) -> None:
    """Raises ValueError for NaN and the infinities, which Python's JSON has and JSON has not."""
    raise ValueError(f"{name} is no JSON number")


def finite(text: str) -> float:
    """Returns the number that ``text`` writes. Raises ValueError for one that would be read as infinity."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is larger than any number that can be used")
    return value


def finite_integer(text: str) -> int:
    """Returns the integer that ``text`` writes. Raises ValueError for one that no float comes near."""
    finite(text)
    return int(text)


def refuse_huge_integers(text: bytes) -> None:
    """Raises :class:`RecordError` if the JSON ``text`` has an integer that no float comes near. Every other number that
    cannot be used is refused by the decoder."""
    if _ZEROS in text[::_STEP].translate(_AS_ZEROS):
        try:
            parsed(text)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"not a line of JSON: {error}") from None
