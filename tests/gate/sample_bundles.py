"""A small run's folder, the key pair that signs it and its bundle, for the tests of evidence."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.gate.evidence.pack import pack
from conformance.gate.evidence.signatures import PrivateKey, read_private_key, write_key_pair
from conformance.gate.evidence.verify import Policy
from conformance.gate.mustpass import mustpass_lists as mustpass
from conformance.gate.runs.run_environment import environment
from conformance.records import CaseRecord, Reason, ReasonCode, RunInfo, Status, Verdict, jsonable

STARTED = "2026-03-04T05:06:07+00:00"
STACK = {"torch": "2.13.0", "triton": "3.7.1", "ptxas": "12.8.93", "driver": None}
CODE = "c0de" * 16
WHEEL = {"version": "3.7.1", "record_sha256": "ab" * 32, "files": 9, "altered": [], "altered_files": 0}
STATUSES = (Status.PASS, Status.PASS, Status.FAIL, Status.NOT_APPLICABLE)


def record(number: int, status: Status, **fields: Any) -> CaseRecord:
    """A record of a case whose TTGIR was run, unless ``fields`` say otherwise."""
    reason = Reason(ReasonCode.DTYPE, "A", "not taken") if status is Status.NOT_APPLICABLE else None
    return CaseRecord(
        **{
            "case": f"test_a.py::test_b[case-{number:05}]",
            "suite": "a",
            "status": status,
            "reason": reason,
            "executor": "ttgir",
            "tier": "quick",
            "seed": 0,
            "stack": STACK,
            "verdicts": (
                Verdict("numerics/randn", status is Status.PASS, "bounded", {"worst_ratio": number / 7}),
                Verdict("executed/ttgir", status is Status.PASS, "right in 3 runs"),
            ),
            "durations": {"total": 0.25},
            **fields,
        }
    )


@functools.cache
def _this_machine() -> dict[str, Any]:
    return environment("sample", STARTED, STACK, ["NVIDIA H200"], ["-q", "--tier", "quick"])


def sample_environment(**changes: Any) -> dict[str, Any]:
    """A machine's environment that is the same wherever the tests run."""
    return {
        **_this_machine(),
        "distributions": {"triton": {**WHEEL, "is_imported": True}, "torch": None},
        "ptxas": [{"name": "ptxas", "path": "/usr/bin/ptxas", "sha256": "cd" * 32}],
        "code": {"sha256": CODE, "suites": []},
        "git": {"commit": "1" * 40, "dirty": False, "diff_sha256": None},
        "variables": {"TRITON_INTERPRET": "1"},
        **changes,
    }


def mustpass_list(info: RunInfo, records: Sequence[CaseRecord]) -> str:
    """The list of the cases that the run has, none of which names a target."""
    (listed,) = mustpass.lists_of(info, records)
    return mustpass.written(listed)


def write_run(
    folder: Path,
    statuses: tuple[Status, ...] = STATUSES,
    records: Sequence[CaseRecord] = (),
    bill: Mapping[str, str] | None = None,
    **changes: Any,
) -> Path:
    """A run's folder with ``records``, by default one of each status; ``changes`` are to its environment."""
    records = records or [record(number, status) for number, status in enumerate(statuses)]
    info = RunInfo("sample", STARTED, "quick", 0, stack=STACK, selected=len(records), wall_s=1.5, bill=bill or {})
    folder.mkdir(parents=True)
    (folder / "records.jsonl").write_text("".join(record.to_line() for record in records))
    (folder / "selected.txt").write_text("".join(record.case + "\n" for record in records))
    (folder / "run.json").write_text(json.dumps(jsonable(info), indent=1))
    (folder / "environment.json").write_text(json.dumps(sample_environment(**changes), indent=1))
    (folder / "summary.md").write_text("# A summary\n")
    (folder.parent / "waivers.toml").write_text("# nothing is waived\n")
    (folder.parent / "lists").mkdir(exist_ok=True)
    (folder.parent / "lists" / "baseline.txt").write_text(mustpass_list(info, records))
    return folder


@dataclass(frozen=True)
class Sample:
    """A run's folder with its bundle; ``waivers`` and ``mustpass`` lie next to it."""

    folder: Path
    key: PrivateKey
    other_key: PrivateKey
    data: bytes

    @property
    def files(self) -> Mapping[str, Path]:
        return {
            "waivers": self.folder.parent / "waivers.toml",
            "mustpass": self.folder.parent / "lists" / "baseline.txt",
        }

    @property
    def policy(self) -> Policy:
        """The policy of a verifier who has the same waivers and mustpass list."""
        held = {name: {path.name: path.read_bytes()} for name, path in self.files.items()}
        return Policy(self.key.public_key, (CODE,), held["waivers"], held["mustpass"])

    def packed(self, folder: Path) -> bytes:
        return pack(folder, self.key, [self.files["waivers"]], {"baseline.txt": self.files["mustpass"]})


def key_pair(folder: Path, name: str) -> PrivateKey:
    write_key_pair(folder / f"{name}.pem", folder / f"{name}.pub.pem")
    return read_private_key(folder / f"{name}.pem")


def sample(folder: Path, **changes: Any) -> Sample:
    """A new sample below ``folder``, with the key files ``ours`` and ``theirs``."""
    unpacked = Sample(
        write_run(folder / "sample", **changes), key_pair(folder, "ours"), key_pair(folder, "theirs"), b""
    )
    return replace(unpacked, data=unpacked.packed(unpacked.folder))
