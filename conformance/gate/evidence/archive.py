"""A bundle's zip archive, written in one form and read in that form only.

The form: members in the order of their names, one after the other from the first byte, each deflated, with a fixed time
and no comment or extra field; then the directory; then its end record, which is the last thing in the file. Two
programs that read such an archive see the same members, and nothing can hide in it. Nothing is ever written to disk.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO

from conformance.gate.evidence.rejection import Rejected, RejectReason

MIB = 1 << 20
ARCHIVE_LIMIT = 256 * MIB  # bytes of the file
MEMBER_LIMIT = 64  # members
CONTENT_LIMIT = 512 * MIB  # bytes of all members: 100,000 records
#: Uncompressed over compressed size past which a member of more than RATIO_FREE bytes is refused. A megabyte of records
#: that repeat one another came to 60; a bomb has about 1000.
RATIO_LIMIT = 200
RATIO_FREE = MIB

_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that the format knows
_UNIX, _REGULAR_FILE, _VERSION = 3, 0o100644 << 16, 20
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s4B4H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END_SIGNATURE = b"PK\x05\x06"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*")


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
    """The members of the archive in ``data``. Raises :class:`Rejected` for everything that :func:`write_archive` does
    not write, and for more than the limits allow."""
    if len(data) > ARCHIVE_LIMIT:
        raise Rejected(RejectReason.TOO_LARGE, f"the archive has {len(data)} bytes; at most {ARCHIVE_LIMIT} are read")
    directory = _check_ends(data)
    entries = _entries(data)
    _check_layout(data, entries, directory)
    return {entry.filename: _content(data, entry) for entry in entries}


def _check_ends(data: bytes) -> int:
    """Where the directory begins; the archive starts with a member and ends with the end record, which has no room
    for more."""
    at = data.rfind(_END_SIGNATURE)
    if at < 0 or len(data) < at + _END.size:
        raise Rejected(
            RejectReason.NOT_AN_ARCHIVE, f"no whole zip archive ({len(data)} bytes): it is cut short or another file"
        )
    _, disk, first_disk, here, total, size, offset, comment = _END.unpack_from(data, at)
    beyond = len(data) - at - _END.size
    if comment and comment == beyond:
        raise Rejected(RejectReason.COMMENT, f"the archive has a comment of {comment} bytes; a bundle has none")
    if beyond:
        raise Rejected(RejectReason.TRAILING_DATA, f"{beyond} bytes follow the archive; it must end the file")
    if comment or disk or first_disk or here != total:
        raise Rejected(RejectReason.NOT_AN_ARCHIVE, "the archive's end record is cut short or tells of several volumes")
    if total > MEMBER_LIMIT:
        raise Rejected(RejectReason.TOO_LARGE, f"the archive has {total} members; at most {MEMBER_LIMIT} are read")
    if offset + size < at:
        reason = RejectReason.HIDDEN_DATA if data[offset : offset + 4] == b"PK\x01\x02" else RejectReason.PREPENDED_DATA
        raise Rejected(
            reason, f"{at - offset - size} bytes lie before or after the archive's directory and are not its own"
        )
    if offset + size > at:
        raise Rejected(RejectReason.NOT_AN_ARCHIVE, "the archive's directory is cut short")
    return int(offset)


def _entries(data: bytes) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise Rejected(RejectReason.NOT_AN_ARCHIVE, f"the archive's directory cannot be read: {error}") from None
    for entry in entries:
        _check_entry(entry)
    names = [entry.filename for entry in entries]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Rejected(RejectReason.DUPLICATE_MEMBER, f"the archive holds {', '.join(twice)} more than once")
    total = sum(entry.file_size for entry in entries)
    if total > CONTENT_LIMIT:
        raise Rejected(RejectReason.TOO_LARGE, f"the members come to {total} bytes; at most {CONTENT_LIMIT} are read")
    return entries


def _check_entry(entry: zipfile.ZipInfo) -> None:
    name = entry.orig_filename
    if not _NAME.fullmatch(name):
        wanted = "a relative path of letters, digits and ._+- with / between the parts, none of which starts with a dot"
        raise Rejected(RejectReason.UNSAFE_NAME, f"the member name {name!r:.120} is not taken: {wanted}")
    if entry.external_attr != _REGULAR_FILE or entry.create_system != _UNIX:
        kind = "a symbolic link" if (entry.external_attr >> 28) == 0o12 else "not a regular file with mode 644"
        raise Rejected(RejectReason.NOT_A_FILE, f"{name} is {kind}; a bundle holds regular files only")
    if entry.flag_bits & 0x1:
        raise Rejected(RejectReason.ENCRYPTED, f"{name} is encrypted; a bundle is readable by everyone")
    if entry.compress_type != zipfile.ZIP_DEFLATED:
        raise Rejected(
            RejectReason.COMPRESSION, f"{name} is compressed by method {entry.compress_type}; 8 (deflate) is required"
        )
    if entry.comment or entry.extra:
        raise Rejected(RejectReason.COMMENT, f"{name} has a comment or an extra field; a bundle has none")
    if entry.file_size > RATIO_FREE and entry.file_size > RATIO_LIMIT * entry.compress_size:
        raise Rejected(
            RejectReason.COMPRESSION_RATIO,
            f"{name} claims {entry.file_size} bytes from {entry.compress_size}; at most {RATIO_LIMIT} for one are read",
        )


def _check_layout(data: bytes, entries: list[zipfile.ZipInfo], directory: int) -> None:
    """Members, directory and end lie one after the other, and each member's own header says what the directory does."""
    position = 0
    for entry in entries:
        if entry.header_offset != position:
            reason = RejectReason.HIDDEN_DATA if position else RejectReason.PREPENDED_DATA
            found = f"{entry.filename} starts at byte {entry.header_offset}, the one before it ends at {position}"
            raise Rejected(reason, f"{found}: members must follow one another from byte 0")
        header = _local_header(entry)
        if data[position : position + len(header)] != header:
            raise Rejected(
                RejectReason.HEADERS_DISAGREE,
                f"{entry.filename}: its own header and the archive's directory do not agree",
            )
        position += len(header) + entry.compress_size
    if position != directory:
        raise Rejected(RejectReason.HIDDEN_DATA, f"{directory - position} bytes between the members and the directory")
    if data[directory : -_END.size] != b"".join(map(_directory_entry, entries)):
        raise Rejected(RejectReason.HIDDEN_DATA, "the archive's directory holds more than its members, or other fields")
    names = [entry.filename for entry in entries]
    if names != sorted(names):
        raise Rejected(
            RejectReason.NOT_AN_ARCHIVE, f"members must be in the order of their names, got {', '.join(names)}"
        )


