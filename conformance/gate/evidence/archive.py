"""A bundle's zip archive and the JSON in it, read within limits, and the reasons for rejecting evidence.

A verifier compares every member with the signed statement. So bytes of the file that belong to no member decide
nothing. The reader still refuses an archive that other programs may read in another way. Examples are bytes before or
after the archive, a name twice, and members that are links, encrypted or not deflated.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from enum import Enum
from io import BytesIO
from typing import Any

from conformance.plain_json import finite, finite_integer, no_constant

MESSAGE_LIMIT = 2000  # characters: it quotes what a stranger wrote


class RejectReason(str, Enum):
    """The part of a bundle that is wrong. From the outside in these are the archive, the signature, the statement, the
    run, and the verifier's own demands."""

    ARCHIVE = "archive"  # no zip archive, or not in the one form that 'conformance bundle' writes
    TOO_LARGE = "too-large"  # more bytes or members than are read

    ENVELOPE = "envelope"  # no DSSE envelope with exactly one signature of an in-toto statement
    OTHER_KEY = "other-key"  # signed by another key than the verifier's
    BAD_SIGNATURE = "bad-signature"  # the signature does not fit the statement

    JSON = "json"  # no JSON, or JSON that two readers can understand differently
    MEMBERS = "members"  # a file is missing, added or not the one that was signed
    STATEMENT = "statement"  # the statement claims what does not follow from the files

    UNREADABLE = "unreadable"  # a record, run.json or environment.json is not as this version reads it
    MIXED_RUNS = "mixed-runs"  # the files are of different runs
    INCOMPLETE = "incomplete"  # the records are not those of the selected cases, or the run did not end
    SHARDS = "shards"  # the parts of a merged run are not all shards of one plan, or not those of the records
    OWED_CASES = "owed-cases"  # the run does not have what the mustpass lists in the bundle owe
    NOT_EXCUSED = "not-excused"  # a kernel's expected failure is said to excuse a case that it is not about
    FORBIDDEN_OPTION = "forbidden-option"  # an option or a variable that no evidence may have

    PARTIAL = "partial"  # options narrowed the run
    OTHER_CODE = "other-code"  # judged by code that the verifier does not accept
    OTHER_FILE = "other-file"  # waivers or a mustpass list that are not the verifier's


class Rejected(ValueError):
    """The evidence cannot be trusted; the message says what is wrong and what is required."""

    def __init__(self, reason: RejectReason, message: str) -> None:
        super().__init__(message if len(message) <= MESSAGE_LIMIT else message[:MESSAGE_LIMIT] + " ...")
        self.reason = reason


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


MIB = 1 << 20
ARCHIVE_LIMIT = 256 * MIB  # bytes of the file
MEMBER_LIMIT = 64  # members
CONTENT_LIMIT = 512 * MIB  # bytes of all members: 100,000 records

_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that the format knows
_UNIX, _REGULAR_FILE = 3, 0o100644 << 16
_END_BYTES = 22  # of the end record, which has no comment
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*")
_NAME_RULE = "a relative path of letters, digits and ._+- with / between the parts, none of which starts with a dot"
#: What zipfile raises for a file that is damaged, or no archive.
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError)


def write_archive(members: Mapping[str, bytes]) -> bytes:
    """Returns the archive of ``members``: the same bytes each time, with the same zlib. Raises :class:`Rejected` for
    what :func:`read_archive` would not take."""
    target = BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in sorted(members.items()):
            info = zipfile.ZipInfo(name, _TIME)
            info.create_system, info.external_attr = _UNIX, _REGULAR_FILE
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    data = target.getvalue()
    read_archive(data)
    return data


def read_archive(data: bytes) -> dict[str, bytes]:
    """Returns the members of the archive in ``data``, by name. Raises :class:`Rejected` for data that
    :func:`write_archive` would not write, and above the limits."""
    if len(data) > ARCHIVE_LIMIT:
        raise Rejected(RejectReason.TOO_LARGE, f"the archive has more than {ARCHIVE_LIMIT} bytes: no more are read")
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            _check(data, archive.infolist())
            return {info.filename: archive.read(info) for info in archive.infolist()}
    except Rejected:
        raise
    except _DAMAGED as error:
        text = f"the file is cut short, changed, or no bundle: {error}"
        raise Rejected(RejectReason.ARCHIVE, text) from None


def _check(data: bytes, members: Sequence[zipfile.ZipInfo]) -> None:
    """Raises :class:`Rejected` for members that are not read, by what the archive's directory says of them. zipfile
    never reads more of a member than the size that the directory claims, and checks the CRC-32 of that."""
    if len(members) > MEMBER_LIMIT or sum(info.file_size for info in members) > CONTENT_LIMIT:
        declared = f"{len(members)} members and {sum(info.file_size for info in members)} bytes"
        limits = f"{MEMBER_LIMIT} members and {CONTENT_LIMIT} bytes"
        raise Rejected(
            RejectReason.TOO_LARGE, f"the archive declares {declared}, the limits are {limits}; it was not read"
        )
    names = [info.orig_filename for info in members]  # whole: zipfile cuts a name at a NUL
    for name, info in zip(names, members, strict=True):
        if not _NAME.fullmatch(name):
            raise Rejected(RejectReason.ARCHIVE, f"the member name {name!r:.120} is not taken: {_NAME_RULE}")
        if (info.compress_type, info.external_attr) != (zipfile.ZIP_DEFLATED, _REGULAR_FILE):
            raise Rejected(RejectReason.ARCHIVE, f"{name} is not a regular file that is deflated")
    if len({*names}) != len(names):
        raise Rejected(RejectReason.ARCHIVE, f"a member is there twice: {names!r:.500}")
    if min((info.header_offset for info in members), default=0) or data[-_END_BYTES:][:4] != b"PK\x05\x06":
        raise Rejected(RejectReason.ARCHIVE, "there are bytes before the first member or after the archive's end")
