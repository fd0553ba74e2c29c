"""Decides whether the cause that a diagnosis names can be that of a mutant: by class of fault, as far as the class
tells.

:data:`ACCEPTED` is the place to add to when a diagnosis learns to name more.
"""

from __future__ import annotations

import re
from enum import Enum

#: What was observed of addresses: it is right of any fault that changes them.
ADDRESSES = (
    r"is (read|stored to|changed) ",
    "are stored by",
    "not written",
    "without .*, and reads",
    "no program reads",
    "where no program has stored",
)

#: By class of fault: patterns of causes that describe it. A class that is missing tells nothing of the right cause.
ACCEPTED: dict[str, tuple[str, ...]] = {
    "mask": (
        *ADDRESSES,
        "mask",
        "tail",
        "read as",
        "dropped",
        "skipped",
        "absent",
        "used twice",
        "is seen",
        "key behind",
    ),
    "bound": (*ADDRESSES, "mask", "tail", "read as", "dropped", "skipped", "tile", "twice", "absent", "left out"),
    "stride": (
        *ADDRESSES,
        "stride",
        "contiguous",
        "transpos",
        "one (row|column)",
        "other dimension",
        "used for all",
        "indexed within",
        "block of",
        "absent",
        "of another (batch|head|matrix|row|column)",
    ),
    "scale": ("scale", "alpha", "beta", "bias", "factor"),
    "other": ("filled with", "read as", "tail"),
    "rounding": ("round", "cut", "precision", "pass through", "passes through", "bits"),
    "accumulator": (
        *ADDRESSES,
        *("round", "cut", "accumulator", "reset", "precision", "k-block", "sum", "absent", "twice", "through"),
    ),
    "loop": (*ADDRESSES, "k-block", "skipped", "twice", "dropped", "absent", "tile", "step", "left out"),
    "program": (*ADDRESSES, "tile", "program", "batch", "written"),
}


#: How the cause of an error begins.
RAISED = "the kernel raises "


class Named(str, Enum):
    """The value of the diagnosis of a kill."""

    RIGHT = "right"
    WRONG = "wrong"
    NONE = "none"
    UNTOLD = "untold"


def named_cause(kind: str, cause: str, function: str = "") -> Named:
    """Decides whether ``cause``, as a diagnosis named it, fits a fault of class ``kind`` in ``function`` (module.name);
    UNTOLD if the class does not tell. A line that raised an error is right in the function itself, or in what it calls.
    """
    if not cause:
        return Named.NONE
    if RAISED in cause:
        own = re.escape(function.rsplit(".", 1)[-1])
        return Named.RIGHT if re.search(rf" in {own}\b", cause) else Named.UNTOLD
    if kind not in ACCEPTED:
        return Named.UNTOLD
    fits = any(re.search(pattern, cause) for pattern in ACCEPTED[kind])
    return Named.RIGHT if fits else Named.WRONG
