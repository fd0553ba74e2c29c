"""Status, typed reasons and the record of one case. Imports neither torch nor triton.

A run's folder holds ``run.json`` (:class:`RunInfo`) and ``records.jsonl``: one :class:`CaseRecord` per line. While the
run goes on, or when it was killed, each worker's lines are in a ``records-<worker>.jsonl`` of its own instead. What is
read back is not trusted: every line is checked, and what cannot be used is reported, never skipped in silence.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import math
import os
import re
import stat
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Generic, NamedTuple, TypeVar, overload

import msgspec

from conformance import record_forms

SCHEMA = 3  # of a record's line and of run.json; raised whenever the meaning of a field changes
READABLE_SCHEMAS = (1, 2, 3)  # schema 1 called an expected failure "waived"; schema 3 has short forms
RECORDS_FILE = "records.jsonl"
RUN_FILE = "run.json"
#: In a run's folder while it runs: how far it is, as text.
PROGRESS_FILE = "progress.txt"
RUN_LIMIT = 16 << 20  # bytes of a run.json that are read: it may come from a stranger. Records are read line by line
LARGEST = 10**15  # of a figure: one that is larger was not measured
_Read = TypeVar("_Read", bound="CaseRecord | RunInfo")
LINE_LIMIT = 4 << 20  # bytes of one line. A line has about 5 KB; each text in it is cut at 20,000 characters
PROBLEMS_KEPT = 20  # sentences about unusable lines; the others are counted
BLOCK = 1 << 18  # bytes of a file that are searched at once
TEXT_LIMIT = 20_000  # characters of one text in a record: a line stays readable whatever a compiler printed


class Status(str, Enum):
    """The outcome of one case. ``NOT_RUN`` and ``NOT_APPLICABLE`` never count as passed."""

    PASS = "pass"
    FAIL = "fail"
    COMPILE_ERROR = "compile-error"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OOM = "oom"
    FLAKY = "flaky"
    NOT_APPLICABLE = "not-applicable"
    NOT_RUN = "not-run"
    EXPECTED_FAIL = "expected-fail"  # failed as an expected failure says
    UNEXPECTED_PASS = "unexpected-pass"

    @classmethod
    def _missing_(cls, value: object) -> Status | None:
        """Reads the names that schema 1 had."""
        return cls.EXPECTED_FAIL if value == "waived" else None


class ExecutorName(str, Enum):
    """Where launches run; formats as its value."""

    DEVICE = "device"
    INTERPRETER = "interpreter"

    __str__ = str.__str__


class ReasonCode(str, Enum):
    """Why a kernel or target cannot take a case. Every skip and every refusal carries one."""

    OPERATION = "operation"  # the kernel computes something else
    DTYPE = "dtype"  # operand, output or bias dtype not taken
    PRECISION = "precision"  # the requested fp32 precision is not offered by this target
    LAYOUT = "layout"  # operand order or inner stride not taken
    ALIGNMENT_BASE = "alignment-base"  # first byte not on the boundary that a descriptor needs
    ALIGNMENT_PITCH = "alignment-pitch"  # leading stride in bytes not a multiple of 16
    ALIGNMENT_EXTENT = "alignment-extent"  # inner extent in bytes not a multiple of 16: a descriptor store would spill
    BLOCK_BYTES = "block-bytes"  # a descriptor block's inner dimension is shorter than 16 bytes
    SCALE = "scale"  # shape, length, stride or dtype of a scale
    BIAS = "bias"  # shape, stride or dtype of the bias
    CONFIG = "config"  # block sizes, stages or warps that the kernel cannot use
    SHARED_MEMORY = "shared-memory"  # needs more shared memory than the target has
    CAPABILITY = "capability"  # the target lacks a hardware feature or the installed Triton cannot use it
    EXTENT = "extent"  # a size or a stride past what the kernel or descriptor can address
    NO_DEVICE = "no-device"  # this check needs a device and there is none
    NO_INTERPRETER = "no-interpreter"  # the interpreter cannot run this dtype or operation
    TIER = "tier"  # not part of the chosen tier
    KNOWN_DEFECT = "known-defect"  # a defect of what is tested; the subject is the id of the expected failure


@dataclass(frozen=True)
class Reason:
    """A typed reason: ``code``, what it is about (``subject``: an operand, option or capability) and a sentence
    that says what was given, what is required and what to do."""

    code: ReasonCode
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.code.value} ({self.subject}): {self.detail}"


class ConformanceFailure(AssertionError):
    """A check of a case failed; the message is its diagnosis."""


class CompileFailure(Exception):
    """A case's kernel did not compile: ``status`` says how (compile-error, crash, timeout, oom)."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class RecordError(ValueError):
    """A line or file that is not a valid record; the message says what is given and what is required."""


