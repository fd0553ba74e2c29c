"""The record of one case, its verdicts and checks, and what ``run.json`` holds. Imports neither torch nor triton.

A record is one line of JSON. What is read back is not trusted: every line is checked, and one that cannot be used is an
error with a sentence.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, TypeVar

import msgspec

from conformance import short_forms
from conformance.case_status import FAILING, Reason, Status
from conformance.cluster_record import ClusterRecord
from conformance.faults import Fault, FaultClass, deciding
from conformance.plain_json import RecordError, compact_json, jsonable, parsed, refuse_huge_integers
from conformance.record_figures import LARGEST, Figures
from conformance.shard_record import MergedShards, Shard

SCHEMA = 4  # of a record's line and of run.json; raised whenever the meaning of a field changes
_Read = TypeVar("_Read")
READABLE_SCHEMAS = (1, 2, 3, 4)  # schema 1 called an expected failure "waived"; schema 3 had short forms


class CheckKind(str, Enum):
    """The first part of a check's name. Each comment says what the check's subject is."""

    NUMERICS = "numerics"  # an output's values; a fill, and the output where it is not the first
    MEMORY = "memory"  # operands and the memory around them; the fill that found them disturbed
    RACES = "races"  # programs of one launch that touch one element, and nothing orders them
    REPEAT = "repeat"  # two runs of one input; a fill
    GRID = "grid"  # the programs that ran
    REQUIRES = "codegen/requires"  # a feature that the code must have
    FORBIDS = "codegen/forbids"  # a feature that the code must not have
    CODEGEN = "codegen"  # anything else about the code
    RESOURCES = "resources"  # the target's limits; a launch other than the main one
    SPILLS = "spills"
    COMPILE = "compile"  # a generated kernel
    EXECUTED = "executed"  # what the compiler made, run without a device; its stage, or the check that failed there
    UNDEFINED_LANES = "undefined-lanes"  # lanes that the mask of a load leaves without a value
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


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The verdict of one check. ``check`` is the text of a :class:`Check`, ``details`` hold its figures."""

    check: str
    passed: bool
    text: str = ""
    details: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Rerun:
    """The end of a failed case that was judged again, in a fresh process on ``gpu``. ``failing`` names the checks that
    failed, ``diagnosis`` is the beginning of the case's. ``fault`` says that the machine broke this process."""

    status: Status
    failing: tuple[str, ...] = ()
    diagnosis: str = ""
    gpu: str | None = None
    fault: Fault | None = None

    def __str__(self) -> str:
        checks = f" ({', '.join(self.failing)})" if self.failing else ""
        broken = f", which {self.fault.fault_class.value} broke" if self.fault else ""
        return f"{self.status.value}{checks}{broken}"


