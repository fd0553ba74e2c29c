"""The result of a self-test, as ``conformance selftest`` writes it and a bundle holds it: strict JSON of one schema."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from conformance.gate.evidence.archive import Rejected, RejectReason, decode_object, encode

SELFTEST_FILE = "selftest.json"


class FaultResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault: what was ``planted``, the ``expected`` and the ``observed`` status, and the ``check`` that saw it; ""
    if none did. ``passed`` of the ``innocent`` cases next to it passed. ``problems`` are sentences, none if it was
    contained and reported. ``not_run`` is the reason why it was not run, "" if it was. ``seconds`` are those of its
    case."""

    name: str
    planted: str
    expected: str
    observed: str = ""
    check: str = ""
    passed: int = 0
    innocent: int = 0
    problems: tuple[str, ...] = ()
    not_run: str = ""
    seconds: float = 0.0

    @property
    def contained(self) -> bool:
        """True if the fault was run, cost no more than its own case, and was reported as it must be."""
        return not self.not_run and not self.problems


class SelftestResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All faults of one self-test, in the order of the table. ``code_sha256`` is the digest of the harness, ``device``
    the GPU's name, "" without one. ``left_out`` are the faults that were not asked for; ``seconds`` is wall time."""

    schema: Literal[1]
    started: str
    seconds: float
    code_sha256: str
    stack: dict[str, str | None]
    device: str
    faults: tuple[FaultResult, ...]
    left_out: tuple[str, ...] = ()

    @property
    def contained(self) -> bool:
        """True if at least one fault was run, and each that was run was contained and reported."""
        run = [fault for fault in self.faults if not fault.not_run]
        return bool(run) and all(fault.contained for fault in run)

    def __str__(self) -> str:
        run = [fault for fault in self.faults if not fault.not_run]
        names = [fault.name for fault in run if not fault.contained]
        text = f"{len(run) - len(names)} of {len(run)} faults contained on {self.device or 'no GPU'}"
        text += f"; NOT CONTAINED: {', '.join(names)}" if names else ""
        not_run = len(self.faults) - len(run)
        text += f"; {not_run} not run" if not_run else ""
        return text + (f"; {len(self.left_out)} left out" if self.left_out else "")


def to_json(result: SelftestResult) -> bytes:
    """Returns the file of ``result``."""
    return encode(msgspec.to_builtins(result)) + b"\n"


def read_selftest(content: bytes, name: str = SELFTEST_FILE) -> SelftestResult:
    """Returns the result in ``content``, the file called ``name``. Raises :class:`Rejected` for anything that
    ``conformance selftest`` does not write."""
    data: dict[str, Any] = decode_object(content, name)
    try:
        json.dumps(data, ensure_ascii=False).encode()
        result = msgspec.convert(data, SelftestResult)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # a lone surrogate is no text
        raise Rejected(RejectReason.UNREADABLE, f"{name}: {error}; 'conformance selftest' writes such files") from None
    names = [fault.name for fault in result.faults]
    if len({*names, *result.left_out}) != len(names) + len(result.left_out):
        raise Rejected(RejectReason.UNREADABLE, f"{name} names a fault twice")
    for fault in result.faults:
        if not 0 <= fault.passed <= fault.innocent:
            counts = f"{fault.passed} of {fault.innocent}"
            raise Rejected(RejectReason.UNREADABLE, f"{name}: {fault.name[:80]}: {counts} innocent cases passed")
        if not (fault.not_run or fault.problems or fault.observed):
            raise Rejected(RejectReason.UNREADABLE, f"{name}: {fault.name[:80]} has no status and no problem")
    return result
