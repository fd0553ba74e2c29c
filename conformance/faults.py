"""Describes what went wrong with a case or a run, by class: regression, infrastructure or unfinished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class FaultClass(str, Enum):
    """The class of a fault says who has to act. The first class that occurs decides the exit status of a run."""

    REGRESSION = "regression"  # what is tested failed: its code is wrong, crashes or does not compile
    INFRASTRUCTURE = "infrastructure"  # the machine or its environment failed: mend it and run again
    UNFINISHED = "unfinished"  # the run ended before its last case: the rest is unknown


class FaultKind(str, Enum):
    """Says what broke. Each kind belongs to one class; a new kind of fault is a new member, and changes no exit status.
    Records hold the value as text, so that a reader of an older version takes one that it does not know."""

    FAILED = "failed"  # a case failed, crashed, hung or did not compile
    OTHER_TEST = "other-test"  # a test that is no case failed, or a fixture that cases share
    UNJUDGED_KERNEL = "unjudged-kernel"  # a kernel of an installed package has no case, or refuses all
    KILLED = "killed"  # a process was ended or stopped from outside, as by the OOM killer
    DISK_FULL = "disk-full"  # a disk or a quota takes no more
    FILES = "files"  # a cache, a folder or a file cannot be used: it is a file, or not readable, or gone
    CACHE_SUSPECT = "cache-suspect"  # a cache holds another kernel than a compilation in an empty folder makes
    LIMIT = "limit"  # a limit of the system was reached: open files, processes, memory, the size of a file
    PROCESS = "process"  # a process of the harness did not start, or was lost
    DEVICE = "device"  # a GPU that should be there cannot be used
    DEVICE_SUSPECT = "device-suspect"  # a GPU fails a case that another one passes, or multiplies integers wrong
    RECORDS = "records"  # records are missing, damaged or double
    OUTPUT = "output"  # the standard output takes no more
    LESS_PROVEN = "less-proven"  # cases were proven by less than --require asks for
    HARNESS = "harness"  # the harness contradicts itself
    INTERRUPTED = "interrupted"  # Ctrl-C, or a signal that ends the run
    STOPPED = "stopped"  # -x, --maxfail or another plugin ended the run early
    CUT_OFF = "cut-off"  # the run's own process was killed

    @property
    def fault_class(self) -> FaultClass:
        """The class that this kind belongs to."""
        if self in (FaultKind.FAILED, FaultKind.OTHER_TEST, FaultKind.UNJUDGED_KERNEL):
            return FaultClass.REGRESSION
        if self in (FaultKind.INTERRUPTED, FaultKind.STOPPED, FaultKind.CUT_OFF):
            return FaultClass.UNFINISHED
        return FaultClass.INFRASTRUCTURE


@dataclass(frozen=True)
class Fault:
    """One thing that went wrong. ``kind`` is the value of a :class:`FaultKind`, or of a later version's; ``text`` is a
    sentence that says what broke and what to do."""

    fault_class: FaultClass
    kind: str
    text: str

    @classmethod
    def of(cls, kind: FaultKind, text: str) -> Fault:
        """Returns the fault of this ``kind``, with the class that the kind belongs to."""
        return cls(kind.fault_class, kind.value, text)

    def __str__(self) -> str:
        return f"{self.fault_class.value} ({self.kind}): {self.text}"


def deciding(faults: Iterable[Fault]) -> FaultClass | None:
    """The class of a run or of one side of a comparison: the first in the order of :class:`FaultClass` that occurs in
    ``faults``; None if nothing went wrong.

    >>> interrupted = Fault(FaultClass.UNFINISHED, "cut-off", "Ctrl-C")
    >>> deciding([interrupted, Fault(FaultClass.INFRASTRUCTURE, "disk-full", "no space left")]).value
    'infrastructure'
    """
    classes = {fault.fault_class for fault in faults}
    return next((fault_class for fault_class in FaultClass if fault_class in classes), None)
