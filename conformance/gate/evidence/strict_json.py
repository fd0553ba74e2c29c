"""JSON as one reader and another cannot understand it differently."""

from __future__ import annotations

import json
from typing import Any

from conformance.gate.evidence.rejection import Rejected, RejectReason
from conformance.records import finite

DEPTH_LIMIT = 64  # objects and lists inside one another; records need fewer than ten


def encode(value: Any) -> bytes:
    """The one spelling of ``value``: keys sorted, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def decode(content: bytes, name: str) -> Any:
    """The value in ``content``, the JSON called ``name``. Raises :class:`Rejected` for what is no JSON, for names that
    an object has twice, for NaN and infinities, and for nesting deeper than :data:`DEPTH_LIMIT`."""
    try:
        text = content.decode("utf-8")
        value = json.loads(text, parse_constant=_no_number, parse_float=finite)
        if json.dumps(value, separators=(",", ":")) != text:  # names that come twice would be lost on the way
            json.loads(text, object_pairs_hook=_unique)
    except _NameTwice as error:
        raise Rejected(RejectReason.DUPLICATE_JSON_KEY, f"{name}: an object has the name {error} twice") from None
    except RecursionError:
        raise Rejected(RejectReason.JSON, f"{name}: nested deeper than {DEPTH_LIMIT} levels") from None
    except ValueError as error:
        raise Rejected(RejectReason.JSON, f"{name}: not JSON: {error}") from None
    if text.count("{") + text.count("[") > DEPTH_LIMIT and _is_deeper(value, DEPTH_LIMIT):
        raise Rejected(RejectReason.JSON, f"{name}: nested deeper than {DEPTH_LIMIT} levels")
    return value


def decode_object(content: bytes, name: str) -> dict[str, Any]:
    value = decode(content, name)
    if not isinstance(value, dict):
        raise Rejected(RejectReason.JSON, f"{name}: a JSON object is required, got {type(value).__name__}")
    return value


class _NameTwice(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _NameTwice(f"{key!r:.80}")
        found[key] = value
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [item for item in level if isinstance(item, (dict, list))]
        if not level:
            return False
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return True
