"""The parts of a run's records that a verdict on it needs, small enough to hold a million of them.

Mustpass lists, claims and waivers look at a run's cases in many orders. They need the outcome of each case, its stack
and target, and what failed; not its problem, its figures or the texts of what passed.

The assembler that each target of a run used is found from the records too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from conformance.records import CaseRecord, Status, Verdict

_NOTHING: Mapping[str, Any] = {}


def judged_records(records: Iterable[CaseRecord]) -> list[CaseRecord]:
    """``records`` without what no verdict looks at. Equal parts of different records are one object."""
    shared: dict[Any, Any] = {}

    def one(value: Any, key: Any = None) -> Any:
        return shared.setdefault(value if key is None else key, value)

    def shortened(record: CaseRecord) -> CaseRecord:
        checks = tuple((v.check, v.passed, "" if v.passed else v.text) for v in record.verdicts)
        verdicts = shared.get(checks)
        if verdicts is None:
            verdicts = one(tuple(one(Verdict(*check, _NOTHING), check) for check in checks), checks)
        return CaseRecord(
            case=record.case,
            suite=one(record.suite),
            status=record.status,
            reason=one(record.reason),
            kernel=one(record.kernel),
            options=_NOTHING,
            target=one(record.target),
            executor=one(record.executor),
            tier=one(record.tier),
            seed=record.seed,
            stack=one(record.stack, repr(record.stack)),
            durations=_NOTHING,
            verdicts=verdicts,
            observed=_NOTHING,
            artefacts=_NOTHING,
            diagnosis="" if record.status is Status.PASS else record.diagnosis,
            fault=one(record.fault),
        )

    return [shortened(record) for record in records]


_NVIDIA = re.compile(r"sm_(\d+)")
#: The first architecture that every release with two assemblers gives to ``ptxas-blackwell``, and the last that every
#: release gives to ``ptxas``. Of those between them only a record can tell.
_SECOND_FROM, _FIRST_UP_TO = 100, 89


class UsedAssemblers:
    """The assemblers of one run by target, taken from its records. ``stack`` is the run's."""

    def __init__(self, stack: Mapping[str, Any]) -> None:
        self._stack = stack
        self._recorded: dict[str, set[str]] = {}

    def add(self, record: CaseRecord | None) -> None:
        """Notes the assembler of ``record``'s code."""
        if record is not None and record.target is not None and record.figures.resources is not None:
            versions = self._recorded.setdefault(record.target, set())
            if record.figures.code is not None and record.figures.code.assembler:
                versions.add(record.figures.code.assembler)

    def by_target(self) -> dict[str, str]:
        """The assembler of each target for which something was compiled and one is known, such as "ptxas 12.9.86"."""
        by_target = {
            target: ", ".join(sorted(versions)) or self._of_stack(target) for target, versions in self._recorded.items()
        }
        return {target: f"ptxas {version}" for target, version in sorted(by_target.items()) if version}

    def _of_stack(self, target: str) -> str | None:
        """The assembler of a run whose records do not say it; None where releases of Triton differ."""
        match = _NVIDIA.fullmatch(target)
        if match is None:
            return None
        first, second = (self._stack.get(name) for name in ("ptxas", "ptxas-blackwell"))
        if second is None or first == second or int(match[1]) <= _FIRST_UP_TO:
            return str(first) if first else None
        return str(second) if int(match[1]) >= _SECOND_FROM else None
