"""Packs a run's folder into one signed archive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from conformance.gate.evidence.archive import CONTENT_LIMIT, Rejected, RejectReason, encode, write_archive
from conformance.gate.evidence.contents import (
    ENVELOPE_FILE,
    MUSTPASS,
    OPTIONAL,
    REQUIRED,
    WAIVERS,
    check_owed,
    checked_options,
    parse,
)
from conformance.gate.evidence.selftest_result import SELFTEST_FILE
from conformance.gate.evidence.signatures import PrivateKey, seal
from conformance.gate.evidence.statement import build_statement
from conformance.gate.runs.run_environment import ENVIRONMENT_FILE
from conformance.gate.shards.union import SHARDS_FILE
from conformance.records import PACKED_FILE, RECORDS_FILE, plain_file, plain_lines


def pack(
    folder: Path,
    key: PrivateKey,
    waivers: Iterable[Path],
    mustpass: Mapping[str, Path],
    selftest: Path | None = None,
) -> bytes:
    """The bundle of the run in ``folder``, signed with ``key``. It also has the files of ``waivers`` and those of
    ``mustpass`` under their names, and the result of a ``selftest`` if one is given. It has the same bytes each time.

    Raises :class:`Rejected` for a run that no verifier would take: incomplete, damaged, or without its environment,
    which cannot be written later."""
    members = {name: _records(folder) if name == RECORDS_FILE else _required(folder, name) for name in REQUIRED}
    members |= {name: _file(folder / name) for name in OPTIONAL if (folder / name).exists()}
    members |= {MUSTPASS + name: _file(path) for name, path in mustpass.items()}
    if selftest is not None:
        members[SELFTEST_FILE] = _file(selftest)
    for path in waivers:
        if WAIVERS + path.name in members:
            raise Rejected(RejectReason.MEMBERS, f"two files for {WAIVERS} are called {path.name}: rename one")
        members[WAIVERS + path.name] = _file(path)
    contents = parse(members)
    check_owed(members, contents)
    checked_options(contents)
    statement = build_statement(members, contents)
    return write_archive({**members, ENVELOPE_FILE: seal(encode(statement), key)})


def _required(folder: Path, name: str) -> bytes:
    if (folder / name).is_file():
        return _file(folder / name)
    if name == ENVIRONMENT_FILE:
        why = "it is written when a run begins and cannot be made up later; run again with this version"
    else:
        why = "give the folder of a run that ended"
    raise Rejected(RejectReason.MEMBERS, f"{folder} has no {name}: {why}")


def _records(folder: Path) -> bytes:
    """Returns the plain lines of the run's records."""
    if not (folder / PACKED_FILE).is_file():
        return _required(folder, RECORDS_FILE)
    with plain_lines(folder / PACKED_FILE) as lines:
        content = lines.read(CONTENT_LIMIT + 1)
    if len(content) > CONTENT_LIMIT:
        text = f"{folder / PACKED_FILE} unpacks to more than {CONTENT_LIMIT} bytes, the most that a bundle holds"
        advice = "; bundle each of its shards" if (folder / SHARDS_FILE).exists() else ""
        raise Rejected(RejectReason.TOO_LARGE, text + advice)
    return content


def _file(path: Path) -> bytes:
    size = plain_file(path).stat().st_size
    if size > CONTENT_LIMIT:
        raise Rejected(RejectReason.TOO_LARGE, f"{path} has {size} bytes; a bundle holds at most {CONTENT_LIMIT}")
    return path.read_bytes()
