"""A target that is neither NVIDIA's nor AMD's ends in typed verdicts, and one without its backend is one line."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from conformance import codegen_checks
from conformance.commands import bundle, keygen, verify
from conformance.execution.compile.kernel_figures import read_resources
from conformance.proof_level import ProofLevel, proof_level
from conformance.records import CaseRecord, Status, read_records, read_run
from tests.command_runs import call
from tests.forked_python import executable

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(__file__).parent / "third_family"


def _python(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python in ``folder`` with the third vendor's backend and targets installed."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_"))}
    path = os.pathsep.join([str(PACKAGE), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**inherited, "PYTHONPATH": path, **variables}
    command = [executable(), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_target_without_its_backend_is_one_line(tmp_path: Path) -> None:
    done = _python(tmp_path, "-m", "conformance", "targets")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "absent" in line]
    assert "has no 'absent' backend, only amd, nvidia, third" in line
    assert ["third_1", "Third", "board"] in [line.split()[:3] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kernel", ["mm"])
def test_a_third_family_is_judged(tmp_path: Path, kernel: str) -> None:
    command = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "conformance.plugin", "--pyargs"]
    command += ["conformance.suites", "--no-gpu", "--tier", "quick", "--suite", "transposition", "--kernel", kernel]
    command += ["-k", "fp16", "--target", "third_1", "--run-dir", str(tmp_path / "run")]
    done = _python(tmp_path, *command)
    records = read_records(tmp_path / "run").records
    reasons = {str(record.reason) for record in records if record.status is Status.NOT_RUN}
    if reasons:
        pytest.skip(f"nothing can be judged without a device here: {reasons.pop()}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert records
    assert {record.status for record in records} == {Status.PASS}
    checks = {verdict.check for record in records for verdict in record.verdicts}
    assert {"codegen/requires/POINTER_STORE", "codegen/forbids/TMA_LOAD", "resources"} <= checks
    assert {record.observed["resources"]["source"] for record in records} == {"metadata"}


def test_a_feature_that_the_code_lacks_is_a_verdict(tmp_path: Path) -> None:
    """The planted fault: code of a third family that stores nothing."""
    from types import SimpleNamespace

    from conformance.targets import Target

    (tmp_path / "kernel.ttir").write_text("module {\n  tt.func public @kernel() {\n    tt.return\n  }\n}\n")
    artefact = SimpleNamespace(target_id="third_1", stages={"ttir": tmp_path / "kernel.ttir"}, resources=None)
    target = Target("third", 1, 32)
    required = [codegen_checks.POINTER_STORE, codegen_checks.MMA]
    verdicts = codegen_checks.check(artefact, target, requires=required)  # type: ignore[arg-type]
    assert [verdict.passed for verdict in verdicts] == [False, False]
    assert "third code has no such thing" in verdicts[[v.feature.name for v in verdicts].index("MMA")].text


def _evidence(folder: Path, capsys: pytest.CaptureFixture[str], faults: str) -> tuple[int, tuple[CaseRecord, ...], str]:
    """Runs the third vendor's compiler, wrong by ``faults``. Returns the exit status, the records, and what
    ``conformance verify`` says of the evidence."""
    command = ["-m", "conformance", "run", "-n", "0", "--no-gpu", "--tier", "quick", "--suite", "transposition"]
    command += ["--kernel", "mm", "-k", "fp16 and True", "--target", "third_1", "--run-dir=run"]
    done = _python(folder, *command, THIRD_BACKEND=faults)
    records = read_records(folder / "run").records
    assert records, done.stdout + done.stderr
    keys, archive = (folder / "private.pem", folder / "public.pem"), folder / "run.zip"
    call(keygen, *keys)
    call(bundle, folder / "run", "--key", keys[0], "--output", archive)
    capsys.readouterr()
    assert call(verify, archive, "--key", keys[1], "--allow-partial") == 0
    return done.returncode, records, capsys.readouterr().out


def test_a_compiler_that_drops_products_and_stores_fails_every_case(tmp_path, capsys):
    status, records, verified = _evidence(tmp_path, capsys, "deletes")
    assert status == 1
    assert {record.status for record in records} == {Status.FAIL}
    failed = {verdict.check for record in records for verdict in record.verdicts if not verdict.passed}
    assert failed
    assert all(check.startswith("executed/ttgir/") for check in failed)  # the source is right
    assert re.search(r"^result +FAILED$", verified, re.MULTILINE)


def test_a_wrong_compiler_that_hides_its_code_passes_by_the_source_only(tmp_path, capsys):
    status, records, verified = _evidence(tmp_path, capsys, "deletes,hides")
    assert status == 0
    assert {record.status for record in records} == {Status.PASS}
    assert {proof_level(record) for record in records} == {ProofLevel.INTERPRETED}
    assert re.search(r"^result +PASSED \(source only\)$", verified, re.MULTILINE)
    assert f"interpreter {len(records)} (source only: no compiled code was run)" in verified
    assert "PASSED (source only)" in (tmp_path / "run" / "summary.md").read_text()
    bill = read_run(tmp_path / "run").bill
    assert len(bill["backend third (third_backend) sha256"]) == 64
    assert bill["backend third (third_backend) hash()"] == "third-deletes-hides"


@pytest.mark.parametrize("stage", ["cubin", "hsaco"])
def test_a_binary_that_only_has_a_known_name_is_not_read(tmp_path: Path, stage: str) -> None:
    """Of a third family's binary the compiler's own record is all there is, whatever the binary's stage is called."""
    binary = tmp_path / f"kernel.{stage}"
    binary.write_bytes(b"of a third family")
    metadata = {"name": "kernel", "shared": 512, "num_warps": 4, "target": {"backend": "third", "arch": "a"}}
    used = read_resources({stage: binary}, metadata)
    assert (used.source, used.shared_memory) == ("metadata", 512)
