"""Fuzzes what the harness reads: ``python -m tests.fuzzed_inputs --count 20000 --seed 0``.

Each input is a valid file with a few changes: bits, bytes, slices, numbers, names and nesting. It is fuzzed as it is
stored and, if it is packed, below its packing, too. A reader may take an input, or refuse it with its own error.
Anything else is a fault: another exception, a hang, code that runs, a process that starts. So is a file that changes
outside the folder of the input, and a signed bundle that is taken with other content.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gzip
import io
import json
import os
import random
import re
import signal
import sqlite3
import sys
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.case_record import run_from_text
from conformance.execution.compile import carried_kernels
from conformance.execution.compile.carried_kernels import KERNELS_FILE, CarriedKernels, Toolchain, Unusable
from conformance.gate.evidence import contents
from conformance.gate.evidence.archive import Rejected, read_archive, write_archive
from conformance.gate.evidence.selftest_result import SELFTEST_FILE, FaultResult, SelftestResult, read_selftest, to_json
from conformance.gate.evidence.verify import verify
from conformance.gate.mustpass.mustpass_lists import MustpassError, read_list
from conformance.gate.mustpass.profiles import read_profiles
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.shards.merge import merge
from conformance.gate.shards.union import (
    SHARDS_FILE,
    UnionError,
    check_parts,
    combined_environment,
    combined_run,
)
from conformance.gate.stacks.stack_file import StackError, read_matrix
from conformance.gate.verdict.known_findings import EarlierAnswerError, read_earlier_answer
from conformance.numerics.measured_units import CalibrationError, read_calibration
from conformance.records import RecordError, RunInfo, read_records
from conformance.shards.durations import DurationsError, read_durations
from conformance.user_files.case_list import CaseListError, read_case_list
from conformance.user_files.expected_failures import read_expected_failures
from conformance.user_files.thresholds import read_thresholds
from conformance.user_files.toml_entries import EntryError
from conformance.user_files.waiver_file import read_waivers
from tests.gate.sample_bundles import CODE, STACK, STARTED, Sample, sample
from tests.gate.sample_entries import entry, waiver
from tests.gate.sample_shards import write_shards

DATA = Path(__file__).parents[1] / "conformance" / "data"
PROFILE = b"""
[[profile]]
id = "mine"
about = "fp16 products"
kernels = ["mm", "*_tma"]
dtypes = ["fp16"]
evidence = ["codegen/requires/MMA"]
"""
#: Seconds in which a reader must have answered.
LIMIT_S = 20
#: Words that a reader could take for something else.
TOKENS = (
    *(
        b"../../escaped",
        b"/tmp/escaped",
        b"\x00",
        b"\xff\xfe",
        b"\\ud800",
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"-1",
        b"true",
    ),
    *(b"null", b"{}", b"[]", b'""', b"9" * 5000, b"[" * 100_000, b'{"a":' * 50_000, b"__import__('os').abort()"),
    *(
        b"$(touch escaped)",
        b"\x1b]0;x\x07",
        "\u202e".encode(),
        b"\r\n",
        b"a" * 70_000,
        b"!!python/object/apply:os.abort",
    ),
)
#: What a process must not do while it reads. Python's audit events say so, whichever function does it.
FORBIDDEN = re.compile(
    r"os\.(system|exec|posix_spawn|spawn|fork|forkpty|kill|putenv|startfile)|subprocess\.Popen|pty\.spawn|socket\.\w+"
    r"|ctypes\.(dlopen|dlsym)|pickle\.find_class|code\.__new__|shutil\.\w+|webbrowser\.open"
)
#: Events that name a file which changes.
CHANGING = re.compile(r"os\.(remove|rename|rmdir|mkdir|link|symlink|chmod|chown|truncate|utime|setxattr)")


@dataclass(frozen=True)
class Reader:
    """Reads the file ``name`` of a folder. ``read`` returns what it took, or raises one of ``refusals``. ``unpack``
    returns the parts below the packing of ``content``, and ``pack`` puts them together again."""

    name: str
    content: bytes
    read: Callable[[Path], Any]
    refusals: tuple[type[Exception], ...]
    unpack: Callable[[bytes], dict[str, bytes]] | None = None
    pack: Callable[[dict[str, bytes]], bytes] | None = None
    signed: bool = False


@dataclass(frozen=True)
class Fault:
    """An input on which a reader did what it must not; ``seed`` makes the input again."""

    reader: str
    seed: str
    text: str


def changed(content: bytes, draw: random.Random) -> bytes:
    """Returns ``content`` with one to four changes."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        place, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
        end = min(end, place + draw.choice((1, 8, 64, 4096)))
        kind = draw.randrange(8)
        if kind == 0 and data:
            data[min(place, len(data) - 1)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[place:end]
        elif kind == 2:
            data[place:place] = data[place:end]
        elif kind == 3:
            data[place:place] = draw.choice(TOKENS)
        elif kind == 4:
            del data[place:]
        elif kind == 5:
            data[place:end] = draw.randbytes(end - place)
        else:  # a whole number, text, key or line becomes another word, which most parsers get past
            pattern = rb"-?\d+(\.\d+)?" if kind == 6 else rb'"[^"\n]*"|[^\n]+'
            words = list(re.finditer(pattern, bytes(data[:200_000])))
            if words:
                word, token = draw.choice(words), draw.choice((*TOKENS, *(other[0] for other in words[:50])))
                data[word.start() : word.end()] = token
    return bytes(data)


def zip_members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return content.getvalue()


def as_the_harness_packs(members: dict[str, bytes]) -> bytes:
    """Returns the archive that ``bundle`` would write of ``members``; another one if it would not write them."""
    try:
        return write_archive(members)
    except Rejected:
        return zipped(members)


def below(reader: Reader, draw: random.Random) -> bytes:
    """Returns the reader's content with a change below its packing: in a member, or in a member's name."""
    assert reader.unpack is not None
    assert reader.pack is not None
    members = dict(reader.unpack(reader.content))
    name = draw.choice(sorted(members))
    content = members.pop(name)
    if len(members) > 0 and draw.randrange(6) == 0:
        name = changed(name.encode(), draw).decode(errors="replace")[:10_000].lstrip("\0") or "empty"
    else:
        content = changed(content, draw)
    return reader.pack({**members, name: content})


SELFTEST = SelftestResult(
    *(1, STARTED, 60.5, CODE, dict(STACK), "NVIDIA H200"),
    (FaultResult("wrong-tile", "a tile", "fail by numerics/", "fail", "numerics/randn", 2, 2),),
    ("compiler-hang",),
)
CARRIED_KEY, CARRIED = "a" * 64, Toolchain("3.9.0", {"ptxas": "13.1"}, {}, "b" * 64, "3.11")
CARRIED_FILES = {"mm.json": b'{"hash": "c", "target": {"arch": 90}}', "mm.ptx": b".version 8.8", "mm.cubin": b"\x7fELF"}


def carried_file(files: dict[str, bytes]) -> bytes:
    """Returns the database of one carried kernel with ``files``, as ``conformance precompile`` would write them."""
    with tempfile.TemporaryDirectory() as scratch:
        kernels = CarriedKernels(Path(scratch), write=True)
        edition = CARRIED.edition
        digest = carried_kernels._digest(CARRIED_KEY, edition, "pass", "", files)
        with contextlib.closing(kernels), kernels._database as database:
            database.execute("INSERT INTO toolchains VALUES (?, ?)", (edition, json.dumps(dataclasses.asdict(CARRIED))))
            database.execute("INSERT INTO kernels VALUES (?, ?, 'pass', '', ?)", (CARRIED_KEY, edition, digest))
            rows = [(CARRIED_KEY, edition, name, zlib.compress(content)) for name, content in files.items()]
            database.executemany("INSERT INTO files VALUES (?, ?, ?, ?)", rows)
        return (Path(scratch) / KERNELS_FILE).read_bytes()


def take_carried(path: Path) -> Any:
    """Reads a carried kernel and writes its files into a cache, as Triton does."""
    with contextlib.closing(CarriedKernels(path.parent)) as kernels:
        editions = [one.edition for one in kernels.toolchains()]
        found = kernels.get(CARRIED_KEY, CARRIED.edition)
        for name, content in found[2].items() if found else ():
            (path.parent / name).write_bytes(content)
        return editions, found


def take_shards(run: RunInfo) -> Callable[[Path], Any]:
    """Reads the shards of the merged ``run``, and computes it again, as a verifier does."""

    def take(path: Path) -> Any:
        parts = contents._parts(path.read_bytes(), run)
        check_parts(parts, mixed_devices=False)
        computed = combined_run(parts, "whole", judged=True)
        return computed, combined_environment(parts, computed)

    return take


def readers(bundle: Sample) -> list[Reader]:
    """Returns every reader with a file that it takes. ``bundle`` is a signed run."""
    folder = bundle.folder
    lines = (folder / "records.jsonl").read_bytes()

    def of_folder(name: str) -> Callable[[Path], Any]:
        """Reads a whole run, one file of which is fuzzed."""
        others = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}

        def read(path: Path) -> Any:
            for other, content in others.items():
                if other != name and (name, other) != ("records.jsonl.gz", "records.jsonl"):
                    (path.parent / other).write_bytes(content)
            return read_compared_run(path.parent).problems

        return read

    def taken(path: Path) -> Any:
        verified = verify(path.read_bytes(), bundle.policy)
        return verified.members, verified.statement

    def stored(path: Path) -> Any:
        return len(read_records(path).records)

    with tempfile.TemporaryDirectory() as scratch:
        merged = merge(write_shards(Path(scratch)), Path(scratch) / "whole")
        shards = (Path(scratch) / "whole" / SHARDS_FILE).read_bytes()
    one = {
        "unpack": lambda data: {"lines": gzip.decompress(data)},
        "pack": lambda parts: gzip.compress(next(iter(parts.values()))),
    }
    finding = {"case": "test_a.py::test_b[c]", "kernel": "mm", "target": "sm_90"}
    group = {"kind": "NEW_FAIL", "cause": "wrong", "severity": "regression", "findings": [finding]}
    sides = {"baseline": {"name": "a"}, "candidate": {"name": "b", "started": "2026-11-01"}}
    answer = {"schema": 2, "answer": "NOT SAFE", "groups": [group], **sides}
    refused = (EntryError,)
    carried_refusals = (Unusable, sqlite3.Error, OSError)
    listed = bundle.files["mustpass"].read_bytes()
    calibration = json.dumps(json.loads((DATA / "tensor_cores.json").read_text())[0]).encode()
    stacks = b'compare = "previous"\n[stack.a]\nuse = "current"\n[stack.b]\nuse = "triton==3.9.0"\nenv = { A = "b" }\n'
    thresholds = b"[SLOWER]\nshare = 0.02\n[MORE_SPILLS]\nregression_bytes = 64\n"
    return [
        Reader("records.jsonl", lines, stored, (RecordError,)),
        Reader("records.jsonl.gz", gzip.compress(lines), stored, (RecordError, OSError), **one),
        Reader(
            "run.json",
            (folder / "run.json").read_bytes(),
            lambda path: run_from_text(path.read_bytes()),
            (RecordError,),
        ),
        *(
            Reader(name, (folder / name).read_bytes(), of_folder(name), (RecordError,))
            for name in ("records.jsonl", "run.json", "environment.json", "selected.txt")
        ),
        Reader("bundle.zip", bundle.data, taken, (Rejected,), zip_members, zipped, signed=True),
        Reader("bundle.zip", bundle.data, taken, (Rejected,), read_archive, as_the_harness_packs, signed=True),
        Reader("expected.toml", entry().encode(), lambda path: read_expected_failures([path]), refused),
        Reader("waivers.toml", waiver().encode(), read_waivers, refused),
        Reader("thresholds.toml", thresholds, read_thresholds, refused),
        Reader("profiles.toml", PROFILE, lambda path: read_profiles([path]), refused),
        Reader("stacks.toml", stacks, read_matrix, (StackError,)),
        Reader("cases.txt", b"test_a.py::test_b[c]\n# d\n", read_case_list, (CaseListError,)),
        Reader("list.txt", listed, read_list, (MustpassError,)),
        Reader("calibration.json", calibration, read_calibration, (CalibrationError,)),
        Reader(
            KERNELS_FILE,
            carried_file(CARRIED_FILES),
            take_carried,
            carried_refusals,
            lambda _: CARRIED_FILES,
            carried_file,
        ),
        Reader(SELFTEST_FILE, to_json(SELFTEST), lambda path: read_selftest(path.read_bytes()), (Rejected,)),
        Reader(SHARDS_FILE, shards, take_shards(merged), (Rejected, UnionError)),
        Reader(
            "durations.json",
            b'{"schema": 1, "with_gpu": {"test_a.py::test_b[mm": 12}, "without_gpu": {}}',
            lambda path: read_durations(path, has_gpu=True).weights(["test_a.py::test_b[mm-bf16]"]),
            (DurationsError,),
        ),
        Reader("comparison.json", json.dumps(answer).encode(), read_earlier_answer, (EarlierAnswerError,)),
    ]


