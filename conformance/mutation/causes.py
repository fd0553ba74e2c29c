"""Whether the cause that a diagnosis names can be that of a mutant: by class of fault, as far as the class tells.

:data:`ACCEPTED` is the place to add to when a diagnosis learns to name more.
"""

from __future__ import annotations

import re
from enum import Enum

#: By class of fault: patterns of causes that describe it. A class that is missing tells nothing of the right cause.
ACCEPTED: dict[str, tuple[str, ...]] = {
    "mask": ("mask", "tail", "read as", "dropped", "not written", "skipped", "outside", "absent", "used twice"),
    "bound": ("mask", "tail", "read as", "dropped", "not written", "skipped", "outside", "tile", "twice", "absent"),
    "stride": (
        "stride",
        "contiguous",
        "transpos",
        "one (row|column)",
        "not written",
        "other dimension",
        "used for all",
        "indexed within",
        "outside",
        "block of",
        "absent",
    ),
    "scale": ("scale", "alpha", "beta", "bias", "factor"),
    "other": ("filled with", "read as", "tail"),
    "rounding": ("round", "cut", "precision", "passes through", "bits"),
    "accumulator": ("round", "cut", "accumulator", "reset", "precision", "k-block", "sum", "absent", "twice"),
    "loop": ("k-block", "skipped", "twice", "dropped", "absent", "not written", "tile"),
    "program": ("tile", "not written", "program", "batch", "written"),
}


class Named(str, Enum):
    """What the diagnosis of a kill is worth."""

    RIGHT = "right"
    WRONG = "wrong"
    NONE = "none"
    UNTOLD = "untold"


def named_cause(kind: str, cause: str) -> Named:
    """Whether ``cause``, as a diagnosis named it, fits a fault of class ``kind``; UNTOLD if the class does not tell."""
    if not cause:
        return Named.NONE
    if kind not in ACCEPTED:
        return Named.UNTOLD
    fits = any(re.search(pattern, cause) for pattern in ACCEPTED[kind])
    return Named.RIGHT if fits else Named.WRONG
