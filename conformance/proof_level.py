"""The level of proof of a case: on which kind of run its verdicts rest. Imports neither torch nor triton.

A level follows from the verdicts of a record. The executor's name alone shows nothing: a case that ended before its
launch has one, too.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum

from conformance.case_record import CaseRecord, Check, CheckKind
from conformance.case_status import ExecutorName, Status


class ProofLevel(IntEnum):
    """Says what judged a case; a higher level proves more. ``INTERPRETED`` judges the numbers of the source,
    ``EXECUTED`` those of compiled code, without a device."""

    NOTHING = 0
    COMPILED = 1
    INTERPRETED = 2
    EXECUTED = 3
    DEVICE = 4

    @property
    def words(self) -> str:
        """Returns the name of the level in comparisons, such as "TTGIR executed"."""
        return _WORDS[self]


_WORDS = ("neither compiled nor run", "compiled only", "interpreted", "TTGIR executed", "run on a device")
#: What a count of proofs calls each level, the highest first.
_PROVEN_BY = {
    ProofLevel.DEVICE: "device",
    ProofLevel.EXECUTED: "TTGIR",
    ProofLevel.INTERPRETED: "interpreter",
    ProofLevel.COMPILED: "compiled only",
    ProofLevel.NOTHING: "no kernel",
}
#: What a record observes of the most that its case can be proven by.
PROOF_LIMIT = "proves at most"
_EXECUTORS = frozenset(name.value for name in ExecutorName)  # one of a later version shows what is not known here
_EXECUTED = str(Check(CheckKind.EXECUTED, "ttgir"))
_OF_CODE = {CheckKind.REQUIRES, CheckKind.FORBIDS, CheckKind.CODEGEN, CheckKind.RESOURCES, CheckKind.SPILLS}
_NOT_RUN = {*_OF_CODE, CheckKind.COMPILE, CheckKind.EXECUTED, CheckKind.DIAGNOSIS}


def level_by(executor: str | None, checks: Collection[str]) -> ProofLevel:
    """The level of a case that ``executor`` ran, as its record says, and that has verdicts of ``checks``.

    >>> level_by("device", ["numerics/tie"]).name
    'DEVICE'
    """
    ran = executor in _EXECUTORS and any(map(_is_of_a_run, checks))
    if ran and executor == ExecutorName.DEVICE:
        return ProofLevel.DEVICE
    if executor == ExecutorName.TTGIR and any(map(is_ttgir_check, checks)):
        return ProofLevel.EXECUTED
    if ran:
        return ProofLevel.INTERPRETED
    return ProofLevel.COMPILED if any(map(_is_of_code, checks)) else ProofLevel.NOTHING


def proof_level(record: CaseRecord) -> ProofLevel:
    """Returns the level of ``record``, at most the level that its case says it can be proven by. A case that failed has
    the level of what judged it."""
    level = level_by(record.executor, [verdict.check for verdict in record.verdicts])
    return min(level, proof_limit(record, record.executor == ExecutorName.DEVICE))


def proof_limit(record: CaseRecord, on_device: bool) -> ProofLevel:
    """Returns the most that the case of ``record`` says it can be proven by, on a device or without one."""
    limit = record.observed.get(PROOF_LIMIT)
    if not isinstance(limit, Mapping):
        return ProofLevel.DEVICE
    key = "on a device" if on_device else "without a device"
    return ProofLevel.__members__.get(str(limit.get(key, "")).upper(), ProofLevel.DEVICE)


def ttgir_was_right(checks: Iterable[str], failing: Collection[str]) -> bool | None:
    """Returns the result of running the TTGIR for a case with verdicts of ``checks``, of which ``failing`` failed. It
    is True for a right one, False for a wrong one, and None if nothing says that it ran.

    >>> ttgir_was_right(["executed/ttgir"], failing=[])
    True
    >>> ttgir_was_right(["numerics/tie"], failing=[]) is None
    True
    """
    executed = [check for check in checks if is_ttgir_check(check)]
    return all(check not in failing for check in executed) if executed else None


@functools.lru_cache(maxsize=1 << 16)
def is_ttgir_check(check: str) -> bool:
    """Returns True if ``check`` judges a run of the TTGIR: its layouts alone are no run."""
    name = Check.parse(check).name
    return name == _EXECUTED or name.startswith(f"{_EXECUTED}/")


@functools.lru_cache(maxsize=1 << 16)
def _is_of_a_run(check: str) -> bool:
    return Check.parse(check).kind not in _NOT_RUN


@functools.lru_cache(maxsize=1 << 16)
def _is_of_code(check: str) -> bool:
    return Check.parse(check).kind in _OF_CODE


class ProofCount:
    """Counts cases that passed by their levels of proof."""

    def __init__(self, records: Iterable[CaseRecord] = ()) -> None:
        self._levels: Counter[ProofLevel] = Counter()
        for record in records:
            self.add(record)

    def add(self, record: CaseRecord) -> None:
        """Counts ``record`` if it passed."""
        if record.status is Status.PASS:
            self._levels[proof_level(record)] += 1

    def __getitem__(self, level: ProofLevel) -> int:
        return self._levels[level]

    @property
    def total(self) -> int:
        return sum(self._levels.values())

    @property
    def by_compiled_code(self) -> int:
        """Returns the number of cases that are proven by a run of compiled code."""
        return self._levels[ProofLevel.EXECUTED] + self._levels[ProofLevel.DEVICE]

    @property
    def reservation(self) -> str:
        """Returns the reservation that follows a result unless compiled code was run for every case that ran a kernel
        or compiled one. It is "source only" if no compiled code was run at all, or such as "24 of 60 cases source
        only"."""
        if not self.total:
            return ""
        source, compiled = self._levels[ProofLevel.INTERPRETED], self._levels[ProofLevel.COMPILED]
        if not self.by_compiled_code:
            return "source only" if source else "compiled only" if compiled else "no kernel was run"
        counts = {"source only": source, "compiled only": compiled}
        return ", ".join(f"{count} of {self.total} cases {name}" for name, count in counts.items() if count)

    def by_name(self) -> dict[str, int]:
        """Returns the number of cases of each level, by the names that texts use, the highest level first."""
        return {name: self._levels[level] for level, name in _PROVEN_BY.items()}

    def __str__(self) -> str:
        """Such as "device 0, TTGIR 24, interpreter 3 (source only: no compiled code was run)"."""
        notes = {
            ProofLevel.INTERPRETED: " (source only: no compiled code was run)",
            ProofLevel.NOTHING: " (such as choices and refusals)",
        }
        always = (ProofLevel.DEVICE, ProofLevel.EXECUTED, ProofLevel.INTERPRETED)
        return ", ".join(
            f"{name} {self._levels[level]}{notes.get(level, '') if self._levels[level] else ''}"
            for level, name in _PROVEN_BY.items()
            if self._levels[level] or level in always
        )
