"""Status, typed reasons, the record of one case and what ``run.json`` holds. Imports neither torch nor triton.

A record is one line of JSON. What is read back is not trusted: every line is checked, and one that cannot be used is an
error with a sentence.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from conformance import record_forms
from conformance.faults import Fault, FaultClass, deciding
from conformance.plain_json import RecordError, compact_json, jsonable, parsed, refuse_huge_numbers

SCHEMA = 3  # of a record's line and of run.json; raised whenever the meaning of a field changes
READABLE_SCHEMAS = (1, 2, 3)  # schema 1 called an expected failure "waived"; schema 3 has short forms
LARGEST = 10**15  # of a figure: one that is larger was not measured
_Read = TypeVar("_Read", bound="CaseRecord | RunInfo")


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


#: Statuses of a case that failed, and not as expected.
FAILING = (
    *(Status.FAIL, Status.COMPILE_ERROR, Status.CRASH, Status.TIMEOUT, Status.OOM),
    *(Status.FLAKY, Status.UNEXPECTED_PASS),
)


class ExecutorName(str, Enum):
    """Where launches run; formats as its value. A later one shows more: the source, what the compiler made of it, and
    that on a device."""

    INTERPRETER = "interpreter"
    TTGIR = "ttgir"
    DEVICE = "device"

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
    """A case's kernel did not compile: ``status`` says how (compile-error, crash, timeout, oom). ``fault`` says that
    the machine is to blame; None if the compiler is."""

    def __init__(self, status: Status, message: str, fault: Fault | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.fault = fault


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
    EXECUTED = "executed"  # what the compiler made, run without a device; its stage, or the check that failed there
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
    a stage to a path, relative to the run's folder where the file lies in it; ``outcome`` is what pytest said.
    ``fault`` says what broke if the case failed and what is tested is not to blame."""

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
    fault: Fault | None = None
    schema: int = SCHEMA

    @property
    def fault_class(self) -> FaultClass | None:
        """The class of what went wrong; None if the case did not fail, or only as expected."""
        if self.fault is not None:
            return self.fault.fault_class
        return FaultClass.REGRESSION if self.status in FAILING else None

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
    fault: Fault | None = None

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
    """What a third-party kernel says that its results are measured by. ``by`` is the entry point with the package
    that brought it; ``thresholds`` are tables by kinds of findings, as :mod:`conformance.user_files.thresholds` has
    them. ``expected_failures`` are the tables of its file, ``spills`` the lines about known spills."""

    by: str
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    expected_failures: tuple[Mapping[str, Any], ...] = ()
    spills: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunInfo:
    """What ``run.json`` holds. ``wall_s`` is None until the run ended; ``problems`` are sentences about the run as a
    whole, such as records that are missing; ``gpus`` are the entries of the visible-devices list. ``bill`` names all
    that makes code, as :mod:`conformance.gate.runs.bill_of_materials` finds it. ``declared`` is by kernels' names.

    ``faults`` are all that went wrong, those of cases counted by kind, and ``exit_status`` is what pytest returned.
    ``proof`` counts the cases by level of proof, ``required`` is the level of ``--require``. All four are None until
    the run ended, and in runs of older versions."""

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
    faults: tuple[Fault, ...] | None = None
    exit_status: int | None = None
    proof: Mapping[str, int] | None = None
    required: str | None = None
    schema: int = SCHEMA

    @property
    def fault_class(self) -> FaultClass | None:
        """The class that decided the exit status; None if all is well, or if the run did not say what went wrong."""
        return deciding(self.faults or ())


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
        return json.dumps(jsonable(parsed(text))).encode()
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
        data = parsed(text)
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


_RECORDS = Reader(CaseRecord, later=("fault",))  # of the schemas 1 and 2
_decode_packed = msgspec.json.Decoder(_PackedRecord).decode
_RUNS = Reader(RunInfo, later=("bill", "declared", "faults", "exit_status", "proof", "required"))


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


def run_from_text(text: str | bytes) -> RunInfo:
    """Returns what ``text``, a ``run.json``, says. Raises :class:`RecordError`."""
    return _RUNS.read(text)