class CheckKind(str, Enum):
    """The first part of a check's name. Each comment says what the check's subject is."""

    NUMERICS = "numerics"  # an output's values; a fill, and the output where it is not the first
    MEMORY = "memory"  # operands and the memory around them; the fill that found them disturbed
    REPEAT = "repeat"  # two runs of one input; a fill
    GRID = "grid"  # the programs that ran
    REQUIRES = "codegen/requires"  # a feature that the code must have
    FORBIDS = "codegen/forbids"  # a feature that the code must not have
    CODEGEN = "codegen"  # anything else about the code
    RESOURCES = "resources"  # the target's limits; a launch beside the main one
    SPILLS = "spills"
    COMPILE = "compile"  # a generated kernel
    DIAGNOSIS = "diagnosis"
    OTHER = ""  # a suite's own check; its whole name


@dataclass(frozen=True)
class Check:
    """The name of a check: what it looks at, its subject, and the config if a case judges several.

    Its text is ``kind/subject@config``, such as "codegen/requires/TMA_LOAD" or "numerics/randn@64x64x32-s3-w4".
    Records and verdicts hold the text.
    """

    kind: CheckKind
    subject: str = ""
    config: str = ""

    def __str__(self) -> str:
        return f"{self.name}@{self.config}" if self.config else self.name

    @property
    def name(self) -> str:
        """The text without the config."""
        return "/".join(part for part in (self.kind.value, self.subject) if part)

    @property
    def group(self) -> str:
        """The first part of the name: "codegen" for every check of the code."""
        return self.name.partition("/")[0]

    @classmethod
    def parse(cls, text: str) -> Check:
        """The check that ``text`` names. Every text names one: what is not the harness's own is of kind OTHER."""
        return _parsed_check(text)


@functools.lru_cache(maxsize=1 << 16)
def _parsed_check(text: str) -> Check:
    name, _, config = text.partition("@")
    for kind in CheckKind:  # REQUIRES and FORBIDS come before CODEGEN, OTHER last
        if name == kind.value:
            return Check(kind, "", config)
        if kind.value and name.startswith(f"{kind.value}/"):
            return Check(kind, name[len(kind.value) + 1 :], config)
    return Check(CheckKind.OTHER, name, config)


@dataclass(frozen=True)
class Verdict:
    """What one check said. ``check`` is the text of a :class:`Check`, ``details`` hold its figures."""

    check: str
    passed: bool
    text: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """The evidence of one case. ``durations`` are seconds by stage (compile, run, check, total); ``artefacts`` maps
    a stage to a path, relative to the run's folder where the file lies in it; ``outcome`` is what pytest said."""

    case: str
    suite: str
    status: Status
    reason: Reason | None = None
    kernel: str | None = None
    problem: Mapping[str, Any] | None = None
    config: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    target: str | None = None
    executor: str | None = None
    tier: str | None = None
    seed: int | None = None
    stack: Mapping[str, Any] = field(default_factory=dict)
    durations: Mapping[str, float] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    observed: Mapping[str, Any] = field(default_factory=dict)
    artefacts: Mapping[str, str] = field(default_factory=dict)
    worker: str = ""
    gpu: str | None = None
    outcome: str = ""
    diagnosis: str = ""
    repro: str = ""
    schema: int = SCHEMA

    def to_line(self) -> str:
        """One line of strict JSON, newline included. It lacks what has its default, and has the short forms of
        :mod:`conformance.record_forms`."""
        return compact_json(_packed(self)) + "\n"


_ALWAYS = ("case", "suite", "status", "schema")


