"""A bundle's zip archive, written in one form and read in that form only.

The form: members in the order of their names, one after the other from the first byte, each deflated, with a fixed time
and no comment or extra field; then the directory; then its end record, which ends the file. The reader packs each
header, the directory and the end record anew and compares them with the file. So nothing can hide in an archive, and
two programs that read it see the same members. Nothing is ever written to disk.

Python's zipfile reads more than this form: it skips bytes before the archive and behind a member's data, and believes
the directory where a member's own header disagrees. So only the writer uses it.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO

from conformance.gate.evidence.rejection import Rejected, RejectReason

MIB = 1 << 20
ARCHIVE_LIMIT = 256 * MIB  # bytes of the file
MEMBER_LIMIT = 64  # members
CONTENT_LIMIT = 512 * MIB  # bytes of all members: 100,000 records
#: Uncompressed over compressed size past which a member of more than RATIO_FREE bytes is rejected. A megabyte of
#: records that repeat one another came to 60; a bomb has about 1000.
RATIO_LIMIT = 200
RATIO_FREE = MIB

_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that the format knows
_UNIX, _REGULAR_FILE = 3, 0o100644 << 16
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_LOCAL_SIGNATURE = b"PK\x03\x04"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*")
_NAME_RULE = "a relative path of letters, digits and ._+- with / between the parts, none of which starts with a dot"


@dataclass(frozen=True)
class _Entry:
    """A member as its header describes it: name, CRC-32, sizes in bytes, and where the header starts."""

    name: str
    crc: int
    compressed: int
    size: int
    offset: int

    def _fields(self) -> tuple[int, ...]:
        """What the header and the directory both say: version 2.0, no flags, deflated, time, date, checksum, sizes, the
        lengths of the name and of the extra field."""
        year, month, day = _TIME[:3]
        date = (year - 1980) << 9 | month << 5 | day
        return (20, 0, zipfile.ZIP_DEFLATED, 0, date, self.crc, self.compressed, self.size, len(self.name), 0)

    @property
    def header(self) -> bytes:
        """The header before the member's data, as it must be."""
        return _LOCAL.pack(_LOCAL_SIGNATURE, *self._fields()) + self.name.encode("ascii")

    @property
    def listed(self) -> bytes:
        """The member's entry in the directory, as it must be."""
        rest = (0, 0, 0, _REGULAR_FILE, self.offset)  # comment, disk, attributes
        return _CENTRAL.pack(b"PK\x01\x02", 20 | _UNIX << 8, *self._fields(), *rest) + self.name.encode("ascii")


def write_archive(members: Mapping[str, bytes]) -> bytes:
    """The archive of ``members``: the same bytes each time, with the same zlib. Raises :class:`Rejected` for what
    :func:`read_archive` would not take."""
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
    """The members of the archive in ``data``, by name. Raises :class:`Rejected` for everything that
    :func:`write_archive` does not write, and for more than the limits allow."""
    if len(data) > ARCHIVE_LIMIT:
        raise Rejected(RejectReason.TOO_LARGE, f"the archive has {len(data)} bytes; at most {ARCHIVE_LIMIT} are read")
    entries: list[_Entry] = []
    members: dict[str, bytes] = {}
    position = total = 0
    while data.startswith(_LOCAL_SIGNATURE, position):
        entry = _entry(data, position)
        entries.append(entry)
        total += entry.size
        if len(entries) > MEMBER_LIMIT or total > CONTENT_LIMIT:
            limits = f"{MEMBER_LIMIT} members and {CONTENT_LIMIT} bytes"
            raise Rejected(
                RejectReason.TOO_LARGE, f"the archive has more than {limits}, which are the most that is read"
            )
        position += len(entry.header)
        members[entry.name] = _content(data[position : position + entry.compressed], entry)
        position += entry.compressed
    names = [entry.name for entry in entries]
    if names != sorted(members):
        raise Rejected(RejectReason.ARCHIVE, f"members must be there once, in the order of their names: {names!r:.500}")
    directory = b"".join(entry.listed for entry in entries)
    end = _END.pack(b"PK\x05\x06", 0, 0, len(entries), len(entries), len(directory), position, 0)
    if not entries or data[position:] != directory + end:
        raise Rejected(RejectReason.ARCHIVE, _not_as_written(f"the directory at byte {position}"))
    return members


def _not_as_written(what: str) -> str:
    return f"{what} is not as 'conformance bundle' writes it: the file is cut short, changed, or no bundle"


def _entry(data: bytes, offset: int) -> _Entry:
    """The member whose header is at byte ``offset``, with a safe name and a size within the limits."""
    try:
        *_, crc, compressed, size, length, _ = _LOCAL.unpack_from(data, offset)
    except struct.error:
        raise Rejected(RejectReason.ARCHIVE, _not_as_written(f"the header at byte {offset}")) from None
    start = offset + _LOCAL.size
    name = data[start : start + length].decode("latin-1")
    if not _NAME.fullmatch(name):
        raise Rejected(RejectReason.ARCHIVE, f"the member name {name!r:.120} is not taken: {_NAME_RULE}")
    entry = _Entry(name, crc, compressed, size, offset)
    if not data.startswith(entry.header, offset):
        raise Rejected(RejectReason.ARCHIVE, _not_as_written(f"the header of {name}"))
    if size > RATIO_FREE and size > RATIO_LIMIT * compressed:
        text = f"{name} claims {size} bytes from {compressed}; at most {RATIO_LIMIT} for one are read"
        raise Rejected(RejectReason.TOO_LARGE, text)
    return entry


def _content(deflated: bytes, entry: _Entry) -> bytes:
    """What ``deflated`` decompresses to. Raises :class:`Rejected` unless it is all of that and has the checksum."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = stream.decompress(deflated, entry.size + 1)
    except zlib.error as error:
        raise Rejected(RejectReason.ARCHIVE, f"{entry.name} cannot be decompressed: {error}") from None
    if len(content) != entry.size or not stream.eof or stream.unused_data or zlib.crc32(content) != entry.crc:
        text = f"{entry.name} does not decompress to the {entry.size} bytes and the checksum that it claims"
        raise Rejected(RejectReason.ARCHIVE, text)
    return content
