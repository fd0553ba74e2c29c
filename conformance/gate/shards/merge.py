"""Merges the folders of all shards of a run into the folder of one run.

Two passes read the records of each shard one at a time, so that a run may have any size. The first checks every line,
the second writes the lines of all in the order of the case ids.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import heapq
import json
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from conformance import records
from conformance.gate.evidence.archive import Rejected
from conformance.gate.evidence.contents import parse_environment
from conformance.gate.runs.run_environment import ENVIRONMENT_FILE
from conformance.gate.runs.run_reader import SELECTED_FILE, cut_off
from conformance.gate.shards.union import (
    SHARDS_FILE,
    Part,
    UnionError,
    check_parts,
    combined_environment,
    combined_run,
    shards_text,
)
from conformance.proof_level import ProofCount
from conformance.records import (
    PACKED_FILE,
    RECORDS_FILE,
    RUN_FILE,
    CaseRecord,
    RecordError,
    RunInfo,
    first_of,
    jsonable,
    lines,
    list_digest,
    packed,
    plain_file,
    read_run,
    refuse_long,
    refuse_more_than,
)

#: The folder of a run that holds the artefacts of its cases, one folder for each case.
ARTEFACTS = "artefacts"
#: Bytes of an environment.json that are read.
ENVIRONMENT_LIMIT = 16 << 20
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, OSError)


class MergeError(Exception):
    """Runs cannot be merged; the message names the folder and says what is wrong."""


@dataclass(frozen=True)
class _Folder:
    """The folder of one shard, as the user named it, and its run."""

    path: Path
    part: Part

    @property
    def records(self) -> Path:
        """The file of the merged records of the run. Raises :class:`MergeError` if there is none."""
        for name in (PACKED_FILE, RECORDS_FILE):
            if (self.path / name).is_file():
                return self.path / name
        raise MergeError(f"{self.path}: there is no {PACKED_FILE}: its records were not merged; run this shard again")


def merge(
    folders: Sequence[Path],
    output: Path,
    *,
    mixed_devices: bool = False,
    take: Callable[[CaseRecord], None] = lambda record: None,
    finish: Callable[[RunInfo, Path], None] = lambda run, folder: None,
) -> RunInfo:
    """Writes the run that the shards in ``folders`` make together to the new folder ``output``, and returns its
    ``run.json``. ``take`` is called with each record; ``finish`` may add files to the folder that it is given. Raises
    :class:`MergeError`, and leaves no ``output`` then."""
    _refuse_output(output, folders)
    shards = _read(folders)
    try:
        check_parts([shard.part for shard in shards], mixed_devices)
    except UnionError as error:
        raise MergeError(f"{shards[error.place].path}: {error}") from None
    shards.sort(key=lambda shard: shard.part.shard.number)
    scratch = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        scratch.mkdir(parents=True)
        judged, size = _check_records(shards, scratch, take)
        _write_records(shards, scratch / (PACKED_FILE if size <= records.UNPACKED_LIMIT else RECORDS_FILE))
        parts = [shard.part for shard in shards]
        run = combined_run(parts, output.name, judged)
        _copy_artefacts(shards, scratch)
        (scratch / SHARDS_FILE).write_text(shards_text(parts), encoding="utf-8")
        environment = json.dumps(combined_environment(parts, run), indent=1)
        (scratch / ENVIRONMENT_FILE).write_text(environment + "\n", encoding="utf-8")
        (scratch / RUN_FILE).write_text(json.dumps(jsonable(run), indent=1) + "\n", encoding="utf-8")
        finish(run, scratch)
        os.rename(scratch, output)  # an empty folder of that name gives way
    except OSError as error:
        raise MergeError(f"{output} cannot be written: {error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return run


def _refuse_output(output: Path, folders: Sequence[Path]) -> None:
    if not output.name:
        raise MergeError(f"--output {output}: the name of a new folder is required")
    try:
        if output.is_symlink() or (output.exists() and (not output.is_dir() or any(output.iterdir()))):
            raise MergeError(f"--output {output}: exists and is not an empty folder; give a new one")
        for folder in folders:
            if folder.resolve() in output.resolve().parents:
                raise MergeError(f"--output {output}: lies in the folder of the shard {folder}; give another one")
    except OSError as error:
        raise MergeError(f"--output {output} cannot be used: {error}") from None


def _read(folders: Sequence[Path]) -> list[_Folder]:
    """Returns the runs in ``folders``. Raises :class:`MergeError` for what is no run, or comes twice."""
    shards: list[_Folder] = []
    places: dict[Path, Path] = {}
    for folder in folders:
        same = places.setdefault(folder.resolve(), folder)
        if same is not folder:
            raise MergeError(f"{folder}: the same folder as {same}; give each once")
        try:
            run = read_run(folder)
            unfinished = cut_off(folder) if run.wall_s is None else None
            if unfinished:
                raise MergeError(f"{folder}: {unfinished}; run this shard again")
            refuse_more_than(ENVIRONMENT_LIMIT, plain_file(folder / ENVIRONMENT_FILE))
            environment = parse_environment((folder / ENVIRONMENT_FILE).read_bytes())
        except (OSError, RecordError, UnicodeDecodeError, Rejected) as error:
            raise MergeError(f"{folder} is no run of a shard that ended: {error}") from None
        shards.append(_Folder(folder, Part(run, environment)))
    return shards


def _check_records(shards: Sequence[_Folder], scratch: Path, take: Callable[[CaseRecord], None]) -> tuple[bool, int]:
    """Checks every record of the shards, and writes their cases to the merged run's list of selected cases, one shard
    after the other. Returns whether a case was judged, and the bytes of all lines. Raises :class:`MergeError`."""
    judged, size = False, 0
    with (scratch / SELECTED_FILE).open("w", encoding="utf-8") as selected:
        for shard in shards:
            compile_only = bool(shard.part.shard.plan.options.get("compile_only"))
            digest, cases = hashlib.sha256(), hashlib.sha256()
            last, failed, proof = "", "", ProofCount()
            stack: Mapping[str, Any] = {}
            for record, line in _each_record(shard):
                if record.case <= last:
                    text = f"{record.case} comes after {last}: each case once, in the order of their ids, is required"
                    raise MergeError(f"{shard.path}: its records were changed: {text}")
                if other := _of_another_run(record, shard.part):
                    raise MergeError(f"{shard.path}: its records were changed: {record.case} is of {other}")
                last, stack = record.case, record.stack
                failed = failed or (record.case if record.fault_class is not None else "")
                proof.add(record)
                digest.update(line)
                cases.update(f"{record.case}\n".encode())
                selected.write(record.case + "\n")
                judged |= record.is_judged(compile_only)
                size += len(line)
                take(record)
            own = shard.part.shard
            if cases.hexdigest() != own.plan.case_lists[own.number - 1]:
                raise MergeError(f"{shard.path}: {_wrong_cases(shard, shards)}")
            if digest.hexdigest() != own.records:
                text = f"its digest is {digest.hexdigest()}, and its run wrote {own.records or 'none'}"
                raise MergeError(f"{shard.path}: {shard.records.name} was changed: {text}")
            if contradiction := _contradiction(shard.part, stack, proof, failed):
                raise MergeError(f"{shard.path}: run.json was changed: {contradiction}")
    return judged, size


def _of_another_run(record: CaseRecord, part: Part) -> str:
    """Returns in what ``record`` is not of the run of ``part``, such as "seed 1"; empty if it is."""
    run = part.run
    for name, value, own in (("tier", record.tier, run.tier), ("seed", record.seed, run.seed)):
        if value not in (None, own):
            return f"{name} {value}, and the run of {own}"
    for name, value in record.stack.items():
        # A process that imported nothing knows the versions of the metadata only, those of the environment.
        if value not in (run.stack.get(name), part.environment["stack"].get(name)):
            return f"{name} {value!r:.80}, and the run of {run.stack.get(name)!r:.80}"
    return ""


def _contradiction(part: Part, stack: Mapping[str, Any], proof: ProofCount, failed: str) -> str:
    """Returns what the run of ``part`` says, and its records do not; empty if they agree. ``stack`` is that of the last
    record, ``proof`` counts all, and ``failed`` is a case that failed, if there is one."""
    run = part.run
    if dict(run.stack) != {**part.environment["stack"], **stack}:
        return "its stack is not that of its records"
    if run.proof is not None and Counter(run.proof) != Counter(proof.by_name()):
        return "its counts of what proves the cases are not those of its records"
    if failed and run.exit_status == 0:
        return f"its exit status is 0, and {failed} failed"
    return ""


def _each_line(shard: _Folder) -> Iterator[bytes]:
    """Yields the lines of the shard's records. Raises :class:`MergeError` for damaged data, and above the limit."""
    file, size = shard.records, 0
    try:
        with _opened(file) as stream:
            for _, line in lines(stream):
                size += len(line)
                if file.name == PACKED_FILE and size > records.UNPACKED_LIMIT:
                    raise MergeError(f"{shard.path}: {file.name} unpacks to more than {records.UNPACKED_LIMIT} bytes")
                yield line
    except _DAMAGED as error:
        raise MergeError(f"{shard.path}: {file.name} is cut off or damaged: {error}; copy it again") from None