@dataclass(frozen=True)
class CaseRecord:
    """The evidence of one case. ``durations`` are seconds by stage (compile, run, check, total); ``artefacts`` maps
    a stage to a path, relative to the run's folder where the file lies in it; ``outcome`` is what pytest said.
    ``fault`` says what broke if the case failed and what is tested is not to blame. ``reruns`` are what the case gave
    when it was judged again; a failed case without any was judged once."""

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
    reruns: tuple[Rerun, ...] = ()

    @property
    def fault_class(self) -> FaultClass | None:
        """The class of what went wrong; None if the case did not fail, or only as expected."""
        if self.fault is not None:
            return self.fault.fault_class
        return FaultClass.REGRESSION if self.status in FAILING else None

    def is_judged(self, compile_only: bool) -> bool:
        """True if the case was judged. A case that was not run may have verdicts of its code: they are enough in a run
        that is ``compile_only``, and in no other."""
        if self.status is Status.NOT_RUN:
            return compile_only and bool(self.verdicts)
        return self.status is not Status.NOT_APPLICABLE or bool(self.verdicts)

    @property
    def reason_name(self) -> str:
        """The code and the subject of the reason, such as "dtype (a)"; "" without one."""
        return self.reason.name if self.reason else ""

    @property
    def reason_detail(self) -> str:
        """The sentence of the reason; "" without one."""
        return self.reason.detail if self.reason else ""

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of all checks, in the order of the verdicts."""
        return tuple([verdict.check for verdict in self.verdicts])

    @cached_property
    def failing(self) -> tuple[tuple[str, str], ...]:
        """The name and the text of each check that failed."""
        return tuple([(verdict.check, verdict.text) for verdict in self.verdicts if not verdict.passed])

    @cached_property
    def figures(self) -> Figures:
        """The figures under ``observed`` that a comparison uses. Raises :class:`RecordError` for those of another
        type."""
        try:
            return msgspec.convert(self.observed, Figures)
        except msgspec.ValidationError as error:
            raise _unusable({"observed": self.observed}, error, "observed") from None

    def to_line(self) -> str:
        """Returns one line of strict JSON, newline included: the schema, then every field under its name."""
        return compact_json({"schema": SCHEMA, **jsonable(self)}) + "\n"


@dataclass(frozen=True)
class KernelDeclarations:
    """The declarations of a third-party kernel by which its results are judged. ``by`` is the entry point with the
    package that brought it; ``thresholds`` are tables by kinds of findings, as :mod:`conformance.user_files.thresholds`
    has them. ``expected_failures`` are the tables of its file, ``spills`` the lines about known spills."""

    by: str
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    expected_failures: tuple[Mapping[str, Any], ...] = ()
    spills: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunPart:
    """A part of a run that ended early. ``began`` is when it began, ``next_began`` when the next part did. The run had
    ``records`` of that many cases by then, which were kept; ``unfinished`` were under way when the part ended.
    ``unusable`` counts lines that could not be read, whose cases were judged again."""

    began: str
    next_began: str
    records: int
    unfinished: tuple[str, ...] = ()
    unusable: int = 0


@dataclass(frozen=True)
class RunInfo:
    """The contents of ``run.json``. ``wall_s`` is None until the run ended; ``problems`` are sentences about the run as
    a whole, such as records that are missing; ``gpus`` are the entries of the visible-devices list. ``bill`` names all
    that makes code, as :mod:`conformance.gate.runs.bill_of_materials` finds it. ``declared`` is by kernels' names.

    ``faults`` are all that went wrong, those of cases counted by kind, and ``exit_status`` is what pytest returned.
    ``proof`` counts the cases by level of proof, ``required`` is the level of ``--require``. ``reruns`` says how many
    failed cases were judged again, and why others were not. All five are None until the run ended, and in runs of older
    versions.

    ``shard`` is the part of a selection that the run had; None for all of it. ``merged`` names the shards of which
    ``conformance merge`` made the run; None if it was not merged. ``ray`` is the Ray cluster of the workers; None if
    they ran on one machine."""

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
    reruns: str | None = None
    shard: Shard | None = None
    merged: MergedShards | None = None
    parts: tuple[RunPart, ...] = ()
    ray: ClusterRecord | None = None
    schema: int = SCHEMA

    @property
    def fault_class(self) -> FaultClass | None:
        """The class that decided the exit status; None if all is well, or if the run did not say what went wrong."""
        return deciding(self.faults or ())


def _read(text: str | bytes, decode: Callable[[bytes], _Read]) -> _Read:
    """Returns what ``decode`` makes of the JSON ``text``. Older versions wrote lone surrogates, which msgspec refuses:
    they are replaced and ``text`` is decoded again. Raises :class:`RecordError`."""
    text = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    refuse_huge_integers(text)
    try:
        try:
            return decode(text)
        except msgspec.DecodeError:
            if b"\\ud" not in text:
                raise
            return decode(json.dumps(jsonable(parsed(text))).encode())
    except Exception as error:  # the short forms of schema 3 are expanded without a look at their types
        raise _unreadable(text, error) from None


class _SchemaOnly(msgspec.Struct):
    schema: int


_BEGINNING = b'{"schema":%d,' % SCHEMA
_decode_schema = msgspec.json.Decoder(_SchemaOnly).decode
_decode_record = msgspec.json.Decoder(CaseRecord).decode
_decode_run = msgspec.json.Decoder(RunInfo).decode


def schema_of(line: bytes) -> int:
    """Returns the schema of a record's ``line``. Raises an error of msgspec's."""
    return _decode_schema(line).schema


def _record(line: bytes) -> CaseRecord:
    schema = SCHEMA if line.startswith(_BEGINNING) else schema_of(line)
    if schema == short_forms.SCHEMA:
        return msgspec.convert(short_forms.expanded(msgspec.json.decode(line)), CaseRecord)
    if schema not in READABLE_SCHEMAS:
        raise ValueError("another schema")
    return _decode_record(line)


def _run(text: bytes) -> RunInfo:
    if schema_of(text) not in READABLE_SCHEMAS:
        raise ValueError("another schema")
    return dataclasses.replace(_decode_run(text), schema=SCHEMA)


def from_line(line: str | bytes) -> CaseRecord:
    """Returns the record on ``line``. Raises :class:`RecordError` that says what is wrong with it."""
    record = _read(line, _record)
    if record.status is Status.PASS:
        if record.failing:
            check, _ = record.failing[0]
            raise RecordError(f"case {record.case!r}: status pass, and the check {check!r} failed")
        if not record.verdicts:
            raise RecordError(f"case {record.case!r}: status pass, and nothing was judged: a pass needs a verdict")
    return record


def run_from_text(text: str | bytes) -> RunInfo:
    """Returns the run that ``text``, a ``run.json``, describes. Raises :class:`RecordError`."""
    return _read(text, _run)


def _unreadable(text: str | bytes, error: Exception) -> RecordError:
    """Says why ``text`` cannot be read: what is required and what is given there. ``error`` is the decoder's."""
    try:
        data = parsed(text)
    except (ValueError, RecursionError) as fault:
        return RecordError(f"not a line of JSON: {fault}")
    if not isinstance(data, dict):
        return RecordError(f"a JSON object is required, got {type(data).__name__}")
    if data.get("schema") not in READABLE_SCHEMAS:
        *earlier, last = map(str, READABLE_SCHEMAS)
        text = f"this version reads the schemas {', '.join(earlier)} and {last}"
        return RecordError(f"schema {data.get('schema')!r:.40}: {text}")
    return _unusable(data, error)


def _unusable(data: Any, error: Exception, within: str = "") -> RecordError:
    """Says what is required and what is given in ``data``, a JSON value. ``error`` is the decoder's; ``within`` is the
    field of ``data`` that was decoded, "" for all."""
    required, _, place = str(error).partition(" - at `$")
    required, place = required.partition(", got ")[0], (within + place.rstrip("`").partition("[...]")[0]).lstrip(".")
    value = data
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
