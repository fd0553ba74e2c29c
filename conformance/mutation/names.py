"""Names in device code: what class of fault a wrong one is, and which others could have been meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

#: Words of names that stand for each other: a fault writes one for another.
EXCHANGED = (
    ("a", "b", "c", "d", "o"),
    ("m", "n", "k"),
    ("M", "N", "K"),
    ("q", "k", "v"),
    ("x", "w", "out"),
    ("h", "w", "d"),
    ("H", "W", "D"),
    ("OH", "OW", "OD"),
    ("oh", "ow", "od"),
    ("row", "column"),
    ("rows", "columns"),
    ("ROWS", "COLUMNS"),
    ("first", "last", "end"),
    ("begin", "end"),
    ("queries", "keys"),
    ("query", "key"),
    ("batch", "head"),
    ("alpha", "beta"),
    ("bias", "residual", "mask"),
    ("partial", "full"),
    ("partial", "full", "masked"),
    ("left", "right"),
    ("rm", "rn", "rk", "ro"),
    ("z", "m", "n"),
    ("g", "s"),
    ("acc", "total", "largest"),
    ("p", "grad"),
    ("lse", "delta"),
    ("larger", "largest", "reference"),
    ("grad_k", "grad_v"),
    ("part", "split"),
    ("scale", "cap", "window"),
    ("positions", "columns"),
    ("CHANNELS", "OUT"),
    ("HEAD", "VALUE"),
)
#: The class of a fault in a name, by what the name looks like; the first that fits.
_CLASSES = (
    (r"stride_|ld[a-d]$", "stride"),
    (r"(^|_)(scale|scales|alpha|beta|slope|slopes|cap)(_|$)|^bias$|^addend$", "scale"),
    (r"_(ptr|desc|base)$|^(a|b|q|k|v|residual)$", "operand"),
    (r"^(M|N|K|keys|queries|window|groups|batch|tiles|tiles_[mn]|rows|columns|limit|splits)$", "bound"),
    (r"^r[mnko]$|^(row|column|first|last|end|begin|tile|z|n|h|w|d)(_|$)", "index"),
)


def name_class(name: str) -> str | None:
    """The class of a fault in which another name stands for ``name``; None if the name says none."""
    return next((kind for pattern, kind in _CLASSES if re.search(pattern, name)), None)


def is_address(name: str) -> bool:
    """True if ``name`` says that it holds a pointer.

    >>> is_address("a_ptr"), is_address("offset")
    (True, False)
    """
    return re.search(r"_(ptr|base|tile)$", name) is not None


def siblings(name: str, all_names: Collection[str]) -> Iterator[str]:
    """Names among ``known`` that differ from ``name`` in one word, which stands for the other's.

    >>> list(siblings("stride_am", ["stride_ak", "stride_bk", "pid"]))
    ['stride_ak']
    """
    words = re.split(r"(_|\d+)", name)
    seen = {name}
    for number, word in enumerate(words):
        for one, other in _exchanges(word):
            changed = "".join(
                [*words[:number], word.replace(one, other) if one != word else other, *words[number + 1 :]]
            )
            if changed in all_names and changed not in seen:
                seen.add(changed)
                yield changed


def _exchanges(word: str) -> Iterator[tuple[str, str]]:
    """Returns the words that could stand for ``word``, or for a last letter of it, as in ``am``."""
    for group in EXCHANGED:
        if word in group:
            yield from ((word, other) for other in group if other != word)
    if 2 <= len(word) <= 3 and word.islower():  # stride_am, stride_bk, stride_qm
        for letters in ("mnk", "abcd", "qkv", "mdhbn", "nochwd"):
            for place in (0, -1):
                if word[place] in letters:
                    for other in letters:
                        if other != word[place]:
                            yield word, (other + word[1:]) if place == 0 else (word[:-1] + other)