def _opened(file: Path) -> IO[bytes]:
    if file.name == PACKED_FILE:
        return cast("IO[bytes]", gzip.GzipFile(plain_file(file), "rb"))
    return plain_file(file).open("rb")


def _each_record(shard: _Folder) -> Iterator[tuple[CaseRecord, bytes]]:
    for number, line in enumerate(_each_line(shard), 1):
        try:
            refuse_long(line)
            if not line.endswith(b"\n"):
                raise RecordError("the last line is cut short")
            yield records.from_line(line), line
        except RecordError as error:
            name = shard.records.name
            raise MergeError(f"{shard.path}: {name}:{number} is cut off or damaged: {error!s:.500}") from None


def _wrong_cases(shard: _Folder, shards: Sequence[_Folder]) -> str:
    """Returns a sentence about a shard whose recorded cases are not those of its plan."""
    recorded = {record.case for record, _ in _each_record(shard)}
    own = shard.part.shard
    selected = _selected(shard)
    if list_digest(sorted(selected)) != own.plan.case_lists[own.number - 1]:
        return f"{SELECTED_FILE} and the records are not of the cases that its plan has for the shard {own}"
    missing = sorted(selected - recorded)
    if missing:
        return f"its plan has {len(missing)} cases that no shard recorded: {first_of(missing, 3)}; run this shard again"
    others = recorded - selected
    for other in shards:
        twice = sorted(others & _selected(other)) if other is not shard else []
        if twice:
            return f"{len(twice)} cases are in {other.path}, too: {first_of(twice, 3)}"
    return f"it recorded {len(others)} cases that are not in its plan: {first_of(sorted(others), 3)}"


