"""Advice about an unknown name: the name that was probably meant, or all known names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Names that are listed when none is near.
LISTED = 30


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """ "did you mean mm_persistent_tma?", for an advice after what was wrong with ``name``; the known names if none of
    them is near.

    >>> did_you_mean("mm_persistant_tma", ["mm", "mm_persistent_tma"])
    'did you mean mm_persistent_tma?'
    """
    names = list(choices)
    lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    if near:
        return f"did you mean {lower[near[0]]}?"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"use one of {', '.join(names[:LISTED])}{more}"
