"""Data inside an HTML page: plain JSON that no markup can escape from, and compressed JSON that is read when needed."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

#: What could end a script element, begin a comment in it, or end a line of JavaScript, as JSON escapes.
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def plain(name: str, value: Any) -> str:
    """A data element with ``value`` as JSON. Only the page's own constant ``name`` may be given."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def packed(name: str, text: str) -> str:
    """A data element with ``text`` deflated (zlib format), in base64, as a JSON string."""
    return plain(name, base64.b64encode(zlib.compress(text.encode("utf-8", errors="replace"), 6)).decode("ascii"))