def _fields(entry: zipfile.ZipInfo) -> tuple[int, ...]:
    """What a member's own header and its entry in the directory both say, from the version to the lengths of the name
    and of the extra field."""
    year, month, day, hour, minute, second = _TIME
    date, time = (year - 1980) << 9 | month << 5 | day, hour << 11 | minute << 5 | second // 2
    sizes = (entry.CRC, entry.compress_size, entry.file_size)
    return (0, zipfile.ZIP_DEFLATED, time, date, *sizes, len(entry.filename), 0)


def _local_header(entry: zipfile.ZipInfo) -> bytes:
    """The header that :func:`write_archive` writes before the content of ``entry``."""
    return _LOCAL.pack(b"PK\x03\x04", _VERSION, *_fields(entry)) + entry.filename.encode("ascii")


def _directory_entry(entry: zipfile.ZipInfo) -> bytes:
    """What :func:`write_archive` writes of ``entry`` into the directory."""
    attributes = (0, 0, 0, _REGULAR_FILE, entry.header_offset)
    fields = (_VERSION, _UNIX, _VERSION, 0, *_fields(entry), *attributes)
    return _CENTRAL.pack(b"PK\x01\x02", *fields) + entry.filename.encode("ascii")


def _content(data: bytes, entry: zipfile.ZipInfo) -> bytes:
    start = entry.header_offset + len(_local_header(entry))
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = stream.decompress(data[start : start + entry.compress_size], entry.file_size + 1)
    except zlib.error as error:
        raise Rejected(RejectReason.DAMAGED_MEMBER, f"{entry.filename} cannot be decompressed: {error}") from None
    if len(content) != entry.file_size or not stream.eof or stream.unused_data:
        raise Rejected(
            RejectReason.DAMAGED_MEMBER,
            f"{entry.filename} does not decompress to the {entry.file_size} bytes that it claims",
        )
    if zlib.crc32(content) != entry.CRC:
        raise Rejected(
            RejectReason.DAMAGED_MEMBER, f"{entry.filename} does not have the checksum that the archive states"
        )
    return content
