"""Signatures of findings: the same for one cause in every run, on every machine, whatever its cases are.

A signature is made of a finding's kind and of its cause without what differs from case to case or from build to build.
That is sizes, counts, addresses, paths, line numbers, versions, ids of cases and generated names. It names neither the
kernel nor the stacks. So a finding of the same cause in another kernel has the same signature, as has one that torch's
own Triton brings. Targets, data types, features, links and numbers of issues are part of a cause.
"""

from __future__ import annotations

import hashlib
import re

from conformance.user_files.findings import Kind

#: Hexadecimal digits of a signature.
DIGITS = 12

#: What stays as it is although it has numbers: links, numbers of issues, and the ids of known defects.
_KEPT = re.compile(
    r"https?://[^\s)\]>,;]+|#\d{3,}\b|\b(?:[Ii]ssue|[Pp]ull(?: request)?|PR) #?\d{3,}\b|known-defect \([^)]*\)|"
    r"\b(?:sm|gfx)_?\d+\w*(?:-\d+)?"
)
_SUBSTITUTIONS = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\S*\btest_\w+\.py::\S+", "CASE"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?\S*", "N"),
        (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "HEX"),
        (r"0x[0-9a-fA-F]+|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}\b", "HEX"),
        (r"(?<![\w.])(?:~|\.{1,2})?(?:/[\w.+@~-]+){2,}(?::\d+)*", "PATH"),
        (r"(\b[\w+-]+\.(?:cpp|cc|h|hpp|inc|td|py|mlir|ll|ptx|cu))(?::\d+)+", r"\1"),
        (r"\btmp[a-z0-9_]{6,}\b", "TMP"),
        (r"(?<![\w%])%[\w.#:$-]+", "%V"),
        (r"#([a-z]\w*?)\d+\b", r"#\1"),  # a layout of MLIR
        (r"\bgw\d+\b", "gwN"),
        (r"\bm\d+n\d+k\d+\b", "mNnNkN"),
        (r"(?<![\w.])\d+(?:x\d+)+(?:x(?=[a-z]))?(?:-[sw]\d+)*", "SIZE"),
        (r"(?<![\w.])\d+x(?=[a-z])", "SIZE"),
        (r"(?<=[a-z])_(?:\d+(?:de|d|c)?)+\b", "_N"),
        (r"(?<![\w.])[-+]?\d+(?:\.\d+)*(?:[eE][-+]?\d+)?(?:[KMGT]?i?B|[num]?s)?(?![\w])", "N"),
        (r"\bN (?:[KMGT]?i?B|bytes?|[num]?s|seconds?)\b", "N"),
        (r"[\[(] ?N(?:, ?N)*,? ?[\])]", "[..]"),
        (r"\bN(?:, ?N)+\b", "N"),
        (r"\bN ([a-z]+)s\b", r"N \1"),  # "1 row" and "2 rows"
        (r"\s+", " "),
    )
)


def signature(kind: Kind | str, cause: str) -> str:
    """Returns the signature of a finding of ``kind`` with ``cause``, such as "NEW_FAIL-3f2a91c04b7e".

    >>> signature("NEW_FAIL", "no barrier at line 40") == signature("NEW_FAIL", "no barrier at line 90")
    True
    """
    name = kind.value if isinstance(kind, Kind) else kind
    text = cause if name == Kind.NEW_KNOWN_DEFECT.value else stable_cause(cause)  # an entry's id and link stay
    digest = hashlib.sha256(f"{name}\n{text}".encode(errors="backslashreplace")).hexdigest()
    return f"{name}-{digest[:DIGITS]}"


def stable_cause(cause: str) -> str:
    """``cause`` without what differs from case to case, from run to run and from build to build.

    >>> stable_cause("LLVM ERROR: 12 registers at /tmp/a/b.py:40 on 0x7fff00")
    'LLVM ERROR: N register at PATH on HEX'
    """
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{chr(0xE000 + len(kept) - 1)}"  # no pattern below matches these characters

    text = _KEPT.sub(keep, cause.replace("\0", " "))
    for pattern, replacement in _SUBSTITUTIONS:
        text = pattern.sub(replacement, text)
    for number, original in enumerate(kept):
        text = text.replace(f"\0{chr(0xE000 + number)}", original, 1)
    return text.strip()
