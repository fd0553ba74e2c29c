"""Describes what is wrong with a run as a whole: what makes it no answer, and what else speaks against it.

A run is no answer if it is unfinished, or if its machine or environment broke it.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.faults import Fault, FaultClass, FaultKind
from conformance.gate.runs.run_reader import ComparedRun
from conformance.gate.shortened_text import first_words
from conformance.records import CaseRecord

#: Characters of a text that are kept.
TEXT_LIMIT = 300


class CaseFaults:
    """Counts the cases of a run that its machine broke, by what broke."""

    def __init__(self) -> None:
        self._of_kind: dict[str, tuple[int, str, Fault]] = {}

    def add(self, record: CaseRecord | None) -> bool:
        """Counts ``record``; True if the machine, and not what is tested, is to blame for its failure."""
        fault = record.fault if record else None
        if record is None or fault is None or fault.fault_class is FaultClass.REGRESSION:
            return False
        count, first, of_first = self._of_kind.get(fault.kind, (0, record.case, fault))
        self._of_kind[fault.kind] = count + 1, first, of_first
        return True

    def faults(self) -> Iterator[Fault]:
        """One for each kind."""
        for count, first, fault in self._of_kind.values():
            cases = f"{count} case{'s' * (count > 1)}, first {first}"
            yield Fault(fault.fault_class, fault.kind, f"{cases}: {first_words(fault.text, TEXT_LIMIT)}")


def side_faults(side: ComparedRun, of_cases: CaseFaults) -> tuple[Fault, ...]:
    """All that makes ``side`` no answer, unfinished or broken; empty if its run is whole. Runs of older versions have
    no faults: their problems say the same without a class."""
    faults = dict.fromkeys(of_cases.faults())
    run, recorded = side.run, len(side.records)
    kinds = {fault.kind for fault in faults}
    for fault in run.faults or () if run else ():
        if fault.fault_class is not FaultClass.REGRESSION and fault.kind not in kinds:
            faults[Fault(fault.fault_class, fault.kind, first_words(fault.text, TEXT_LIMIT))] = None
    if run and run.faults is None:
        for problem in run.problems:
            faults[Fault.of(FaultKind.RECORDS, first_words(problem, TEXT_LIMIT))] = None
    if run and run.wall_s is None:
        faults[Fault.of(FaultKind.CUT_OFF, "the run did not end")] = None
    if side.problems:
        count = max(side.problem_count, 1)
        many = "1 problem" if count == 1 else f"{count} problems, the first"
        text = f"its records cannot be relied on: {many}: {first_words(side.problems[0], TEXT_LIMIT)}"
        faults[Fault.of(FaultKind.RECORDS, text)] = None
    if run and run.selected is not None and run.selected > recorded and not faults:
        text = f"{run.selected - recorded} of {run.selected} selected cases were not recorded"
        faults[Fault.of(FaultKind.RECORDS, text)] = None
    order = list(FaultClass)
    return tuple(sorted(faults, key=lambda fault: order.index(fault.fault_class)))


def failed_beside_cases(side: ComparedRun) -> list[str]:
    """Returns the texts of the regressions in the run of ``side`` other than failed cases. Examples are a kernel
    without a case, and a failed test that is no case."""
    faults = side.run.faults or () if side.run else ()
    return [
        first_words(fault.text, TEXT_LIMIT)
        for fault in faults
        if fault.fault_class is FaultClass.REGRESSION and fault.kind != FaultKind.FAILED
    ]


def unclassed_problems(side: ComparedRun) -> list[str]:
    """Returns the problems of the run of ``side`` that none of its faults names. In a run of an older version, which
    has no faults, :func:`side_faults` has all problems."""
    if side.run is None or side.run.faults is None:
        return []
    texts = {fault.text for fault in side.run.faults}
    return [first_words(problem, TEXT_LIMIT) for problem in side.run.problems if problem not in texts]
