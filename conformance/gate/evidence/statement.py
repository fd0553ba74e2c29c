"""The in-toto statement about a run: https://in-toto.io/attestation/test-result/v0.1 in a Statement v1.

A statement is a function of the bundle's other members alone, so a verifier computes it again and compares.

The declarations of third-party kernels, and the cases that their expected failures excused, are here too.

The run recorded the entries. So a verifier sees who excused which case and why, and checks each case against its entry
without the kernel's package.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from conformance.gate.evidence.archive import Rejected, RejectReason
from conformance.gate.evidence.contents import MUSTPASS, SELECTED_FILE, WAIVERS, Contents
from conformance.gate.evidence.options import check_options
from conformance.gate.runs.bill_of_materials import backend_digests
from conformance.gate.runs.run_environment import ENVIRONMENT_FILE
from conformance.gate.shards.union import code_digests
from conformance.plain_json import TEXT_LIMIT
from conformance.proof_level import ProofCount
from conformance.records import RECORDS_FILE, RUN_FILE, CaseRecord, ReasonCode, RunInfo, Status
from conformance.user_files.expected_failures import ExpectedFailure, recorded_entry
from conformance.user_files.toml_entries import EntryError


@dataclass(frozen=True)
class Excused:
    """An expected failure that ``kernel`` declared, with the ids of the ``cases`` of the run that it excused."""

    kernel: str
    entry: ExpectedFailure
    cases: tuple[str, ...]


def excused(contents: Contents) -> list[Excused]:
    """Returns every expected failure that a kernel declared for the run, in the order of the kernels' names. Raises
    :class:`Rejected` for an entry that cannot be used, and for a case that its entry does not excuse."""
    entries: dict[str, tuple[str, ExpectedFailure]] = {}
    for kernel, declared in sorted(contents.run.declared.items()):
        for table in declared.expected_failures:
            try:
                entry = recorded_entry(table, kernel, f"{RUN_FILE}: {kernel}")
            except EntryError as error:
                raise Rejected(RejectReason.UNREADABLE, str(error)) from None
            if entries.setdefault(entry.id, (kernel, entry))[1] is not entry:
                raise Rejected(
                    RejectReason.UNREADABLE, f"{RUN_FILE}: two expected failures are called {entry.id!r:.80}"
                )
    cases: Mapping[str, list[str]] = {name: [] for name in entries}
    for record in contents.records:
        reason = record.reason
        if record.status is not Status.EXPECTED_FAIL or reason is None or reason.code is not ReasonCode.KNOWN_DEFECT:
            continue
        if reason.subject in entries:
            _check(record, *entries[reason.subject], contents.run.started)
            cases[reason.subject].append(record.case)
    return [Excused(kernel, entry, tuple(sorted(cases[name]))) for name, (kernel, entry) in entries.items()]


def _check(record: CaseRecord, kernel: str, entry: ExpectedFailure, started: str) -> None:
    """Raises :class:`Rejected` unless ``entry`` of ``kernel`` excuses the case of ``record``."""
    if record.kernel not in (None, kernel):
        problem = f"is of the kernel {record.kernel!r:.80}"
    elif not entry.concerns(record):
        problem = "is not one of its cases, targets and stacks"
    elif entry.seen not in record.diagnosis and len(record.diagnosis) < TEXT_LIMIT:  # a longer one was cut
        problem = f"lacks {entry.seen!r:.80} in its diagnosis"
    elif started[:10] > date.isoformat(entry.expires):
        problem = f"was run at {started!r:.40}, and it expired on {entry.expires}"
    else:
        return
    text = f"the expected failure {entry.id!r:.80} of {kernel} excuses {record.case!r:.200}, which {problem}"
    raise Rejected(RejectReason.NOT_EXCUSED, text)


STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
EXTENSION = "triton-conformance"  # the predicate's field for what test-result has no field for
SCHEMA = 3  # of that field
READABLE_SCHEMAS = (1, 2, 3)  # 1 called an expected failure "waived"; 1 and 2 did not say what proves the cases

#: The results that in-toto knows.
PASSED, WARNED, FAILED = "PASSED", "WARNED", "FAILED"

_UNREMARKABLE = (Status.NOT_APPLICABLE, Status.NOT_RUN)
_FAILED = tuple(status for status in Status if status not in (Status.PASS, Status.EXPECTED_FAIL, *_UNREMARKABLE))


def outcome_of(records: Sequence[CaseRecord], run: RunInfo) -> str:
    """``FAILED`` if a case failed, or if the run had a problem or recorded a fault; ``WARNED`` if a case failed as
    expected, if one was compiled and not run, or if none passed; else ``PASSED``. It does not say what proves the
    cases."""
    return outcome_by({record.status for record in records}, [run])


def outcome_by(statuses: Collection[Status], runs: Iterable[RunInfo]) -> str:
    """Returns the outcome of all ``runs`` whose cases have these ``statuses``, as :func:`outcome_of` does of one."""
    if {*statuses} & {*_FAILED} or any(run.problems or run.faults for run in runs):
        return FAILED
    return WARNED if {*statuses} & {Status.EXPECTED_FAIL, Status.NOT_RUN} or Status.PASS not in statuses else PASSED


def result_of(records: Sequence[CaseRecord], run: RunInfo) -> str:
    """The outcome, with the cases that are not proven by compiled code, such as "PASSED (source only)"."""
    return qualified(outcome_of(records, run), ProofCount(records))


def qualified(outcome: str, proven: ProofCount) -> str:
    """Returns ``outcome`` with the cases that are not proven by compiled code."""
    return f"{outcome} ({proven.reservation})" if proven.reservation and outcome != FAILED else outcome


def build_statement(members: Mapping[str, bytes], contents: Contents, schema: int = SCHEMA) -> dict[str, Any]:
    """Returns the statement about ``members``, all but the envelope, with these ``contents``, in the words of
    ``schema``. A statement signed under an earlier schema is computed again under that schema. in-toto knows the
    results PASSED, WARNED and FAILED alone: one that :func:`result_of` qualifies is WARNED."""
    run, records, environment = contents.run, contents.records, contents.environment
    outcome, result = outcome_of(records, run), result_of(records, run)
    proof = {} if schema < 3 else {"result": result, "proven_by": ProofCount(records).by_name()}
    listed = [
        {"name": name, "size": len(content), "sha256": sha256(content)} for name, content in sorted(members.items())
    ]
    checked = check_options(environment["options"], environment["variables"])
    code = list(code_digests(environment))
    return {
        "_type": STATEMENT_TYPE,
        "subject": _subjects(members, environment, {} if schema < 3 else run.bill),
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "result": outcome if schema < 3 or outcome == result else "WARNED",
            "configuration": [*_configuration(members), {"name": "code", "annotations": {"sha256": code}}],
            "passedTests": sorted(record.case for record in records if record.status is Status.PASS),
            "warnedTests": sorted(record.case for record in records if record.status is Status.EXPECTED_FAIL),
            "failedTests": sorted(record.case for record in records if record.status in _FAILED),
            EXTENSION: {
                "schema": schema,
                **proof,
                "run": run.id,
                "started": run.started,
                "tier": run.tier,
                "targets": list(run.targets),
                "seed": run.seed,
                "options": environment["options"],
                "partial": list(checked.narrowing),
                "selected": len(contents.selected),
                "statuses": dict(Counter(_status_name(record.status, schema) for record in records)),
                "code_sha256": code,
                "members": listed,
                **_shards(contents.run),
                **_parts(contents.run),
                **_declared(contents),
                **_selftest(contents),
            },
        },
    }


def _shards(run: RunInfo) -> dict[str, Any]:
    """Returns the shards of a merged run with the digests of their records and of their common plan, or the part that a
    run had; empty for a whole run."""
    if run.merged is not None:
        shards = [
            {"number": one.number, "run": one.run, "cases": one.cases, "records_sha256": one.records}
            for one in run.merged.shards
        ]
        return {"plan_sha256": run.merged.digest, "shards": shards, "mixed_devices": run.merged.mixed_devices}
    if run.shard is not None:
        return {"plan_sha256": run.shard.digest, "shard": str(run.shard)}
    return {}


def _parts(run: RunInfo) -> dict[str, Any]:
    """Returns the parts of a run that ended early and went on, before the last one; empty for any other run."""
    parts = [
        {"began": part.began, "records": part.records, "under_way": list(part.unfinished), "unusable": part.unusable}
        for part in run.parts
    ]
    return {"parts": parts} if parts else {}


def _declared(contents: Contents) -> dict[str, Any]:
    """Returns the declarations of third-party kernels, by the kernels' names: who made them, and the cases that each of
    their expected failures excused. Empty if none did: so are the statements of versions that did not record it."""
    cases: dict[str, dict[str, list[str]]] = {kernel: {} for kernel in sorted(contents.run.declared)}
    for one in excused(contents):
        cases[one.kernel][one.entry.id] = list(one.cases)
    by_kernel = {kernel: {"by": contents.run.declared[kernel].by, "excused": cases[kernel]} for kernel in cases}
    return {"declared": by_kernel} if by_kernel else {}


def _selftest(contents: Contents) -> dict[str, Any]:
    """Returns what the self-test in the bundle showed, by the names of the faults; empty without one."""
    result = contents.selftest
    if result is None:
        return {}
    outcomes: dict[str, list[str]] = {"contained": [], "not_contained": [], "not_run": [], "left_out": []}
    for fault in result.faults:
        outcome = "not_run" if fault.not_run else "contained" if fault.contained else "not_contained"
        outcomes[outcome].append(fault.name)
    outcomes["left_out"] = list(result.left_out)
    return {"selftest": {"started": result.started, "device": result.device, **outcomes}}


def _status_name(status: Status, schema: int) -> str:
    return "waived" if schema == 1 and status is Status.EXPECTED_FAIL else status.value


def sha256(content: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _subjects(
    members: Mapping[str, bytes], environment: Mapping[str, Any], bill: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Returns the subjects of the statement: what was tested, as far as its digest is known, and the records. A wheel
    is named by the digest of its list of files, and a backend of Triton by that of its files; these are none of
    in-toto's predefined algorithms and therefore have names of their own."""
    subjects = []
    for name, facts in sorted(environment["distributions"].items()):
        if facts is not None and facts.get("record_sha256"):
            digest = {"wheel_record_sha256": facts["record_sha256"]}
            subjects.append({"name": f"pkg:pypi/{name}@{facts.get('version')}", "digest": digest})
    for facts in environment["ptxas"]:
        subjects.append({"name": str(facts.get("name")), "digest": {"sha256": str(facts.get("sha256"))}})
    for name, files in backend_digests(bill).items():
        subjects.append({"name": name, "digest": {"backend_files_sha256": files}})
    return [*subjects, {"name": RECORDS_FILE, "digest": {"sha256": sha256(members[RECORDS_FILE])}}]


def _configuration(members: Mapping[str, bytes]) -> list[dict[str, Any]]:
    names = [name for name in sorted(members) if name.startswith((WAIVERS, MUSTPASS))]
    names = [ENVIRONMENT_FILE, RUN_FILE, SELECTED_FILE, *names]
    return [{"name": name, "digest": {"sha256": sha256(members[name])}} for name in names]