def _packed(record: CaseRecord) -> dict[str, Any]:
    """The JSON object of ``record`` as its line has it."""
    packed: dict[str, Any] = {}
    for name in CaseRecord.__slots__:
        value = getattr(record, name)
        if value or value == 0 or name in _ALWAYS:  # a seed of 0 is no default
            packed[name] = [*map(_packed_verdict, value)] if name == "verdicts" else jsonable(value)
    for name in packed.keys() & {"problem", "config"}:
        packed[name] = record_forms.pack_mapping(packed[name])
    if "artefacts" in packed:
        packed["artefacts"] = record_forms.pack_artefacts(packed["artefacts"])
    if "repro" in packed:
        packed["repro"] = record_forms.pack_repro(packed["case"], packed["repro"])
    return packed


def _packed_verdict(verdict: Verdict) -> list[Any]:
    check, text, details = jsonable(verdict.check), jsonable(verdict.text), jsonable(verdict.details)
    figures = record_forms.pack_verdict(check, text, details) if verdict.passed else None
    if figures is not None:
        return [check, verdict.passed, figures]
    return [check, verdict.passed, text, details] if details else [check, verdict.passed, text]


class _PackedVerdict(msgspec.Struct, array_like=True, gc=False):
    check: str
    passed: bool
    text: str | list[Any] = ""
    details: dict[str, Any] = {}


class _PackedRecord(msgspec.Struct, gc=False):
    """A line of schema 3."""

    case: str
    suite: str
    status: Status
    schema: int
    reason: Reason | None = None
    kernel: str | None = None
    problem: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    options: dict[str, Any] = {}
    target: str | None = None
    executor: str | None = None
    tier: str | None = None
    seed: int | None = None
    stack: dict[str, Any] = {}
    durations: dict[str, float] = {}
    verdicts: list[_PackedVerdict] = []
    observed: dict[str, Any] = {}
    artefacts: dict[str, str] | tuple[str, str] = {}
    worker: str = ""
    gpu: str | None = None
    outcome: str = ""
    diagnosis: str = ""
    repro: str | tuple[str] = ""

    def unpacked(self) -> CaseRecord:
        """The record. Raises ValueError, or another error of Python's, for forms that are not known."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["problem"] = record_forms.unpack_mapping(self.problem)
        fields["config"] = record_forms.unpack_mapping(self.config)
        fields["verdicts"] = tuple(_unpacked_verdict(verdict) for verdict in self.verdicts)
        fields["artefacts"] = record_forms.unpack_artefacts(self.artefacts)
        fields["repro"] = record_forms.unpack_repro(self.case, self.repro)
        return CaseRecord(**fields)


def _unpacked_verdict(packed: _PackedVerdict) -> Verdict:
    if isinstance(packed.text, str):
        return Verdict(packed.check, packed.passed, packed.text, packed.details)
    if not packed.passed:
        raise ValueError(f"the check {packed.check!r} failed and has the form of one that passed")
    return Verdict(packed.check, True, *record_forms.unpack_verdict(packed.check, packed.text))


@dataclass(frozen=True)
class KernelDeclarations:
    """What a kernel from elsewhere says that its results are measured by. ``by`` is the entry point with the package
    that brought it; ``thresholds`` are tables by kinds of findings, as :mod:`conformance.gate.changes.thresholds` has
    them. ``expected_failures`` are the tables of its file, ``spills`` the lines about known spills."""

    by: str
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    expected_failures: tuple[Mapping[str, Any], ...] = ()
    spills: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunInfo:
    """What ``run.json`` holds. ``wall_s`` is None until the run ended; ``problems`` are sentences about the run as a
    whole, such as records that are missing; ``gpus`` are the entries of the visible-devices list. ``bill`` names all
    that makes code, as :mod:`conformance.gate.runs.bill_of_materials` finds it. ``declared`` is by kernels' names."""

    id: str
    started: str
    tier: str
    seed: int
    targets: tuple[str, ...] = ()
    workers: int = 0
    gpus: tuple[str, ...] = ()
    stack: Mapping[str, Any] = field(default_factory=dict)
    selected: int | None = None
    wall_s: Annotated[float, msgspec.Meta(ge=0, le=LARGEST)] | None = None
    problems: tuple[str, ...] = ()
    bill: Mapping[str, str] = field(default_factory=dict)
    declared: Mapping[str, KernelDeclarations] = field(default_factory=dict)
    schema: int = SCHEMA