def _selected(shard: _Folder) -> set[str]:
    try:
        return set(plain_file(shard.path / SELECTED_FILE).read_text(encoding="utf-8").split("\n")) - {""}
    except (OSError, UnicodeDecodeError):
        return set()


class _CaseOnly(msgspec.Struct):
    case: str


def _write_records(shards: Sequence[_Folder], file: Path) -> None:
    """Writes the lines of all ``shards``, which were checked, in the order of their cases."""
    decode = msgspec.json.Decoder(_CaseOnly).decode
    streams = [((decode(line).case, line) for line in _each_line(shard)) for shard in shards]
    with contextlib.ExitStack() as opened:
        stream: IO[bytes] = opened.enter_context(file.open("wb"))
        if file.name == PACKED_FILE:
            stream = cast("IO[bytes]", opened.enter_context(packed(stream)))
        for _, line in heapq.merge(*streams):
            stream.write(line)


def _copy_artefacts(shards: Sequence[_Folder], scratch: Path) -> None:
    for shard in shards:
        folder = shard.path / ARTEFACTS
        # A link stays a link: the folder may come from someone else.
        if folder.is_symlink():
            raise MergeError(f"{folder} is a link: the folder of the run itself is required; copy it again")
        if folder.is_dir():
            try:
                shutil.copytree(folder, scratch / ARTEFACTS, symlinks=True, dirs_exist_ok=True)
            except shutil.Error as error:
                _, _, why = error.args[0][0]
                raise MergeError(f"{shard.path}: its artefacts cannot be copied: {why}") from None