class Watched:
    """Notes what this process does that a reader must not do. An audit hook cannot be taken away: use it in a fork."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.seen: list[str] = []
        self.content = b""
        self.on = False
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: Sequence[Any]) -> None:
        if not self.on:
            return
        if FORBIDDEN.fullmatch(event):
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event == "open" and _writes(arguments) and not self._is_inside(arguments[0]):
            self.seen.append(f"writes {arguments[0]!r:.200}")
        elif CHANGING.fullmatch(event) and not self._is_inside(arguments[0]):
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event == "compile" and isinstance(arguments[0], str | bytes):
            source = arguments[0].encode() if isinstance(arguments[0], str) else arguments[0]
            if source in self.content and not source.isalnum():  # names are those of types, which dataclasses look up
                self.seen.append(f"compiles {source!r:.200}")

    def _is_inside(self, path: Any) -> bool:
        return isinstance(path, int) or os.path.realpath(os.fsdecode(path)).startswith(self._folder)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.on = True
        try:
            yield
        finally:
            self.on = False


def _writes(arguments: Sequence[Any]) -> bool:
    mode, flags = arguments[1], arguments[2] or 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)) or bool(set(str(mode or "")) & set("wax+"))


class TooLong(BaseException):
    """A reader has not answered in time."""


def _too_long(*_: object) -> None:
    raise TooLong


def tried(reader: Reader, content: bytes, folder: Path, watched: Watched, right: Any) -> tuple[str, str]:
    """Returns how ``reader`` ended on ``content``: "taken", "refused" or "fault", and what the fault is."""
    for old in folder.iterdir():
        old.unlink()
    path = folder / reader.name
    path.write_bytes(content)
    watched.seen.clear()
    watched.content = content
    signal.alarm(LIMIT_S)
    try:
        with watched.watching():
            result = reader.read(path)
        ending = "taken", ""
        if reader.signed and result != right:
            ending = "fault", "a signed bundle was taken with other content"
    except reader.refusals as error:
        ending = "refused", ""
        if not str(error).strip():
            ending = "fault", f"{type(error).__name__} without a word"
    except TooLong:
        ending = "fault", f"no answer after {LIMIT_S} s"
    except BaseException as error:
        ending = "fault", f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.alarm(0)
    return ("fault", "; ".join(watched.seen[:3])) if watched.seen else ending


def fuzz(count: int, seed: int, only: str = "") -> tuple[dict[str, Counter[str]], list[Fault]]:
    """Tries ``count`` inputs of ``seed``, in turn of each reader whose name has ``only`` in it. Returns the endings by
    reader, and the faults. Adds an audit hook to this process."""
    signal.signal(signal.SIGALRM, _too_long)
    counts: dict[str, Counter[str]] = {}
    faults = []
    with tempfile.TemporaryDirectory() as scratch:
        chosen = [reader for reader in readers(sample(Path(scratch) / "evidence")) if only in reader.name]
        folder = Path(os.path.realpath(scratch)) / "input"
        folder.mkdir()
        tempfile.tempdir = str(folder)
        watched = Watched(folder)
        right = []
        for reader in chosen:  # what is fuzzed is taken without a change
            path = folder / reader.name
            path.write_bytes(reader.content)
            right.append(reader.read(path))
        for number in range(count):
            which = number % len(chosen)
            reader, name = chosen[which], f"{seed}:{number}"
            draw = random.Random(name)
            packed = reader.unpack is not None and draw.randrange(2)
            content = below(reader, draw) if packed else changed(reader.content, draw)
            ending, text = tried(reader, content, folder, watched, right[which])
            counts.setdefault(reader.name, Counter())[ending] += 1
            if ending == "fault":
                faults.append(Fault(reader.name, name, text))
    return counts, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="NAME", help="only the readers of files with this in their name")
    arguments = parser.parse_args()
    counts, faults = fuzz(arguments.count, arguments.seed, arguments.only)
    for name, endings in counts.items():
        print(f"{name:20}", *(f"{endings[ending]:6} {ending}" for ending in ("taken", "refused", "fault")))
    for fault in faults[:40]:
        print(f"{fault.reader} {fault.seed}: {fault.text}")
    print(f"{sum(sum(endings.values()) for endings in counts.values())} inputs, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
