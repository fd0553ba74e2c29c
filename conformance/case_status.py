"""Describes how a case ends: its status, the typed reason of a refusal or a skip, and the exceptions that end it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from conformance.faults import Fault


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
    """The executors of launches; each formats as its value. A later one shows more: the source, what the compiler made
    of it, and that on a device."""

    INTERPRETER = "interpreter"
    TTGIR = "ttgir"
    DEVICE = "device"

    __str__ = str.__str__


class ReasonCode(str, Enum):
    """The reasons for which a kernel or target cannot take a case. Every skip and every refusal carries one."""

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
    """A typed reason: ``code``, ``subject`` (an operand, option or capability) and a sentence. The sentence says what
    was given, what is required and what to do."""

    code: ReasonCode
    subject: str
    detail: str

    @property
    def name(self) -> str:
        """The code and the subject, such as "dtype (a)"."""
        return f"{self.code.value} ({self.subject})"

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


class ConformanceFailure(AssertionError):
    """A check of a case failed; the message is its diagnosis."""


class CompileFailure(Exception):
    """A case's kernel did not compile: ``status`` says how (compile-error, crash, timeout, oom). ``fault`` says that
    the machine is to blame; None if the compiler is."""

    def __init__(self, status: Status, message: str, fault: Fault | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.fault = fault