def compact_json(value: Any) -> str:
    """``value``, which :func:`jsonable` made, as JSON in ASCII."""
    try:
        text = msgspec.json.encode(value)  # in a tenth of the time
        if text.isascii():
            return text.decode()
    except (OverflowError, RecursionError):  # an integer of more than 64 bits
        pass
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


_PLAIN = {type(None), bool}
#: Integers from here on are no numbers to a reader that has floats.
_LARGE_INTEGER = 10**300


def jsonable(value: Any) -> Any:
    """``value`` as strict JSON data: dataclasses become objects (with their ``id`` property, if any), numbers that
    JSON lacks become text, long text is cut, lone surrogates are escaped and anything unknown becomes its ``str``."""
    kind = type(value)
    if kind in _PLAIN or (kind is str and len(value) <= TEXT_LIMIT and value.isascii()):
        return value  # most values, at once
    if kind is float:
        return value if math.isfinite(value) else repr(value)
    if kind is int:
        return value if -_LARGE_INTEGER < value < _LARGE_INTEGER else jsonable(hex(value))
    if kind is dict:
        return {_key(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return jsonable(value.value)
    if isinstance(value, int):
        return jsonable(int(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, str):
        if not value.isascii():
            value = value.encode("utf-8", "backslashreplace").decode()  # a lone surrogate is no text elsewhere
        return value if len(value) <= TEXT_LIMIT else value[:TEXT_LIMIT] + f" ... ({len(value)} characters)"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {"id": value.id} if hasattr(value, "id") else {}
        return jsonable({**named, **{f.name: getattr(value, f.name) for f in dataclasses.fields(value)}})
    if isinstance(value, Mapping):
        return {_key(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)]
    return jsonable(str(value))


def _key(key: Any) -> str:
    return key if type(key) is str and key.isascii() else str(jsonable(str(key)))


class Reader(Generic[_Read]):
    """Reads JSON objects of one dataclass: every field must be there and of its declared type, but for those of
    ``later``, which older versions did not write. Other fields are passed over."""

    def __init__(self, of: type[_Read], later: Sequence[str] = ()) -> None:
        names = [field.name for field in dataclasses.fields(of) if field.name not in later]
        required = [(name, int if name == "schema" else msgspec.Raw) for name in names]
        self._decode_schema = msgspec.json.Decoder(msgspec.defstruct("Required", required)).decode
        self._decode = msgspec.json.Decoder(of).decode

    def read(self, text: str | bytes) -> _Read:
        """The object in ``text``, in the terms of this version. Raises :class:`RecordError`."""
        text = without_surrogates(text)
        try:
            schema: int = self._decode_schema(text).schema  # type: ignore[attr-defined]
            value = self._decode(text) if schema in READABLE_SCHEMAS else None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise unreadable(text, error) from None
        if value is None:
            raise unreadable(text)
        return value if schema == SCHEMA else dataclasses.replace(value, schema=SCHEMA)


def without_surrogates(text: str | bytes) -> bytes:
    """``text`` as msgspec can read it: older versions wrote lone surrogates, which it refuses. Raises
    :class:`RecordError`."""
    text = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    refuse_huge_numbers(text)
    if b"\\ud" not in text:
        return text
    try:
        return json.dumps(jsonable(_parsed(text))).encode()
    except (ValueError, RecursionError) as error:
        raise unreadable(text, error) from None


class _SchemaOnly(msgspec.Struct):
    schema: int


_decode_schema = msgspec.json.Decoder(_SchemaOnly).decode


def schema_of(line: bytes) -> int:
    """The schema of a record's ``line``. Raises an error of msgspec's."""
    return _decode_schema(line).schema


def unreadable(text: str | bytes, error: Exception | None = None) -> RecordError:
    """Says why ``text`` cannot be read: what is required and what is given there. ``error`` is the decoder's."""
    try:
        data = _parsed(text)
    except (ValueError, RecursionError) as fault:
        return RecordError(f"not a line of JSON: {fault}")
    if not isinstance(data, dict):
        return RecordError(f"a JSON object is required, got {type(data).__name__}")
    if data.get("schema") not in READABLE_SCHEMAS:
        *known, last = map(str, READABLE_SCHEMAS)
        text = f"this version reads the schemas {', '.join(known)} and {last}"
        return RecordError(f"schema {data.get('schema')!r:.40}: {text}")
    required, _, place = str(error).partition(" - at `$.")
    required, place = required.partition(", got ")[0], place.rstrip("`").partition("[...]")[0]
    value: Any = data
    try:
        for step in re.findall(r"\w+", place):
            value = value[int(step)] if isinstance(value, list) else value[step]
    except (KeyError, IndexError, TypeError, ValueError):  # the fault is in another value of the same name
        return RecordError(f"not usable: {error}")
    if not isinstance(error, msgspec.ValidationError):
        return RecordError(f"not usable: {error}")
    if required.startswith("Expected"):
        required += f", got {value!r:.80}"
    return RecordError(f"{place}: {required}" if place else required)


def _parsed(text: str | bytes) -> Any:
    return json.loads(text, parse_constant=no_constant, parse_float=finite, parse_int=finite_integer)


def no_constant(name: str) -> None:
    """Raises ValueError for NaN and the infinities, which Python's JSON has and JSON has not."""
    raise ValueError(f"{name} is no JSON number")


def finite(text: str) -> float:
    """The number that ``text`` writes. Raises ValueError for one that would be read as infinity."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is larger than any number that can be used")
    return value


def finite_integer(text: str) -> int:
    """The integer that ``text`` writes. Raises ValueError for one that no float comes near."""
    finite(text)
    return int(text)


_RECORDS = Reader(CaseRecord)  # of the schemas 1 and 2
_decode_packed = msgspec.json.Decoder(_PackedRecord).decode
_RUNS = Reader(RunInfo, later=("bill", "declared"))


def from_line(line: str | bytes) -> CaseRecord:
    """The record on ``line``. Raises :class:`RecordError` that says what is wrong with it."""
    text = without_surrogates(line)
    try:
        record = _decode_packed(text).unpacked() if schema_of(text) == SCHEMA else None
    except Exception as error:
        raise unreadable(text, error) from None
    record = record or _RECORDS.read(text)
    if record.status is Status.PASS:
        refuse_unproven(record.case, record.verdicts)
    return record


def refuse_unproven(case: str, verdicts: Sequence[Any]) -> None:
    """Raises :class:`RecordError` if a ``case`` with the status pass has no ``verdicts``, or if one of them failed."""
    failed = next((verdict.check for verdict in verdicts if not verdict.passed), None)
    if failed is not None:
        raise RecordError(f"case {case!r}: status pass, and the check {failed!r} failed")
    if not verdicts:
        raise RecordError(f"case {case!r}: status pass, and nothing was judged: a pass needs a verdict")


_AS_ZEROS = bytes.maketrans(b"123456789E", b"000000000e")


def refuse_huge_numbers(text: bytes) -> None:
    """Raises :class:`RecordError` if the JSON ``text`` has a number that would be read as infinity, wherever it is. A
    decoder looks only at the fields that its reader needs, so two readers would differ."""
    if _may_be_huge(text):
        try:
            _parsed(text)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"not a line of JSON: {error}") from None


def _may_be_huge(text: bytes) -> bool:
    """Whether ``text`` has 300 digits in a row, or a number with an exponent of three digits. That takes a hundredth of
    the time of reading it."""
    zeros = text.translate(_AS_ZEROS)
    return _DIGITS in zeros or any(_has_number(zeros, end) for end in (b"0e000", b"0e+000"))


def _has_number(zeros: bytes, end: bytes) -> bool:
    at = zeros.find(end)
    while at >= 0 and zeros[max(at - 40, 0) : at].rstrip(b"0.-")[-1:] not in b" \t\r\n[:,":  # such as a digest
        at = zeros.find(end, at + 1)
    return at >= 0


_DIGITS = b"0" * 300


class LinePlaces:
    """Places of lines in files, in the caller's order. A line is read when it is asked for, so that the files may be
    larger than memory."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._opened = [os.open(file, os.O_RDONLY) for file in files]
        weakref.finalize(self, _close, self._opened)
        self._places = array("Q")  # of each line: the number of its file, its start and its length in bytes

    def append(self, file: int, start: int, length: int) -> None:
        """Adds the line of ``length`` bytes that begins at ``start`` of the file with this number."""
        self._places.extend((file, start, length))

    def pop(self) -> None:
        """Removes the place that was added last."""
        del self._places[-3:]

    def __len__(self) -> int:
        return len(self._places) // 3

    def place(self, index: int) -> tuple[int, int, int]:
        """Number of the file, start and length."""
        file, start, length = self._places[3 * index : 3 * index + 3]
        return file, start, length

    def line(self, index: int) -> bytes:
        """The line at this place."""
        file, start, length = self.place(index)
        return os.pread(self._opened[file], length, start)


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


class StoredRecords(Sequence[CaseRecord]):
    """The records whose lines lie at ``places``. Each is read whenever it is asked for, so none is held here."""

    def __init__(self, places: LinePlaces) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> CaseRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[CaseRecord]: ...

    def __getitem__(self, index: int | slice) -> CaseRecord | Sequence[CaseRecord]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return from_line(self._places.line(range(len(self))[index]))


@dataclass(frozen=True)
class Reading:
    """The valid records of a run, and a sentence for every line that could not be used."""

    records: Sequence[CaseRecord]
    problems: tuple[str, ...] = ()


def record_files(folder: Path) -> list[Path]:
    """The files that hold a run's records: the merged one, or those of the workers while there is none."""
    merged = folder / RECORDS_FILE
    return [merged] if merged.exists() else sorted(folder.glob("records-*.jsonl"))


def files_to_read(path: Path) -> list[Path]:
    """``path`` if it is a file of records, else those of the run in that folder. Raises FileNotFoundError if there is
    nothing to read."""
    files = record_files(path) if path.is_dir() else [path]
    if not files or not all(file.exists() for file in files):
        raise FileNotFoundError(f"{path} holds no records: give a run's folder or a {RECORDS_FILE}")
    return [plain_file(file) for file in files]


def plain_file(path: Path) -> Path:
    """``path``, if it is a file with an end. Raises OSError for anything else: a reader would wait at a fifo for ever,
    and read a device until memory ends."""
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, "a file is required, and this is a fifo, a device or a folder", str(path))
    return path


class LineProblems:
    """Sentences about the lines of a file that cannot be used. The first :data:`PROBLEMS_KEPT` are kept, the others
    counted: a file of another kind may have millions of lines."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self.count = 0

    def add(self, text: str) -> None:
        """Adds a sentence, cut if it is long."""
        self.count += 1
        if self.count <= PROBLEMS_KEPT:
            self._kept.append(text if len(text) <= 500 else text[:500] + " ...")

    def add_line(self, file: Path, number: int, line: bytes, error: RecordError) -> None:
        """Adds the sentence about the unusable ``line`` with this ``number`` in ``file``."""
        torn = "" if line.endswith(b"\n") or len(line) > LINE_LIMIT else "torn last line: "
        self.add(f"{file.name}:{number}: {torn}{error}")

    @property
    def sentences(self) -> list[str]:
        """What was kept, and how many more there were."""
        more = self.count - len(self._kept)
        return [*self._kept, f"{more} more problems are not listed"] if more else list(self._kept)


def read_records(path: str | os.PathLike[str]) -> Reading:
    """Reads a records file, or those of a run's folder. A last line that was cut short (its writer died) and every
    invalid line become problems. Raises FileNotFoundError if there is nothing to read."""
    files = files_to_read(Path(path))
    problems = LineProblems()
    places = LinePlaces(files)
    for number, file in enumerate(files):
        for _, start, length in each_record(file, problems):
            places.append(number, start, length)
    return Reading(StoredRecords(places), tuple(problems.sentences))


class PlacedRecord(NamedTuple):
    """A record and its line's place in its file, in bytes."""

    record: CaseRecord
    start: int
    length: int


def each_record(file: Path, problems: LineProblems, part: str = "") -> Iterator[PlacedRecord]:
    """The valid records in ``file``, one at a time: a file may have any size. Every line that cannot be used adds a
    sentence to ``problems``. With ``part``, whole lines without this text are passed over."""
    written = json.dumps(part)[1:-1].encode()
    counted, number = 0, 1  # a place in the file, and the number of its line
    with file.open("rb") as stream:
        for start, line in _lines_with(written, stream) if written else lines(stream):
            try:
                refuse_long(line)
                yield PlacedRecord(from_line(line), start, len(line))
            except RecordError as error:
                counted, number = start, number + _line_ends(file, counted, start)
                problems.add_line(file, number, line, error)


def _lines_with(part: bytes, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Those of :func:`lines` that contain ``part`` or lack an end. Most blocks have none: to search a block takes a
    fifth of the time of searching its lines one at a time."""
    while block := stream.read(BLOCK):
        block += stream.readline(LINE_LIMIT + 1)
        if part not in block and block.endswith(b"\n") and len(block) <= LINE_LIMIT:
            continue
        end = stream.tell()
        stream.seek(end - len(block))
        for start, line in lines(stream):
            whole = line.endswith(b"\n")
            if part in line or not whole:
                yield start, line
            if whole and start + len(line) >= end:  # the rest of a line that was cut is skipped before the next
                break


def _line_ends(file: Path, start: int, end: int) -> int:
    """The number of line ends in ``file`` between two places in bytes."""
    count = 0
    with file.open("rb") as stream:
        stream.seek(start)
        while start < end and (block := stream.read(min(BLOCK, end - start))):
            start += len(block)
            count += block.count(b"\n")
    return count


def lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Where each line of ``stream`` begins, and the line. One past the limit is cut, so that :func:`refuse_long`
    refuses it; its rest is skipped."""
    while line := stream.readline(LINE_LIMIT + 1):
        yield stream.tell() - len(line), line
        while not line.endswith(b"\n") and (line := stream.readline(LINE_LIMIT + 1)):
            pass


def refuse_long(line: bytes) -> None:
    """Raises :class:`RecordError` for a line that :func:`lines` cut."""
    if len(line) > LINE_LIMIT:
        raise RecordError(f"a line of more than {LINE_LIMIT} bytes")


def read_run(folder: str | os.PathLike[str]) -> RunInfo:
    """The ``run.json`` of a run's folder. Raises FileNotFoundError or :class:`RecordError`."""
    refuse_more_than(RUN_LIMIT, Path(folder) / RUN_FILE)
    return run_from_text((Path(folder) / RUN_FILE).read_text(encoding="utf-8"))


def refuse_more_than(limit: int, *files: Path) -> None:
    """Raises OSError if ``files`` hold more than ``limit`` bytes together."""
    if sum(plain_file(file).stat().st_size for file in files) > limit:
        raise OSError(errno.EFBIG, f"more than {limit} bytes, which is all that is read", str(files[0]))


def run_from_text(text: str | bytes) -> RunInfo:
    """What ``text``, a ``run.json``, says. Raises :class:`RecordError`."""
    return _RUNS.read(text)


def replace_file(path: Path, text: str) -> None:
    """Writes ``text`` to ``path`` so that a reader finds the old content or the new one, never a part."""
    scratch = path.with_name(path.name + ".tmp")
    try:
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def incompleteness(selected: Iterable[str], recorded: Iterable[str]) -> list[str]:
    """Sentences about every difference between the selected case ids and the recorded ones; empty if they agree."""
    wanted = set(selected)
    missing, others, twice = wanted.copy(), set[str](), set[str]()  # the ids of ``recorded`` are not held
    for case in recorded:
        if case in missing:
            missing.discard(case)
        elif case in wanted or case in others:
            twice.add(case)
        else:
            others.add(case)
    groups = {
        "selected but not recorded": sorted(missing),
        "recorded but not selected": sorted(others),
        "recorded more than once": sorted(twice),
    }
    return [f"{len(cases)} {what}: {first_of(cases, 20)}" for what, cases in groups.items() if cases]


def first_of(texts: Sequence[str], most: int) -> str:
    """The first ``most`` of ``texts`` in a line, and how many more there are."""
    shown = ", ".join(texts[:most])
    return f"{shown} and {len(texts) - most} more" if len(texts) > most else shown
