"""Declarations of third-party kernels are in the evidence: who excused which case. Each case is checked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.commands import verify as command
from conformance.gate.evidence.archive import Rejected, RejectReason
from conformance.gate.evidence.pack import pack
from conformance.gate.evidence.statement import EXTENSION
from conformance.gate.evidence.verify import verify
from conformance.records import KernelDeclarations, Reason, ReasonCode, Status, from_line, jsonable
from conformance.user_files.expected_failures import parsed, recorded_entry, table_to_record
from tests.command_runs import call
from tests.gate.sample_bundles import CODE, Sample, sample

ENTRY = """
[[expected_failure]]
id = "vendor-skips"
cases = "*[vendor_mm-*"
stack = { triton = ">=3" }
seen = "numerics/randn"
upstream = "https://example.org/1"
owner = "vendor"
expires = 2099-01-01
targets = ["sm_*"]
checks = ["*"]
"""
BY = "entry point 'vendor_mm' (vendor_kernels:VENDOR_MM) of vendor 1.0"
EXCUSED = "test_a.py::test_b[vendor_mm-case-00002]"


def declared(text: str = ENTRY) -> KernelDeclarations:
    (entry,) = parsed(text, "known.toml")
    return KernelDeclarations(BY, {"SLOWER": {"share": 0.1}}, (table_to_record(entry),), ("vendor_mm bf16 a sm_90",))


def evidence_of(folder: Path, declarations: dict[str, KernelDeclarations], **changes: Any) -> Sample:
    """A run in which the third case failed as the entry of vendor_mm says, but for ``changes`` of its record."""
    bundle = sample(folder)
    lines = (bundle.folder / "records.jsonl").read_text().splitlines()
    reason = Reason(ReasonCode.KNOWN_DEFECT, "vendor-skips", "known")
    excused = {"case": EXCUSED, "kernel": "vendor_mm", "target": "sm_90", "diagnosis": "numerics/randn: FAIL"}
    record = replace(from_line(lines[2]), status=Status.EXPECTED_FAIL, reason=reason, **{**excused, **changes})
    lines[2] = record.to_line().rstrip("\n")
    (bundle.folder / "records.jsonl").write_text("".join(line + "\n" for line in lines))
    (bundle.folder / "selected.txt").write_text("".join(f"{from_line(line).case}\n" for line in lines))
    run = json.loads((bundle.folder / "run.json").read_text())
    run["declared"] = jsonable(declarations)
    (bundle.folder / "run.json").write_text(json.dumps(run))
    return replace(bundle, data=pack(bundle.folder, bundle.key, [], {}))


def test_an_entry_is_recorded_and_read_as_it_was():
    (entry,) = parsed(ENTRY, "known.toml")
    read = recorded_entry(json.loads(json.dumps(table_to_record(entry))), "vendor_mm", "run.json")
    assert (read.id, read.cases, read.stack, read.expires) == (entry.id, entry.cases, entry.stack, entry.expires)
    assert (read.targets, read.checks, read.file) == (entry.targets, entry.checks, "")


def test_evidence_names_who_excused_which_case(tmp_path, capsys):
    bundle = evidence_of(tmp_path, {"vendor_mm": declared()})
    policy = replace(bundle.policy, waivers=None, mustpass=None)
    predicate = verify(bundle.data, policy).statement["predicate"]
    assert predicate["result"] == "WARNED"
    assert predicate["warnedTests"] == [EXCUSED]
    assert predicate[EXTENSION]["declared"] == {"vendor_mm": {"by": BY, "excused": {"vendor-skips": [EXCUSED]}}}
    (tmp_path / "b.zip").write_bytes(bundle.data)
    assert call(command, tmp_path / "b.zip", "--key", tmp_path / "ours.pub.pem", "--code-digest", CODE) == 0
    assert (
        f"vendor_mm by {BY}: expected failure vendor-skips (https://example.org/1), owner vendor, until 2099-01-01, "
        f"excused 1 of its cases: {EXCUSED}, 1 lines of spills, thresholds of SLOWER"
    ) in capsys.readouterr().out


def test_a_run_without_declarations_has_the_statement_that_it_had(tmp_path):
    bundle = sample(tmp_path)
    assert "declared" not in verify(bundle.data, bundle.policy).statement["predicate"][EXTENSION]


@pytest.mark.parametrize(
    ("text", "changes", "says"),
    [
        (ENTRY, {"kernel": "mm"}, "which is of the kernel 'mm'"),
        (ENTRY, {"case": "test_a.py::test_b[mm-case-00002]"}, "which is not one of its cases"),
        (ENTRY, {"target": "gfx942"}, "which is not one of its cases"),
        (ENTRY, {"diagnosis": "numerics/hot: FAIL"}, "which lacks 'numerics/randn' in its diagnosis"),
        (ENTRY.replace('">=3"', '">=4"'), {}, "which is not one of its cases, targets and stacks"),
        (ENTRY.replace("2099", "2020"), {}, "and it expired on 2020-01-01"),
    ],
)
def test_a_case_that_an_entry_does_not_excuse_is_no_evidence(tmp_path, text, changes, says):
    with pytest.raises(Rejected) as refused:
        evidence_of(tmp_path, {"vendor_mm": declared(text)}, **changes)
    assert refused.value.reason is RejectReason.NOT_EXCUSED
    assert says in str(refused.value)


def test_an_entry_that_no_run_would_have_taken_is_refused(tmp_path):
    other = declared(ENTRY.replace("vendor_mm", "mm"))
    broken = replace(declared(), expected_failures=({"id": "a"},))
    twice = {"vendor_mm": declared(), "vendor_mm_two": declared(ENTRY.replace("vendor_mm", "vendor_mm_two"))}
    cases = {
        "a pattern with '[vendor_mm-' is required": {"vendor_mm": other},
        "run.json: vendor_mm: no expected failure: Object missing required field": {"vendor_mm": broken},
        "two expected failures are called 'vendor-skips'": twice,
    }
    for number, (says, declarations) in enumerate(cases.items()):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(Rejected) as refused:
            evidence_of(tmp_path / str(number), declarations)
        assert refused.value.reason is RejectReason.UNREADABLE
        assert says in str(refused.value)
