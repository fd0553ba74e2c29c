"""JSON that every reader understands alike."""

from __future__ import annotations

import json
from typing import Any

from conformance.gate.evidence.rejection import Rejected, RejectReason
from conformance.plain_json import finite, finite_integer, no_constant


def encode(value: Any) -> bytes:
    """Returns the one spelling of ``value``: keys sorted, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def decode_object(content: bytes, name: str) -> dict[str, Any]:
    """Returns the object in ``content``, the JSON called ``name``. Raises :class:`Rejected` for anything but a JSON
    object, and for an object that has a name twice. NaN, infinities and nesting that is too deep for Python are
    rejected, too."""
    try:
        text = content.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=no_constant,
            parse_float=finite,
            parse_int=finite_integer,
        )
    except (ValueError, RecursionError) as error:
        raise Rejected(RejectReason.JSON, f"{name}: not JSON that is read: {error}") from None
    if not isinstance(value, dict):
        raise Rejected(RejectReason.JSON, f"{name}: a JSON object is required, got {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {twice!r:.80} twice")
    return values
